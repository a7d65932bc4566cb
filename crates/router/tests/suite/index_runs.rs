//! Cases that the random worlds of the conformance test seldom meet: branches, handles that mean
//! other things elsewhere, departed blocks, budgets, dumps and very many replicas.

mod doubts;
mod restart;
mod told;

use std::sync::Arc;
use std::time::Duration;

use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, ReplicaId, Rng, Tier, TokenId};
use headstart_dst::index::ReferenceIndex;
use headstart_router::index::{
    DOUBT_TTL, DumpError, Limits, Overlaps, ResidentBlock, RunIndex, Update,
};
use headstart_router::{PrefixIndex, Prompt};

const A: ReplicaId = ReplicaId(1);
const B: ReplicaId = ReplicaId(2);
const START: Nanos = Nanos(0);

/// Both indexes, which every update reaches.
struct Pair {
    index: RunIndex,
    reference: ReferenceIndex,
}

impl Pair {
    fn new(replicas: &[ReplicaId]) -> Self {
        let pair = Self { index: RunIndex::new("m"), reference: ReferenceIndex::new("m") };
        for &replica in replicas {
            pair.update(replica, Update::Track { block_size: None }, START);
        }
        pair
    }

    fn update(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        self.index.update(replica, update, now);
        self.reference.update(replica, update, now);
        self.index.check();
    }

    fn event(&self, replica: ReplicaId, event: CacheEvent) {
        self.update(replica, Update::Events(&[event]), START);
    }

    /// Expects the same answers to these prompts and the same residents.
    fn check(&self, prompts: &[&[TokenId]], now: Nanos) {
        for tokens in prompts {
            let expected = ask(&self.reference, tokens, now);
            assert_eq!(ask(&self.index, tokens, now), expected, "prompt {tokens:?}");
        }
        assert_eq!(residents(&self.index, now), residents(&self.reference, now));
    }
}

fn prompt(tokens: &[TokenId]) -> Prompt<'_> {
    Prompt { tokens, ..Prompt::default() }
}

/// (replica, device, any tier, trusted)
fn ask(index: &dyn PrefixIndex, tokens: &[TokenId], now: Nanos) -> Vec<(ReplicaId, u32, u32, u32)> {
    let mut answer = Overlaps::default();
    index.overlaps(&index.hash(prompt(tokens)), now, &mut answer);
    let overlaps = answer.iter();
    let figures = overlaps.map(|overlap| {
        let any_tier = overlap.any_tier_tokens;
        (overlap.replica, overlap.device_tokens, any_tier, overlap.trusted_tokens)
    });
    figures.collect()
}

fn residents(index: &dyn PrefixIndex, now: Nanos) -> Vec<ResidentBlock> {
    let mut residents = Vec::new();
    index.residents(now, &mut |resident| residents.push(resident));
    residents.sort();
    residents
}

/// One token per block; each block's handle is `seed` and all tokens up to it.
fn stored(seed: u64, tokens: &[TokenId], first: usize) -> StoredBlocks {
    let names = tokens.iter().scan(seed, |name, token| {
        *name = self::name(*name, &[*token]);
        Some(BlockHash::from_u64(*name))
    });
    let names: Vec<BlockHash> = names.collect();
    StoredBlocks {
        blocks: names[first..].to_vec(),
        parent: first.checked_sub(1).map(|last| names[last]),
        tokens: tokens[first..].to_vec(),
        block_size: 1,
        extras: Vec::new(),
        tier: Tier::Device,
        group: CacheGroup::default(),
        salt: None,
        adapter: None,
    }
}

fn name(seed: u64, tokens: &[TokenId]) -> u64 {
    let mix = |name: u64, &token: &TokenId| {
        (name ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
    };
    tokens.iter().fold(seed, mix)
}

fn store(seed: u64, tokens: &[TokenId], first: usize) -> CacheEvent {
    CacheEvent::Stored(stored(seed, tokens, first))
}

fn remove(seed: u64, tokens: &[TokenId], first: usize) -> CacheEvent {
    let mut blocks = stored(seed, tokens, first).blocks;
    blocks.reverse();
    CacheEvent::Removed { blocks, tier: Tier::Device, group: 0 }
}

#[test]
fn branches_part_where_their_tokens_do() {
    let pair = Pair::new(&[A, B]);
    let prompts: [&[TokenId]; 4] = [&[1, 2, 3, 4, 5], &[1, 2, 9, 8], &[1, 2, 3, 7, 7], &[2, 3]];
    for (index, tokens) in prompts.into_iter().enumerate() {
        pair.event([A, B][index % 2], store(0, tokens, 0));
        pair.check(&prompts, START);
    }
    // The trunk goes, the branches stay; then it comes again.
    pair.event(A, remove(0, prompts[0], 0));
    pair.check(&prompts, START);
    pair.event(B, store(0, prompts[0], 0));
    pair.event(A, store(0, prompts[0], 0));
    pair.check(&prompts, START);
}

#[test]
fn a_handle_may_mean_something_else_on_another_replica() {
    let pair = Pair::new(&[A, B]);
    let mut other = stored(0, &[1, 2, 3], 0);
    pair.event(A, CacheEvent::Stored(other.clone()));
    other.tokens = vec![7, 8, 9];
    pair.event(B, CacheEvent::Stored(other));
    let prompts: [&[TokenId]; 2] = [&[1, 2, 3, 4], &[7, 8, 9, 4]];
    pair.check(&prompts, START);
    pair.event(A, remove(0, &[1, 2, 3], 2));
    pair.event(B, remove(0, &[1, 2, 3], 1));
    pair.check(&prompts, START);
    pair.event(A, CacheEvent::Cleared);
    pair.event(A, remove(0, &[1, 2, 3], 0));
    pair.check(&prompts, START);
}

#[test]
fn replicas_with_other_handles_share_blocks() {
    let pair = Pair::new(&[A, B]);
    let tokens: Vec<TokenId> = (0..200).collect();
    pair.event(A, store(1, &tokens, 0));
    pair.event(B, store(2, &tokens[..150], 0));
    pair.event(B, store(2, &tokens, 150));
    pair.check(&[&tokens], START);
    pair.event(A, remove(1, &tokens, 70));
    pair.check(&[&tokens], START);
    pair.event(A, CacheEvent::Cleared);
    pair.event(A, store(1, &tokens[..90], 0));
    pair.check(&[&tokens], START);
    pair.update(B, Update::Forget, START);
    pair.check(&[&tokens], START);
}

/// An engine that tells apart what its events do not.
#[test]
fn a_block_with_two_handles_is_there_while_one_of_them_is() {
    let pair = Pair::new(&[A, B]);
    let tokens: &[TokenId] = &[1, 2, 3];
    pair.event(B, store(9, tokens, 0));
    for (step, event) in [
        store(1, tokens, 0),
        store(2, tokens, 0),
        store(1, tokens, 0),
        remove(2, tokens, 1),
        remove(1, tokens, 2),
        remove(1, tokens, 2),
        store(2, tokens, 0),
        store(9, tokens, 0),
        remove(2, tokens, 0),
        remove(1, tokens, 0),
        remove(9, tokens, 0),
    ]
    .into_iter()
    .enumerate()
    {
        let now = Nanos(step as u64);
        pair.update(A, Update::Events(&[event]), now);
        pair.check(&[tokens], now);
        if step == 6 {
            pair.update(A, Update::Doubt, now);
            pair.check(&[tokens], now);
        }
    }
    pair.check(&[tokens], START + 2 * DOUBT_TTL);
}

#[test]
fn a_demotion_may_be_announced_in_either_order() {
    for is_removal_first in [true, false] {
        let pair = Pair::new(&[A]);
        let tokens: &[TokenId] = &[1, 2, 3];
        pair.event(A, store(0, tokens, 0));
        let demoted = CacheEvent::Stored(StoredBlocks {
            tokens: Vec::new(),
            tier: Tier::Host,
            ..stored(0, tokens, 1)
        });
        let mut halves = [remove(0, tokens, 1), demoted];
        if !is_removal_first {
            halves.reverse();
        }
        for half in halves {
            pair.event(A, half);
            pair.check(&[tokens], START);
        }
        assert_eq!(ask(&pair.index, tokens, START), [(A, 1, 3, 3)]);
    }
}

/// Nothing is left of what came and went, however much it was.
#[test]
fn departed_blocks_are_forgotten_in_the_end() {
    let index = RunIndex::new("m");
    index.update(A, Update::Track { block_size: None }, START);
    let mut bytes = Vec::new();
    for round in 0..40 {
        let tokens: Vec<TokenId> = (round * 1000..round * 1000 + 900).collect();
        index.update(A, Update::Events(&[store(0, &tokens, 0), remove(0, &tokens, 0)]), START);
        index.check();
        bytes.push(index.stats().bytes);
    }
    assert_eq!(index.stats().entries, 0);
    let (middle, last) = (bytes[bytes.len() / 2], bytes[bytes.len() - 1]);
    assert!(last < middle * 11 / 10, "memory grows: {bytes:?}");
}

/// Parents are forgotten before their children, and come back under other runs' ends. One handle
/// per content, or two: then what is forgotten is never missed.
#[test]
fn holes_and_forgotten_parents_leave_every_key_in_one_place() {
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let limits = Limits { min_departed: 0, ..Limits::default() };
        let pair =
            Pair { index: RunIndex::with_limits("m", limits), reference: ReferenceIndex::new("m") };
        let fleet = [A, B, ReplicaId(3)];
        for replica in fleet {
            pair.update(replica, Update::Track { block_size: None }, START);
        }
        for _ in 0..120 {
            let replica = fleet[rng.below(fleet.len())];
            let tokens: Vec<TokenId> =
                (0..=rng.below(6)).map(|_| 1 + rng.below(2) as u32).collect();
            let names = 100 * (1 + u64::from(replica.0 % 2) + rng.below(2) as u64);
            let event = match rng.below(8) {
                0 => CacheEvent::Cleared,
                1..4 => store(names, &tokens, 0),
                4..6 => remove(names, &tokens, 0),
                // The last one, or all but the last one.
                6 => remove(names, &tokens, tokens.len() - 1),
                _ => remove(names, &tokens[..tokens.len() - 1], 0),
            };
            pair.event(replica, event);
            pair.check(&[&tokens], START);
        }
    }
}

/// Names limit the length of a run: the chain continues in another.
#[test]
fn a_chain_may_be_longer_than_a_run() {
    const LEN: u32 = 140_000;
    let tokens: Vec<TokenId> = (1..=LEN).collect();
    let index = RunIndex::new("m");
    index.update(A, Update::Track { block_size: None }, START);
    index.update(A, Update::Events(&[store(7, &tokens[..99_999], 0)]), START);
    index.update(A, Update::Events(&[store(7, &tokens, 99_999)]), START);
    index.check();
    assert_eq!(ask(&index, &tokens, START), [(A, LEN, LEN, LEN)]);
    let dump = index.dump(START);
    let other = RunIndex::new("m");
    other.update(A, Update::Track { block_size: None }, START);
    assert_eq!(other.restore(&dump, START), Ok(LEN as usize));
    other.check();
    assert_eq!(ask(&other, &tokens, START), [(A, LEN, LEN, 0)]);
    index.update(A, Update::Events(&[remove(7, &tokens, 70_000)]), START);
    assert_eq!(ask(&index, &tokens, START), [(A, 70_000, 70_000, 70_000)]);
    index.check();
}

#[test]
fn the_coldest_go_when_the_budget_is_reached() {
    const BUDGET_BYTES: usize = 1 << 20;
    let index = RunIndex::with_budget("m", BUDGET_BYTES);
    index.update(A, Update::Track { block_size: None }, START);
    let warm: Vec<TokenId> = (0..64).collect();
    index.update(A, Update::Events(&[store(0, &warm, 0)]), START);
    for round in 1..400 {
        let tokens: Vec<TokenId> = (round * 1000..round * 1000 + 200).collect();
        let now = Nanos::from_secs_f64(2.0 * f64::from(round));
        assert_eq!(ask(&index, &warm, now), [(A, 64, 64, 64)], "round {round}");
        index.update(A, Update::Events(&[store(0, &tokens, 0)]), now);
        assert_eq!(ask(&index, &tokens, now).len(), 1, "the newest stays");
        index.check();
        let bytes = index.stats().bytes;
        assert!(bytes < BUDGET_BYTES * 11 / 10, "{bytes} bytes in round {round}");
    }
    let stats = index.stats();
    assert!(stats.evicted > 0 && stats.evicted as usize + stats.entries == 399 * 200 + 64);
}

#[test]
fn a_dump_comes_back_in_doubt() {
    let pair = Pair::new(&[A, B]);
    let (long, short): (&[TokenId], &[TokenId]) = (&[1, 2, 3, 4, 5], &[1, 2, 9]);
    pair.event(A, store(1, long, 0));
    pair.event(B, store(2, long, 0));
    pair.event(B, store(3, long, 0));
    let doubted = START + Duration::from_secs(10);
    pair.update(A, Update::Doubt, doubted);
    let dumped = doubted + Duration::from_secs(30);
    pair.update(A, Update::Events(&[store(1, short, 2)]), dumped);
    pair.update(B, Update::Events(&[remove(2, long, 3)]), dumped);
    let dump = pair.index.dump(dumped);
    assert_eq!(dump.num_holdings(), 6 + 5 + 3, "B has two handles for some");

    // What was in doubt has aged for 30 s of its 300 by then.
    let now = dumped;
    let index = RunIndex::new("m");
    for replica in [A, B] {
        index.update(replica, Update::Track { block_size: None }, START);
    }
    assert_eq!(index.restore(&dump, now), Ok(14));
    index.check();
    pair.update(A, Update::Doubt, now);
    pair.update(B, Update::Doubt, now);
    for (prompt, delay) in
        [(long, 0), (short, 0), (long, 269), (long, 271), (short, 271), (long, 299), (long, 301)]
    {
        let now = now + Duration::from_secs(delay);
        assert_eq!(ask(&index, prompt, now), ask(&pair.reference, prompt, now));
        assert_eq!(residents(&index, now), residents(&pair.reference, now));
    }
    // Handles mean what they did.
    for event in [remove(3, long, 0), store(2, long, 2)] {
        index.update(B, Update::Events(std::slice::from_ref(&event)), now);
        pair.update(B, Update::Events(&[event]), now);
        index.check();
        assert_eq!(residents(&index, now), residents(&pair.reference, now));
    }
}

#[test]
fn a_damaged_dump_changes_nothing() {
    let index = RunIndex::new("m");
    index.update(A, Update::Track { block_size: None }, START);
    index.update(A, Update::Events(&[store(0, &[1, 2, 3], 0)]), START);
    let good = index.dump(START);
    assert_eq!(index.restore(&good, START), Err(DumpError::NotEmpty));

    let fresh = RunIndex::new("m");
    fresh.update(A, Update::Track { block_size: None }, START);
    let mut dump = good.clone();
    dump.model = "n".to_owned();
    assert!(matches!(fresh.restore(&dump, START), Err(DumpError::OtherModel { .. })));
    let mut dump = good.clone();
    dump.runs[0].keys[1] = dump.runs[0].keys[0];
    assert_eq!(fresh.restore(&dump, START), Err(DumpError::BadRun(0)));
    let mut dump = good.clone();
    dump.replicas[0].places[0].blocks[0].offset = 3;
    assert_eq!(fresh.restore(&dump, START), Err(DumpError::BadBlock(A)));
    let mut dump = good.clone();
    dump.replicas[0].places[0].blocks[0].handle = dump.replicas[0].places[0].blocks[1].handle;
    assert_eq!(fresh.restore(&dump, START), Err(DumpError::BadBlock(A)));
    assert_eq!(fresh.stats().entries, 0);
    assert_eq!(fresh.restore(&good, START), Ok(3));
    // Replicas that are not tracked are left out.
    let empty = RunIndex::new("m");
    assert_eq!(empty.restore(&good, START), Ok(0));
    empty.check();
    assert_eq!(empty.dump(START).runs, []);
}

#[test]
fn four_thousand_replicas_answer_in_order() {
    const NUM_REPLICAS: u32 = 4096;
    let index = RunIndex::new("m");
    let system: Vec<TokenId> = (0..40).collect();
    for replica in (0..NUM_REPLICAS).rev() {
        let replica = ReplicaId(replica);
        let mut own = system.clone();
        own.extend([1_000_000 + replica.0, 7, 7]);
        index.update(replica, Update::Track { block_size: None }, START);
        index.update(replica, Update::Events(&[store(0, &own, 0)]), START);
    }
    index.check();
    let mut own = system;
    own.extend([1_000_000 + 77, 7, 7]);
    let mut answer = Overlaps::default();
    index.overlaps(&index.hash(prompt(&own)), START, &mut answer);
    assert_eq!(answer.len(), NUM_REPLICAS as usize);
    assert!(answer.iter().is_sorted_by(|a, b| a.replica < b.replica));
    assert_eq!(answer.of(ReplicaId(77)).device_tokens, 43);
    assert_eq!(answer.of(ReplicaId(78)).device_tokens, 40);
    for replica in 0..NUM_REPLICAS - 1 {
        index.update(ReplicaId(replica), Update::Forget, START);
    }
    index.check();
    assert_eq!(index.stats().entries, 43);
}

/// Readers in other threads while one writes: no answer is ever of a half-done update.
#[test]
fn readers_see_whole_updates() {
    let index = Arc::new(RunIndex::new("m"));
    index.update(A, Update::Track { block_size: Some(1) }, START);
    let tokens: Vec<TokenId> = (0..32).collect();
    let keys = index.hash(prompt(&tokens));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut answer = Overlaps::default();
                for _ in 0..2000 {
                    index.overlaps(&keys, START, &mut answer);
                    let found = answer.of(A).device_tokens;
                    assert!([0, 16, 32].contains(&found), "{found}");
                }
            });
        }
        for _ in 0..200 {
            let halves = [store(0, &tokens[..16], 0), store(0, &tokens, 16)];
            index.update(A, Update::Events(&halves[..1]), START);
            index.update(A, Update::Events(&halves[1..]), START);
            index.update(A, Update::Events(&[remove(0, &tokens, 16)]), START);
            index.update(A, Update::Events(&[CacheEvent::Cleared]), START);
        }
    });
    index.check();
}
