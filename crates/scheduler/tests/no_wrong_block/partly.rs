//! An engine that computes prompts of which only parts are loaded: late, or not at all, or with an
//! answer that no full computation gives.
//!
//! What it computes behind a prefix that it left something out of is marked, and so is all that is
//! computed behind that. The test fails at once if a mark is stored, or meets a sequence that was
//! not loaded in part.

use std::collections::BTreeSet;
use std::time::Duration;

use headstart_core::transfer::{FoundUnit, Transfer, TransferReport};
use headstart_core::{BlockHash, Nanos, Rng, SeqId, TenantTag, Tier, TokenId};
use headstart_scheduler::{
    Executor, PartlyDone, PartlyLoadedPrompt, PartlyWhen, QueueOrder, Scheduler,
};
use headstart_selective::{Guard, GuardOptions};

use crate::mover::Mover;
use crate::{BLOCK_SIZE, Digests, Engine, MARK, extend, next_token, random_prompt, run_on};

/// Prompts that are taken over at once.
const MOST_AT_ONCE: usize = 2;

/// Outcomes of prompts that were taken over.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) exact: usize,
    pub(crate) marked: usize,
    pub(crate) failed: usize,
    pub(crate) late: usize,
    pub(crate) left: usize,
    /// Of those that left: their id was another one's at once, which was taken over as well.
    pub(crate) replaced: usize,
}

pub(crate) struct Parts {
    rng: Rng,
    under_way: Vec<PartlyLoadedPrompt>,
    /// Prompts whose answer comes from a part.
    pub(crate) marked: BTreeSet<SeqId>,
    pub(crate) seen: Seen,
}

impl Parts {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed ^ 0x9a7),
            under_way: Vec::new(),
            marked: BTreeSet::new(),
            seen: Seen::default(),
        }
    }

    /// A scheduler that asks for them.
    pub(crate) fn with(scheduler: Scheduler) -> Scheduler {
        let when = PartlyWhen { least_tokens: BLOCK_SIZE, most_at_once: MOST_AT_ONCE, share: 0.1 };
        scheduler.with_partly(when, Guard::new(GuardOptions::default()))
    }

    /// Whether so much time goes by that everybody's patience is over.
    pub(crate) fn is_long_step(&mut self) -> bool {
        self.rng.below(50) == 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Takes over what is begun, lets go of what is not wanted, and ends some of the others.
    pub(crate) fn advance(
        &mut self,
        scheduler: &mut Scheduler,
        (executor, mover): (&mut Digests, &Mover),
        prompt: impl Fn(SeqId) -> Vec<TokenId>,
        now: Nanos,
    ) {
        let before = self.under_way.len();
        self.under_way.extend(scheduler.take_partly());
        let num_wanted = self.wanted(scheduler).count();
        assert!(num_wanted <= MOST_AT_ONCE, "{num_wanted} at once");
        let is_new = |seq| {
            let mut new = self.under_way[before..].iter();
            new.any(|partly| partly.entry.seq == seq)
        };
        let old = self.under_way[..before].iter();
        let replaced = old.filter(|partly| is_new(partly.entry.seq)).count();
        self.seen.replaced += replaced;
        for partly in std::mem::take(&mut self.under_way) {
            let (seq, place) = (partly.entry.seq, partly.place);
            if !scheduler.is_partly(seq, place) {
                if scheduler.is_late_partly(seq) {
                    self.seen.late += 1;
                } else {
                    self.seen.left += 1;
                }
                continue;
            }
            assert_eq!(partly.entry.start, partly.stored.end);
            let tokens = &prompt(seq)[partly.stored.end..];
            assert_eq!(partly.entry.tokens, tokens, "all behind what is stored");
            let is_there = |unit: &BlockHash| mover.holds(Tier::Disk, *unit);
            match self.rng.below(40) {
                0 => self.fail(scheduler, &partly, now),
                1..5 if !partly.units().iter().all(is_there) => {
                    self.fail(scheduler, &partly, now);
                }
                1..5 => {
                    let done = self.compute(&partly, &prompt(seq), executor);
                    scheduler.complete_partly(seq, place, done, now);
                }
                _ => self.under_way.push(partly),
            }
        }
    }

    /// Prompts that are under way and neither left nor late.
    fn wanted<'a>(
        &'a self,
        scheduler: &'a Scheduler,
    ) -> impl Iterator<Item = &'a PartlyLoadedPrompt> {
        let under_way = self.under_way.iter();
        under_way.filter(|partly| scheduler.is_partly(partly.entry.seq, partly.place))
    }

    /// Nothing is removed of which parts may still be read.
    pub(crate) fn check_forgotten(&self, transfer: &Transfer, scheduler: &Scheduler) {
        if let Transfer::Forget { tier, names } = transfer
            && *tier == Tier::Disk
        {
            let mut needed = self.wanted(scheduler).flat_map(PartlyLoadedPrompt::units);
            assert!(!needed.any(|unit| names.contains(unit)), "{names:?}");
        }
    }

    fn fail(&mut self, scheduler: &mut Scheduler, partly: &PartlyLoadedPrompt, now: Nanos) {
        self.seen.failed += 1;
        scheduler.fail_partly(partly.entry.seq, partly.place, now);
    }

    /// Computes a prompt, behind all that is stored or only a part of it.
    fn compute(
        &mut self,
        partly: &PartlyLoadedPrompt,
        prompt: &[TokenId],
        executor: &mut Digests,
    ) -> PartlyDone {
        let stored = partly.stored.clone();
        let front = prompt[..stored.start].iter();
        let mut digest = front.fold(0, |digest, &token| extend(digest, token));
        if let Some(before) = stored.start.checked_sub(1) {
            let found = *executor.slot(&partly.entry.blocks, before);
            assert_eq!(found, digest, "what the device has is exact");
        }
        let is_exact = self.rng.below(4) == 0;
        if !is_exact {
            digest |= MARK;
            self.marked.insert(partly.entry.seq);
        }
        for (position, &token) in prompt.iter().enumerate().skip(stored.start) {
            digest = extend(digest, token);
            *executor.slot(&partly.entry.blocks, position) = digest;
        }
        if is_exact {
            self.seen.exact += 1;
        } else {
            self.seen.marked += 1;
        }
        let pruned = if is_exact { 0 } else { 1 + self.rng.below(stored.len()) as u32 };
        PartlyDone {
            pruned: [pruned].into(),
            loaded_bytes: 1,
            whole_bytes: 10,
            disk_bytes: 1,
            token: next_token(digest),
        }
    }
}

/// Nothing is stored that was computed behind a part.
pub(crate) fn check_stored(transfer: &Transfer, executor: &Digests) {
    if let Transfer::Store { blocks, .. } = transfer {
        let digests = blocks.iter().flat_map(|block| executor.0[block.index()]);
        assert_eq!(digests.fold(0, |marks, digest| marks | digest & MARK), 0);
    }
}

/// Prefixes that are loaded in part, exactly or not, late, not at all, or for a sequence that
/// leaves.
#[test]
fn nobody_meets_what_was_computed_behind_a_part() {
    let (mut seen, mut preempted) = (Seen::default(), 0);
    for seed in 0..120 {
        let mut rng = Rng::new(seed);
        let engine = Engine::new(9 + rng.below(20), QueueOrder::FirstCome);
        let engine = engine.with_tiers(seed).with_parts(seed);
        let mut engine = run_on(engine, seed, rng);
        (0..100).for_each(|_| engine.step());
        assert!(engine.mover.expect("it has tiers").is_empty());
        let parts = engine.parts.expect("it has parts");
        assert!(parts.is_empty() && parts.marked.is_empty(), "seed {seed}");
        assert_eq!(engine.scheduler.occupancy().pinned, 0, "seed {seed}");
        for (_, held, _) in engine.scheduler.tiers().expect("it has tiers").counts() {
            assert_eq!((held.pinned, held.lost), (0, 0), "seed {seed}");
        }
        seen.exact += parts.seen.exact;
        seen.marked += parts.seen.marked;
        seen.failed += parts.seen.failed;
        seen.late += parts.seen.late;
        seen.left += parts.seen.left;
        preempted += engine.scheduler.load().preemptions;
    }
    let least = [seen.exact, seen.marked, seen.failed, seen.late, seen.left];
    assert!(least.iter().all(|count| *count > 20) && preempted > 100, "{seen:?}");
}

/// Ids are unique only among those present: one that was cancelled leaves its to another, behind
/// the same prefix, which is taken over before anybody has let go of the first.
#[test]
fn a_prompt_by_the_id_of_another_is_not_taken_for_it() {
    let mut replaced = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let engine = Engine::new(9 + rng.below(20), QueueOrder::FirstCome);
        let mut engine = engine.with_tiers(seed).with_parts(seed);
        for id in 0..60 {
            let mut prompt = random_prompt(&mut rng);
            engine.submit(id, prompt.clone(), 4);
            engine.step();
            let parts = engine.parts.as_ref().expect("it has parts");
            if !parts.is_empty() {
                engine.cancel(SeqId(id));
                prompt.push(0);
                engine.submit(id, prompt, 4);
            }
            let is_idle = (0..2_000).any(|_| {
                engine.step();
                engine.scheduler.is_idle()
            });
            assert!(is_idle, "seed {seed}");
        }
        let parts = engine.parts.expect("it has parts");
        assert!(parts.is_empty() && parts.marked.is_empty(), "seed {seed}");
        replaced += parts.seen.replaced;
    }
    assert!(replaced > 100, "{replaced}");
}

/// Sends the older of two sequences back because its parts are late. It then waits for a whole
/// load, so an empty step would leave the younger one without a token.
#[test]
fn a_late_load_costs_the_sequences_behind_it_no_step() {
    let mut engine = Engine::new(30, QueueOrder::FirstCome).with_tiers(0).with_parts(0);
    let prompt: Vec<TokenId> = (0..10).collect();
    // Its first two blocks are a unit.
    let name = engine.hasher.chain(&prompt)[1];
    let units = vec![FoundUnit { name, parent: None, tenant: TenantTag::default() }];
    engine.scheduler.moved(TransferReport::Found { tier: Tier::Disk, units }, Nanos(0));
    engine.submit(0, prompt, 4);
    engine.submit(1, vec![1, 2, 3], 9);
    // The longest patience of a partial load is ten minutes.
    for seconds in [0, 1, 599, 601, 602] {
        let now = Nanos(0) + Duration::from_secs(seconds);
        let batch = engine.scheduler.schedule(now);
        let sequences: Vec<SeqId> = batch.entries.iter().map(|entry| entry.seq).collect();
        assert_eq!(sequences, [SeqId(1)], "after {seconds} s");
        assert_eq!(engine.scheduler.is_late_partly(SeqId(0)), seconds > 600, "after {seconds} s");
        let sampled = engine.executor.execute(&batch, None);
        engine.scheduler.complete(&batch, &sampled, now);
        engine.scheduler.check();
    }
    assert_eq!(engine.scheduler.take_partly().len(), 1, "begun once");
}
