//! One run of the FGD experiment: pods arrive, the best-rated node takes each, nothing departs.

use super::{DEVICES_MAX, Hosts, PodList, Shape, WHOLE, shuffle};
use crate::random::SplitMix64;

/// What is free on a host, and what it has in all.
#[derive(Debug, Clone)]
pub struct NodeState {
    /// The model of its devices.
    pub model: u8,
    /// How many devices it has.
    pub gpus: u8,
    /// All of its CPU.
    pub cpu_total: u32,
    /// Free CPU.
    pub cpu: u32,
    /// Free memory.
    pub memory: u32,
    /// Free thousandths of each device; nothing beyond `gpus`.
    pub devices: [u32; DEVICES_MAX],
    /// How many pods with whole devices, shared devices, and without devices it hosts.
    pub hosted: [u16; 3],
}

impl NodeState {
    /// Free thousandths of all devices together.
    pub fn gpu_milli(&self) -> u32 {
        self.devices.iter().sum()
    }

    /// Whether a pod fits: CPU, memory, model, and enough devices with enough left.
    pub fn fits(&self, shape: &Shape) -> bool {
        shape.cpu_milli <= self.cpu
            && shape.memory_mib <= self.memory
            && (shape.gpus == 0
                || shape.accepts(self.model)
                    && self.devices.iter().filter(|&&free| free >= shape.share_milli).count()
                        >= usize::from(shape.gpus))
    }

    /// The state after a pod took these devices.
    pub fn after(&self, shape: &Shape, devices: u8) -> Self {
        let mut after = self.clone();
        after.cpu -= shape.cpu_milli;
        after.memory -= shape.memory_mib;
        for (index, free) in after.devices.iter_mut().enumerate() {
            if devices & (1 << index) != 0 {
                *free -= shape.share_milli;
            }
        }
        after
    }

    /// The tightest devices that fit, lowest index first on equality; as bits.
    pub fn tightest(&self, shape: &Shape) -> u8 {
        let mut taken = 0u8;
        for _ in 0..shape.gpus {
            let best = (0..DEVICES_MAX)
                .filter(|&index| taken & (1 << index) == 0 && self.devices[index] >= shape.share_milli)
                .min_by_key(|&index| self.devices[index]);
            taken |= 1 << best.expect("rated only where it fits");
        }
        taken
    }

    /// Every single device a shared pod fits on, one per distinct amount left, lowest index first.
    pub fn candidates(&self, shape: &Shape) -> impl Iterator<Item = u8> {
        (0..DEVICES_MAX)
            .filter(move |&index| {
                self.devices[index] >= shape.share_milli
                    && !self.devices[..index].contains(&self.devices[index])
            })
            .map(|index| 1u8 << index)
    }
}

/// How good a node is for a pod: smaller is better, compared left to right. And the devices it would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rating {
    /// Compared first.
    pub key: (i64, i64),
    /// Bits of the devices.
    pub devices: u8,
}

/// A way to rate nodes. Ratings are cached until the node changes, so they may depend on nothing else.
pub trait Rater {
    /// Rates a node on which the pod fits.
    fn rate(&mut self, node: &NodeState, shape: &Shape) -> Rating;

    /// Told of every arrival before it is placed. True if older ratings no longer hold.
    fn on_arrival(&mut self, _shape: &Shape) -> bool {
        false
    }
}

/// Unallocated GPU percent by arrived percent, averaged over the arrivals in each bin.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    sums: Vec<f64>,
    counts: Vec<u32>,
}

impl Curve {
    /// A curve up to 130 percent.
    pub fn new() -> Self {
        Self { sums: vec![0.0; 132], counts: vec![0; 132] }
    }

    /// Records where the run stands, all in thousandths of a GPU.
    pub fn record(&mut self, arrived: u64, allocated: u64, total: u64) {
        let bin = ((arrived * 200 + total) / (2 * total)) as usize;
        if let Some(sum) = self.sums.get_mut(bin) {
            *sum += 100.0 - 100.0 * allocated as f64 / total as f64;
            self.counts[bin] += 1;
        }
    }

    /// Unallocated percent when `percent` of the GPUs had been asked for.
    pub fn unallocated_at(&self, percent: usize) -> Option<f64> {
        (self.counts[percent] > 0).then(|| self.sums[percent] / f64::from(self.counts[percent]))
    }
}

impl Default for Curve {
    fn default() -> Self {
        Self::new()
    }
}

/// How ties between equally rated nodes are broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ties {
    /// By one order of nodes, drawn once for the run.
    FixedOrder,
    /// By a fresh order at every decision: what does not need luck with names loses nothing.
    Shuffled,
}

/// Arrivals are tuned to this share of all GPUs.
pub const TUNED_PERCENT: u64 = 130;

/// The empty nodes of a run in their tie order, and its arrivals. Both follow from the seed alone.
pub fn set_up(hosts: &Hosts, list: &PodList, random: &mut SplitMix64) -> (Vec<NodeState>, Vec<usize>) {
    let arrivals = list.arrivals(hosts.gpu_milli() * TUNED_PERCENT / 100, random);
    let mut nodes: Vec<NodeState> = hosts
        .hosts
        .iter()
        .map(|host| {
            let mut devices = [0; DEVICES_MAX];
            devices[..usize::from(host.gpus)].fill(WHOLE);
            NodeState {
                model: host.model,
                gpus: host.gpus,
                cpu_total: host.cpu_milli,
                cpu: host.cpu_milli,
                memory: host.memory_mib,
                devices,
                hosted: [0; 3],
            }
        })
        .collect();
    shuffle(&mut nodes, random);
    (nodes, arrivals)
}

/// Runs one seed.
pub fn run(hosts: &Hosts, list: &PodList, seed: u64, rater: &mut dyn Rater, ties: Ties) -> Curve {
    let mut random = SplitMix64::new(seed);
    let (mut nodes, arrivals) = set_up(hosts, list, &mut random);
    let total = hosts.gpu_milli();
    let (mut arrived, mut allocated) = (0, 0);
    let mut curve = Curve::new();
    let mut cache = RatingCache::new(list.shapes.len(), nodes.len());
    for shape_index in arrivals {
        let shape = &list.shapes[shape_index];
        if rater.on_arrival(shape) {
            cache.clear();
        }
        arrived += shape.gpu_milli();
        let ratings = cache.ratings(shape_index, shape, &nodes, rater);
        let best = match ties {
            Ties::FixedOrder => first_best(ratings),
            Ties::Shuffled => random_best(ratings, &mut random),
        };
        if let Some((node, rating)) = best {
            nodes[node] = nodes[node].after(shape, rating.devices);
            let kind = match (shape.gpus, shape.share_milli) {
                (0, _) => 2,
                (_, WHOLE) => 0,
                _ => 1,
            };
            nodes[node].hosted[kind] += 1;
            cache.changed(node);
            allocated += shape.gpu_milli();
        }
        curve.record(arrived, allocated, total);
    }
    curve
}

fn first_best(ratings: &[Option<Rating>]) -> Option<(usize, Rating)> {
    let mut best: Option<(usize, Rating)> = None;
    for (node, rating) in ratings.iter().enumerate() {
        if let Some(rating) = rating
            && best.is_none_or(|(_, best)| rating.key < best.key)
        {
            best = Some((node, *rating));
        }
    }
    best
}

fn random_best(ratings: &[Option<Rating>], random: &mut SplitMix64) -> Option<(usize, Rating)> {
    let mut best: Option<(usize, Rating)> = None;
    let mut equals = 0u64;
    for (node, rating) in ratings.iter().enumerate() {
        let Some(rating) = rating else { continue };
        match best {
            Some((_, known)) if rating.key > known.key => {}
            Some((_, known)) if rating.key == known.key => {
                equals += 1;
                if random.below(equals) == 0 {
                    best = Some((node, *rating));
                }
            }
            _ => {
                equals = 1;
                best = Some((node, *rating));
            }
        }
    }
    best
}

/// Ratings by shape and node. A node that changed is rated again only when a shape asks for it.
struct RatingCache {
    /// Per shape: how much of `log` its ratings take into account, and the ratings.
    shapes: Vec<(usize, Vec<Option<Rating>>)>,
    /// Nodes in the order they changed.
    log: Vec<usize>,
    nodes: usize,
}

impl RatingCache {
    fn new(shapes: usize, nodes: usize) -> Self {
        Self { shapes: vec![(0, Vec::new()); shapes], log: Vec::new(), nodes }
    }

    fn clear(&mut self) {
        self.shapes.iter_mut().for_each(|(_, ratings)| ratings.clear());
    }

    fn changed(&mut self, node: usize) {
        self.log.push(node);
    }

    fn ratings(
        &mut self,
        index: usize,
        shape: &Shape,
        nodes: &[NodeState],
        rater: &mut dyn Rater,
    ) -> &[Option<Rating>] {
        let (seen, ratings) = &mut self.shapes[index];
        let mut rate = |node: &NodeState| node.fits(shape).then(|| rater.rate(node, shape));
        let unseen = self.log.len() - *seen;
        if ratings.is_empty() || unseen > self.nodes {
            *ratings = nodes.iter().map(rate).collect();
        } else {
            let mut again: Vec<usize> = self.log[*seen..].to_vec();
            again.sort_unstable();
            again.dedup();
            for node in again {
                ratings[node] = rate(&nodes[node]);
            }
        }
        *seen = self.log.len();
        ratings
    }
}
