//! Bringing units to hand: who asked, what is on its way, and how long that takes.

use std::collections::HashMap;
use std::time::Duration;

use headstart_core::cost::Work;
use headstart_core::transfer::{Transfer, TransferId, TransferResult, Unit};
use headstart_core::{Access, BlockHash, BlockId, Nanos, Tier};

use super::level::{Begin, Link};
use super::plan::{LoadWhen, Plan, Question, TierRun, load_all, plan};
use super::told::link;
use super::{Change, ChangeKind, Tiers, WriteWhen};

/// Factor by which a load may exceed its predicted time before it is computed instead.
const PATIENCE: f64 = 1.25;

/// Added to that, seconds: what a step and a wake-up take anyway.
const GRACE_S: f64 = 0.005;

/// Or this share of what computing would take, where that is more: what a hit that does not come
/// may cost.
const GRACE: f64 = 0.05;

/// A unit that was asked for, as long as it is not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The unit.
    pub name: BlockHash,
    /// Its load: one that failed may be followed by another, which is not this one.
    load: TransferId,
}

/// Upper bound on the wait for a load, seconds.
const LONGEST_WAIT_S: f64 = 600.0;

/// State of a requested unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchState {
    /// Loaded and ready.
    Here,
    /// On its way.
    Loading,
    /// It will not come.
    Gone,
}

/// Units that are ready or on their way.
#[derive(Debug, Default)]
pub(super) struct Loads {
    units: HashMap<BlockHash, UnitLoad>,
    under_way: HashMap<TransferId, BlockHash>,
    /// Loads under way without a waiting user, by tier below host memory.
    abandoned: HashMap<Tier, usize>,
}

#[derive(Debug)]
struct UnitLoad {
    id: TransferId,
    from: Tier,
    link: Link,
    users: u32,
    asked_at: Nanos,
    is_here: bool,
    /// Slot in its tier that is pinned until the unit has arrived.
    slot: Option<BlockId>,
}

impl Loads {
    /// Returns the number of loads under way.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Asserts its invariants.
    pub(super) fn check(&self, most: usize) {
        let waiting = self.units.values().filter(|load| !load.is_here).count();
        assert_eq!(waiting, self.under_way.len(), "what is awaited is on its way");
        assert!(self.units.len() <= most, "loads are limited");
        let mut abandoned = HashMap::new();
        for load in self.units.values().filter(|load| load.is_abandoned()) {
            *abandoned.entry(load.from).or_default() += 1;
        }
        assert_eq!(abandoned, self.abandoned, "who waits is counted");
    }

    fn begin_to_wait(&mut self, from: Tier) {
        let count = self.abandoned.entry(from).or_default();
        *count -= 1;
        if *count == 0 {
            self.abandoned.remove(&from);
        }
    }
}

impl UnitLoad {
    fn is_abandoned(&self) -> bool {
        self.users == 0 && !self.is_here && self.from > Tier::Host
    }
}

impl Tiers {
    /// In which tiers the units of `names`, in order, are from the first on, until one is nowhere.
    fn runs(&self, names: &[BlockHash]) -> Vec<TierRun> {
        let mut runs: Vec<(Option<Tier>, TierRun)> = Vec::new();
        // `fetch_link` refuses loads beyond the limit, so this cannot underflow.
        let room = self.config.most_at_hand - self.loads.units.len();
        let mut new = 0;
        for &name in names {
            let at_hand = self.loads.units.get(&name);
            let tier = match at_hand {
                Some(load) if load.is_here => None,
                Some(load) => Some(load.from),
                None => match self.nearest(name) {
                    Some(tier) if new < room && self.answers(tier) => Some(tier),
                    // A prefix with a gap is of no use, so the run ends at the first unit that
                    // cannot come.
                    _ => break,
                },
            };
            // Units that are ready or on their way have their place already.
            new += usize::from(at_hand.is_none());
            match runs.last_mut() {
                Some((last, run)) if *last == tier => run.units += 1,
                _ => runs.push((tier, self.run_of(tier))),
            }
        }
        runs.into_iter().map(|(_, run)| run).collect()
    }

    /// A run of one unit, from a tier or already loaded.
    fn run_of(&self, tier: Option<Tier>) -> TierRun {
        let shelf = self.shelves.iter().find(|shelf| Some(shelf.tier) == tier);
        match shelf {
            None => TierRun { units: 1, start_s: 0.0, unit_s: 0.0 },
            Some(shelf) => TierRun {
                units: 1,
                // Loads that the tier still owes come first.
                start_s: shelf.speed.seconds(0),
                unit_s: self.config.unit_bytes as f64 / shelf.speed.bytes_per_s(),
            },
        }
    }

    /// Whether another load from a tier may begin. Loads from a tier that does not answer would
    /// otherwise use up the limit on ready units and starve the other tiers. Each tier below host
    /// memory has an equal part of it, and one part is left for host memory.
    fn answers(&self, from: Tier) -> bool {
        let below = self.shelves.iter().filter(|shelf| shelf.tier > Tier::Host);
        let part = self.config.most_at_hand.div_ceil(below.count() + 1);
        let abandoned = self.loads.abandoned.get(&from);
        abandoned.is_none_or(|&abandoned| abandoned < part)
    }

    fn nearest(&self, name: BlockHash) -> Option<Tier> {
        let shelf = self.shelves.iter().find(|shelf| shelf.level.holds(name))?;
        Some(shelf.tier)
    }

    /// Plans the loads for a prompt of `prompt_tokens` tokens, of which the device holds
    /// `device_tokens`. `names` are all its units, in order; `beside` is the other work of each
    /// step.
    #[must_use]
    pub fn plan(
        &self,
        names: &[BlockHash],
        device_tokens: usize,
        prompt_tokens: usize,
        beside: Work,
    ) -> Plan {
        // A unit that the device holds in part is loaded whole.
        let first_unit = device_tokens / self.unit_tokens();
        let runs = self.runs(names.get(first_unit..).unwrap_or_default());
        let question = Question {
            device_tokens,
            runs: &runs,
            unit_tokens: self.unit_tokens(),
            first_unit,
            prompt_tokens,
            engine: &self.config.engine,
            beside,
        };
        match self.config.load {
            LoadWhen::Faster => plan(&question),
            LoadWhen::Always => load_all(&question),
            LoadWhen::Never => Plan::default(),
        }
    }

    /// Until when a prompt waits for what its plan loads.
    #[must_use]
    pub fn deadline(&self, plan: &Plan, now: Nanos) -> Nanos {
        let grace_s = GRACE_S.max(plan.computed_s * GRACE);
        now + self.wait(plan.load_s * PATIENCE + grace_s)
    }

    /// The time for loads that are worth `worth_s` seconds of waiting.
    pub(super) fn wait(&self, worth_s: f64) -> Duration {
        let wait_s = match self.config.load {
            // The limit comes before the conversion: `from_secs_f64` panics on a time that is too
            // long.
            LoadWhen::Faster => worth_s.min(LONGEST_WAIT_S),
            LoadWhen::Always | LoadWhen::Never => LONGEST_WAIT_S,
        };
        Duration::from_secs_f64(wait_s)
    }

    /// Asks for a unit; the claim must be released. `None`: no tier holds it, or the limit on ready
    /// units is reached.
    pub fn fetch(&mut self, unit: &Unit, now: Nanos) -> Option<Claim> {
        self.fetch_link(link(unit), now)
    }

    pub(super) fn fetch_link(&mut self, link: Link, now: Nanos) -> Option<Claim> {
        let name = link.name;
        if let Some(load) = self.loads.units.get_mut(&name) {
            // The state is read before the new user counts, which ends the abandonment.
            let was_abandoned = load.is_abandoned();
            load.users += 1;
            let (load, from) = (load.id, load.from);
            if was_abandoned {
                self.loads.begin_to_wait(from);
            }
            return Some(Claim { name, load });
        }
        let from = self.nearest(name)?;
        // A load that is shared needs no further place, so the limit is checked after that case.
        if self.loads.units.len() >= self.config.most_at_hand || !self.answers(from) {
            return None;
        }
        let id = self.new_id();
        let bytes = self.config.unit_bytes;
        let shelf = self.shelf(from)?;
        // The slot stays pinned until the unit has arrived: it must not be overwritten while it is
        // read.
        let slot = shelf.level.pin(name);
        shelf.speed.asked(bytes, now);
        let load = UnitLoad { id, from, link, users: 1, asked_at: now, is_here: false, slot };
        self.loads.units.insert(name, load);
        self.loads.under_way.insert(id, name);
        self.transfers.push(Transfer::Load { id, name, from });
        Some(Claim { name, load: id })
    }

    /// Returns the state of a requested unit. O(1).
    #[must_use]
    pub fn fetched(&self, claim: Claim) -> FetchState {
        match self.claimed(claim) {
            Some(load) if load.is_here => FetchState::Here,
            Some(_) => FetchState::Loading,
            None => FetchState::Gone,
        }
    }

    /// From which tier a unit that was asked for comes.
    #[must_use]
    pub fn source(&self, claim: Claim) -> Option<Tier> {
        self.claimed(claim).map(|load| load.from)
    }

    fn claimed(&self, claim: Claim) -> Option<&UnitLoad> {
        let load = self.loads.units.get(&claim.name);
        load.filter(|load| load.id == claim.load)
    }

    /// Releases a claim. A claim on a load that is gone is ignored.
    pub fn release(&mut self, claim: Claim) {
        let Claim { name, load } = claim;
        let Some(load) = self.loads.units.get_mut(&name).filter(|found| found.id == load) else {
            return;
        };
        load.users -= 1;
        if load.is_abandoned() {
            *self.loads.abandoned.entry(load.from).or_default() += 1;
        }
        // A load under way cannot be called back: its arrival releases it.
        if load.users == 0 && load.is_here {
            self.loads.units.remove(&name);
            self.transfers.push(Transfer::Release { name });
        }
    }

    pub(super) fn loaded(
        &mut self,
        id: TransferId,
        result: TransferResult,
        ago: Duration,
        now: Nanos,
    ) {
        let Some(name) = self.loads.under_way.remove(&id) else {
            return;
        };
        let Some(load) = self.loads.units.get_mut(&name) else {
            return;
        };
        // The state is read before the load counts as arrived, which ends the abandonment.
        let was_abandoned = load.is_abandoned();
        load.is_here = true;
        let slot = load.slot.take();
        let (from, link, asked_at) = (load.from, load.link, load.asked_at);
        let (users, bytes) = (load.users, self.config.unit_bytes);
        if was_abandoned {
            self.loads.begin_to_wait(from);
        }
        if let Some(shelf) = self.shelf(from) {
            if let Some(slot) = slot {
                shelf.level.unpin(slot);
            }
            match result {
                TransferResult::Done => {
                    shelf.speed.arrived(bytes, asked_at, now.before(ago));
                    shelf.counts.loaded += 1;
                }
                TransferResult::Failed => {
                    shelf.speed.left(bytes);
                    shelf.counts.failed += 1;
                }
            }
        }
        match result {
            TransferResult::Done => {
                // `Keep` goes out before `Release`, which drops the loaded bytes.
                // A request that waits for it offers it at its end.
                let is_offered_later = users > 0 && self.shelves[0].write == WriteWhen::AtEnd;
                if !is_offered_later {
                    self.promote(link, from, now);
                }
                // All users gave up meanwhile, or it was loaded ahead of need.
                if users == 0 {
                    self.loads.units.remove(&name);
                    self.transfers.push(Transfer::Release { name });
                }
            }
            TransferResult::Failed => {
                // Its bytes cannot be read, so no later plan may count on them. Claims find it
                // gone.
                self.lose_slot(from, slot, name);
                self.loads.units.remove(&name);
            }
        }
        self.load_wanted(now);
    }

    /// Keeps a unit from below host memory in host memory, if it is admitted.
    fn promote(&mut self, link: Link, from: Tier, now: Nanos) {
        let tier = Tier::Host;
        let has_host = self.shelves.first().map(|shelf| shelf.tier) == Some(tier);
        if from <= tier || !has_host || self.shelves[0].level.knows(link.name) {
            return;
        }
        let access = Access::at(now);
        let mut evicted = Vec::new();
        let begun = self.shelves[0].level.begin(link, &access, &mut evicted);
        self.demote(0, evicted, now);
        if begun == Begin::Started {
            // There is no write to wait for: the bytes are in memory already.
            let name = link.name;
            self.shelves[0].level.commit(name, 0);
            self.transfers.push(Transfer::Keep { name, tier });
            self.changes.push(Change { tier, name, kind: ChangeKind::Stored });
        }
    }
}
