//! Units of requests that have ended, written to the tiers that wait for this.
//!
//! A tier takes a limited number of writes at once, and a prompt may have thousands of units. The
//! others wait here, for as long as the device has them.

use std::collections::{HashMap, VecDeque};

use headstart_core::transfer::Unit;
use headstart_core::{Access, BlockHash, BlockId};

use super::{OnDevice, Shelf, Tiers, WriteWhen};

/// A unit of a request that ends, with its blocks on the device.
#[derive(Clone, Copy, Debug)]
pub struct EndedUnit<'a> {
    /// The unit.
    pub unit: Unit,
    /// Its blocks.
    pub blocks: &'a [BlockId],
}

/// Units that wait, in order.
#[derive(Default)]
pub(super) struct EndedUnits {
    /// Names; those that are in `units` no more are skipped.
    order: VecDeque<BlockHash>,
    units: HashMap<BlockHash, OnDevice>,
}

impl EndedUnits {
    fn push(&mut self, unit: OnDevice) {
        let name = unit.unit.name;
        if self.units.insert(name, unit).is_none() {
            self.order.push_back(name);
        }
        if self.order.len() > 2 * self.units.len() + 64 {
            let Self { order, units } = self;
            order.retain(|name| units.contains_key(name));
        }
    }

    fn first(&self) -> Option<&OnDevice> {
        self.units.get(self.order.front()?)
    }

    fn pop(&mut self) -> Option<OnDevice> {
        let unit = self.units.remove(&self.order.pop_front()?);
        self.skip_removed();
        unit
    }

    /// The device has evicted a block: a unit of this name has lost its end.
    pub(super) fn left_device(&mut self, name: BlockHash) {
        if self.units.remove(&name).is_some() {
            self.skip_removed();
        }
    }

    fn skip_removed(&mut self) {
        while self.order.front().is_some_and(|name| !self.units.contains_key(name)) {
            self.order.pop_front();
        }
    }
}

impl Tiers {
    /// A request ends whose use was reported ([`Self::used`]): its units, in order, are offered to
    /// the tiers that wait for this.
    pub fn ended(&mut self, units: &[EndedUnit<'_>], access: &Access) {
        for (number, &EndedUnit { unit, blocks }) in units.iter().enumerate() {
            let waits = |shelf: &Shelf| shelf.waits_for(unit.name);
            if self.shelves.iter().any(waits) {
                let offset = (number * self.config.unit_blocks) as u32;
                let access = Access { offset, ..*access };
                self.ended.push(OnDevice { unit, blocks: blocks.to_vec(), access });
            }
        }
        self.write_ended();
    }

    /// Begins to write units that wait, up to the limit of writes.
    pub(super) fn write_ended(&mut self) {
        while let Some(first) = self.ended.first() {
            let unit = first.unit;
            // A unit without those before it is worth nothing.
            let has_parent =
                unit.parent.is_none_or(|parent| self.shelves.iter().any(|s| s.level.knows(parent)));
            let wants = |shelf: &Shelf| has_parent && shelf.waits_for(unit.name);
            if (0..self.shelves.len()).any(|i| wants(&self.shelves[i]) && !self.may_write(i)) {
                return;
            }
            if let Some(OnDevice { unit, blocks, access }) = self.ended.pop() {
                self.store(unit, &blocks, &access, wants);
                self.pass_down(unit, &blocks, &access);
            }
        }
    }

    /// A unit that the nearest tier has not admitted is offered to the one below, as if that tier
    /// had evicted it.
    fn pass_down(&mut self, unit: Unit, blocks: &[BlockId], access: &Access) {
        let [nearest, below, ..] = &self.shelves[..] else {
            return;
        };
        let is_declined = nearest.write == WriteWhen::AtEnd && !nearest.level.knows(unit.name);
        if is_declined && below.write == WriteWhen::Back {
            let tier = below.tier;
            self.store(unit, blocks, access, |shelf| shelf.tier == tier);
        }
    }
}

impl Shelf {
    /// Whether it is written at the end of requests, and does not have the unit.
    fn waits_for(&self, name: BlockHash) -> bool {
        self.write == WriteWhen::AtEnd && !self.level.knows(name)
    }
}
