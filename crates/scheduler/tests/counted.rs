//! Counted steps are what `schedule` and `complete` would do: the same events, load, beginnings and
//! ends, step by step, on random requests in caches that are too small for them.

use std::sync::Arc;
use std::time::Duration;

use headstart_cache::PrefixCache;
use headstart_cache::policy::Lru;
use headstart_core::{
    Access, BlockHasher, BlockIdentity, CacheEvent, Nanos, Rng, SeqId, SessionId, TokenId,
};
use headstart_scheduler::{
    Batch, Decode, Entry, Output, QueueOrder, Scheduler, SchedulerConfig, Submission,
};

const BLOCK_SIZE: usize = 4;

/// The same for every third sequence, so that answers are prefixes of others' prompts.
fn token(seq: SeqId, position: usize) -> TokenId {
    (seq.0 as TokenId % 3).wrapping_mul(31) ^ (position as TokenId / 3)
}

/// Results of one step.
#[derive(Debug, PartialEq)]
struct Step {
    decode: Decode,
    prompts: Batch,
    outputs: Vec<Output>,
    events: Vec<CacheEvent>,
}

fn counted(scheduler: &mut Scheduler, now: Nanos, end: Nanos) -> Step {
    let (decode, prompts) = scheduler.schedule_counted(now);
    scheduler.complete_counted(&prompts, end);
    scheduler.check();
    Step { decode, prompts, outputs: scheduler.take_outputs(), events: scheduler.take_events() }
}

/// The reference, with what is counted taken from the batch: all but `prompts`.
fn written(scheduler: &mut Scheduler, prompts: &Batch, now: Nanos, end: Nanos) -> Step {
    let batch = scheduler.schedule(now);
    let sampled = batch.entries.iter().filter(|entry| entry.sampling.is_some());
    let sampled: Vec<TokenId> =
        sampled.map(|entry| token(entry.seq, entry.start + entry.tokens.len())).collect();
    scheduler.complete(&batch, &sampled, end);
    scheduler.check();
    let mut outputs = scheduler.take_outputs();
    let is_prompt = |entry: &Entry| prompts.entries.iter().any(|prompt| prompt.seq == entry.seq);
    let (prompts, decodes): (Vec<_>, Vec<_>) = batch.entries.into_iter().partition(is_prompt);
    assert!(
        decodes.iter().all(|decode| decode.tokens.len() == 1 && decode.sampling.is_some()),
        "a decode is one token: {decodes:?}"
    );
    let is_told = |output: &Output| match output {
        Output::Token { seq, finish, .. } => {
            finish.is_some() || !decodes.iter().any(|decode| decode.seq == *seq)
        }
        Output::Started { .. } | Output::Loaded { .. } | Output::Partly { .. } => true,
    };
    outputs.retain(is_told);
    Step {
        decode: Decode {
            sequences: decodes.len(),
            kv_tokens: decodes.iter().map(|decode| decode.start + 1).sum(),
        },
        prompts: Batch { entries: prompts, ..Batch::default() },
        outputs,
        events: scheduler.take_events(),
    }
}

fn new_sequence(id: u64, rng: &mut Rng) -> Submission {
    let branch = rng.below(3) as TokenId;
    let length = 1 + rng.below(30) as TokenId;
    let prompt = (0..length).map(|at| if at % 11 == 10 { at } else { branch });
    Submission {
        access: Access { session: Some(SessionId(id)), ..Access::default() },
        ..Submission::greedy(SeqId(id), prompt.collect(), 1 + rng.below(25))
    }
}

fn config(rng: &mut Rng, order: QueueOrder) -> SchedulerConfig {
    let max_sequences = 1 + rng.below(6);
    SchedulerConfig {
        max_batched_tokens: max_sequences + rng.below(12),
        max_sequences,
        max_waiting: 6,
        max_context: 40,
        block_size: BLOCK_SIZE,
        order,
    }
}

/// Counters of the cases that the seeds met.
#[derive(Default)]
struct Met {
    decodes: usize,
    preemptions: u64,
    cancelled: usize,
}

fn compare(seed: u64, met: &mut Met) {
    let mut rng = Rng::new(seed);
    let order = match seed % 2 {
        0 => QueueOrder::FirstCome,
        _ => QueueOrder::LongestPrefix { max_age: Duration::from_millis(20) },
    };
    let config = config(&mut rng, order);
    let capacity = 11 + rng.below(30);
    let cache = || PrefixCache::new(capacity, Box::new(Lru::new(capacity)));
    let mut short = Scheduler::counted(config, cache(), token);
    let mut long = Scheduler::new(config, cache());
    let identity = BlockIdentity {
        model: "counted",
        weights_revision: "",
        kv_dtype: "",
        kv_layout: "",
        adapter: None,
        salt: None,
        block_size: BLOCK_SIZE as u32,
    };
    let hasher = Arc::new(BlockHasher::new(&identity));
    let mut now = Nanos(0);
    for id in 0..80 {
        let new = new_sequence(id, &mut rng);
        assert_eq!(
            short.submit(new.clone(), hasher.clone(), now),
            long.submit(new, hasher.clone(), now)
        );
        if rng.below(8) == 0 {
            let seq = SeqId(rng.below(id as usize + 1) as u64);
            let running = short.load().running;
            short.cancel(seq, now);
            long.cancel(seq, now);
            met.cancelled += running - short.load().running;
        }
        let steps = if id == 79 { 3_000 } else { rng.below(9) };
        for step in 0..steps {
            now = now + Duration::from_millis(1);
            let end = now + Duration::from_micros(700);
            let done = counted(&mut short, now, end);
            met.decodes += done.decode.sequences;
            let context = format!("seed {seed}, request {id}, step {step}");
            let reference = written(&mut long, &done.prompts, now, end);
            assert_eq!(done, reference, "{context}");
            assert_eq!(short.load(), long.load(), "{context}");
        }
    }
    assert!(short.is_idle(), "seed {seed}");
    met.preemptions += short.load().preemptions;
}

#[test]
fn counted_is_what_is_written() {
    let mut met = Met::default();
    (0..300).for_each(|seed| compare(seed, &mut met));
    let Met { decodes, preemptions, cancelled } = met;
    assert!(
        decodes > 100_000 && preemptions > 1_000 && cancelled > 100,
        "{decodes} tokens, {preemptions} preemptions, {cancelled} cancelled"
    );
}
