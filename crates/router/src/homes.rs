//! Homes of conversations: the replica of each conversation's last turn.
//!
//! A prompt that begins with a whole earlier prompt continues it. A prompt is a chain of keys, of
//! its messages or of its blocks; each key covers all up to it, so that the last one names the
//! prompt. A prefix that many conversations share ends at a key of none of them, unless a prompt is
//! little more than it.

use std::collections::VecDeque;

use headstart_core::{ReplicaId, RouteKey};

use crate::lookup::StableMap;

/// Turns that are remembered; the oldest is forgotten. Some three megabytes.
const TURNS_MAX: usize = 1 << 16;

/// Keys at the end of a prompt among which the end of its last turn is looked for: a turn adds
/// fewer.
const KEYS_MAX: usize = 1 << 12;

/// The replicas of the latest turns.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    replicas: StableMap<RouteKey, ReplicaId>,
    order: VecDeque<RouteKey>,
}

impl Homes {
    /// The replica of the longest earlier prompt that this one continues. Costs a look-up for each
    /// key that the turn added.
    pub(crate) fn find(&self, prompt: &[RouteKey]) -> Option<ReplicaId> {
        let latest = prompt.iter().rev().take(KEYS_MAX);
        // From the end: the longest earlier prompt is the latest turn. A shorter one may be shared
        // with conversations that went elsewhere.
        latest.into_iter().find_map(|key| self.replicas.get(key).copied())
    }

    /// Notes that a prompt was sent to `replica`. One without a key has no home.
    pub(crate) fn note(&mut self, prompt: &[RouteKey], replica: ReplicaId) {
        let Some(&last) = prompt.last() else {
            return;
        };
        if self.replicas.insert(last, replica).is_some() {
            // A known turn keeps its place in the queue, so each key is in it once.
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

#[cfg(test)]
mod tests {
    use super::*;
    fn prompt(keys: &[u64]) -> Vec<RouteKey> {
        keys.iter().copied().map(RouteKey).collect()
    }

    #[test]
    fn a_continued_prompt_has_the_home_of_its_last_turn() {
        let mut homes = Homes::default();
        homes.note(&prompt(&[1, 2, 3]), ReplicaId(0));
        homes.note(&prompt(&[1, 2, 3, 4, 5]), ReplicaId(1));
        assert_eq!(homes.find(&prompt(&[1, 2, 3, 9])), Some(ReplicaId(0)));
        assert_eq!(homes.find(&prompt(&[1, 2, 3, 4, 5, 6])), Some(ReplicaId(1)));
        assert_eq!(homes.find(&prompt(&[1, 2, 8])), None, "a shared beginning is no home");
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
