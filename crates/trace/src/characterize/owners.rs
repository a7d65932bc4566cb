//! Sessions and users: a bounded table of records by id.

use std::collections::HashMap;

use headstart_core::Nanos;

use super::stack::mix;

/// Records by id; beyond the largest number, ids are sampled by a hash at a rate that halves.
#[derive(Clone, Debug)]
pub(super) struct SampledTable<T> {
    records: HashMap<u64, T>,
    records_max: usize,
    halvings: u32,
}

/// A session so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Session {
    pub(super) requests: u64,
    pub(super) references: u64,
    pub(super) hits: u64,
    pub(super) prompt_tokens: u64,
    /// The highest turn.
    pub(super) turns: u16,
    pub(super) first: Nanos,
    /// The last request: when, and its class.
    pub(super) last: Nanos,
    pub(super) class: (u16, u16),
}

/// A user so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct User {
    pub(super) requests: u64,
    pub(super) sessions: u64,
    pub(super) turns: u64,
    pub(super) hits: u64,
}

impl<T: Default> SampledTable<T> {
    pub(super) fn new(records_max: usize) -> Self {
        Self { records: HashMap::new(), records_max: records_max.max(1), halvings: 0 }
    }

    /// The record of `id`, a new one where there was none; `None` where it is not sampled.
    pub(super) fn of(&mut self, id: u64) -> Option<&mut T> {
        // A known id needs no room, so only a new one can lower the rate.
        while self.records.len() >= self.records_max && !self.records.contains_key(&id) {
            // An id that this rate drops anyway must not lower it for the others.
            if !is_kept(id, self.halvings) {
                return None;
            }
            self.halvings += 1;
            let halvings = self.halvings;
            // The hash alone decides, so each record that stays has seen all of its id's requests.
            self.records.retain(|&id, _| is_kept(id, halvings));
        }
        let is_kept = is_kept(id, self.halvings);
        is_kept.then(|| self.records.entry(id).or_default())
    }

    /// Returns the number of ids that each record stands for.
    pub(super) fn weight(&self) -> u64 {
        1 << self.halvings
    }

    /// All records, in no order.
    pub(super) fn records(&self) -> impl Iterator<Item = &T> {
        self.records.values()
    }
}

/// Another salt than that of blocks, so that what is kept of both is independent.
fn is_kept(id: u64, halvings: u32) -> bool {
    mix(id ^ 0x5e55_1045).leading_zeros() >= halvings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_bounded_and_stand_for_all() {
        let mut table: SampledTable<u64> = SampledTable::new(400);
        for id in 0..10_000 {
            if let Some(record) = table.of(id) {
                *record += 1;
            }
            assert!(table.records().count() <= 400);
        }
        let total = table.records().sum::<u64>() * table.weight();
        assert!((8_000..12_000).contains(&total), "{total}");
    }
}
