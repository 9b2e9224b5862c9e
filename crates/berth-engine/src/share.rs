//! Fair share: exact water filling, level by level.

use crate::tree::{GPU, ROOT, Tree};

/// One child of a level when its rest is divided.
struct Claim {
    child: u32,
    /// More than its quota part that it could use.
    room: u64,
    weight: u64,
}

impl Tree {
    /// Recomputes demand and fair share of every account below the root, given what waits in each project. Returns
    /// the accounts whose share changed.
    pub(crate) fn divide(&mut self, capacity: u64, waiting: impl Fn(u32) -> u64) -> Vec<u32> {
        // Children have higher positions than their parents.
        for position in (0..self.nodes.len()).rev() {
            let node = &self.nodes[position];
            let children = || node.children.iter().map(|child| self.at(*child));
            let demand = match node.children.is_empty() {
                true => node.used.amounts[GPU] + waiting(position as u32),
                false => children().map(|child| child.demand).sum(),
            };
            let owed = if node.has_quota { node.quota } else { children().map(|child| child.owed).sum() };
            let node = &mut self.nodes[position];
            node.demand = node.limit.map_or(demand, |limit| demand.min(limit));
            node.owed = owed.min(node.demand);
        }
        let mut changed = Vec::new();
        self.nodes[ROOT as usize].share = capacity;
        // Parents come before children.
        for position in 0..self.nodes.len() {
            if self.nodes[position].children.is_empty() {
                continue;
            }
            for (child, share) in self.divide_level(position as u32) {
                let node = &mut self.nodes[child as usize];
                if node.share != share {
                    node.share = share;
                    changed.push(child);
                }
            }
        }
        changed
    }

    fn divide_level(&self, parent: u32) -> Vec<(u32, u64)> {
        let children = &self.at(parent).children;
        let mut shares: Vec<(u32, u64)> =
            children.iter().map(|child| (*child, self.at(*child).owed)).collect();
        let given: u64 = shares.iter().map(|(_, share)| share).sum();
        let mut rest = self.at(parent).share.saturating_sub(given);
        let mut ranks: Vec<i32> = children.iter().map(|child| self.at(*child).rank).collect();
        ranks.sort_unstable_by(|one, other| other.cmp(one));
        ranks.dedup();
        for rank in ranks {
            if rest == 0 {
                break;
            }
            let claims: Vec<Claim> = shares
                .iter()
                .filter(|(child, _)| self.at(*child).rank == rank)
                .map(|(child, share)| {
                    let node = self.at(*child);
                    Claim { child: *child, room: node.demand - share, weight: node.weight }
                })
                .filter(|claim| claim.weight > 0 && claim.room > 0)
                .collect();
            for (child, extra) in self.fill(claims, &mut rest) {
                // Children are in rising order of position.
                let at = shares.binary_search_by_key(&child, |(of, _)| *of).expect("a claim is a child's");
                shares[at].1 += extra;
            }
        }
        shares
    }

    /// Divides `rest` by weight, nobody above its room; what nobody can use stays in `rest`.
    fn fill(&self, mut claims: Vec<Claim>, rest: &mut u64) -> Vec<(u32, u64)> {
        // By the level at which each is full, so that those that fill up first are settled first.
        claims.sort_by(|one, other| {
            let (left, right) = (wide(one.room) * wide(other.weight), wide(other.room) * wide(one.weight));
            left.cmp(&right).then(self.at(one.child).account.cmp(&self.at(other.child).account))
        });
        let mut weights: u128 = claims.iter().map(|claim| wide(claim.weight)).sum();
        let mut given = Vec::with_capacity(claims.len());
        let mut from = 0;
        while let Some(claim) = claims.get(from) {
            if wide(claim.room) * weights > wide(*rest) * wide(claim.weight) {
                break;
            }
            given.push((claim.child, claim.room));
            *rest -= claim.room;
            weights -= wide(claim.weight);
            from += 1;
        }
        let open = &claims[from..];
        if open.is_empty() {
            return given;
        }
        let total = *rest;
        let mut parts: Vec<(u128, u32, u64)> = open
            .iter()
            .map(|claim| {
                let product = wide(total) * wide(claim.weight);
                (product % weights, claim.child, (product / weights) as u64)
            })
            .collect();
        let handed: u64 = parts.iter().map(|(_, _, part)| part).sum();
        let left_over = (total - handed) as usize;
        parts.sort_by(|one, other| {
            other.0.cmp(&one.0).then(self.at(one.1).account.cmp(&self.at(other.1).account))
        });
        for (_, _, part) in parts.iter_mut().take(left_over) {
            *part += 1;
        }
        *rest = 0;
        given.extend(parts.into_iter().map(|(_, child, part)| (child, part)));
        given
    }
}

fn wide(value: u64) -> u128 {
    u128::from(value)
}
