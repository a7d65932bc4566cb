//! The prefixes that prompts shared lately, as a radix tree of route keys.
//!
//! ```text
//! prompts   a b c d      a b c e      a b          x y
//! branches  [a b] 3 ─┬─ [c] 2 ─┬─ [d] 1           [x y] 1
//!                              └─ [e] 1
//! ```
//!
//! A branch is a piece of prefix that the same prompts went through. Since a key names its whole
//! prefix, a branch is found by its first key, wherever it is. How hot it is fades with time.
//!
//! It does not know who holds a branch (the router's index does), nor any token or text. Invariant:
//! as long as nothing was dropped, through each key went exactly the prompts that contain it.

mod shown;

use std::collections::HashMap;

use headstart_core::{Nanos, RouteKey};

pub(super) use shown::ShownBranch;

/// Branches that are remembered.
const BRANCHES_MAX: usize = 4096;

/// Keys of these, 8 bytes each: 8 MiB.
const KEYS_MAX: usize = 1 << 20;

/// Leading blocks of a prompt that are looked at: 262,144 tokens of the usual blocks.
const BLOCKS_MAX: usize = 1 << 14;

/// Share of the limits kept when branches or keys exceed them, so that not every prompt evicts.
const KEPT: f64 = 0.875;

/// Time in which heat halves, seconds: hot is what the last minutes used.
const HALF_LIFE_S: f64 = 300.0;

/// The tree.
#[derive(Debug)]
pub(super) struct PrefixTree {
    branches: Vec<Option<Branch>>,
    free: Vec<usize>,
    heads: HashMap<RouteKey, usize>,
    num_keys: usize,
    prompts: u64,
    heat: Heat,
    branches_max: usize,
    keys_max: usize,
}

#[derive(Clone, Debug)]
struct Branch {
    keys: Vec<RouteKey>,
    parent: Option<usize>,
    children: Vec<usize>,
    prompts: u64,
    heat: Heat,
    born: Nanos,
    used: Nanos,
}

/// A number of prompts that fades.
#[derive(Clone, Copy, Debug, Default)]
struct Heat {
    value: f64,
    at: Nanos,
}

impl Heat {
    fn at(&self, now: Nanos) -> f64 {
        let age_s = now.since(self.at).as_secs_f64();
        self.value * (-age_s / HALF_LIFE_S).exp2()
    }

    fn add(&mut self, now: Nanos) {
        // Prompts of several threads may come slightly out of order.
        *self = Self { value: self.at(now) + 1.0, at: now.max(self.at) };
    }
}

impl Default for PrefixTree {
    fn default() -> Self {
        Self::with_limits(BRANCHES_MAX, KEYS_MAX)
    }
}

impl PrefixTree {
    fn with_limits(branches_max: usize, keys_max: usize) -> Self {
        Self {
            branches: Vec::new(),
            free: Vec::new(),
            heads: HashMap::new(),
            num_keys: 0,
            prompts: 0,
            heat: Heat::default(),
            branches_max,
            keys_max,
        }
    }

    /// Prompts seen so far.
    pub(super) fn prompts(&self) -> u64 {
        self.prompts
    }

    /// Branches known now.
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// Returns the first key of the branch that holds the last of `keys`; `None` if no prompt has
    /// all of them.
    pub(super) fn branch_of(&self, keys: &[RouteKey]) -> Option<RouteKey> {
        let mut rest = keys;
        loop {
            let head = *rest.first()?;
            let branch = self.branch(*self.heads.get(&head)?);
            let matched = matched(&branch.keys, rest);
            rest = &rest[matched..];
            match (rest.is_empty(), matched == branch.keys.len()) {
                (true, _) => return Some(head),
                (false, true) => {}
                (false, false) => return None,
            }
        }
    }

    /// A prompt with these keys came at `now`.
    pub(super) fn insert(&mut self, keys: &[RouteKey], now: Nanos) {
        self.prompts += 1;
        self.heat.add(now);
        let mut rest = &keys[..keys.len().min(BLOCKS_MAX)];
        let mut parent = None;
        while let Some(first) = rest.first() {
            let Some(&found) = self.heads.get(first) else {
                self.grow(parent, rest, now);
                break;
            };
            let matched = matched(&self.branch(found).keys, rest);
            // The prompt leaves the branch here. Each key counts exactly the prompts that contain
            // it.
            if matched < self.branch(found).keys.len() {
                self.split(found, matched);
            }
            self.branch_mut(found).touch(now);
            parent = Some(found);
            rest = &rest[matched..];
        }
        if self.heads.len() > self.branches_max || self.num_keys > self.keys_max {
            self.drop_cold(now);
        }
    }

    fn branch(&self, at: usize) -> &Branch {
        self.branches[at].as_ref().expect("a branch that is linked")
    }

    fn branch_mut(&mut self, at: usize) -> &mut Branch {
        self.branches[at].as_mut().expect("a branch that is linked")
    }

    /// A new leaf.
    fn grow(&mut self, parent: Option<usize>, keys: &[RouteKey], now: Nanos) {
        self.num_keys += keys.len();
        let mut branch = Branch {
            keys: keys.to_vec(),
            parent,
            children: Vec::new(),
            prompts: 0,
            heat: Heat::default(),
            born: now,
            used: now,
        };
        branch.touch(now);
        let at = self.place(branch);
        if let Some(parent) = parent {
            self.branch_mut(parent).children.push(at);
        }
    }

    /// Cuts a branch behind `len` keys; the rest becomes its only child.
    fn split(&mut self, at: usize, len: usize) {
        let branch = self.branch_mut(at);
        let tail = Branch {
            keys: branch.keys.split_off(len),
            parent: Some(at),
            children: std::mem::take(&mut branch.children),
            ..branch.clone()
        };
        let tail_at = self.place(tail);
        self.branch_mut(at).children.push(tail_at);
        for child in self.branch(tail_at).children.clone() {
            self.branch_mut(child).parent = Some(tail_at);
        }
    }

    fn place(&mut self, branch: Branch) -> usize {
        let head = branch.keys[0];
        let at = match self.free.pop() {
            Some(at) => {
                self.branches[at] = Some(branch);
                at
            }
            None => {
                self.branches.push(Some(branch));
                self.branches.len() - 1
            }
        };
        self.heads.insert(head, at);
        at
    }

    /// Drops the coldest leaves until there is room again.
    fn drop_cold(&mut self, now: Nanos) {
        let part = |max: usize| (max as f64 * KEPT) as usize;
        let (branches, keys) = (part(self.branches_max), part(self.keys_max));
        // A removed leaf may turn its parent into a leaf, so the search starts again.
        while self.heads.len() > branches || self.num_keys > keys {
            let mut leaves: Vec<(f64, usize)> = self
                .heads
                .values()
                .filter(|&&at| self.branch(at).children.is_empty())
                .map(|&at| (self.branch(at).heat.at(now), at))
                .collect();
            // Of equals the one that was made first, so that the order is the same each time.
            leaves.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            for (_, at) in leaves {
                if self.heads.len() <= branches && self.num_keys <= keys {
                    break;
                }
                self.remove(at);
            }
        }
    }

    fn remove(&mut self, at: usize) {
        let branch = self.branches[at].take().expect("a branch that is linked");
        self.heads.remove(&branch.keys[0]);
        self.num_keys -= branch.keys.len();
        self.free.push(at);
        if let Some(parent) = branch.parent {
            self.branch_mut(parent).children.retain(|&child| child != at);
        }
    }
}

impl Branch {
    fn touch(&mut self, now: Nanos) {
        self.prompts += 1;
        self.heat.add(now);
        self.used = self.used.max(now);
    }
}

/// Number of equal leading keys. Keys are chained: if one is equal, all before it are.
fn matched(keys: &[RouteKey], others: &[RouteKey]) -> usize {
    let pairs = keys.iter().zip(others);
    pairs.take_while(|(key, other)| key == other).count()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use headstart_core::Rng;

    use super::*;

    /// A chain of keys from a path: each names all before it.
    pub(super) fn chain(path: &[u64]) -> Vec<RouteKey> {
        let mut name = 17_u64;
        let next = |&step: &u64| {
            name = (name ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            RouteKey(name)
        };
        path.iter().map(next).collect()
    }

    fn check(tree: &PrefixTree, expected: &BTreeMap<RouteKey, u64>) {
        let mut found = BTreeMap::new();
        for (&head, &at) in &tree.heads {
            let branch = tree.branch(at);
            assert_eq!(head, branch.keys[0]);
            for &key in &branch.keys {
                assert_eq!(found.insert(key, branch.prompts), None, "a key is in one branch");
            }
            let children: BTreeSet<usize> = branch.children.iter().copied().collect();
            assert_eq!(children.len(), branch.children.len());
            assert!(children.iter().all(|&child| tree.branch(child).parent == Some(at)));
        }
        assert_eq!(&found, expected);
        assert_eq!(tree.num_keys, found.len());
        let there = tree.branches.iter().flatten().count();
        assert_eq!((there, there + tree.free.len()), (tree.len(), tree.branches.len()));
    }

    fn path(rng: &mut Rng) -> Vec<u64> {
        (0..rng.below(7)).map(|_| rng.below(3) as u64).collect()
    }

    #[test]
    fn through_each_key_went_the_prompts_that_have_it() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let mut tree = PrefixTree::default();
            let mut counts = BTreeMap::new();
            for step in 0..60 {
                let keys = chain(&path(&mut rng));
                tree.insert(&keys, Nanos(step));
                for &key in &keys {
                    *counts.entry(key).or_insert(0) += 1;
                }
                check(&tree, &counts);
            }
            assert_eq!(tree.prompts(), 60, "seed {seed}");
        }
    }

    #[test]
    fn a_prefix_is_in_the_branch_with_its_last_key() {
        let mut tree = PrefixTree::default();
        for path in [&[1, 2, 3, 4][..], &[1, 2, 5]] {
            tree.insert(&chain(path), Nanos(1));
        }
        let (front, tail) = (chain(&[1])[0], chain(&[1, 2, 3])[2]);
        for (path, expected) in [
            (&[1][..], Some(front)),
            (&[1, 2], Some(front)),
            (&[1, 2, 3], Some(tail)),
            (&[1, 2, 3, 4], Some(tail)),
            (&[1, 2, 3, 4, 5], None),
            (&[1, 9], None),
            (&[9], None),
            (&[], None),
        ] {
            assert_eq!(tree.branch_of(&chain(path)), expected, "{path:?}");
        }
    }

    #[test]
    fn memory_is_bounded_and_the_coldest_leaves_go() {
        let mut tree = PrefixTree::with_limits(40, 200);
        let mut rng = Rng::new(3);
        let hot = chain(&[7, 7, 7]);
        for step in 0..2000_u64 {
            let second = Nanos(step * 1_000_000_000);
            tree.insert(&hot, second);
            let cold: Vec<u64> = (0..rng.below(12)).map(|_| 10 + rng.below(1000) as u64).collect();
            tree.insert(&chain(&cold), second);
            assert!(tree.len() <= 40 && tree.num_keys <= 200);
            let branch = tree.branch(tree.heads[&hot[0]]);
            assert_eq!(branch.prompts, step + 1, "what is hot stays");
        }
        let long: Vec<u64> = (0..300).collect();
        tree.insert(&chain(&long), Nanos(u64::MAX / 2));
        assert!(tree.num_keys <= 200, "even the newest goes where it alone is too long");
    }

    #[test]
    fn heat_halves() {
        let mut heat = Heat::default();
        heat.add(Nanos(0));
        let later = Nanos((HALF_LIFE_S * 1e9) as u64);
        assert!((heat.at(later) - 0.5).abs() < 1e-9);
        heat.add(later);
        assert!((heat.at(later) - 1.5).abs() < 1e-9);
        assert!((heat.at(Nanos(0)) - 1.5).abs() < 1e-9, "time does not go back");
    }
}
