//! Random calls to a bare policy, in an order in which a cache could make them.

use headstart_cache::Policy;
use headstart_cache::policy::Newcomer;
use headstart_core::{
    Access, BlockHash, BlockId, FinishKind, Nanos, Probability, Rng, SessionId, ToolClass,
};

/// Slots: few, so that every state is met often.
pub(super) const CAPACITY: usize = 12;
/// Evicted names that may come back.
const REMEMBERED: usize = 40;

/// Makes the calls and checks the answers.
pub(super) struct Calls {
    rng: Rng,
    seed: u64,
    slots: [SlotStatus; CAPACITY],
    evicted: Vec<BlockHash>,
    num_names: u64,
    now: Nanos,
    request: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum SlotStatus {
    Absent,
    Held(BlockHash),
    Offered(BlockHash),
}

impl SlotStatus {
    fn held(self) -> Option<BlockHash> {
        if let Self::Held(hash) = self { Some(hash) } else { None }
    }

    fn offered(self) -> Option<BlockHash> {
        if let Self::Offered(hash) = self { Some(hash) } else { None }
    }
}

impl Calls {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            seed,
            slots: [SlotStatus::Absent; CAPACITY],
            evicted: Vec::new(),
            num_names: 0,
            now: Nanos(0),
            request: 0,
        }
    }

    /// One call, or the few that belong together. Returns what was evicted.
    pub(super) fn step(&mut self, policy: &mut dyn Policy) -> Option<BlockId> {
        self.now.0 += self.rng.below(1_000_000_000) as u64;
        match self.rng.below(9) {
            0 | 1 => self.insert(policy),
            2 => self.release(policy),
            3 | 4 => self.offer(policy),
            5 => self.withdraw(policy),
            6 => return self.evict(policy, None),
            7 => self.forget(policy),
            _ => return self.replace(policy),
        }
        None
    }

    fn insert(&mut self, policy: &mut dyn Policy) {
        if let Some((index, ())) = self.any(|slot| (slot == SlotStatus::Absent).then_some(())) {
            let newcomer = self.newcomer();
            self.settle(policy, index, &newcomer);
        }
    }

    /// A request lets go of some blocks, which others may go on holding.
    fn release(&mut self, policy: &mut dyn Policy) {
        let is_held = |index: &usize| self.slots[*index].held().is_some();
        let mut held: Vec<_> = (0..CAPACITY).filter(is_held).map(slot_of).collect();
        self.rng.shuffle(&mut held);
        held.truncate(1 + self.rng.below(4));
        if !held.is_empty() {
            self.request += 1;
            policy.release(&held, &self.access(0));
        }
    }

    fn offer(&mut self, policy: &mut dyn Policy) {
        if let Some((index, hash)) = self.any(SlotStatus::held) {
            self.slots[index] = SlotStatus::Offered(hash);
            policy.offer(slot_of(index));
        }
    }

    fn withdraw(&mut self, policy: &mut dyn Policy) {
        if let Some((index, hash)) = self.any(SlotStatus::offered) {
            self.slots[index] = SlotStatus::Held(hash);
            policy.withdraw(slot_of(index));
        }
    }

    /// Forgets a random held block, as if its bytes were lost.
    fn forget(&mut self, policy: &mut dyn Policy) {
        if let Some((index, hash)) = self.any(SlotStatus::held) {
            self.slots[index] = SlotStatus::Absent;
            policy.forget(slot_of(index), hash);
        }
    }

    /// Evicts the policy's victim; does nothing if it names no block.
    fn evict(&mut self, policy: &mut dyn Policy, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        let block = self.ask(policy, newcomer)?;
        let hash = self.evicted_from(block);
        policy.remove(block, hash);
        if let Some(newcomer) = newcomer {
            self.settle(policy, block.index(), newcomer);
        }
        Some(block)
    }

    /// Evicts for a newcomer, which takes the victim's slot.
    fn replace(&mut self, policy: &mut dyn Policy) -> Option<BlockId> {
        let newcomer = self.newcomer();
        self.evict(policy, Some(&newcomer))
    }

    /// Asks twice for a victim and checks the answers.
    pub(super) fn ask(
        &mut self,
        policy: &mut dyn Policy,
        newcomer: Option<&Newcomer>,
    ) -> Option<BlockId> {
        let seed = self.seed;
        let is_offered = |slot: &SlotStatus| slot.offered().is_some();
        let is_any_offered = self.slots.iter().any(is_offered);
        let victim = policy.victim(self.now, newcomer);
        match victim {
            Some(block) => {
                let slot = self.slots.get(block.index());
                let is_offered = slot.is_some_and(is_offered);
                assert!(is_offered, "{block:?} is named but not offered, seed {seed}");
            }
            None => assert!(
                newcomer.is_some() || !is_any_offered,
                "a block is offered but none is named, seed {seed}"
            ),
        }
        let again = policy.victim(self.now, newcomer);
        assert_eq!(victim, again, "asking changed the answer, seed {seed}");
        victim
    }

    fn settle(&mut self, policy: &mut dyn Policy, index: usize, newcomer: &Newcomer) {
        self.evicted.retain(|hash| *hash != newcomer.hash);
        self.slots[index] = SlotStatus::Held(newcomer.hash);
        policy.insert(slot_of(index), newcomer.hash, &newcomer.access);
    }

    fn evicted_from(&mut self, block: BlockId) -> BlockHash {
        let slot = std::mem::replace(&mut self.slots[block.index()], SlotStatus::Absent);
        let hash = slot.offered().expect("a victim was checked to be offered");
        if self.evicted.len() == REMEMBERED {
            self.evicted.remove(0);
        }
        self.evicted.push(hash);
        hash
    }

    /// A block that is not resident: a new one, or one that was evicted before.
    fn newcomer(&mut self) -> Newcomer {
        let hash = match self.evicted.len() {
            len if len > 0 && self.rng.below(2) == 0 => self.evicted[self.rng.below(len)],
            _ => {
                self.num_names += 1;
                BlockHash::from_u64(self.num_names)
            }
        };
        let offset = self.rng.below(8) as u32;
        Newcomer { hash, access: self.access(offset) }
    }

    fn access(&mut self, offset: u32) -> Access {
        Access {
            now: self.now,
            request_type: self.rng.below(3) as u16,
            turn: self.rng.below(5) as u16,
            tool: ToolClass::from_number(self.rng.below(4) as u8).unwrap_or_default(),
            offset,
            session: (self.rng.below(3) > 0).then(|| SessionId(self.rng.below(4) as u64)),
            request: self.request,
            p_continue: Probability::new(self.rng.next_f64()),
            importance: (self.rng.below(3) > 0).then(|| self.rng.next_f64() as f32),
            finish: FinishKind::ALL[self.rng.below(FinishKind::ALL.len())],
            output_tokens: (self.rng.below(3) > 0).then(|| self.rng.below(2_000) as u32),
            started: (self.rng.below(3) > 0).then_some(self.now),
        }
    }

    fn any<T>(&mut self, of: impl Fn(SlotStatus) -> Option<T>) -> Option<(usize, T)> {
        let slots = self.slots.iter().enumerate();
        let mut found: Vec<_> =
            slots.filter_map(|(index, slot)| Some((index, of(*slot)?))).collect();
        (!found.is_empty()).then(|| found.swap_remove(self.rng.below(found.len())))
    }
}

fn slot_of(index: usize) -> BlockId {
    BlockId(index as u32)
}
