//! Whatever is cached, evicted, preempted or cancelled: every token is computed behind exactly
//! its own prefix.
//!
//! The executor here keeps, in each block's slots, a digest of *all* tokens up to that position and
//! derives the next token from the digest in the block before it. A wrong, stale or unfinished
//! block changes the answer, which is compared with the same chain without a cache. So does a unit
//! of a lower tier that is loaded into the wrong place, or too early. What was computed behind a
//! prefix that was loaded in part carries a mark, which no other prompt may meet.

mod mover;
mod partly;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use headstart_cache::PrefixCache;
use headstart_cache::policy::Lru;
use headstart_core::transfer::{BlockMover, DevicePart, Transfer};
use headstart_core::{
    BlockHash, BlockHasher, BlockId, BlockIdentity, CacheEvent, Nanos, Rng, SeqId, TokenId,
};
use headstart_scheduler::{
    Batch, Copies, Executor, Output, QueueOrder, Scheduler, SchedulerConfig, Submission, Submit,
};

const BLOCK_SIZE: usize = 4;
const VOCABULARY: u64 = 5;

fn extend(digest: u64, token: TokenId) -> u64 {
    let next =
        (digest ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ 0x55;
    next & !MARK | digest & MARK
}

/// Set in the digests of what was computed behind a part of its prefix.
const MARK: u64 = 1 << 63;

fn next_token(digest: u64) -> TokenId {
    (digest % VOCABULARY) as TokenId
}

struct Digests(Vec<[u64; BLOCK_SIZE]>);

/// Bytes of a digest.
const DIGEST: usize = size_of::<u64>();

/// The only one.
impl DevicePart for Digests {
    fn block_bytes(&self) -> usize {
        BLOCK_SIZE * DIGEST
    }

    fn read(&self, block: BlockId, bytes: &mut [u8]) {
        let digests = self.0[block.index()].iter();
        let bytes = bytes.chunks_exact_mut(DIGEST).zip(digests);
        bytes.for_each(|(bytes, digest)| bytes.copy_from_slice(&digest.to_le_bytes()));
    }

    fn write(&mut self, block: BlockId, bytes: &[u8]) {
        let (bytes, _) = bytes.as_chunks::<DIGEST>();
        let digests = self.0[block.index()].iter_mut().zip(bytes);
        digests.for_each(|(digest, bytes)| *digest = u64::from_le_bytes(*bytes));
    }
}

impl Digests {
    /// The digest at a position of a sequence.
    fn slot(&mut self, blocks: &[BlockId], position: usize) -> &mut u64 {
        &mut self.0[blocks[position / BLOCK_SIZE].index()][position % BLOCK_SIZE]
    }
}

impl Executor for Digests {
    fn execute(&mut self, batch: &Batch, copies: Option<Copies<'_>>) -> Vec<TokenId> {
        copies.into_iter().for_each(|copies| self.copy(copies));
        let mut sampled = Vec::new();
        for entry in &batch.entries {
            let at = |position: usize| {
                (entry.blocks[position / BLOCK_SIZE].index(), position % BLOCK_SIZE)
            };
            let mut digest = entry.start.checked_sub(1).map_or(0, |before| {
                let (block, slot) = at(before);
                self.0[block][slot]
            });
            let is_marked = digest & MARK != 0;
            assert_eq!(is_marked, entry.pruned.is_some(), "whoever meets it knows");
            for (offset, &token) in entry.tokens.iter().enumerate() {
                digest = extend(digest, token);
                let (block, slot) = at(entry.start + offset);
                self.0[block][slot] = digest;
            }
            sampled.extend(entry.sampling.map(|_| next_token(digest)));
        }
        sampled
    }

    fn copy(&mut self, mut copies: Copies<'_>) {
        copies.copy(0, self);
    }
}

fn expected(prompt: &[TokenId], max_tokens: usize) -> Vec<TokenId> {
    let mut digest = prompt.iter().fold(0, |digest, &token| extend(digest, token));
    (0..max_tokens)
        .map(|_| {
            let token = next_token(digest);
            digest = extend(digest, token);
            token
        })
        .collect()
}

/// A scheduler with its executor, and what became of every sequence.
struct Engine {
    scheduler: Scheduler,
    executor: Digests,
    mover: Option<mover::Mover>,
    parts: Option<partly::Parts>,
    unread_blocks: usize,
    loaded_tokens: usize,
    prompts: HashMap<SeqId, (Vec<TokenId>, usize)>,
    answers: HashMap<SeqId, Vec<TokenId>>,
    /// Of each prompt that has no token yet: what was said to be found of it.
    found: HashMap<SeqId, usize>,
    cached_tokens: usize,
    events: Vec<CacheEvent>,
    now: Nanos,
    hasher: Arc<BlockHasher>,
}

fn config(order: QueueOrder) -> SchedulerConfig {
    SchedulerConfig {
        max_batched_tokens: 10,
        max_sequences: 4,
        max_waiting: 6,
        max_context: 64,
        block_size: BLOCK_SIZE,
        order,
    }
}

impl Engine {
    fn new(capacity: usize, order: QueueOrder) -> Self {
        let identity = BlockIdentity {
            model: "digest",
            weights_revision: "1",
            kv_dtype: "u64",
            kv_layout: "slots",
            adapter: None,
            salt: None,
            block_size: BLOCK_SIZE as u32,
        };
        let cache = PrefixCache::new(capacity, Box::new(Lru::new(capacity)));
        Self {
            scheduler: Scheduler::new(config(order), cache),
            executor: Digests(vec![[0; BLOCK_SIZE]; capacity]),
            mover: None,
            parts: None,
            unread_blocks: 0,
            loaded_tokens: 0,
            prompts: HashMap::new(),
            answers: HashMap::new(),
            found: HashMap::new(),
            cached_tokens: 0,
            events: Vec::new(),
            now: Nanos(0),
            hasher: Arc::new(BlockHasher::new(&identity)),
        }
    }

    fn with_tiers(self, seed: u64) -> Self {
        Self {
            scheduler: self.scheduler.with_tiers(mover::tiers(seed)),
            mover: Some(mover::Mover::new(seed)),
            ..self
        }
    }

    fn with_parts(self, seed: u64) -> Self {
        Self {
            scheduler: partly::Parts::with(self.scheduler),
            parts: Some(partly::Parts::new(seed)),
            ..self
        }
    }

    fn submit(&mut self, id: u64, prompt: Vec<TokenId>, max_tokens: usize) -> Submit {
        let id = SeqId(id);
        let new = Submission::greedy(id, prompt.clone(), max_tokens);
        let outcome = self.scheduler.submit(new, self.hasher.clone(), self.now);
        if outcome == Submit::Queued {
            self.prompts.insert(id, (prompt, max_tokens));
        }
        outcome
    }

    fn cancel(&mut self, seq: SeqId) {
        self.scheduler.cancel(seq, self.now);
        if self.prompts.remove(&seq).is_some() {
            self.answers.remove(&seq);
            self.found.remove(&seq);
        }
        if let Some(parts) = &mut self.parts {
            parts.marked.remove(&seq);
        }
    }

    fn step(&mut self) {
        let is_long = self.parts.as_mut().is_some_and(partly::Parts::is_long_step);
        self.now = self.now + Duration::from_millis(if is_long { 700_000 } else { 1 });
        if let Some(mover) = &mut self.mover {
            let mut moved = Vec::new();
            mover.poll(&mut moved);
            let moved = moved.into_iter();
            moved.for_each(|moved| self.scheduler.moved(moved, self.now));
        }
        let batch = self.scheduler.schedule(self.now);
        assert!(batch.num_tokens() <= 10);
        self.hand_over();
        let sampled = self.copy_and_compute(&batch);
        if !batch.is_empty() {
            self.scheduler.complete(&batch, &sampled, self.now);
            // Read beside the next step.
            self.hand_over();
        } else if !self.scheduler.is_idle() {
            assert!(self.scheduler.waits_until(self.now).is_some(), "who waits has a deadline");
        }
        self.advance_parts();
        self.scheduler.check();
        self.events.extend(self.scheduler.take_events());
        for output in self.scheduler.take_outputs() {
            match output {
                Output::Started { seq, cached_tokens } => {
                    self.cached_tokens += cached_tokens;
                    self.found.insert(seq, cached_tokens);
                    assert!(self.answers.insert(seq, Vec::new()).is_none(), "started twice");
                }
                Output::Partly { seq, .. } => {
                    let parts = self.parts.as_ref().expect("else nothing is loaded in part");
                    assert!(parts.marked.contains(&seq) && self.answers[&seq].is_empty());
                }
                Output::Loaded { seq, tokens, .. } => {
                    assert_eq!(self.answers[&seq], [], "before its first token");
                    *self.found.get_mut(&seq).expect("started before") += tokens;
                    self.loaded_tokens += tokens;
                }
                Output::Token { seq, token, finish } => {
                    let found = self.found.remove(&seq).unwrap_or(0);
                    assert!(found < self.prompts[&seq].0.len(), "found at most once");
                    self.answers.get_mut(&seq).expect("started").push(token);
                    if finish.is_some() {
                        self.check_answer(seq);
                    }
                }
            }
        }
    }

    fn advance_parts(&mut self) {
        let (Some(parts), Some(mover)) = (&mut self.parts, &self.mover) else {
            return;
        };
        let prompt = |seq| self.prompts[&seq].0.clone();
        let others = (&mut self.executor, mover);
        parts.advance(&mut self.scheduler, others, prompt, self.now);
        self.hand_over();
    }

    fn hand_over(&mut self) {
        for transfer in self.scheduler.take_transfers() {
            partly::check_stored(&transfer, &self.executor);
            let parts = self.parts.iter();
            parts.for_each(|parts| parts.check_forgotten(&transfer, &self.scheduler));
            if let Transfer::Store { blocks, .. } = &transfer {
                self.unread_blocks += blocks.len();
            }
            let mover = self.mover.as_mut().expect("only tiers move anything");
            mover.submit(transfer);
        }
    }

    fn copy_and_compute(&mut self, batch: &Batch) -> Vec<TokenId> {
        let unread = std::mem::take(&mut self.unread_blocks);
        let Some(mover) = &mut self.mover else {
            return self.executor.execute(batch, None);
        };
        let copies = Copies::new(mover, &batch.arrivals, unread);
        self.executor.execute(batch, copies)
    }

    fn check_answer(&mut self, seq: SeqId) {
        let (prompt, max_tokens) = self.prompts.remove(&seq).expect("finished once");
        let answer = &self.answers[&seq];
        let longest = self.scheduler.context() - prompt.len();
        let num_tokens = max_tokens.min(longest);
        let is_marked = |parts: &mut partly::Parts| parts.marked.remove(&seq);
        if self.parts.as_mut().is_some_and(is_marked) {
            assert_eq!(answer.len(), num_tokens);
        } else {
            assert_eq!(*answer, expected(&prompt, num_tokens));
        }
    }
}

/// Prompts that share prefixes: paths of few branches.
fn random_prompt(rng: &mut Rng) -> Vec<TokenId> {
    let branch = rng.below(3) as TokenId;
    let length = 1 + rng.below(30);
    (0..length).map(|at| if at % 7 == 6 { rng.below(2) as TokenId } else { branch }).collect()
}

fn run(seed: u64, order: QueueOrder) -> Engine {
    let mut rng = Rng::new(seed);
    let engine = Engine::new(9 + rng.below(20), order);
    run_on(engine, seed, rng)
}

fn run_on(mut engine: Engine, seed: u64, mut rng: Rng) -> Engine {
    for id in 0..120 {
        let prompt = random_prompt(&mut rng);
        engine.submit(id, prompt, 1 + rng.below(12));
        if rng.below(6) == 0 {
            engine.cancel(SeqId(rng.below(id as usize + 1) as u64));
        }
        for _ in 0..rng.below(4) {
            engine.step();
        }
    }
    for _ in 0..2_000 {
        engine.step();
    }
    assert!(engine.scheduler.is_idle(), "seed {seed}: somebody starves");
    assert!(engine.prompts.is_empty(), "seed {seed}: somebody never finished");
    engine
}

#[test]
fn answers_are_those_of_an_engine_without_cache() {
    let (mut cached, mut preempted) = (0, 0);
    for seed in 0..60 {
        let order = match seed % 2 {
            0 => QueueOrder::FirstCome,
            _ => QueueOrder::LongestPrefix { max_age: Duration::from_millis(20) },
        };
        let engine = run(seed, order);
        cached += engine.cached_tokens;
        preempted += engine.scheduler.load().preemptions;
    }
    assert!(
        cached > 1_000 && preempted > 100,
        "the run met {cached} hits, {preempted} preemptions"
    );
}

#[test]
fn answers_with_lower_tiers_are_those_without_a_cache() {
    let (mut loaded, mut failed, mut preempted) = (0, 0, 0);
    for seed in 0..120 {
        let order = match seed % 4 {
            0 => QueueOrder::LongestPrefix { max_age: Duration::from_millis(20) },
            _ => QueueOrder::FirstCome,
        };
        let mut rng = Rng::new(seed);
        let engine = Engine::new(9 + rng.below(20), order).with_tiers(seed);
        let mut engine = run_on(engine, seed, rng);
        // All that was on its way arrives; then the mover holds nothing.
        (0..100).for_each(|_| engine.step());
        let mover = engine.mover.expect("it has tiers");
        assert!(mover.is_empty(), "seed {seed}");
        loaded += engine.loaded_tokens;
        failed += mover.failed;
        preempted += engine.scheduler.load().preemptions;
        assert!(engine.loaded_tokens <= mover.loads * 2 * BLOCK_SIZE * 4);
    }
    assert!(
        loaded > 3_000 && failed > 50 && preempted > 100,
        "the run met {loaded} loaded tokens, {failed} failed loads, {preempted} preemptions"
    );
}

/// Replaying the events leaves exactly as many blocks as the cache holds, each with its parent.
#[test]
fn events_tell_what_is_resident() {
    for seed in 0..30 {
        let engine = run(seed, QueueOrder::FirstCome);
        let mut resident = std::collections::HashSet::<BlockHash>::new();
        for event in &engine.events {
            match event {
                CacheEvent::Stored(stored) => {
                    assert!(stored.parent.is_none_or(|parent| resident.contains(&parent)));
                    let chain_of = |tokens: &[TokenId]| {
                        let mut parent = stored.parent;
                        let blocks = tokens.chunks(BLOCK_SIZE);
                        blocks
                            .map(|block| *parent.insert(engine.hasher.next(parent, block)))
                            .collect::<Vec<_>>()
                    };
                    assert_eq!(chain_of(&stored.tokens), stored.blocks);
                    resident.extend(&stored.blocks);
                }
                CacheEvent::Removed { blocks, .. } => {
                    assert!(blocks.iter().all(|block| resident.remove(block)));
                }
                CacheEvent::Cleared => resident.clear(),
            }
        }
        let occupancy = engine.scheduler.occupancy();
        assert_eq!((resident.len(), occupancy.pinned), (occupancy.cached, 0), "seed {seed}");
    }
}

#[test]
fn limits_are_outcomes() {
    let mut engine = Engine::new(4, QueueOrder::FirstCome);
    assert_eq!(engine.submit(0, vec![1; 16], 1), Submit::TooLong { limit: 15 });
    for id in 1..=6 {
        assert_eq!(engine.submit(id, vec![1; 15], 9), Submit::Queued);
    }
    assert_eq!(engine.submit(7, vec![1], 1), Submit::QueueFull);
    for _ in 0..200 {
        engine.step();
    }
    assert!(engine.scheduler.is_idle());
}

#[test]
#[should_panic(expected = "a context holds a token")]
fn a_context_of_no_tokens_is_refused() {
    let config = SchedulerConfig { max_context: 0, ..config(QueueOrder::FirstCome) };
    let _ = Scheduler::new(config, PrefixCache::new(4, Box::new(Lru::new(4))));
}

#[test]
fn the_longest_prefix_goes_first_until_somebody_is_too_old() {
    let order = QueueOrder::LongestPrefix { max_age: Duration::from_millis(5) };
    let mut engine = Engine::new(32, order);
    engine.submit(0, vec![1; 12], 1);
    for _ in 0..4 {
        engine.step();
    }
    engine.submit(1, vec![2; 12], 1);
    engine.submit(2, vec![1; 12], 1);
    engine.step();
    assert!(engine.answers.contains_key(&SeqId(2)), "shares eight tokens");
    let mut late = Engine::new(32, order);
    late.submit(0, vec![1; 12], 1);
    for _ in 0..4 {
        late.step();
    }
    late.submit(1, vec![2; 12], 1);
    late.now = late.now + Duration::from_millis(10);
    late.submit(2, vec![1; 12], 1);
    late.step();
    assert!(late.answers.contains_key(&SeqId(1)), "waited longest");
}
