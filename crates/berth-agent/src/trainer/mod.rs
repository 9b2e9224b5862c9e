//! The built-in trainer: a small model that is really trained, at most at 3 % of a core, for as long as one likes.
//!
//! It stands in for the images of the report's walk-through, so that everything can be tried on a machine without GPUs: it
//! prints like Keras, writes checkpoints, and goes on where it was when it is started again.

mod checkpoint;
mod model;
mod pace;

use checkpoint::Checkpoint;
use model::{BATCH, Model};
use pace::Pace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::{consts::SIGTERM, low_level::pipe::register};
use std::{
    ffi::OsString,
    io::{self, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

/// What shells say of a process that ended by SIGTERM: the training is not complete, and it was not its own fault.
const STOPPED: u8 = 128 + 15;
const BAR: usize = 30;
/// Lines per epoch, at least.
const UPDATES: u64 = 5;
/// A line comes at least this often, so that what it says is of the moment.
const UPDATE_EVERY: Duration = Duration::from_secs(5);

struct Options {
    epochs: u64,
    steps: u64,
    step_time: Duration,
    seed: u64,
    ignored: Vec<String>,
}

/// Runs the trainer. Options that it does not know are printed and ignored.
pub fn quickstart_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match train(&Options::parse(args)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("berth quickstart: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn parse(args: impl IntoIterator<Item = OsString>) -> Self {
        // About twenty minutes.
        let mut options = Self {
            epochs: 60,
            steps: 100,
            step_time: Duration::from_millis(200),
            seed: 1,
            ignored: Vec::new(),
        };
        let mut args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).peekable();
        while let Some(arg) = args.next() {
            let (name, mut value) = match arg.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.parse().ok()),
                None => (arg.clone(), None),
            };
            let known = matches!(name.as_str(), "--epochs" | "--steps" | "--step-time-ms" | "--seed");
            if known && value.is_none() && !arg.contains('=') {
                value = args.next_if(|next| next.parse::<u64>().is_ok()).and_then(|text| text.parse().ok());
            }
            match (name.as_str(), value) {
                ("--epochs", Some(value)) => options.epochs = value,
                ("--steps", Some(value)) => options.steps = value.max(1),
                ("--step-time-ms", Some(value)) => options.step_time = Duration::from_millis(value),
                ("--seed", Some(value)) => options.seed = value,
                _ => options.ignored.push(arg),
            }
        }
        options
    }
}

fn train(options: &Options) -> io::Result<ExitCode> {
    let (stop, sender) = UnixStream::pair()?;
    register(SIGTERM, sender)?;
    let mut out = io::stdout();
    introduce(options, &mut out)?;
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let rank = std::env::var("BERTH_RANK").ok().and_then(|rank| rank.parse::<u32>().ok()).unwrap_or(0);
    let file = variable("BERTH_CHECKPOINT_DIR").map(|folder| folder.join(format!("quickstart-{rank}.json")));
    let mark = variable("BERTH_CHECKPOINT_FILE");
    let mut model = Model::new(options.seed);
    let mut first = 0;
    if let Some(checkpoint) = file.as_deref().and_then(|file| Checkpoint::read(file, options.seed)) {
        first = checkpoint.epochs_done;
        model.set_weights(&checkpoint.weights);
        writeln!(out, "resumed from epoch {first}")?;
    }
    let save = |epochs_done: u64, model: &Model| -> io::Result<()> {
        let Some(file) = &file else { return Ok(()) };
        Checkpoint { seed: options.seed, epochs_done, weights: model.weights() }.write(file)?;
        mark.as_deref().map_or(Ok(()), touch)
    };
    let mut pace = Pace::new();
    let mut updated = Instant::now();
    for epoch in first..options.epochs {
        writeln!(out, "Epoch {}/{}", epoch + 1, options.epochs)?;
        let begun = Instant::now();
        for step in 0..options.steps {
            let step_begun = Instant::now();
            model.step(epoch * options.steps + step);
            // The rest of what it may compute goes into looking how good the model is.
            pace.compute(step_begun, options.step_time, || {
                std::hint::black_box(model.quality());
            });
            if wait_or_stop(&stop, options.step_time.saturating_sub(step_begun.elapsed()))? {
                // Steps of a begun epoch are done again; the epochs before it are not.
                save(epoch, &model)?;
                writeln!(
                    out,
                    "asked to stop in epoch {}, step {}; the checkpoint is written",
                    epoch + 1,
                    step + 1
                )?;
                return Ok(ExitCode::from(STOPPED));
            }
            let done = step + 1;
            let is_due = done.is_multiple_of((options.steps / UPDATES).max(1)) || done == options.steps;
            if is_due || updated.elapsed() >= UPDATE_EVERY {
                updated = Instant::now();
                let line = update(options, &model, epoch, done, begun.elapsed(), pace.utilisation());
                writeln!(out, "{line}")?;
                out.flush()?;
            }
        }
        save(epoch + 1, &model)?;
    }
    writeln!(out, "training is complete after {} epochs", options.epochs)?;
    Ok(ExitCode::SUCCESS)
}

fn introduce(options: &Options, out: &mut impl Write) -> io::Result<()> {
    if !options.ignored.is_empty() {
        writeln!(out, "arguments that mean nothing here: {}", options.ignored.join(" "))?;
    }
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let devices = variable("CUDA_VISIBLE_DEVICES");
    if !devices.is_empty() {
        let (share, memory) = (variable("BERTH_GPU_SHARE"), variable("BERTH_GPU_MEMORY_MIB"));
        writeln!(out, "devices: {devices} (share {share}, {memory} MiB of memory each)")?;
    }
    writeln!(out, "training {} epochs of {} steps", options.epochs, options.steps)
}

fn update(
    options: &Options,
    model: &Model,
    epoch: u64,
    done: u64,
    elapsed: Duration,
    utilisation: u8,
) -> String {
    let per_step = elapsed / u32::try_from(done).unwrap_or(u32::MAX);
    let filled = (done * BAR as u64 / options.steps) as usize;
    let arrow = if filled < BAR { ">" } else { "=" };
    let bar = format!("{}{arrow}{}", "=".repeat(filled.saturating_sub(1)), ".".repeat(BAR - filled.max(1)));
    let left = (options.epochs - epoch - 1) * options.steps + options.steps - done;
    let left = per_step.as_secs_f64() * left as f64;
    let eta = clock(left as u64);
    let width = options.steps.to_string().len();
    let (loss, accuracy) = model.quality();
    let throughput = done as f64 * BATCH as f64 / elapsed.as_secs_f64().max(1e-6);
    format!(
        "{done:width$}/{} [{bar}] - ETA: {eta} - loss: {loss:.4} - accuracy: {accuracy:.4} - {}ms/step - \
         {throughput:.1} samples/sec - utilisation: {utilisation}%",
        options.steps,
        per_step.as_millis()
    )
}

fn clock(secs: u64) -> String {
    format!("{}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60)
}

/// Idles for the rest of a step, and says whether the stop was asked for.
fn wait_or_stop(stop: &UnixStream, rest: Duration) -> io::Result<bool> {
    let until = Instant::now() + rest;
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        let rest = Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: i64::from(rest.subsec_nanos()) };
        match poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&rest)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn touch(file: &Path) -> io::Result<()> {
    std::fs::File::create(file)?.set_modified(std::time::SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Options {
        Options::parse(args.iter().map(OsString::from))
    }

    #[test]
    fn options_are_read_in_both_spellings_and_the_rest_is_ignored() {
        let options = parse(&[
            "python",
            "/netapp/run.py",
            "--epochs=3",
            "--steps",
            "7",
            "--batch=2",
            "--step-time-ms",
            "5",
        ]);
        assert_eq!((options.epochs, options.steps, options.step_time), (3, 7, Duration::from_millis(5)));
        assert_eq!(options.ignored, ["python", "/netapp/run.py", "--batch=2"]);
        assert_eq!(parse(&["--epochs", "many"]).ignored, ["--epochs", "many"]);
    }

    #[test]
    fn without_options_it_runs_for_about_twenty_minutes() {
        let options = parse(&[]);
        let secs = options.step_time.as_secs_f64() * (options.epochs * options.steps) as f64;
        assert!((1000.0..1400.0).contains(&secs));
    }

    #[test]
    fn what_it_prints_is_understood_as_progress() {
        let options = parse(&["--epochs=4", "--steps=10"]);
        let line = update(&options, &Model::new(1), 1, 4, Duration::from_secs(2), 92);
        let found = crate::progress::Parser::default().parse(line.as_bytes());
        let Some(crate::progress::Found::Progress(report)) = found else { panic!("{line}") };
        assert_eq!((report.step, report.steps), (Some(4), Some(10)), "{line}");
        assert_eq!(report.eta.map(|eta| eta.as_secs()), Some(13), "{line}");
        assert!(report.loss.is_some() && report.accuracy.is_some(), "{line}");
        assert_eq!((report.throughput.as_deref(), report.utilisation), (Some("32.0"), Some(92)), "{line}");
    }
}
