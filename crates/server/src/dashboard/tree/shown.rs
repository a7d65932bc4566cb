//! Selection of the branches worth a look: those with the most prompt tokens behind them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headstart_core::{Nanos, RouteKey};

use super::PrefixTree;

/// Ratio of heat below which two branches count as equally hot, and the older one comes first: so
/// that rows do not jump about.
const STEP: f64 = 1.5;

/// Prompts that make a branch a shared one: the tail of a single prompt is of no interest.
const SHARED: u64 = 2;

/// A branch that is shown.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::dashboard) struct ShownBranch {
    /// Its first key.
    pub(in crate::dashboard) key: RouteKey,
    /// Place of its parent among those shown.
    pub(in crate::dashboard) parent: Option<usize>,
    /// Blocks of the prefix before it, and its own.
    pub(in crate::dashboard) blocks: (usize, usize),
    /// Prompts that went through it.
    pub(in crate::dashboard) prompts: u64,
    /// Share of the last minutes' prompts that did.
    pub(in crate::dashboard) share: f64,
    /// When the first and the last one did.
    pub(in crate::dashboard) times: (Nanos, Nanos),
    /// Whether it has no child that is shown.
    pub(in crate::dashboard) is_leaf: bool,
}

impl PrefixTree {
    /// The `count` branches that matter most, parents before their children and depth first. No
    /// branch without its parent, and behind another one only those that prompts share.
    pub(in crate::dashboard) fn shown(&self, count: usize, now: Nanos) -> Vec<ShownBranch> {
        let chosen = self.chosen(count, now);
        let mut shown = Vec::with_capacity(count.min(self.len()));
        let roots = self.sorted(self.roots(), &chosen, now);
        for root in roots {
            self.show(root, &chosen, now, &mut shown);
        }
        shown
    }

    /// The whole prefix that ends with a branch.
    pub(in crate::dashboard) fn chain_to(&self, key: RouteKey) -> Vec<RouteKey> {
        let mut pieces = Vec::new();
        let mut next = self.heads.get(&key).copied();
        while let Some(at) = next {
            pieces.push(&self.branch(at).keys[..]);
            next = self.branch(at).parent;
        }
        pieces.reverse();
        pieces.concat()
    }

    fn roots(&self) -> Vec<usize> {
        let all = self.heads.values().copied();
        all.filter(|&at| self.branch(at).parent.is_none()).collect()
    }

    /// Whether each branch is to be shown.
    fn chosen(&self, count: usize, now: Nanos) -> Vec<bool> {
        let mut weights = vec![0.0_f64; self.branches.len()];
        for &at in &self.roots() {
            self.weigh(at, now, &mut weights);
        }
        // Highest weight first, lowest index among equals. No weight is negative, so that the bits
        // of weights have their order.
        let next = |at: usize| (weights[at].to_bits(), Reverse(at));
        // Best first: a branch becomes a candidate when its parent is chosen.
        let mut open: BinaryHeap<_> = self.roots().into_iter().map(next).collect();
        let mut chosen = vec![false; self.branches.len()];
        for _ in 0..count {
            let Some((_, Reverse(at))) = open.pop() else {
                break;
            };
            chosen[at] = true;
            let children = self.branch(at).children.iter();
            let shared = children.filter(|&&child| self.branch(child).prompts >= SHARED);
            open.extend(shared.map(|&child| next(child)));
        }
        chosen
    }

    /// Blocks times heat, of a branch and all behind it: what its reuse spares.
    fn weigh(&self, root: usize, now: Nanos, weights: &mut [f64]) {
        let mut order = vec![root];
        let mut place = 0;
        while let Some(&at) = order.get(place) {
            order.extend(&self.branch(at).children);
            place += 1;
        }
        // Parents come before their children in `order`, so the reverse sums the children first.
        for &at in order.iter().rev() {
            let branch = self.branch(at);
            weights[at] += branch.keys.len() as f64 * branch.heat.at(now);
            if let Some(parent) = branch.parent {
                weights[parent] += weights[at];
            }
        }
    }

    /// Returns the chosen branches, the hottest first.
    fn sorted(&self, mut branches: Vec<usize>, chosen: &[bool], now: Nanos) -> Vec<usize> {
        branches.retain(|&at| chosen[at]);
        let level = |at: usize| (self.branch(at).heat.at(now).max(1e-9).ln() / STEP.ln()) as i64;
        branches.sort_by_key(|&at| (-level(at), self.branch(at).born, at));
        branches
    }

    /// Adds a root and the branches behind it. Not by recursion: chains are as deep as talks are
    /// long.
    fn show(&self, root: usize, chosen: &[bool], now: Nanos, shown: &mut Vec<ShownBranch>) {
        let mut open = vec![(root, None, 0)];
        let all = self.heat.at(now).max(1e-9);
        while let Some((at, parent, before)) = open.pop() {
            let branch = self.branch(at);
            let children = self.sorted(branch.children.clone(), chosen, now);
            let blocks = branch.keys.len();
            let place = shown.len();
            shown.push(ShownBranch {
                key: branch.keys[0],
                parent,
                blocks: (before, blocks),
                prompts: branch.prompts,
                share: (branch.heat.at(now) / all).min(1.0),
                times: (branch.born, branch.used),
                is_leaf: children.is_empty(),
            });
            // A stack: the hottest child is pushed last and taken first.
            let behind = children.into_iter().rev();
            open.extend(behind.map(|child| (child, Some(place), before + blocks)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::chain;
    use super::*;

    fn tree(prompts: &[(&[u64], u64)]) -> PrefixTree {
        let mut tree = PrefixTree::default();
        for &(path, times) in prompts {
            (0..times).for_each(|_| tree.insert(&chain(path), Nanos(5)));
        }
        tree
    }

    #[test]
    fn parents_come_before_their_children_and_the_hottest_first() {
        let tree = tree(&[(&[1, 2, 3], 2), (&[9], 10), (&[1, 2, 4, 5], 20), (&[9, 8], 1)]);
        let shown = tree.shown(10, Nanos(5));
        let rows: Vec<_> =
            shown.iter().map(|branch| (branch.parent, branch.blocks, branch.prompts)).collect();
        let expected =
            [(None, (0, 2), 22), (Some(0), (2, 2), 20), (Some(0), (2, 1), 2), (None, (0, 1), 11)];
        assert_eq!(rows, expected);
        assert!((shown[0].share - 22.0 / 33.0).abs() < 1e-9);
        assert_eq!(
            shown.iter().map(|branch| branch.is_leaf).collect::<Vec<_>>(),
            [false, true, true, true]
        );
        assert_eq!(tree.chain_to(shown[1].key), chain(&[1, 2, 4, 5]));
    }

    #[test]
    fn what_is_left_out_is_what_matters_least() {
        let tree = tree(&[(&[1, 2, 3], 2), (&[9], 10), (&[1, 2, 4, 5], 20)]);
        for count in 0..5 {
            let shown = tree.shown(count, Nanos(5));
            assert_eq!(shown.len(), count.min(4));
            assert!(
                shown.iter().enumerate().all(|(at, branch)| branch.parent.is_none_or(|up| up < at))
            );
        }
        let keys: Vec<_> = tree.shown(3, Nanos(5)).iter().map(|branch| branch.prompts).collect();
        assert_eq!(keys, [22, 20, 10], "the leaf of two prompts is not there");
    }

    #[test]
    fn a_long_talk_is_no_deep_recursion() {
        let path: Vec<u64> = (0..3000).collect();
        let mut tree = PrefixTree::default();
        for turn in 1..3000 {
            tree.insert(&chain(&path[..turn]), Nanos(turn as u64));
        }
        assert_eq!(tree.shown(3000, Nanos(3000)).len(), 2998, "all but the last turn");
    }
}
