//! What may be taken from whom: the budgets of accounts that borrow, and what a set of victims takes of them.

use crate::{
    claim::{Ask, Reach},
    pool::Pool,
    positions::Positions,
    tree::{GPU, Node, Usage},
};
use std::collections::BTreeMap;

/// GPUs, CPU, memory, and GPUs of the model the claimant names.
pub(crate) type Dimensions = [u64; 4];

/// By which rule victims of other projects are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// From projects above quota.
    Quota,
    /// From projects above their fair share, which stay at or above it.
    Share,
    /// From nobody.
    None,
}

/// Whether the last workload taken may leave its project below the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Keep,
    Straddle,
}

/// What is taken of one account, and how much it has above the line.
#[derive(Clone, Debug)]
struct Budget {
    /// Above the line by dimension; negative or absent is not above it.
    excess: [i128; 4],
    taken: [u128; 4],
    /// Sizes of what is taken by dimension, so that the largest is known when one is given back.
    sizes: [BTreeMap<u64, u32>; 4],
}

/// The budgets of one claim.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    rule: Rule,
    line: Line,
    /// Of accounts from which something is taken, or was.
    budgets: Positions<Budget>,
    /// Accounts in which more was taken than may be.
    broken: u32,
    ask: Ask,
    /// Accounts of the claimant, from the project up, and whether victims on the other side of each may be taken by quota.
    within: Vec<(u32, bool)>,
}

impl Ledger {
    pub(crate) fn new(ask: Ask, reach: &Reach, rule: Rule, line: Line) -> Self {
        let within = reach.levels.iter().map(|level| (level.position, level.within)).collect();
        Self { rule, line, budgets: Positions::default(), broken: 0, ask, within }
    }

    /// By which rule victims of others are taken.
    pub(crate) fn rule(&self) -> Rule {
        self.rule
    }

    /// The topmost account to charge for a victim of a project; none when nothing may be taken from it.
    fn top_of(&self, pool: &Pool, project: u32) -> Option<u32> {
        // Most projects are not above the line at all, and that is seen without looking further up.
        let node = pool.tree.at(project);
        let other_dimensions = node.other_quotas != [None; 2] || !node.model_quotas.is_empty();
        let used = node.used.amounts[GPU];
        let above = match self.rule {
            Rule::Quota => used > node.quota || other_dimensions,
            Rule::Share => used > node.share,
            Rule::None => false,
        };
        if !above || project == self.ask.project {
            return None;
        }
        let (mine, theirs) = pool.tree.below_common(self.ask.project, project);
        if self.rule != Rule::Share {
            let within = self.within.iter().find(|(position, _)| *position == mine)?.1;
            if !within {
                return None;
            }
        }
        let mut levels = levels(pool, self.rule, project, theirs);
        levels.all(|(_, node)| self.is_above(node)).then_some(theirs)
    }

    /// What each account has above the line that a victim of a project is charged to; none when nothing may be taken from
    /// it.
    fn excess_of<'a>(
        &'a self,
        pool: &'a Pool,
        project: u32,
    ) -> Option<impl Iterator<Item = (u32, [i128; 4])>> {
        let top = self.top_of(pool, project)?;
        let levels = levels(pool, self.rule, project, top);
        Some(levels.map(|(position, node)| (position, self.excess(node))))
    }

    /// Whether an account is above the line in any dimension the claimant asks for; nearly always GPUs tell.
    fn is_above(&self, node: &Node) -> bool {
        let by_gpus = self.rule != Rule::Share
            && self.ask.amounts[GPU] > 0
            && node.quota_in(GPU).is_some_and(|quota| node.used.amounts[GPU] > quota);
        by_gpus || self.excess(node).iter().any(|above| *above > 0)
    }

    /// How far an account is above the line, in the dimensions the claimant asks for.
    fn excess(&self, node: &Node) -> [i128; 4] {
        const ABSENT: i128 = i128::MIN / 4;
        let above = |used: u64, line: u64| i128::from(used) - i128::from(line);
        if self.rule == Rule::Share {
            // A limit can put the share below the quota; nobody is taken below that by others' shares.
            let line = if node.has_quota { node.share.max(node.quota) } else { node.share };
            return [above(node.used.amounts[GPU], line), ABSENT, ABSENT, ABSENT];
        }
        let mut excess = [ABSENT; 4];
        for (dimension, excess) in excess.iter_mut().take(3).enumerate() {
            if self.ask.amounts[dimension] > 0
                && let Some(quota) = node.quota_in(dimension)
            {
                *excess = above(node.used.amounts[dimension], quota);
            }
        }
        if let Some(model) = self.ask.model
            && let Some((_, quota)) = node.model_quotas.iter().find(|(of, _)| *of == model)
        {
            excess[3] = above(Usage::model(&node.used, model), *quota);
        }
        excess
    }

    /// Charges a victim of another project.
    pub(crate) fn take(&mut self, pool: &Pool, project: u32, size: &Dimensions) {
        self.change(pool, project, size, true);
    }

    /// Gives a victim back.
    pub(crate) fn give(&mut self, pool: &Pool, project: u32, size: &Dimensions) {
        self.change(pool, project, size, false);
    }

    fn change(&mut self, pool: &Pool, project: u32, size: &Dimensions, take: bool) {
        let Some(top) = self.top_of(pool, project) else { return };
        for (position, node) in levels(pool, self.rule, project, top) {
            if self.budgets.get(position).is_none() {
                let excess = self.excess(node);
                self.budgets.insert(position, Budget { excess, taken: [0; 4], sizes: Default::default() });
            }
            let budget = self.budgets.get_mut(position).expect("was just opened");
            let before = budget.holds(self.line);
            budget.change(size, take);
            match (before, budget.holds(self.line)) {
                (true, false) => self.broken += 1,
                (false, true) => self.broken -= 1,
                _ => {}
            }
        }
    }

    /// Whether everything charged so far may be taken together.
    pub(crate) fn holds(&self) -> bool {
        self.broken == 0
    }

    /// The largest victim a project could give without going below the line, if it could give any.
    pub(crate) fn largest_from(&self, pool: &Pool, project: u32) -> Option<u64> {
        let accounts = self.excess_of(pool, project)?;
        if self.rule != Rule::Share {
            return Some(u64::MAX);
        }
        let least = accounts.map(|(_, excess)| excess[GPU]).min().unwrap_or(0);
        Some(u64::try_from(least).unwrap_or(0))
    }

    /// GPUs that a project can still give beside what is charged already; no bound where more than GPUs decides, or
    /// where the last may straddle the line.
    pub(crate) fn most_left(&self, pool: &Pool, project: u32) -> u64 {
        let Some(accounts) = self.excess_of(pool, project).filter(|_| self.line == Line::Keep) else {
            return u64::MAX;
        };
        let left = accounts.map(|(position, excess)| match by_gpus_alone(&excess) {
            true => {
                let taken = self.budgets.get(position).map_or(0, |budget| budget.taken[GPU]);
                (excess[GPU].max(0) as u128).saturating_sub(taken)
            }
            false => u128::MAX,
        });
        u64::try_from(left.min().unwrap_or(u128::MAX)).unwrap_or(u64::MAX)
    }

    /// The most GPUs that could ever be taken from a project, given the sizes of its victims.
    pub(crate) fn most_from(&self, pool: &Pool, project: u32) -> u128 {
        let Some(accounts) = self.excess_of(pool, project) else { return 0 };
        let sizes: Vec<u64> =
            pool.queues[project as usize].victims.sizes().filter(|size| *size > 0).collect();
        let Some(largest) = sizes.iter().max() else { return 0 };
        let step = sizes.iter().fold(0, |step, size| greatest_common_divisor(step, *size));
        let bound = accounts.map(|(_, excess)| {
            // Other dimensions may let more be taken; then GPUs alone prove nothing.
            if !by_gpus_alone(&excess) {
                return u128::MAX / 4;
            }
            let above = excess[GPU].max(0) as u128;
            match (above, self.line) {
                (0, _) => 0,
                (above, Line::Keep) => above / u128::from(step) * u128::from(step),
                (above, Line::Straddle) => {
                    (above.div_ceil(u128::from(step)) - 1) * u128::from(step) + u128::from(*largest)
                }
            }
        });
        bound.min().unwrap_or(u128::MAX / 4)
    }
}

/// Whether only GPUs are above the line.
fn by_gpus_alone(excess: &[i128; 4]) -> bool {
    excess[1..].iter().all(|above| *above <= 0)
}

impl Budget {
    fn change(&mut self, size: &Dimensions, take: bool) {
        for (dimension, size) in size.iter().copied().enumerate() {
            // Only dimensions above the line can allow a taking.
            if self.excess[dimension] <= 0 {
                continue;
            }
            let taken = &mut self.taken[dimension];
            *taken = if take { *taken + u128::from(size) } else { *taken - u128::from(size) };
            let count = self.sizes[dimension].entry(size).or_default();
            *count = if take { *count + 1 } else { *count - 1 };
            if *count == 0 {
                self.sizes[dimension].remove(&size);
            }
        }
    }

    /// Whether some dimension allows all that was taken. What straddles the line is the largest, taken last.
    fn holds(&self, line: Line) -> bool {
        (0..4).any(|dimension| {
            let above = self.excess[dimension];
            if above <= 0 {
                return false;
            }
            let (above, taken) = (above as u128, self.taken[dimension]);
            let largest = self.sizes[dimension].last_key_value().map_or(0, |(size, _)| u128::from(*size));
            match line {
                Line::Keep => taken <= above,
                Line::Straddle => taken - largest < above,
            }
        })
    }
}

/// The accounts whose line counts when a victim of a project is taken, from the project up to `top`.
fn levels(pool: &Pool, rule: Rule, project: u32, top: u32) -> impl Iterator<Item = (u32, &Node)> {
    let mut done = false;
    let path = pool
        .tree
        .path(project)
        .take_while(move |(position, _)| !std::mem::replace(&mut done, *position == top));
    path.filter(move |(_, node)| rule == Rule::Share || node.has_quota)
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}
