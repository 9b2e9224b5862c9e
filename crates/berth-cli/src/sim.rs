//! `berth sim`: scenarios and traces on a virtual cluster.

use anyhow::Context;
use berth_sim::{
    Faults, chart, read_policy,
    scenario::{self, Run, RunOptions, Scenario, Step},
    trace::{self, cli::TraceArgs},
};
use berth_types::Policy;
use clap::{Args, Subcommand};
use serde_json::json;
use std::{
    fmt::Write,
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// A scenario is a text somebody reads; more than this is something else.
const FILE_BYTES_MAX: u64 = 8 << 20;

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run scenarios and check what they expect
    Run(RunArgs),
    /// Replay public traces and compare with published results
    Trace(TraceArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 when everything expected holds, 1 when something does not, 2 when the input cannot be read.

Examples:
  berth sim run scenarios/tr4858.berth
  berth sim run scenarios/*.berth --verify
  berth sim run scenarios/tr4858.berth --svg usage.svg --explain
  berth sim run scenarios/tr4858.berth --faults all --seed 7 --verify
  berth sim run scenarios/tr4858.berth --json | jq '.runs[0].sections[].state.projects'

The language of scenarios is described in docs/scenarios.md.")]
pub(crate) struct RunArgs {
    /// Scenario files; `-` reads one from stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Draw the GPUs of each project over time into this file
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
    /// Where randomness starts; only faults use it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Check every state and plan against the rules of scheduling
    #[arg(long)]
    verify: bool,
    /// What goes wrong: `all`, or for example `node-loss=10m,late=20%,lost=10%,refused=5%,restart=5m`
    ///
    /// Also: `node-back=5m` until a lost node is back, `late-by=1m` the longest delay of news, `resend=30s` until a lost
    /// confirmation is sent again.
    #[arg(long, value_name = "FAULTS")]
    faults: Option<Faults>,
    /// Explain every waiting workload at the end of each section
    #[arg(long)]
    explain: bool,
    /// Settings of the scheduler, as TOML; `policy` lines of a scenario come on top
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Show where each workload is
    #[arg(short, long)]
    verbose: bool,
    /// Show nothing but what did not hold
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    quiet: bool,
}

pub(crate) fn run(command: SimCommand) -> anyhow::Result<ExitCode> {
    match command {
        SimCommand::Run(arguments) => run_scenarios(&arguments),
        SimCommand::Trace(arguments) => trace::cli::run(arguments),
    }
}

fn run_scenarios(arguments: &RunArgs) -> anyhow::Result<ExitCode> {
    let (scenarios, understood) = match load(arguments) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("berth: {error:#}");
            return Ok(ExitCode::from(super::MISUSED));
        }
    };
    if !understood {
        return Ok(ExitCode::from(super::MISUSED));
    }
    let options = RunOptions {
        seed: arguments.seed,
        verify: arguments.verify,
        faults: arguments.faults.clone().unwrap_or_default(),
        explain: arguments.explain,
    };
    let mut holds = true;
    let mut documents = Vec::new();
    for scenario in &scenarios {
        for warning in &scenario.warnings {
            match warning.line {
                0 => eprintln!("{}: warning: {}", scenario.file, warning.text),
                line => eprintln!("{}:{line}: warning: {}", scenario.file, warning.text),
            }
        }
        let run = scenario::run(scenario, &options);
        if arguments.json {
            documents.push(document(scenario, &run));
        } else if !arguments.quiet {
            super::write_data(transcript(scenario, &run, arguments.verbose).as_bytes())?;
        }
        report_unmet(scenario, &run, &options);
        holds &= run.holds();
        if let Some(path) = &arguments.svg {
            let svg = chart::draw(&run.world, &title(scenario));
            std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    if arguments.json {
        let mut text = serde_json::to_string_pretty(&json!({ "runs": documents }))?;
        text.push('\n');
        super::write_data(text.as_bytes())?;
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(super::FAILED) })
}

/// Reads all scenarios, so that all mistakes are shown at once. The second value says whether there were none.
fn load(arguments: &RunArgs) -> anyhow::Result<(Vec<Scenario>, bool)> {
    if arguments.svg.is_some() && arguments.files.len() > 1 {
        anyhow::bail!("--svg draws one scenario; {} files are named", arguments.files.len());
    }
    let policy = match &arguments.policy {
        None => Policy::default(),
        Some(path) => {
            let text = read(path)?;
            read_policy(&text).with_context(|| format!("{} is not a policy", path.display()))?
        }
    };
    let mut scenarios = Vec::new();
    let mut understood = true;
    for path in &arguments.files {
        let text = read(path)?;
        match Scenario::parse_with(&path.display().to_string(), &text, policy.clone()) {
            Ok(scenario) => scenarios.push(scenario),
            Err(problems) => {
                eprintln!("{problems}");
                understood = false;
            }
        }
    }
    Ok((scenarios, understood))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let context = || format!("cannot read {}", path.display());
    if path == Path::new("-") {
        std::io::stdin().take(FILE_BYTES_MAX).read_to_end(&mut bytes).with_context(context)?;
    } else {
        let file = std::fs::File::open(path).with_context(context)?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).with_context(context)?;
    }
    String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8 text", path.display()))
}

fn title(scenario: &Scenario) -> String {
    let path = Path::new(&scenario.file);
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    format!("{}: GPUs per project", stem.unwrap_or_else(|| scenario.file.clone()))
}

fn transcript(scenario: &Scenario, run: &Run, verbose: bool) -> String {
    let mut text = format!("{}\n", scenario.file);
    for section in &run.sections {
        if !section.title.is_empty() {
            let _ = write!(text, "\n== {} ==\n", section.title);
        }
        for step in &section.steps {
            let _ = match step {
                Step::Happened { text: line, .. } => writeln!(text, "{line}"),
                Step::Explained { text: lines, .. } => writeln!(text, "{}", indent(lines)),
                Step::Expected { text: expected, found: None, .. } if verbose => {
                    writeln!(text, "          holds: {expected}")
                }
                Step::Expected { text: expected, found: Some(found), .. } => {
                    writeln!(text, "          UNMET: expected {expected}, found {found}")
                }
                Step::Expected { .. } => Ok(()),
            };
        }
        let _ = write!(text, "\n{}", section.state.table());
        if verbose {
            let _ = write!(text, "\n{}", section.state.workload_table());
        }
    }
    let _ = writeln!(text, "\n{} of {} expectations hold", run.met, run.met + run.unmet.len());
    text
}

fn indent(lines: &str) -> String {
    let lines: Vec<String> = lines.lines().map(|line| format!("          {line}")).collect();
    lines.join("\n")
}

fn report_unmet(scenario: &Scenario, run: &Run, options: &RunOptions) {
    for problem in &run.unmet {
        eprintln!("{}:{}: {}", scenario.file, problem.line, problem.text);
    }
    for found in run.findings() {
        let at = berth_sim::report::clock(found.at);
        eprintln!(
            "{}: broken rule `{}` at {at} (seed {}): {}",
            scenario.file, found.rule, options.seed, found.text
        );
    }
}

fn document(scenario: &Scenario, run: &Run) -> serde_json::Value {
    let unmet: Vec<_> =
        run.unmet.iter().map(|problem| json!({ "line": problem.line, "text": problem.text })).collect();
    json!({
        "file": scenario.file,
        "holds": run.holds(),
        "met": run.met,
        "unmet": unmet,
        "findings": run.findings(),
        "sections": run.sections,
    })
}
