//! Configuration of a tiered store.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use headstart_core::transfer::TokenFormat;
#[cfg(doc)]
use headstart_core::transfer::Transfer;
use headstart_core::{TenantTag, Tier};

use crate::backend::{Backend, ResidentRecord};
use crate::line::Rate;
use crate::record::{Exactness, Layout, PAGE};

/// Configuration of a tiered store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Bytes of each part of a block, as the device gives it.
    pub part_bytes: Vec<usize>,
    /// Whether that is all that the device has. Records of the other kind are not loaded.
    pub exactness: Exactness,
    /// Blocks of a unit.
    pub unit_blocks: usize,
    /// Tokens of a unit.
    pub unit_tokens: u32,
    /// Units that host memory holds; 0 where it is no tier.
    pub host_units: usize,
    /// Units staged for the device or on their way, beside those in host memory.
    pub staging_units: usize,
    /// Lifetimes of stored records.
    pub lifetimes: Lifetimes,
    /// Seconds since 1970.
    pub now_s: fn() -> u64,
    /// File for the ends of the last used prompts, if they are to be noted.
    pub notes: Option<PathBuf>,
    /// Whether and how parts of units are read alone, and packed. Then the parts of a unit lie so
    /// that each is read alone without loss ([`Layout::Paged`]): its records are a little longer.
    pub parts: Option<PartsConfig>,
}

/// Options of reading single parts of units, and of packing.
#[derive(Clone)]
pub struct PartsConfig {
    /// Parts, loaded or being loaded, that are as long as the longest of a unit.
    pub slots: usize,
    /// Beside those, shorter ones; where a unit has none, as many more of the others. What both
    /// take is said by [`PartSlots`].
    pub small_slots: usize,
    /// Loads of parts that were not answered yet; those beyond fail.
    pub most_loads: usize,
    /// Packs that were asked for and not begun yet; those beyond fail.
    pub most_packs: usize,
    /// Layout of tokens in a part.
    pub format: Arc<dyn TokenFormat>,
    /// Simulated rate of moving a loaded part to the device ([`Transfer::LoadPart`] from
    /// [`Tier::Host`]), for measuring; `None`: no delay.
    pub host_line: Option<Rate>,
}

/// Memory of parts that are loaded or being loaded: slots of two lengths, for the longest parts of
/// a unit and for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartSlots {
    /// Bytes of a slot for one of the longest.
    pub large_bytes: usize,
    /// Bytes of a slot for a shorter one; equals `large_bytes` if all parts have one length.
    pub small_bytes: usize,
    /// The longest part that is shorter, bytes.
    pub(super) shorter: Option<usize>,
}

impl PartSlots {
    /// Returns the slots for parts of these lengths, bytes.
    #[must_use]
    pub fn of(parts: &[usize]) -> Self {
        let longest = parts.iter().copied().max().unwrap_or(0);
        let shorter = parts.iter().copied().filter(|&len| len < longest).max();
        let large_bytes = Layout::Paged.slot_bytes(longest);
        Self {
            large_bytes,
            // With the header before them, which is read at once.
            small_bytes: shorter.map_or(large_bytes, |len| Layout::Paged.slot_bytes(len) + PAGE),
            shorter,
        }
    }
}

impl std::fmt::Debug for PartsConfig {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PartsConfig")
            .field("slots", &self.slots)
            .field("small_slots", &self.small_slots)
            .field("most_loads", &self.most_loads)
            .field("most_packs", &self.most_packs)
            .field("host_line", &self.host_line)
            .finish_non_exhaustive()
    }
}

/// Lifetimes of stored records by tenant, seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    /// Lifetime under all other tenants; `None`: for ever.
    pub each_s: Option<u64>,
    /// Lifetimes under the named tenants.
    pub named_s: HashMap<TenantTag, u64>,
}

impl Lifetimes {
    pub(super) fn of(&self, tenant: TenantTag) -> Option<u64> {
        self.named_s.get(&tenant).copied().or(self.each_s)
    }
}

impl StoreConfig {
    pub(super) fn unit_parts(&self) -> Vec<usize> {
        let bytes = self.part_bytes.iter();
        bytes.map(|bytes| bytes * self.unit_blocks).collect()
    }

    /// Bytes that a unit takes in a tier.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.layout().record_bytes(&self.unit_parts()) as u64
    }

    /// Returns the layout of a unit's parts.
    pub(super) fn layout(&self) -> Layout {
        match &self.parts {
            None => Layout::Dense,
            Some(_) => Layout::Paged,
        }
    }
}

/// A tier below host memory.
pub struct Below {
    /// The tier.
    pub tier: Tier,
    /// The backend that holds its records.
    pub backend: Box<dyn Backend>,
    /// Records that it holds already.
    pub found: Vec<ResidentRecord>,
}
