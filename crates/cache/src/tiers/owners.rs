//! Owners of a tier's units, and the victim among an owner's units when its share is full.
//!
//! An owner with a full share gives up its own least recently used unit, whatever victim the tier's
//! policy would choose: a heavy writer does not evict the units of others. Without shares nothing
//! is kept here.

use std::collections::{BTreeMap, HashMap};

use headstart_core::{BlockId, TenantTag};

/// Units that each tenant may hold in a tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Each that is not named; `None`: as many as there are.
    pub each: Option<usize>,
    /// Limits of the named tenants.
    pub named: HashMap<TenantTag, usize>,
}

impl Shares {
    fn of(&self, tenant: TenantTag) -> Option<usize> {
        self.named.get(&tenant).copied().or(self.each)
    }

    fn is_any(&self) -> bool {
        self.each.is_some() || !self.named.is_empty()
    }
}

/// The owners of a tier's units.
#[derive(Debug)]
pub(super) struct Owners {
    shares: Shares,
    owned: HashMap<TenantTag, OwnedUnits>,
    /// Per slot: when it was last used.
    used: Vec<u64>,
    clock: u64,
}

/// An owner's units.
#[derive(Debug, Default)]
struct OwnedUnits {
    units: usize,
    /// Evictable units, by last use. The others, most of them heads, need not be stepped over.
    candidates: BTreeMap<u64, BlockId>,
}

impl Owners {
    /// Returns `None` where no tenant's share is limited.
    pub(super) fn new(capacity: usize, shares: Shares) -> Option<Self> {
        shares.is_any().then(|| Self {
            shares,
            owned: HashMap::new(),
            used: vec![0; capacity],
            clock: 0,
        })
    }

    /// Returns the number of units by which a tenant would exceed its share with one more.
    pub(super) fn excess(&self, tenant: TenantTag) -> usize {
        let Some(most) = self.shares.of(tenant) else {
            return 0;
        };
        (self.count(tenant) + 1).saturating_sub(most)
    }

    /// Units of a tenant.
    pub(super) fn count(&self, tenant: TenantTag) -> usize {
        self.owned.get(&tenant).map_or(0, |owned| owned.units)
    }

    /// The units of a tenant that may go, the least recently used first.
    pub(super) fn candidates(&self, tenant: TenantTag) -> impl Iterator<Item = BlockId> {
        let owned = self.owned.get(&tenant).into_iter();
        owned.flat_map(|owned| owned.candidates.values().copied())
    }

    /// A slot has an owner from now on: its first use.
    pub(super) fn enter(&mut self, tenant: TenantTag, slot: BlockId) {
        self.owned.entry(tenant).or_default().units += 1;
        self.touch(slot);
    }

    /// A slot that may not go was used.
    pub(super) fn touch(&mut self, slot: BlockId) {
        self.clock += 1;
        // This is the key among the candidates, so it must not change while the slot is one.
        self.used[slot.index()] = self.clock;
    }

    /// It may go.
    pub(super) fn offer(&mut self, tenant: TenantTag, slot: BlockId) {
        let owned = self.owned.entry(tenant).or_default();
        // Uses are numbered, so no two slots share a key.
        owned.candidates.insert(self.used[slot.index()], slot);
    }

    /// It may not go any more.
    pub(super) fn withdraw(&mut self, tenant: TenantTag, slot: BlockId) {
        if let Some(owned) = self.owned.get_mut(&tenant) {
            owned.candidates.remove(&self.used[slot.index()]);
        }
    }

    /// One that may not go has no owner any more.
    pub(super) fn leave(&mut self, tenant: TenantTag) {
        let Some(owned) = self.owned.get_mut(&tenant) else {
            return;
        };
        owned.units -= 1;
        // Keeps the map no longer than the tier, however many tenants come and go.
        if owned.units == 0 {
            self.owned.remove(&tenant);
        }
    }
}
