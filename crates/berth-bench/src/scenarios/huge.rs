//! A large installation: its first plan with everything waiting, then one event at a time.

use super::{Counts, mix::Mix};
use crate::{
    cluster::{MEASURED, STARTED},
    measure::{self, Measured, millis},
    report::{Curve, Report, Row},
};
use anyhow::{Context, Result, bail, ensure};
use berth_engine::Engine;
use berth_types::{Change, Phase, Plan, Policy, Span, TaskOutcome, Time};
use std::{
    process::Command,
    time::{Duration, Instant},
};

pub(crate) const NAME: &str = "huge";
pub(crate) const ABOUT: &str =
    "10,000 nodes, 1,000 projects, 60,000 running workloads, 100,000 waiting, mixed shapes";

/// Arrivals and completions measured after the first plan.
pub(crate) const EVENTS: usize = 20;

const SEED: u64 = 0xBE27;
const PROJECTS: usize = 1_000;
const FULL: Size = Size { nodes: 10_000, running: 60_000, waiting: 100_000 };
const FIRST_PLAN: &str = "huge/first_plan/time";
const ARRIVAL: &str = "huge/arrival/time";
const COMPLETION: &str = "huge/completion/time";
const PEAK_MEMORY: &str = "huge/peak_memory";
const FIRST_PLAN_MS: f64 = 2_000.0;
const ARRIVAL_MS: f64 = 2.0;
const COMPLETION_MS: f64 = 5.0;
const MEMORY_BYTES: f64 = (1u64 << 30) as f64;

/// A copy that takes longer than this is the last one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Effects are carried out and planned upon at most this often before nothing may be left to decide.
const ROUNDS_MAX: usize = 12;

/// How large the installation is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) running: usize,
    pub(crate) waiting: usize,
}

impl Size {
    /// So many nodes, with work as dense as at the full size.
    fn in_proportion(nodes: usize) -> Self {
        Self { nodes, running: FULL.running * nodes / FULL.nodes, waiting: FULL.waiting * nodes / FULL.nodes }
    }
}

/// What each step took.
pub(crate) struct Steps {
    /// Taking in all waiting workloads.
    submit: Duration,
    first: Measured,
    first_counts: Counts,
    running: usize,
    pub(crate) arrivals: Vec<Measured>,
    pub(crate) completions: Vec<Measured>,
    digest: Digest,
}

/// A number that is another when any decision is another, so that work on speed can show that it changed none.
#[derive(Clone, Copy)]
struct Digest(u64);

impl Digest {
    fn add(&mut self, plan: &Plan) {
        for byte in format!("{plan:?}").bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Steps {
    /// Milliseconds of the first plan, and of a plan after one arrival and after one completion.
    fn columns(&self) -> [f64; 3] {
        [
            self.first.total_ms(),
            median_and_worst(&self.arrivals).0.total_ms(),
            median_and_worst(&self.completions).0.total_ms(),
        ]
    }
}

/// Measures growing copies up to the full size, its memory in a process of its own, and the curves.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    let Some(full) = grow(report)? else { return Ok(()) };
    println!("  {} running before the first plan, which decided {:?}", full.running, full.first_counts);
    report.add(Row::new("huge/submit_all_waiting", millis(full.submit), "ms", None));
    let first_ms = full.first.total_ms();
    report.add(Row::new(FIRST_PLAN, first_ms, "ms", Some(FIRST_PLAN_MS)));
    report.add(Row::count("huge/first_plan/allocations", full.first.allocations, "count"));
    for (name, events, target) in
        [(ARRIVAL, &full.arrivals, ARRIVAL_MS), (COMPLETION, &full.completions, COMPLETION_MS)]
    {
        let (median, worst) = median_and_worst(events);
        report.add(Row::new(name, median.total_ms(), "ms", Some(target)));
        let of = |what: &str| name.replace("time", what);
        report.add(Row::new(of("worst"), worst.total_ms(), "ms", None));
        report.add(Row::count(of("allocations"), median.allocations, "count"));
        report.add(Row::count(of("allocated"), median.allocated_bytes, "bytes"));
    }
    report.add(Row::new(PEAK_MEMORY, memory_of_child()?, "bytes", Some(MEMORY_BYTES)));
    run_curves()
}

/// Nodes, running and waiting grow together. Ends early, and says so, when a copy takes so long that the next is not
/// worth waiting for.
fn grow(report: &mut Report) -> Result<Option<Steps>> {
    println!("  all in proportion");
    let mut curve = steps_curve("nodes");
    let mut full = None;
    for part in [64, 32, 16, 8, 4, 2, 1] {
        let size = Size::in_proportion(FULL.nodes / part);
        let start = Instant::now();
        let steps = measure(size).with_context(|| format!("with {} nodes", size.nodes))?;
        curve.add(size.nodes, &steps.columns());
        if part > 1 && start.elapsed() > PATIENCE {
            report.skip(&format!(
                "{NAME} above {} nodes, which took {:.0} s in all",
                size.nodes,
                start.elapsed().as_secs_f64()
            ));
            break;
        }
        full = (part == 1).then_some(steps);
    }
    println!("{curve}");
    if full.is_none() {
        report.add(Row::missed(FIRST_PLAN, "ms", FIRST_PLAN_MS));
        report.add(Row::missed(ARRIVAL, "ms", ARRIVAL_MS));
        report.add(Row::missed(COMPLETION, "ms", COMPLETION_MS));
        report.add(Row::missed(PEAK_MEMORY, "bytes", MEMORY_BYTES));
    }
    Ok(full)
}

fn steps_curve(size_name: &str) -> Curve {
    Curve::new(size_name, &["first plan ms", "arrival ms", "completion ms"])
}

fn run_curves() -> Result<()> {
    let small = Size { nodes: FULL.nodes, running: FULL.running / 8, waiting: FULL.waiting / 8 };
    let curve = |what: &str, sizes: [(usize, Size); 4]| -> Result<()> {
        let mut curve = steps_curve(what);
        for (at, size) in sizes {
            curve.add(at, &measure(size)?.columns());
        }
        println!("{curve}");
        Ok(())
    };
    let parts = [8, 4, 2, 1];
    println!("  by nodes, with {} running and {} waiting", small.running, small.waiting);
    curve(
        "nodes",
        parts.map(|part| {
            let nodes = FULL.nodes / part;
            (nodes, Size { nodes, ..small })
        }),
    )?;
    println!("  by running, with {} nodes and {} waiting", small.nodes, small.waiting);
    curve(
        "running",
        parts.map(|part| {
            let running = FULL.running / part;
            (running, Size { running, ..small })
        }),
    )?;
    println!("  by waiting, with {} nodes and {} running", FULL.nodes, FULL.running);
    curve(
        "waiting",
        parts.map(|part| {
            let waiting = FULL.waiting / part;
            (waiting, Size { waiting, ..FULL })
        }),
    )
}

/// The largest amount of memory this process ever held, after it went through the scenario once.
pub(crate) fn peak_memory_bytes() -> Result<u64> {
    measure(FULL)?;
    measure::peak_memory_bytes()
}

fn memory_of_child() -> Result<f64> {
    let output = Command::new(std::env::current_exe()?).args([NAME, "--memory"]).output()?;
    if !output.status.success() {
        bail!("measuring memory: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// One run of a cluster of this many nodes with work in proportion, for a profiler.
pub(crate) fn run_once(nodes: usize) -> Result<()> {
    let [first, arrival, completion] = measure(Size::in_proportion(nodes))?.columns();
    println!(
        "{NAME}/{nodes}: first plan {first:.3} ms, arrival {arrival:.3} ms, completion {completion:.3} ms"
    );
    Ok(())
}

/// The digest of all decisions on an installation of this many nodes that another seed draws.
pub(crate) fn print_digest(nodes: usize, seed: u64) -> Result<()> {
    let digest = measure_drawn(Size::in_proportion(nodes), seed)?.digest;
    println!("{NAME}/{nodes}, seed {seed}: {:016x}", digest.0);
    Ok(())
}

/// Goes through the scenario once.
pub(crate) fn measure(size: Size) -> Result<Steps> {
    measure_drawn(size, SEED)
}

fn measure_drawn(size: Size, seed: u64) -> Result<Steps> {
    let mut mix = Mix::new(seed, size.nodes, PROJECTS.min(size.nodes), size.running);
    let mut engine = Engine::new(Policy::default());
    for change in mix.installation() {
        engine.apply(&change)?;
    }
    let mut submitted = 0;
    for workload in mix.that_fit(size.running, STARTED) {
        engine.apply(&Change::Submitted(workload))?;
        submitted += 1;
    }
    settle(&mut engine, STARTED)?;
    let running = count_running(&engine);
    ensure!(
        running * 100 >= submitted * 97,
        "only {running} of {submitted} workloads run in a cluster that has room for all"
    );

    let submit = submit_waiting(&mut engine, &mut mix, size.waiting)?;
    let (first, plan) = measure::time(&mut engine, &[], MEASURED);
    let first_counts = Counts::of(&plan);
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    digest.add(&plan);
    ensure!(first_counts.starts > 0, "the first plan starts nothing");
    carry_out(&mut engine, &plan, MEASURED)?;
    settle(&mut engine, MEASURED)?;

    // Past the time after which the longest waiting get reservations, so that events meet those too.
    let mut now = MEASURED + Policy::default().reserve_after + Span::secs(60);
    settle(&mut engine, now)?;
    let mut arrivals = Vec::with_capacity(EVENTS);
    for _ in 0..EVENTS {
        now = now + Span::secs(1);
        settle(&mut engine, now)?;
        let arrival = [Change::Submitted(mix.workload(now))];
        let (measured, plan) = measure::time(&mut engine, &arrival, now);
        arrivals.push(measured);
        digest.add(&plan);
        carry_out(&mut engine, &plan, now)?;
    }
    let mut completions = Vec::with_capacity(EVENTS);
    for _ in 0..EVENTS {
        now = now + Span::secs(1);
        settle(&mut engine, now)?;
        let completion = [completion(&engine, &mut mix, now)];
        let (measured, plan) = measure::time(&mut engine, &completion, now);
        ensure!(!plan.actions.is_empty(), "a completion freed capacity and nothing that waits took it");
        completions.push(measured);
        digest.add(&plan);
        carry_out(&mut engine, &plan, now)?;
    }
    Ok(Steps { submit, first, first_counts, running, arrivals, completions, digest })
}

/// Submits everything that waits, and returns the time the engine took for it.
fn submit_waiting(engine: &mut Engine, mix: &mut Mix, count: usize) -> Result<Duration> {
    const AT_ONCE: usize = 1_000;
    let mut spent = Duration::ZERO;
    for from in (0..count).step_by(AT_ONCE) {
        let batch: Vec<Change> = (from..count.min(from + AT_ONCE))
            .map(|_| {
                let at = mix.moment_before(MEASURED, 500_000);
                Change::Submitted(mix.workload(at))
            })
            .collect();
        let start = Instant::now();
        for change in &batch {
            engine.apply(change)?;
        }
        spent += start.elapsed();
    }
    Ok(spent)
}

/// The end of some running workload of one task that has a whole GPU or more.
fn completion(engine: &Engine, mix: &mut Mix, at: Time) -> Change {
    loop {
        let workload = mix.any_workload();
        let places = engine.workload(workload).map(|workload| match &workload.phase {
            Phase::Running { tasks, .. } => &tasks[..],
            _ => &[],
        });
        if let Some([task]) = places
            && task.place.gpus() >= berth_types::Gpus::ONE
        {
            return Change::Ended { workload, rank: task.place.rank, outcome: TaskOutcome::Succeeded, at };
        }
    }
}

/// Plans and carries out until nothing is left to decide.
fn settle(engine: &mut Engine, now: Time) -> Result<()> {
    for _ in 0..ROUNDS_MAX {
        let plan = engine.plan(now);
        if plan.actions.is_empty() {
            return Ok(());
        }
        carry_out(engine, &plan, now)?;
    }
    bail!("after {ROUNDS_MAX} plans for one instant there is still something to decide");
}

/// What the world answers to a plan: who was told to leave is gone, who was told to start runs.
fn carry_out(engine: &mut Engine, plan: &Plan, at: Time) -> Result<()> {
    for action in &plan.actions {
        let id = action.workload();
        let Some(workload) = engine.workload(id) else {
            bail!("the plan speaks of workload {id}, which the engine does not know");
        };
        let starting = matches!(workload.phase, Phase::Running { confirmed: false, .. });
        let leaving: Vec<u32> = workload.leaving().iter().map(|place| place.rank).collect();
        for rank in leaving {
            engine.apply(&Change::Stopped { workload: id, rank, at })?;
        }
        if starting {
            engine.apply(&Change::Confirmed { workload: id })?;
        }
    }
    Ok(())
}

fn count_running(engine: &Engine) -> usize {
    let state = engine.state();
    state.workloads.values().filter(|workload| workload.is_running()).count()
}

fn median_and_worst(events: &[Measured]) -> (&Measured, &Measured) {
    let mut sorted: Vec<&Measured> = events.iter().collect();
    sorted.sort_by_key(|measured| measured.total());
    let worst = sorted.last().expect("at least one event is measured");
    (sorted[sorted.len() / 2], worst)
}
