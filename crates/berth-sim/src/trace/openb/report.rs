//! Runs of a policy over lists and seeds, compared with what was published.

use super::{
    Hosts, LISTS, PodList, baselines, engine,
    fgd::Fgd,
    proto::Proto,
    replay::{self, Curve, Ties},
};
use crate::{
    random::SplitMix64,
    trace::{
        progress::Progress,
        table::{Table, aligned},
    },
};
use anyhow::Context;
use berth_types::Name;
use serde_json::{Value, json};
use std::{
    ops::RangeInclusive,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// How nodes are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Placement {
    /// Any node (published)
    Random,
    /// Smallest dot product of request and free amounts (published)
    Dotprod,
    /// Nodes that host the same kind first (published)
    Clustering,
    /// Devices in use first (published)
    Packing,
    /// Least left over (published)
    Bestfit,
    /// Fragmentation gradient descent (published)
    Fgd,
    /// Berth's score alone, mix known
    Proto,
    /// Berth's score alone, mix learnt
    ProtoLearnt,
    /// The real engine, mix known
    Berth,
    /// The real engine, mix learnt
    BerthLearnt,
}

impl Placement {
    /// The name in the published table.
    fn published(self) -> Option<&'static str> {
        match self {
            Self::Random => Some("Random"),
            Self::Dotprod => Some("DotProd"),
            Self::Clustering => Some("Clustering"),
            Self::Packing => Some("Packing"),
            Self::Bestfit => Some("BestFit"),
            Self::Fgd => Some("FGD"),
            _ => None,
        }
    }

    /// Whether the harness is checked by it. The published text does not give the other formulas in full, so those are
    /// for orientation.
    fn checks_harness(self) -> bool {
        matches!(self, Self::Bestfit | Self::Fgd)
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Names of pod lists.
    pub lists: Vec<String>,
    /// Seeds.
    pub seeds: RangeInclusive<u64>,
    /// How nodes are chosen.
    pub placement: Placement,
    /// How ties are broken.
    pub ties: Ties,
}

/// The seeds of the published means.
pub const SEEDS: RangeInclusive<u64> = 42..=51;

/// A published mean of ten seeds is met within this, in points.
const TOLERANCE: f64 = 0.4;

/// Where the curve is printed.
const PERCENTS: [usize; 6] = [90, 95, 100, 110, 120, 130];

/// Unallocated percent of one list, mean of the seeds.
#[derive(Debug, Clone)]
pub struct ListResult {
    /// The pod list.
    pub list: String,
    /// What was published for this placement, or for FGD when the placement is ours.
    pub published: f64,
    /// At each of 90, 95, 100, 110, 120 and 130 percent arrived.
    pub unallocated: [f64; 6],
}

impl ListResult {
    /// At 100 percent arrived.
    pub fn at_100(&self) -> f64 {
        self.unallocated[2]
    }
}

/// Runs every list with every seed on two threads.
pub fn run(traces: &Path, experiment: &Experiment) -> anyhow::Result<Vec<ListResult>> {
    let hosts = Hosts::load(traces)?;
    let published = published(traces, experiment.placement.published().unwrap_or("FGD"))?;
    let lists = experiment
        .lists
        .iter()
        .map(|name| PodList::load(traces, name, &hosts.models))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let runs: Vec<(usize, u64)> =
        (0..lists.len()).flat_map(|list| experiment.seeds.clone().map(move |seed| (list, seed))).collect();
    let progress = Progress::new("openb", runs.len() as u64);
    let next = AtomicUsize::new(0);
    let curves = Mutex::new(Vec::new());
    let work = || -> anyhow::Result<()> {
        while let Some(&(list, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let curve = run_one(&hosts, &lists[list], seed, experiment)
                .with_context(|| format!("list {}, seed {seed}", experiment.lists[list]))?;
            curves.lock().expect("no run panics while it holds this").push((list, curve));
            progress.advance(1);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work().and(other.join().expect("a run panicked"))
    })?;
    let curves = curves.into_inner().expect("no run panicked");
    let mut results = Vec::new();
    for (index, name) in experiment.lists.iter().enumerate() {
        let of_list: Vec<&Curve> =
            curves.iter().filter(|(list, _)| *list == index).map(|(_, curve)| curve).collect();
        let mean = |percent: usize| {
            of_list.iter().filter_map(|curve| curve.unallocated_at(percent)).sum::<f64>()
                / of_list.len() as f64
        };
        let position = LISTS.iter().position(|list| list == name).context("unknown list")?;
        results.push(ListResult {
            list: name.clone(),
            published: published[position],
            unallocated: PERCENTS.map(mean),
        });
    }
    Ok(results)
}

fn run_one(hosts: &Hosts, list: &PodList, seed: u64, experiment: &Experiment) -> anyhow::Result<Curve> {
    let ties = experiment.ties;
    let rated = |rater: &mut dyn replay::Rater, ties| Ok(replay::run(hosts, list, seed, rater, ties));
    let formula = |formula| rated(&mut baselines::Formula(formula), ties);
    let models: Vec<Name> = hosts.models.iter().map(|model| Name::from(model.as_str())).collect();
    match experiment.placement {
        Placement::Random => rated(&mut baselines::AnyNode(SplitMix64::new(!seed)), Ties::Shuffled),
        Placement::Dotprod => formula(baselines::dot_product),
        Placement::Clustering => formula(baselines::clustering),
        Placement::Packing => formula(baselines::packing),
        Placement::Bestfit => formula(baselines::best_fit),
        Placement::Fgd => rated(&mut Fgd::new(list), ties),
        Placement::Proto => rated(&mut Proto::knowing(list, hosts), ties),
        Placement::ProtoLearnt => rated(&mut Proto::learning(hosts), ties),
        Placement::Berth => engine::run(hosts, list, seed, engine::mix(list, &models), ties),
        Placement::BerthLearnt => engine::run(hosts, list, seed, Vec::new(), ties),
    }
}

fn published(traces: &Path, policy: &str) -> anyhow::Result<Vec<f64>> {
    let table = Table::open(&traces.join("fgd-expected/summary_17x6.csv"))?;
    let rows = table.rows(&["trace", "policy", "unalloc_pct_at_100"])?;
    LISTS
        .iter()
        .map(|list| {
            let row =
                rows.iter().find(|row| row.text(0) == *list && row.text(1) == policy).with_context(|| {
                    format!("fgd-expected/summary_17x6.csv: expected a row for {list},{policy}")
                })?;
            row.value(2, "a percentage")
        })
        .collect()
}

/// What the results say: text, data, and whether they are as they should be.
#[derive(Debug)]
pub struct Report {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: Value,
    /// False if a published column was missed or a target of ours was not reached.
    pub good: bool,
}

/// Compares results with what was published and with Berth's targets.
pub fn report(experiment: &Experiment, results: &[ListResult]) -> Report {
    let mean =
        |value: &dyn Fn(&ListResult) -> f64| results.iter().map(value).sum::<f64>() / results.len() as f64;
    let difference = |result: &ListResult| result.at_100() - result.published;
    let worst = results.iter().map(|result| difference(result).abs()).fold(0.0, f64::max);
    let (ours, theirs) = (mean(&ListResult::at_100), mean(&|result| result.published));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for result in results {
        let mut row = vec![
            result.list.clone(),
            format!("{:.2}", result.published),
            format!("{:.2}", result.at_100()),
            format!("{:+.2}", difference(result)),
        ];
        row.extend(result.unallocated.iter().map(|value| format!("{value:.2}")));
        rows.push(row);
    }
    let column = match experiment.placement.published() {
        Some(_) => "published",
        None => "FGD",
    };
    let header = ["list", column, "ours", "difference", "at 90", "95", "100", "110", "120", "130"];
    let mut text =
        format!("Unallocated GPUs in percent, {:?}, seeds {:?}\n", experiment.placement, experiment.seeds);
    text += &aligned(&header, &rows);
    text += &format!("mean {ours:.3}, {column} {theirs:.3}, largest difference {worst:.2}\n");
    let mut good = true;
    let mut verdict = |name: &str, holds: bool| {
        good &= holds;
        text += &format!("{} {name}\n", if holds { "ok    " } else { "MISSED" });
    };
    if experiment.seeds != SEEDS {
        text += "not judged: the published means are of seeds 42..51\n";
    } else if experiment.placement.checks_harness() && experiment.ties == Ties::FixedOrder {
        verdict(&format!("published column met within {TOLERANCE} points"), worst <= TOLERANCE);
    } else if experiment.placement.published().is_none() {
        let default_max = if experiment.ties == Ties::Shuffled { 5.0 } else { 4.77 };
        if let Some(default) = results.iter().find(|result| result.list == "default") {
            verdict(&format!("default list at most {default_max}"), default.at_100() <= default_max);
        }
        if results.len() == LISTS.len() {
            verdict("mean of the 17 lists at most 6.39", ours <= 6.39);
        }
    }
    let json = json!({
        "experiment": "openb",
        "placement": format!("{:?}", experiment.placement).to_lowercase(),
        "seeds": [experiment.seeds.start(), experiment.seeds.end()],
        "shuffled_ties": experiment.ties == Ties::Shuffled,
        "lists": results.iter().map(|result| json!({
            "list": result.list,
            "reference": result.published,
            "unallocated_percent": PERCENTS.iter().zip(&result.unallocated)
                .map(|(percent, value)| (percent.to_string(), json!(value)))
                .collect::<serde_json::Map<_, _>>(),
        })).collect::<Vec<_>>(),
        "mean": ours,
        "reference_mean": theirs,
        "largest_difference": worst,
        "good": good,
    });
    Report { text, json, good }
}
