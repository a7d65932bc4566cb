//! Where conversations are: the replica of a conversation's last turn.
//!
//! A prompt that begins with a whole earlier prompt continues it. Earlier prompts are known by the
//! key of their last full block, which names all tokens up to there. A prefix that many
//! conversations share ends at a block of none of them, unless a prompt is little more than it.

use std::collections::VecDeque;

use headstart_core::{ReplicaId, RouteKey};

use crate::index::PromptKeys;
use crate::lookup::Map;

/// Turns that are remembered; the oldest is forgotten. Some three megabytes.
const TURNS_MAX: usize = 1 << 16;

/// Blocks at the end of a prompt in which the end of its last turn is looked for: a turn adds
/// fewer.
const BLOCKS_MAX: usize = 1 << 12;

/// The replicas of the latest turns.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    replicas: Map<RouteKey, ReplicaId>,
    order: VecDeque<RouteKey>,
}

impl Homes {
    /// The replica of the longest earlier prompt that `prompt` continues. Costs a look-up for each
    /// block that the turn added.
    pub(crate) fn find(&self, prompt: &PromptKeys) -> Option<ReplicaId> {
        let latest = blocks(prompt).iter().rev().take(BLOCKS_MAX);
        latest
            .into_iter()
            .find_map(|key| self.replicas.get(key).copied())
    }

    /// Notes that `prompt` was sent to `replica`. Prompts shorter than a block have no home.
    pub(crate) fn note(&mut self, prompt: &PromptKeys, replica: ReplicaId) {
        let Some(&last) = blocks(prompt).last() else {
            return;
        };
        if self.replicas.insert(last, replica).is_some() {
            return;
        }
        self.order.push_back(last);
        if self.order.len() > TURNS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.replicas.remove(&oldest);
        }
    }
}

/// A prompt's blocks of the smallest size, which say most.
fn blocks(prompt: &PromptKeys) -> &[RouteKey] {
    prompt.chains().first().map_or(&[], |chain| &chain.keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::KeyChain;

    fn prompt(keys: &[u64]) -> PromptKeys {
        let keys: Vec<_> = keys.iter().map(|&key| RouteKey(key)).collect();
        let chain = KeyChain {
            block_size: 16,
            keys,
        };
        PromptKeys::from_chains(16 * chain.keys.len(), vec![chain])
    }

    #[test]
    fn a_continued_prompt_has_the_home_of_its_last_turn() {
        let mut homes = Homes::default();
        homes.note(&prompt(&[1, 2, 3]), ReplicaId(0));
        homes.note(&prompt(&[1, 2, 3, 4, 5]), ReplicaId(1));
        assert_eq!(homes.find(&prompt(&[1, 2, 3, 9])), Some(ReplicaId(0)));
        assert_eq!(homes.find(&prompt(&[1, 2, 3, 4, 5, 6])), Some(ReplicaId(1)));
        assert_eq!(
            homes.find(&prompt(&[1, 2, 8])),
            None,
            "a shared beginning is no home"
        );
        assert_eq!(homes.find(&prompt(&[])), None);
    }

    #[test]
    fn the_oldest_turns_are_forgotten() {
        let mut homes = Homes::default();
        for key in 0..=TURNS_MAX as u64 {
            homes.note(&prompt(&[key]), ReplicaId(0));
            homes.note(&prompt(&[key]), ReplicaId(1));
        }
        assert_eq!(homes.replicas.len(), TURNS_MAX);
        assert_eq!(homes.find(&prompt(&[0])), None);
        assert_eq!(homes.find(&prompt(&[1])), Some(ReplicaId(1)));
    }
}
