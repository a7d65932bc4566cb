//! Queue of events in order of time; equal times keep the order in which they were added.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use headstart_core::Nanos;

/// A queue of future events.
#[derive(Debug)]
pub(super) struct EventQueue<T> {
    queue: BinaryHeap<Due<T>>,
    made: u64,
}

#[derive(Debug)]
struct Due<T> {
    at: Nanos,
    number: u64,
    what: T,
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self { queue: BinaryHeap::new(), made: 0 }
    }
}

impl<T> EventQueue<T> {
    pub(super) fn add(&mut self, at: Nanos, what: T) {
        let number = self.made;
        self.made += 1;
        self.queue.push(Due { at, number, what });
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<(Nanos, T)> {
        let Due { at, what, .. } = self.queue.pop()?;
        Some((at, what))
    }
}

impl<T> Ord for Due<T> {
    /// The earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed, because the heap gives the greatest first. The number keeps equal times in
        // order.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Due<T> {}

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
