//! A tier whose memory another program manages: vLLM's CPU tier, through its `CachePolicy`.
//!
//! That program allocates the slots, moves the bytes and tells of uses; it asks for victims. A unit
//! with a child here is no victim, and neither is one that no request has released: it belongs to
//! a request that runs. [`ExternalTier::evict`] gives such units up only where the others are too
//! few.
//!
//! ```text
//! insert ──► writing ──commit──► held ──touch──► candidate ──evict──► gone
//!               ├──remove           │  pin, unpin: while it is read
//!               └──touch, commit ───┼──────────────► candidate
//!                                   └──evict, where too few are released
//! ```
//!
//! A request may end before all of its bytes are there.
//!
//! So a trace with one request at a time has the hits that [`crate::PrefixCache`] gives it.

use std::collections::{HashMap, HashSet};

use headstart_core::{Access, BlockHash, BlockId, Nanos, TenantTag};

use super::level::{Link, TierContents};
use super::owners::Shares;
use crate::Policy;

/// Names of a tier that another program fills, and the order in which they go.
pub struct ExternalTier {
    contents: TierContents,
    /// Units that no request has released yet: each has a pin.
    held: HashMap<BlockHash, BlockId>,
    /// Units on their way whose request has ended.
    released: HashSet<BlockHash>,
    first_use: FirstUse,
}

/// When a unit is used for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstUse {
    /// When a request that used it ends.
    Release,
    /// When it is inserted.
    Insert,
}

impl ExternalTier {
    /// An empty tier of `capacity` units.
    ///
    /// # Panics
    /// When `capacity` does not fit a [`BlockId`].
    #[must_use]
    pub fn new(capacity: usize, policy: Box<dyn Policy>) -> Self {
        let contents = TierContents::new(capacity, policy, Shares::default());
        Self {
            contents,
            held: HashMap::new(),
            released: HashSet::new(),
            first_use: FirstUse::Release,
        }
    }

    /// An empty tier below another one: a unit counts as used when it is inserted, and may go as
    /// soon as its bytes are there, because its request has ended or does not need it here.
    ///
    /// # Panics
    /// When `capacity` does not fit a [`BlockId`].
    #[must_use]
    pub fn below(capacity: usize, mut policy: Box<dyn Policy>) -> Self {
        policy.serve_tier();
        Self { first_use: FirstUse::Insert, ..Self::new(capacity, policy) }
    }

    /// Slots in all, and units that can be read.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        self.contents.size()
    }

    /// Slots that hold nothing.
    #[must_use]
    pub fn free(&self) -> usize {
        self.contents.num_free()
    }

    /// Whether the unit is here, readable or being written.
    #[must_use]
    pub fn knows(&self, name: BlockHash) -> bool {
        self.contents.knows(name)
    }

    /// Whether the unit can be read.
    #[must_use]
    pub fn holds(&self, name: BlockHash) -> bool {
        self.contents.holds(name)
    }

    /// Whether the bytes of the unit are on their way.
    #[must_use]
    pub fn is_writing(&self, name: BlockHash) -> bool {
        self.contents.knows(name) && !self.contents.holds(name)
    }

    /// The tables of the policy, if it learns.
    #[must_use]
    pub fn learned(&self) -> Option<Vec<u8>> {
        self.contents.learned()
    }

    /// The bytes of a unit are on their way to a free slot; `parent` is the unit before it, where
    /// that is known. Whether there was a free slot, and the unit was not here.
    #[must_use]
    pub fn insert(&mut self, name: BlockHash, parent: Option<BlockHash>, access: &Access) -> bool {
        let unit = Link { name, parent, tenant: TenantTag::default() };
        self.contents.begin_free(unit, access, self.first_use == FirstUse::Insert)
    }

    /// The bytes of a unit are there. No effect on one that is not on its way.
    pub fn commit(&mut self, name: BlockHash) {
        let is_released = self.released.remove(&name);
        let pins = u32::from(self.first_use == FirstUse::Release && !is_released);
        if let Some(slot) = self.contents.commit(name, pins)
            && pins > 0
        {
            self.held.insert(name, slot);
        }
    }

    /// A unit is gone, whether its bytes ever came or not.
    pub fn remove(&mut self, name: BlockHash) {
        self.held.remove(&name);
        self.released.remove(&name);
        // A slot stands for no memory here, so it need not wait for those that read it.
        while let Some((slot, 1..)) = self.contents.slot(name) {
            self.contents.unpin(slot);
        }
        self.contents.abort(name);
        self.contents.lose(name);
    }

    /// A unit is read, and stays until [`Self::unpin`]. Returns whether it can be read; there is no
    /// effect otherwise.
    pub fn pin(&mut self, name: BlockHash) -> bool {
        self.contents.pin(name).is_some()
    }

    /// Whether the unit can be read and nothing reads it.
    #[must_use]
    pub fn is_idle(&self, name: BlockHash) -> bool {
        self.contents.slot(name).is_some_and(|(_, pins)| pins == 0)
    }

    /// A read has ended. No effect on a unit that nothing reads.
    pub fn unpin(&mut self, name: BlockHash) {
        let held = u32::from(self.held.contains_key(&name));
        if let Some((slot, pins)) = self.contents.slot(name)
            && pins > held
        {
            self.contents.unpin(slot);
        }
    }

    /// One request's use of the units of its prompt, in order from the first; those that are not
    /// here count as evicted, as in [`Policy::release_some`]. O(`names`).
    pub fn touch(&mut self, names: &[BlockHash], access: &Access) {
        self.contents.touch(names, access);
        // Tail first: recency runs from the last unit to the first.
        for name in names.iter().rev() {
            if let Some(slot) = self.held.remove(name) {
                self.contents.unpin(slot);
            } else if self.is_writing(*name) {
                self.released.insert(*name);
            }
        }
    }

    /// Evicts `count` units in the policy's order, but for those of `keep` and the units before
    /// them. `None`, and nothing is evicted, where fewer may go. O(`keep` + `count`), and
    /// O(capacity) where few conversations have long prefixes.
    #[must_use]
    pub fn evict(
        &mut self,
        count: usize,
        keep: &[BlockHash],
        now: Nanos,
    ) -> Option<Vec<BlockHash>> {
        self.keeping(keep, |tier| {
            let evicted = tier.contents.evict_exactly(count, now);
            if evicted.is_some() || tier.held.is_empty() {
                return evicted;
            }
            // A request that ended without a word must not hold its units for ever.
            tier.release_held(now);
            tier.contents.evict_exactly(count, now)
        })
    }

    /// Makes room for the first of `count` units, whose prompt has the units of `keep`: a tail is
    /// worth nothing without its head, so the last ones go without. Returns the number that fits,
    /// and what was evicted for it. Cost as of [`Self::evict`].
    #[must_use]
    pub fn make_room(
        &mut self,
        count: usize,
        keep: &[BlockHash],
        now: Nanos,
    ) -> (usize, Vec<BlockHash>) {
        let free = self.free();
        let wanted = count.saturating_sub(free);
        let evicted = self.keeping(keep, |tier| {
            let evictable = tier.contents.evictable(wanted);
            tier.contents.evict_exactly(evictable, now).unwrap_or_default()
        });
        (count.min(free + evicted.len()), evicted)
    }

    /// Calls `evict` while the units of `keep` stay.
    fn keeping<T>(&mut self, keep: &[BlockHash], evict: impl FnOnce(&mut Self) -> T) -> T {
        let kept: Vec<_> = keep.iter().filter_map(|&name| self.contents.pin(name)).collect();
        let evicted = evict(self);
        kept.into_iter().for_each(|slot| self.contents.unpin(slot));
        evicted
    }

    /// Asserts every invariant. O(capacity).
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.contents.check();
        for (&name, &slot) in &self.held {
            let found = self.contents.slot(name);
            assert!(
                found.is_some_and(|(at, pins)| at == slot && pins > 0),
                "what is held has a pin"
            );
        }
        assert!(self.released.iter().all(|&name| self.is_writing(name)));
    }

    /// Counts each held unit as used once, so that it may go.
    fn release_held(&mut self, now: Nanos) {
        let mut held: Vec<_> = self.held.drain().collect();
        // In the order of slots, so that equal calls have equal effects.
        held.sort_unstable_by_key(|&(_, slot)| slot);
        for (name, slot) in held {
            self.contents.touch(&[name], &Access::at(now));
            self.contents.unpin(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Setting;
    use crate::policy::{NAMES, by_name};
    use headstart_core::Rng;

    fn name(id: u64) -> BlockHash {
        BlockHash::from_u64(id)
    }

    fn tier(policy: &str, capacity: usize) -> ExternalTier {
        let setting = Setting { capacity, block_tokens: 16 };
        ExternalTier::new(capacity, by_name(policy, setting).expect("a policy"))
    }

    /// Stores a chain of names behind one another, and releases them.
    fn serve(tier: &mut ExternalTier, chain: &[BlockHash], at: u64) {
        let access = Access::at(Nanos(at));
        for (offset, &unit) in chain.iter().enumerate() {
            let parent = offset.checked_sub(1).map(|before| chain[before]);
            assert!(tier.insert(unit, parent, &access));
            tier.commit(unit);
        }
        tier.touch(chain, &access);
    }

    #[test]
    fn tails_go_first_and_what_is_kept_keeps_its_prefix() {
        let mut tier = tier("lru", 6);
        let (old, new) = ([1, 2, 3].map(name), [4, 5, 6].map(name));
        serve(&mut tier, &old, 1);
        serve(&mut tier, &new, 2);
        assert_eq!(tier.evict(4, &[name(2)], Nanos(3)), Some([3, 6, 5, 4].map(name).to_vec()));
        assert_eq!(tier.evict(1, &[name(2)], Nanos(3)), None);
        assert_eq!(tier.evict(2, &[], Nanos(3)), Some([2, 1].map(name).to_vec()));
        tier.check();
    }

    #[test]
    fn a_running_request_gives_its_units_up_last() {
        let mut tier = tier("lru", 3);
        assert!(tier.insert(name(1), None, &Access::default()));
        tier.commit(name(1));
        serve(&mut tier, &[name(2)], 5);
        assert_eq!(tier.evict(1, &[], Nanos(9)), Some(vec![name(2)]));
        // No released unit is left.
        assert_eq!(tier.evict(1, &[], Nanos(9)), Some(vec![name(1)]));
        assert_eq!(tier.evict(1, &[], Nanos(9)), None);
        tier.check();
    }

    #[test]
    fn units_that_come_after_their_request_has_ended_are_released() {
        let mut tier = tier("lru", 4);
        let (late, running) = ([1, 2].map(name), name(3));
        for (unit, parent) in [(late[0], None), (late[1], Some(late[0])), (running, None)] {
            assert!(tier.insert(unit, parent, &Access::default()));
        }
        tier.touch(&late, &Access::at(Nanos(1)));
        for unit in [late[0], late[1], running] {
            tier.commit(unit);
        }
        tier.check();
        // What runs is given up last.
        assert_eq!(tier.evict(3, &[], Nanos(2)), Some(vec![late[1], late[0], running]));
        // A unit that never came is as new when it is inserted again.
        assert!(tier.insert(name(1), None, &Access::default()));
        tier.touch(&[name(1)], &Access::at(Nanos(3)));
        tier.remove(name(1));
        assert!(tier.insert(name(1), None, &Access::default()));
        tier.commit(name(1));
        serve(&mut tier, &[name(2)], 4);
        assert_eq!(tier.evict(1, &[], Nanos(5)), Some(vec![name(2)]));
        tier.check();
    }

    #[test]
    fn bytes_that_come_late_change_no_order() {
        for policy in NAMES {
            let mut rng = Rng::new(3);
            let mut tiers = [tier(policy, 40), tier(policy, 40)];
            for step in 1..400_u64 {
                // A conversation of 20, which grows.
                let session = rng.below(20) as u64;
                let access = Access {
                    turn: 1 + rng.below(3) as u16,
                    request_type: rng.below(3) as u16,
                    session: Some(headstart_core::SessionId(session)),
                    finish: headstart_core::FinishKind::ToolCalls,
                    output_tokens: Some(rng.below(200) as u32),
                    ..Access::at(Nanos(step * 1_000_000_000))
                };
                let length = 1 + rng.below(8) as u64;
                let chain: Vec<_> =
                    (0..length).map(|at| name(1_000 * (session + 1) + at)).collect();
                let known = chain.iter().take_while(|&&unit| tiers[0].holds(unit)).count();
                let count = chain.len() - known;
                let keep = &chain[..known];
                let [first, second] = &mut tiers;
                for &unit in keep {
                    assert!(first.pin(unit) && second.pin(unit));
                }
                for (&unit, &other) in keep.iter().zip(keep.iter().rev()) {
                    first.unpin(unit);
                    second.unpin(other);
                }
                if first.free() < count {
                    let wanted = count - first.free();
                    let evicted = first.evict(wanted, keep, access.now);
                    assert_eq!(evicted, second.evict(wanted, keep, access.now), "{policy} {step}");
                }
                let fresh = &chain[known..];
                for tier in [&mut *first, &mut *second] {
                    for (at, &unit) in fresh.iter().enumerate() {
                        let parent = (known + at).checked_sub(1).map(|before| chain[before]);
                        let access = Access { offset: (known + at) as u32, ..access };
                        assert!(tier.insert(unit, parent, &access));
                    }
                }
                fresh.iter().for_each(|&unit| first.commit(unit));
                first.touch(&chain, &access);
                second.touch(&chain, &access);
                // vLLM tells of them in any order.
                let mut late = fresh.to_vec();
                while !late.is_empty() {
                    second.commit(late.swap_remove(rng.below(late.len())));
                }
            }
        }
    }

    #[test]
    fn a_prompt_larger_than_the_tier_has_room_for_its_head() {
        let setting = Setting { capacity: 4, block_tokens: 16 };
        let mut tier = ExternalTier::below(4, by_name("lru", setting).expect("a policy"));
        serve(&mut tier, &[1, 2].map(name), 1);
        assert_eq!(tier.make_room(2, &[], Nanos(2)), (2, Vec::new()));
        // 1 is the head of the newcomers.
        assert_eq!(tier.make_room(9, &[name(1)], Nanos(2)), (3, vec![name(2)]));
        assert_eq!(tier.make_room(0, &[], Nanos(2)), (0, Vec::new()));
        tier.check();
    }

    /// The units that may go: no pin, no write, nothing kept on them or behind them.
    fn most(alive: &[(u64, Option<u64>, bool)], keep: &[u64]) -> usize {
        let mut stays: Vec<u64> = keep.to_vec();
        stays.extend(alive.iter().filter(|unit| unit.2).map(|unit| unit.0));
        let mut next = 0;
        while next < stays.len() {
            let parent = alive.iter().find(|unit| unit.0 == stays[next]).and_then(|unit| unit.1);
            stays.extend(parent.filter(|parent| !stays.contains(parent)));
            next += 1;
        }
        alive.iter().filter(|unit| !stays.contains(&unit.0)).count()
    }

    fn pick(rng: &mut Rng, alive: &[(u64, Option<u64>, bool)]) -> Option<u64> {
        (!alive.is_empty()).then(|| alive[rng.below(alive.len())].0)
    }

    #[test]
    fn each_policy_evicts_exactly_what_may_go() {
        for policy in NAMES {
            let mut rng = Rng::new(7);
            let mut tier = tier(policy, 24);
            // Name, parent and whether it is read.
            let mut alive: Vec<(u64, Option<u64>, bool)> = Vec::new();
            for step in 1..3_000_u64 {
                let access = Access::at(Nanos(step * 1_000_000));
                match rng.below(8) {
                    0..4 if alive.len() < 24 => {
                        let parent = pick(&mut rng, &alive);
                        let parent = parent.filter(|_| rng.below(3) > 0);
                        assert!(tier.insert(name(step), parent.map(name), &access));
                        tier.commit(name(step));
                        if rng.below(4) > 0 {
                            tier.touch(&[name(step)], &access);
                        }
                        alive.push((step, parent, false));
                    }
                    4 if !alive.is_empty() => {
                        let at = rng.below(alive.len());
                        let unit = &mut alive[at];
                        assert!(!(unit.2 && tier.is_idle(name(unit.0))));
                        if unit.2 {
                            tier.unpin(name(unit.0));
                        } else {
                            assert!(tier.pin(name(unit.0)));
                        }
                        unit.2 = !unit.2;
                    }
                    5 if !alive.is_empty() => {
                        let at = rng.below(alive.len());
                        if !alive[at].2 {
                            tier.remove(name(alive.swap_remove(at).0));
                        }
                    }
                    _ => {
                        let keep: Vec<u64> = pick(&mut rng, &alive).into_iter().collect();
                        let count = rng.below(5);
                        let names: Vec<_> = keep.iter().copied().map(name).collect();
                        let evicted = tier.evict(count, &names, access.now);
                        assert_eq!(evicted.is_some(), most(&alive, &keep) >= count, "{policy}");
                        let evicted = evicted.unwrap_or_default();
                        alive.retain(|unit| !evicted.contains(&name(unit.0)));
                    }
                }
                tier.check();
                assert_eq!(tier.size().1, alive.len());
            }
        }
    }
}
