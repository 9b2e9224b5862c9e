//! How fast Pods are placed on a real API server, beside the fastest anybody could be and beside the stock scheduler.
//!
//! ```text
//!   stage: control plane, simulated nodes, Pods that wait
//!     contender (operator | raw loop | kube-scheduler) --writes--> API server --one watch--> first to last bind
//! ```
//!
//! Pods are there before a contender begins, so that all have the same work. Contenders alternate, and medians count.

mod process;
mod raw;
mod report;
mod stage;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use process::{cpu_secs, load, peak_rss_mib};
use raw::Writes;
use report::{Report, Target, median, percentile};
use serde_json::json;
use stage::{GPUS, NAMESPACE, Shape, Sight, Stage, until};
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

const SINGLES: Shape = Shape { name: "singles", together: 1, claims: false };
const GANGS: Shape = Shape { name: "gangs", together: 16, claims: false };
const ONE_GANG: Shape = Shape { name: "one-gang", together: 0, claims: false };
const CLAIMS: Shape = Shape { name: "claims", together: 1, claims: true };
const IDLE: Duration = Duration::from_secs(30);
const LENDER: &str = "berth-lender";
const OWNER: &str = "berth-owner";

/// Measures how fast Pods are placed.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Simulated nodes, of eight GPUs each; as many Pods are placed as there are GPUs.
    #[arg(long, default_value_t = 1000)]
    nodes: u32,
    /// Runs of each contender with each shape.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// What to measure: singles, gangs, one-gang, claims, latency, idle, reclaim.
    #[arg(long, value_delimiter = ',', default_value = "idle,singles,gangs,one-gang,latency,reclaim,claims")]
    only: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The raw loop, which is started by the benchmark itself.
    Raw {
        #[arg(long)]
        kubeconfig: PathBuf,
        #[arg(long)]
        namespace: String,
        #[arg(long)]
        writes: Writes,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Berth,
    Raw,
    Stock,
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::Berth => "berth",
            Self::Raw => "raw",
            Self::Stock => "kube-scheduler",
        }
    }
}

/// One run of one contender.
#[derive(Debug)]
struct Run {
    pods_per_sec: f64,
    /// Milliseconds of processor time for each bound Pod.
    own_cpu: f64,
    api_cpu: f64,
    rss_mib: f64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(Command::Raw { kubeconfig, namespace, writes }) = arguments.command {
        return raw::run(&kubeconfig, &namespace, writes).await;
    }
    let wants = |part: &str| arguments.only.iter().any(|only| only == part);
    let mut report = Report::default();
    let mut best = None;
    if ["idle", "singles", "gangs", "one-gang", "latency", "reclaim"].into_iter().any(wants) {
        let stage = Stage::new(arguments.nodes, false).await?;
        if wants("idle") {
            idle(&stage, &mut report).await?;
        }
        for shape in [SINGLES, GANGS, ONE_GANG].into_iter().filter(|shape| wants(shape.name)) {
            let rate = compare(&stage, shape, arguments.runs, &mut report).await?;
            best = best.or(Some(rate));
        }
        if wants("latency") {
            let rate = best.unwrap_or(400.0) / 2.0;
            for contender in [Contender::Berth, Contender::Stock] {
                latency(&stage, contender, rate, &mut report).await?;
            }
        }
        if wants("reclaim") {
            reclaim(&stage, &mut report).await?;
        }
    }
    if wants("claims") {
        let stage = Stage::new(arguments.nodes, true).await?;
        compare(&stage, CLAIMS, arguments.runs, &mut report).await?;
    }
    report.print();
    report.save()?;
    println!("written to target/bench/summary.json; load now {}", load());
    Ok(())
}

fn look(sight: &Arc<Mutex<Sight>>) -> std::sync::MutexGuard<'_, Sight> {
    sight.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Contenders in turn; gives the rate of ours.
async fn compare(stage: &Stage, shape: Shape, runs: u32, report: &mut Report) -> Result<f64> {
    let mut contenders = vec![Contender::Berth, Contender::Raw];
    if shape == SINGLES {
        contenders.push(Contender::Stock);
    }
    let mut results: HashMap<&str, Vec<Run>> = HashMap::new();
    for number in 1..=runs {
        for contender in &contenders {
            let run = run(stage, shape, *contender, number).await?;
            results.entry(contender.name()).or_default().push(run);
        }
    }
    let of = |contender: Contender, field: fn(&Run) -> f64| {
        median(results[contender.name()].iter().map(field).collect())
    };
    let prefix = format!("kube/{}", shape.name);
    let rate = of(Contender::Berth, |run| run.pods_per_sec);
    let raw = of(Contender::Raw, |run| run.pods_per_sec);
    report.add(format!("{prefix}/berth"), rate, "pods/s", Target::None);
    report.add(format!("{prefix}/raw"), raw, "pods/s", Target::None);
    report.add(format!("{prefix}/of-raw"), 100.0 * rate / raw, "%", Target::AtLeast(85.0));
    let (own, api) = (of(Contender::Berth, |run| run.own_cpu), of(Contender::Berth, |run| run.api_cpu));
    report.add(format!("{prefix}/cpu"), own, "ms/pod", Target::None);
    report.add(
        format!("{prefix}/cpu-of-raw-loop"),
        of(Contender::Raw, |run| run.own_cpu),
        "ms/pod",
        Target::None,
    );
    report.add(format!("{prefix}/cpu-of-api-server"), api, "ms/pod", Target::None);
    report.add(format!("{prefix}/cpu-ratio"), 100.0 * own / api, "%", Target::AtMost(25.0));
    report.add(
        format!("{prefix}/rss"),
        of(Contender::Berth, |run| run.rss_mib),
        "MiB",
        Target::AtMost(200.0),
    );
    if shape == SINGLES {
        let stock = of(Contender::Stock, |run| run.pods_per_sec);
        report.add(format!("{prefix}/kube-scheduler"), stock, "pods/s", Target::None);
        report.add(format!("{prefix}/of-kube-scheduler"), 100.0 * rate / stock, "%", Target::AtLeast(100.0));
        let (own, rss) = (of(Contender::Stock, |run| run.own_cpu), of(Contender::Stock, |run| run.rss_mib));
        report.add(format!("{prefix}/kube-scheduler-cpu"), own, "ms/pod", Target::None);
        report.add(format!("{prefix}/kube-scheduler-rss"), rss, "MiB", Target::None);
    }
    report.save()?;
    Ok(rate)
}

async fn run(stage: &Stage, shape: Shape, contender: Contender, number: u32) -> Result<Run> {
    let count = stage.gpus;
    let scheduler = if contender == Contender::Stock { "default-scheduler" } else { "berth" };
    stage.make_pods(shape, NAMESPACE, count, scheduler).await?;
    let sight = stage.watch(NAMESPACE).await?;
    let writes = stage.writes().await?;
    let began = Instant::now();
    let api = stage.cpu_of("kube-apiserver");
    let mut started = match contender {
        Contender::Berth => Some(stage.operator("info")?),
        Contender::Raw => {
            Some(stage.raw(NAMESPACE, if shape.claims { Writes::Claims } else { Writes::Bind })?)
        }
        Contender::Stock => {
            tokio::task::block_in_place(|| stage.cluster.start_scheduler())?;
            None
        }
    };
    let pid = match &started {
        Some(started) => started.pid(),
        None => stage.pid("kube-scheduler")?,
    };
    let mut own = 0.0;
    until("every Pod is bound", async || {
        if let Some(started) = &mut started {
            started.check()?;
        }
        // The raw loop may have ended by the time its last binding is seen.
        own = f64::max(own, cpu_secs(pid));
        Ok(look(&sight).bound.len() == count as usize)
    })
    .await?;
    own = own.max(cpu_secs(pid));
    let api = stage.cpu_of("kube-apiserver") - api;
    let rss_mib = peak_rss_mib(pid);
    match (contender, started) {
        (Contender::Berth, Some(operator)) => operator.stop()?,
        (_, Some(mut raw)) => raw.wait()?,
        _ => tokio::task::block_in_place(|| stage.cluster.stop_scheduler())?,
    }
    let (first, last) = ends(&look(&sight).bound)?;
    let run = Run {
        pods_per_sec: f64::from(count) / (last - first).as_secs_f64(),
        own_cpu: 1000.0 * own / f64::from(count),
        api_cpu: 1000.0 * api / f64::from(count),
        rss_mib,
    };
    println!(
        "{} {} {number}: {:.0} pods/s ({:.1} s, the first after {:.1} s), {:.2} ms of CPU per Pod beside {:.2} of the API server, {:.0} MiB, load {}",
        shape.name,
        contender.name(),
        run.pods_per_sec,
        (last - first).as_secs_f64(),
        (first - began).as_secs_f64(),
        run.own_cpu,
        run.api_cpu,
        run.rss_mib,
        load(),
    );
    println!("  writes: {}", difference(&writes, &stage.writes().await?));
    stage.clear(NAMESPACE).await?;
    Ok(run)
}

fn ends(seen: &HashMap<String, Instant>) -> Result<(Instant, Instant)> {
    let first = seen.values().min().context("nothing was seen")?;
    let last = seen.values().max().context("nothing was seen")?;
    Ok((*first, *last))
}

fn difference(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> String {
    let changed = after.iter().filter_map(|(name, count)| {
        let more = count - before.get(name).unwrap_or(&0);
        (more > 0).then(|| format!("{name} {more}"))
    });
    changed.collect::<Vec<_>>().join(", ")
}

/// Processor time of an operator that has nothing to do.
async fn idle(stage: &Stage, report: &mut Report) -> Result<()> {
    let operator = stage.operator("info")?;
    wait_until_quiet(operator.pid()).await?;
    let before = cpu_secs(operator.pid());
    tokio::time::sleep(IDLE).await;
    let used = cpu_secs(operator.pid()) - before;
    println!("idle: {used:.2} s of CPU in {} s, load {}", IDLE.as_secs(), load());
    report.add("kube/idle", 100.0 * used / IDLE.as_secs_f64(), "%", Target::AtMost(1.0));
    report.add("kube/idle-rss", peak_rss_mib(operator.pid()), "MiB", Target::None);
    operator.stop()
}

/// Waits until a process has had a few seconds with hardly anything to do.
async fn wait_until_quiet(pid: u32) -> Result<()> {
    tokio::time::sleep(Duration::from_secs(5)).await;
    until("the operator is quiet", async || {
        let before = cpu_secs(pid);
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(cpu_secs(pid) - before <= 0.05)
    })
    .await
}

/// From created to bound, when Pods come at a steady rate.
async fn latency(stage: &Stage, contender: Contender, rate: f64, report: &mut Report) -> Result<()> {
    let scheduler = if contender == Contender::Stock { "default-scheduler" } else { "berth" };
    stage.wait_until_quiet().await?;
    let operator = match contender {
        Contender::Stock => {
            tokio::task::block_in_place(|| stage.cluster.start_scheduler())?;
            tokio::time::sleep(Duration::from_secs(5)).await;
            None
        }
        _ => Some(stage.operator("info")?),
    };
    if let Some(operator) = &operator {
        wait_until_quiet(operator.pid()).await?;
    }
    let sight = stage.watch(NAMESPACE).await?;
    let (began, lot) = (Instant::now(), stage.next_lot());
    let made = (0..stage.gpus).map(async |at| {
        let due = began + Duration::from_secs_f64(f64::from(at) / rate);
        tokio::time::sleep_until(due.into()).await;
        stage.make_pod(NAMESPACE, &stage::pod(SINGLES, lot, at, stage.gpus, scheduler)).await?;
        anyhow::Ok((stage::pod_name(lot, at), Instant::now()))
    });
    let created = futures_util::future::try_join_all(made).await?;
    let took = began.elapsed().as_secs_f64();
    until("every Pod is bound", async || Ok(look(&sight).bound.len() == created.len())).await?;
    let waits: Vec<f64> = {
        let sight = look(&sight);
        let wait = |(name, made): &(String, Instant)| {
            1000.0 * sight.bound[name].saturating_duration_since(*made).as_secs_f64()
        };
        created.iter().map(wait).collect()
    };
    let (half, most) = (percentile(waits.clone(), 0.5), percentile(waits, 0.99));
    println!(
        "latency {}: p50 {half:.1} ms, p99 {most:.1} ms at {:.0} created per second, load {}",
        contender.name(),
        f64::from(stage.gpus) / took,
        load()
    );
    let prefix = format!("kube/latency/{}", contender.name());
    report.add(format!("{prefix}/rate"), f64::from(stage.gpus) / took, "pods/s", Target::None);
    report.add(format!("{prefix}/p50"), half, "ms", Target::None);
    report.add(format!("{prefix}/p99"), most, "ms", Target::None);
    match operator {
        Some(operator) => operator.stop()?,
        None => tokio::task::block_in_place(|| stage.cluster.stop_scheduler())?,
    }
    stage.clear(NAMESPACE).await
}

/// Half of all GPUs are taken back from a project that borrowed all of them.
async fn reclaim(stage: &Stage, report: &mut Report) -> Result<()> {
    let half = stage.gpus / 2;
    stage.project("lender", LENDER, json!({ "quota": 0 })).await?;
    stage.project("owner", OWNER, json!({ "quota": 0, "weight": 0 })).await?;
    stage.change_project("bench", json!({ "quota": 0 })).await?;
    let gangs = Shape { name: "reclaim", together: GPUS, claims: false };

    stage.make_pods(SINGLES, LENDER, stage.gpus, "berth").await?;
    stage.raw(LENDER, Writes::Bind)?.wait()?;
    stage.wait_until_quiet().await?;
    let sight = stage.watch(LENDER).await?;
    stage.raw(LENDER, Writes::Evict)?.wait()?;
    until("half of the Pods are evicted", async || Ok(look(&sight).leaving.len() >= half as usize)).await?;
    let (first, last) = ends(&look(&sight).leaving)?;
    let raw = f64::from(half) / (last - first).as_secs_f64();
    stage.clear(LENDER).await?;

    stage.make_pods(SINGLES, LENDER, stage.gpus, "berth").await?;
    stage.raw(LENDER, Writes::Bind)?.wait()?;
    stage.make_pods(gangs, OWNER, half, "berth").await?;
    let operator = stage.operator("warn,berth_kube=debug")?;
    wait_until_quiet(operator.pid()).await?;
    let (sight, bound) = (stage.watch(LENDER).await?, stage.watch(OWNER).await?);
    let began = Instant::now();
    // Everything waits for this one change, so one plan decides all of it.
    stage.change_project("owner", json!({ "quota": half })).await?;
    until("every gang is bound", async || Ok(look(&bound).bound.len() == half as usize)).await?;
    let (first, last) = ends(&look(&sight).leaving)?;
    ensure!(look(&sight).leaving.len() == half as usize, "other Pods went than had to");
    let rate = f64::from(half) / (last - first).as_secs_f64();
    let all = ends(&look(&bound).bound)?.1 - began;
    let decided = decided_ms(&operator.log, u64::from(half))?;
    println!(
        "reclaim: {half} evictions decided in {decided:.1} ms, {rate:.0} evictions/s beside {raw:.0} of the raw loop, every gang bound after {:.1} s, load {}",
        all.as_secs_f64(),
        load()
    );
    report.add("kube/reclaim/decided", decided, "ms", Target::AtMost(50.0));
    report.add("kube/reclaim/evictions", rate, "1/s", Target::None);
    report.add("kube/reclaim/raw", raw, "1/s", Target::None);
    report.add("kube/reclaim/of-raw", 100.0 * rate / raw, "%", Target::AtLeast(85.0));
    report.add("kube/reclaim/bound-after", all.as_secs_f64(), "s", Target::None);
    operator.stop()?;
    stage.clear(LENDER).await?;
    stage.clear(OWNER).await
}

/// The time of the steps that decided so many evictions, from the words of the operator.
fn decided_ms(log: &Path, evictions: u64) -> Result<f64> {
    let text = fs::read_to_string(log)?;
    let (mut micros, mut counted, mut steps) = (0, 0, 0);
    for line in text.lines().filter(|line| line.contains("decided")) {
        let field = |name: &str| {
            let words = line.split_whitespace().filter_map(|word| word.split_once('='));
            words.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse::<u64>().ok())
        };
        if let Some(some) = field("evictions").filter(|some| *some > 0) {
            counted += some;
            micros += field("micros").unwrap_or(0);
            steps += 1;
        }
    }
    println!("  {counted} evictions were decided in {steps} steps");
    ensure!(counted == evictions, "{counted} evictions were decided instead of {evictions}");
    Ok(micros as f64 / 1000.0)
}
