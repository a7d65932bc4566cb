//! Which blocks one replica is assumed to hold, oldest assumption first.
//!
//! It only remembers when to look again; the truth stands with the block's holder, where the
//! block's own event may have ended the assumption long before.

use std::collections::VecDeque;

use headstart_core::{Nanos, RouteKey};

/// Blocks under assumption per replica: a million tokens at the usual 16, some ten of the longest
/// prompts, half a megabyte of keys. Beyond it the oldest prompts are no longer assumed.
const MAX_ASSUMED_BLOCKS: usize = 65_536;

/// One replica's assumptions, by prompt.
#[derive(Debug, Default)]
pub(super) struct Assumptions {
    prompts: VecDeque<Assumed>,
    num_blocks: usize,
}

/// What was assumed of one prompt.
#[derive(Debug)]
pub(super) struct Assumed {
    pub(super) keys: Vec<RouteKey>,
    pub(super) until: Nanos,
}

impl Assumptions {
    pub(super) fn push(&mut self, assumed: Assumed) {
        self.num_blocks += assumed.keys.len();
        self.prompts.push_back(assumed);
    }

    /// Takes the oldest if it is over at `now`, or if there are too many.
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<Assumed> {
        let oldest = self.prompts.front()?;
        if now < oldest.until && self.num_blocks <= MAX_ASSUMED_BLOCKS {
            return None;
        }
        self.num_blocks -= oldest.keys.len();
        self.prompts.pop_front()
    }

    /// All of them, oldest first.
    pub(super) fn into_prompts(self) -> VecDeque<Assumed> {
        self.prompts
    }

    /// All keys that some assumption names, with repetitions.
    pub(super) fn keys(&self) -> impl Iterator<Item = RouteKey> {
        self.prompts
            .iter()
            .flat_map(|assumed| assumed.keys.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(num_blocks: &[usize], now: Nanos, expected_due: usize) {
        let mut assumptions = Assumptions::default();
        for (index, &num_blocks) in num_blocks.iter().enumerate() {
            assumptions.push(Assumed {
                keys: vec![RouteKey(0); num_blocks],
                until: Nanos(10 + index as u64),
            });
        }
        let due = std::iter::from_fn(|| assumptions.pop_due(now)).count();
        assert_eq!(due, expected_due);
    }

    #[test]
    fn assumptions_fall_due_in_order() {
        check(&[1, 1, 1], Nanos(9), 0);
        check(&[1, 1, 1], Nanos(11), 2);
    }

    #[test]
    fn too_many_make_the_oldest_due() {
        check(&[MAX_ASSUMED_BLOCKS, 1, 1], Nanos(0), 1);
        check(&[1, MAX_ASSUMED_BLOCKS], Nanos(0), 1);
        check(&[MAX_ASSUMED_BLOCKS + 1], Nanos(0), 1);
    }
}
