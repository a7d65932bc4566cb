//! Units of requests that have ended, written to the tiers that wait for this.
//!
//! A tier takes a limited number of writes at once, and a prompt may have thousands of units. The
//! others wait here, for as long as the device has them. Each tier has its own queue, so that one
//! that hangs keeps nothing from the others.

use std::collections::{HashMap, VecDeque};

use headstart_core::transfer::Unit;
use headstart_core::{Access, BlockHash, BlockId, Tier};

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

    fn pop(&mut self) -> Option<OnDevice> {
        loop {
            let name = self.order.pop_front()?;
            if let Some(unit) = self.units.remove(&name) {
                return Some(unit);
            }
        }
    }

    /// The device has evicted a block: a unit of this name has lost its end.
    pub(super) fn left_device(&mut self, name: BlockHash) {
        self.units.remove(&name);
    }
}

impl Tiers {
    /// A request ends whose use was reported ([`Self::used`]): its units, in order, are offered to
    /// the tiers that wait for this.
    pub fn ended<'a>(&mut self, units: impl IntoIterator<Item = EndedUnit<'a>>, access: &Access) {
        if self.shelves.iter().all(|shelf| shelf.write != WriteWhen::AtEnd) {
            return;
        }
        for (number, EndedUnit { unit, blocks }) in units.into_iter().enumerate() {
            let offset = (number * self.config.unit_blocks) as u32;
            let access = Access { offset, ..*access };
            for shelf in &mut self.shelves {
                if shelf.waits_for(unit.name) {
                    shelf.ended.push(OnDevice { unit, blocks: blocks.to_vec(), access });
                }
            }
        }
        self.write_ended();
    }

    /// Begins to write units that wait, up to each tier's limit of writes.
    pub(super) fn write_ended(&mut self) {
        for index in 0..self.shelves.len() {
            while self.may_write(index)
                && let Some(OnDevice { unit, blocks, access }) = self.shelves[index].ended.pop()
            {
                self.write_one(unit, &blocks, &access);
            }
        }
    }

    /// Offers a unit to all tiers that wait for it and may write: one copy serves them all.
    fn write_one(&mut self, unit: Unit, blocks: &[BlockId], access: &Access) {
        let has = |shelf: &Shelf, name| shelf.level.knows(name);
        // A unit without those before it is worth nothing.
        let is_reached =
            unit.parent.is_none_or(|parent| self.shelves.iter().any(|shelf| has(shelf, parent)));
        if is_reached {
            let may_write = |&index: &usize| self.may_write(index);
            let ready: Vec<Tier> = (0..self.shelves.len())
                .filter(may_write)
                .map(|index| self.shelves[index].tier)
                .collect();
            let wants = |shelf: &Shelf| ready.contains(&shelf.tier) && shelf.waits_for(unit.name);
            self.store(unit, blocks, access, wants);
        }
        self.pass_down(unit, blocks, access);
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
