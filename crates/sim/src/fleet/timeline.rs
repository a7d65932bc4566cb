//! Queue of events in order of time; equal times keep the order in which they were added.

use std::collections::BTreeMap;

use headstart_core::Nanos;

/// A queue of future events.
#[derive(Debug)]
pub(super) struct EventQueue<T> {
    /// By time, and among equal times by number.
    queue: BTreeMap<(Nanos, u64), T>,
    made: u64,
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self { queue: BTreeMap::new(), made: 0 }
    }
}

impl<T> EventQueue<T> {
    pub(super) fn add(&mut self, at: Nanos, what: T) {
        self.queue.insert((at, self.made), what);
        self.made += 1;
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<(Nanos, T)> {
        let ((at, _), what) = self.queue.pop_first()?;
        Some((at, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_their_order() {
        let mut timeline = EventQueue::default();
        for (at, what) in [(2, 'c'), (1, 'a'), (2, 'd'), (1, 'b')] {
            timeline.add(Nanos(at), what);
        }
        let popped = std::iter::from_fn(|| timeline.pop());
        assert_eq!(popped.map(|(_, what)| what).collect::<String>(), "abcd");
    }
}
