//! What a shim costs: the time from a request to a running process against a bare spawn, the memory of a shim, and the CPU it
//! takes to copy and read a flood of output. `cargo run --release -p berth-agent --example overhead`.

use berth_agent::{AgentConfig, Exit, Fact, Shutdown, TaskSpec, local, quickstart_main, shim_main};
use berth_types::Time;
use std::{
    io,
    process::{Command, ExitCode, Stdio},
    sync::mpsc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const COUNT: usize = 200;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|word| word.to_str()) {
        Some("shim") => return shim_main(args),
        Some("quickstart") => return quickstart_main(args),
        _ => {}
    }
    let folder = std::env::temp_dir().join(format!("berth-overhead-{}", std::process::id()));
    let measured = measure(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("overhead: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(folder: &std::path::Path) -> io::Result<()> {
    let bare = times(|| {
        let begun = Instant::now();
        let mut child = Command::new("true").stdout(Stdio::null()).spawn()?;
        let spawned = begun.elapsed();
        child.wait()?;
        Ok((spawned, begun.elapsed()))
    })?;
    show("bare spawn of `true`: spawned, ended", &bare);
    let (sender, facts) = mpsc::channel();
    let host = local(AgentConfig::new(folder, now), sender).map_err(io::Error::other)?;
    let mut number = 0;
    let through = times(|| {
        number += 1;
        let begun = Instant::now();
        host.ensure_started(spec(number, &["true"])?);
        let mut started = Duration::ZERO;
        for fact in &facts {
            match fact {
                Fact::Started { .. } => started = begun.elapsed(),
                Fact::Exited { exit: Exit::Code(0), .. } => break,
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
        Ok((started, begun.elapsed()))
    })?;
    show("through the agent and a shim: started told, exit told", &through);
    number += 1;
    let idle = spec(number, &["sleep", "1000"])?;
    let id = idle.id;
    host.ensure_started(idle);
    let _ = facts.recv();
    let shim: serde_json::Value =
        serde_json::from_slice(&std::fs::read(host.task_dir(id).join("shim.json"))?)?;
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", shim["pid"]))?;
    for line in rollup.lines().filter(|line| {
        line.starts_with("Rss") || line.starts_with("Pss:") || line.starts_with("Private_Dirty")
    }) {
        println!("an idle shim: {}", line.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    number += 1;
    let begun = Instant::now();
    let flood = spec(
        number,
        &[
            "bash",
            "-c",
            "yes 'step 120/400 - loss: 0.123 - accuracy: 0.9' | head -c 200000000; exec sleep 1000",
        ],
    )?;
    let id = flood.id;
    host.ensure_started(flood);
    let mut reader = host.log(id, berth_agent::LogStart::Offset(0)).or_else(|_| {
        let _ = facts.recv();
        host.log(id, berth_agent::LogStart::Offset(0))
    });
    let reader = reader.as_mut().map_err(|error| io::Error::other(error.to_string()))?;
    while reader.position() < 200_000_000 {
        if reader.read()?.is_none() {
            reader.wait(Duration::from_secs(5))?;
        }
    }
    let elapsed = begun.elapsed();
    let shim: serde_json::Value =
        serde_json::from_slice(&std::fs::read(host.task_dir(id).join("shim.json"))?)?;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", shim["pid"]))?;
    let fields: Vec<u64> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .filter_map(|text| text.parse().ok())
        .collect();
    println!(
        "a flood of 200 MB in {elapsed:?}: shim's CPU ticks (user, system) of 10 ms: {} {}",
        fields[10], fields[11]
    );
    host.shutdown(Shutdown::EndAll);
    Ok(())
}

fn times(
    mut once: impl FnMut() -> io::Result<(Duration, Duration)>,
) -> io::Result<Vec<(Duration, Duration)>> {
    (0..COUNT).map(|_| once()).collect()
}

fn show(what: &str, times: &[(Duration, Duration)]) {
    let of = |pick: fn(&(Duration, Duration)) -> Duration| {
        let mut all: Vec<Duration> = times.iter().map(pick).collect();
        all.sort_unstable();
        format!("median {:?} p95 {:?}", all[all.len() / 2], all[all.len() * 95 / 100])
    };
    println!("{what}: {}; {}", of(|(first, _)| *first), of(|(_, second)| *second));
}

fn now() -> Time {
    Time(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64))
}

fn spec(number: u64, command: &[&str]) -> io::Result<TaskSpec> {
    let spec = serde_json::json!({
        "id": format!("{number}.1.0"), "name": "job", "project": "a", "user": "u", "kind": "train", "node": "n",
        "runtime": "process", "image": "", "command": command, "args": [], "environment": {}, "working_dir": null,
        "mounts": [], "large_shm": false, "ports": [], "cpu": 0, "memory": 0, "devices": [], "workers": 1, "hosts": [],
        "run_as": null, "progress_pattern": null, "grace": 1000,
    });
    Ok(serde_json::from_value(spec)?)
}
