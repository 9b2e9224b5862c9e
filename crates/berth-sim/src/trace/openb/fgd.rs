//! Fragmentation gradient descent (FGD, ATC'23), as published: the float arithmetic and its rounding are part of it.

use super::{
    PodList, Shape, WHOLE,
    replay::{NodeState, Rater, Rating},
};
use std::{cmp::Reverse, collections::BTreeMap};

/// A kind of request expected to come, memory left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MixClass {
    /// What it asks for; its memory is zero.
    pub shape: Shape,
    /// How many pods of the list are of this kind.
    pub count: u64,
}

/// The most frequent kinds of a pod list, together at least 95 percent of it.
pub fn typical_classes(list: &PodList) -> Vec<MixClass> {
    let mut counts: BTreeMap<Shape, u64> = BTreeMap::new();
    for &pod in &list.pods {
        let shape = Shape { memory_mib: 0, ..list.shapes[pod] };
        *counts.entry(shape).or_default() += 1;
    }
    let all = list.pods.len() as u64;
    let mut classes: Vec<MixClass> =
        counts.into_iter().map(|(shape, count)| MixClass { shape, count }).collect();
    classes.sort_by_key(|class| (Reverse(class.count), class.shape));
    let mut covered = 0;
    classes.retain(|class| {
        let wanted = covered * 100 < all * 95;
        covered += class.count;
        wanted
    });
    classes
}

/// Thousandths of GPUs on this node that a class cannot use: all of them if it cannot run there or wants none,
/// otherwise those on devices with too little left.
pub fn unusable_milli(node: &NodeState, class: &Shape) -> u32 {
    let runs = class.gpus > 0 && class.cpu_milli <= node.cpu && class.accepts(node.model);
    let fitting = node.devices.iter().filter(|&&free| free >= class.share_milli);
    if !runs || fitting.clone().count() < usize::from(class.gpus) {
        node.gpu_milli()
    } else {
        node.gpu_milli() - fitting.sum::<u32>()
    }
}

/// The FGD rater.
#[derive(Debug)]
pub struct Fgd {
    classes: Vec<(Shape, f64)>,
}

impl Fgd {
    /// Rates by the mix of a whole pod list.
    pub fn new(list: &PodList) -> Self {
        let classes = typical_classes(list);
        let all: u64 = classes.iter().map(|class| class.count).sum();
        Self {
            classes: classes
                .into_iter()
                .map(|class| (class.shape, class.count as f64 / all as f64))
                .collect(),
        }
    }

    fn fragmentation(&self, node: &NodeState) -> f64 {
        self.classes
            .iter()
            .map(|(class, popularity)| popularity * f64::from(unusable_milli(node, class)))
            .sum::<f64>()
            / f64::from(WHOLE)
    }
}

impl Rater for Fgd {
    fn rate(&mut self, node: &NodeState, shape: &Shape) -> Rating {
        let before = self.fragmentation(node);
        let rated = |devices: u8| {
            let growth = self.fragmentation(&node.after(shape, devices)) - before;
            let score = (100.0 / (1.0 + growth.exp())) as i64;
            Rating { key: (-score, 0), devices }
        };
        if shape.gpus == 1 && shape.share_milli < WHOLE {
            node.candidates(shape)
                .map(rated)
                .min_by_key(|rating| rating.key)
                .expect("rated only where it fits")
        } else {
            rated(node.tightest(shape))
        }
    }
}
