//! One workload on one fleet: builds all indexes at once, then times them in turn.
//!
//! ```text
//! requests   0 ────────────── 80 % ─────────── as many as needed
//!            │ build, chunk by chunk │ the writer beside the reader, round by round
//!                                    ▲ bytes, answers compared, look-ups (of the next prompts)
//! ```
//!
//! Whatever is timed, each index does once per round, and rounds begin with another one each time.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use headstart_core::{CacheEvent, TokenId};
use serde::Serialize;

use crate::contender::{Contender, FleetShape, KINDS, Kind, Pace};
use crate::counting;
use crate::figures::{Figures, median, per_second, percentile};
use crate::floor::{self, Floor};
use crate::options::Options;
use crate::replay::{Message, Replay, ReplayConfig, engine_hashes, num_blocks};
use crate::workload::Workload;

/// Part of the requests that builds the indexes.
const BUILD_SHARE: f64 = 0.8;

/// Tokens stored in the build, as a multiple of the fleet's capacity: enough that evictions have
/// become the rule.
const TURNOVER: f64 = 1.3;

/// Tokens that replicas hold in all, over the square root of their number: large fleets have
/// little each, so that filling them stays affordable.
const FLEET_TOKENS: f64 = 2_097_152.0;

/// New tokens in one chunk of the build: 16 MiB of them, so that the caches that one index leaves
/// to the next do not matter.
const CHUNK_TOKENS: usize = 1 << 22;

/// All figures of one workload on one fleet.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    /// Name of the workload.
    pub(crate) workload: String,
    /// Tokens per block.
    pub(crate) block_size: u32,
    /// Fleet size.
    pub(crate) replicas: u32,
    /// Blocks that a replica has room for.
    pub(crate) capacity_blocks: usize,
    /// Times that the workload is played at once.
    pub(crate) copies: u64,
    /// Requests that built the indexes.
    pub(crate) requests: usize,
    /// Events of the build.
    pub(crate) events: usize,
    /// Blocks stored and removed in the build.
    pub(crate) blocks: usize,
    /// Blocks removed in the build.
    pub(crate) removed_blocks: usize,
    /// (Block, replica) pairs after it.
    pub(crate) pairs: usize,
    /// Different blocks among them.
    pub(crate) distinct_blocks: usize,
    /// Blocks of a prompt that is looked up, mean.
    pub(crate) prompt_blocks: f64,
    /// Replicas that hold some of it, mean.
    pub(crate) holders: f64,
    /// Blocks that the best of them holds, mean.
    pub(crate) best_blocks: f64,
    /// The floor under every index.
    pub(crate) floor: Floor,
    /// By index, ours first.
    pub(crate) indexes: Vec<Figures>,
}

struct Bench {
    kinds: Vec<&'static Kind>,
    contenders: Vec<Box<dyn Contender>>,
    figures: Vec<Figures>,
    pass: Duration,
    rounds: usize,
}

/// Measures one cell.
pub(crate) fn measure(workload: &Workload, fleet: FleetShape, options: &Options) -> Result<Cell> {
    let tokens = options.capacity_tokens.map_or_else(
        || FLEET_TOKENS / f64::from(fleet.replicas).sqrt(),
        f64::from,
    );
    let config = ReplayConfig {
        replicas: fleet.replicas,
        block_size: fleet.block_size,
        capacity: (tokens as usize / fleet.block_size as usize).max(1),
        copies: copies(workload, tokens * f64::from(fleet.replicas)),
        event_blocks: options.event_blocks.max(1),
        message_events: options.message_events.max(1),
        seed: options.seed,
    };
    let mut replay = Replay::new(workload, config)?;
    let mut bench = Bench::new(fleet, options);
    ensure!(
        !bench.kinds.is_empty(),
        "no index has one of the names {:?}",
        options.index
    );
    let mut cell = bench.build(&mut replay, workload, config, options)?;
    let ahead = replay.look_ahead(options.lookups.max(1))?;
    let prompts: Vec<Vec<TokenId>> = ahead.map(|arrived| arrived.tokens().to_vec()).collect();
    ensure!(
        !prompts.is_empty(),
        "no request is left to look up; give more with --requests"
    );
    bench.hash(&prompts);
    let checked = prompts.iter().take(options.checks);
    let chains = checked.map(|tokens| engine_hashes(tokens, fleet.block_size));
    let chains: Vec<Vec<u64>> = chains.collect();
    bench.check(&replay, &chains, Some(&mut cell));
    bench.look_up();
    bench.look_up_beside(&mut replay, options)?;
    bench.check(&replay, &chains, None);
    cell.floor = floor::measure(&cell, options.seed);
    cell.indexes = bench.figures;
    Ok(cell)
}

/// Returns the copies of the workload that fill all replicas while the indexes are built.
fn copies(workload: &Workload, fleet_tokens: f64) -> u64 {
    let stored = workload.distinct_tokens as f64 * BUILD_SHARE;
    (TURNOVER * fleet_tokens / stored).ceil().max(1.0) as u64
}

/// The times of one chunk of the build.
#[derive(Clone, Copy, Default)]
struct Chunk {
    events: usize,
    blocks: usize,
    stored_blocks: usize,
    prepare: Duration,
    apply: Duration,
}

impl Bench {
    fn new(fleet: FleetShape, options: &Options) -> Self {
        let is_asked_for = |kind: &&Kind| {
            options.index.is_empty() || options.index.iter().any(|name| name == kind.name)
        };
        let kinds: Vec<&Kind> = KINDS.iter().filter(is_asked_for).collect();
        let make = |(index, kind): (usize, &&Kind)| {
            counting::reset(index);
            let _counts = counting::for_index(index);
            (kind.make)(fleet)
        };
        Self {
            contenders: kinds.iter().enumerate().map(make).collect(),
            figures: kinds.iter().map(|kind| Figures::new(kind.name)).collect(),
            kinds,
            pass: Duration::from_millis(options.pass_ms),
            rounds: options.rounds.max(1),
        }
    }

    /// The indexes in the order of round `round`.
    fn order(&self, round: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.kinds.len();
        (0..count).map(move |place| (place + round) % count)
    }

    fn build(
        &mut self,
        replay: &mut Replay<'_>,
        workload: &Workload,
        config: ReplayConfig,
        options: &Options,
    ) -> Result<Cell> {
        let mut requests = (replay.num_requests() as f64 * BUILD_SHARE) as usize;
        if options.requests > 0 {
            requests = requests.min(options.requests);
        }
        let mut chunks: Vec<Vec<Chunk>> = vec![Vec::new(); self.kinds.len()];
        let (mut served, mut removed_blocks) = (0, 0);
        let mut messages = Vec::new();
        while served < requests {
            messages.clear();
            let mut tokens = 0;
            while served < requests && tokens < CHUNK_TOKENS {
                let from = messages.len();
                ensure!(replay.serve(&mut messages)?, "the workload ended early");
                served += 1;
                tokens += messages[from..].iter().map(new_tokens).sum::<usize>();
            }
            let chunk = count(&messages);
            removed_blocks += chunk.blocks - chunk.stored_blocks;
            for index in self.order(chunks[0].len()) {
                chunks[index].push(self.apply_chunk(index, &messages, chunk));
            }
        }
        let fleet = replay.fleet();
        self.note_build(&chunks, fleet.pairs());
        Ok(Cell {
            workload: workload.name.to_owned(),
            block_size: config.block_size,
            replicas: config.replicas,
            capacity_blocks: fleet.capacity(),
            copies: config.copies,
            requests,
            events: chunks[0].iter().map(|chunk| chunk.events).sum(),
            blocks: chunks[0].iter().map(|chunk| chunk.blocks).sum(),
            removed_blocks,
            pairs: fleet.pairs(),
            distinct_blocks: fleet.distinct(),
            prompt_blocks: 0.0,
            holders: 0.0,
            best_blocks: 0.0,
            floor: Floor::default(),
            indexes: Vec::new(),
        })
    }

    fn apply_chunk(&mut self, index: usize, messages: &[Message], counts: Chunk) -> Chunk {
        let contender = &mut self.contenders[index];
        let _counts = counting::for_index(index);
        let start = Instant::now();
        contender.prepare(messages);
        let prepared = Instant::now();
        for message in messages {
            contender.apply(message);
        }
        contender.settle();
        let end = Instant::now();
        Chunk {
            prepare: prepared - start,
            apply: end - prepared,
            ..counts
        }
    }

    /// Rates are those of the later half of the build, when replicas are full.
    fn note_build(&mut self, chunks: &[Vec<Chunk>], pairs: usize) {
        for (index, chunks) in chunks.iter().enumerate() {
            let contender = &mut self.contenders[index];
            contender.trim();
            let held = counting::held(index) - contender.untouched_bytes() as isize;
            let late = &chunks[chunks.len() / 2..];
            let group = late.len().div_ceil(self.rounds).max(1);
            let rounds: Vec<Chunk> = late.chunks(group).map(sum).collect();
            let hashes_in_apply = contender.hashes_in_apply();
            let rate = |count: fn(&Chunk) -> usize, took: &dyn Fn(&Chunk) -> Duration| {
                median(
                    rounds
                        .iter()
                        .map(|round| per_second(count(round), took(round))),
                )
            };
            let apply = |round: &Chunk| {
                if hashes_in_apply {
                    round.apply.saturating_sub(round.prepare)
                } else {
                    round.apply
                }
            };
            let all = |round: &Chunk| {
                if hashes_in_apply {
                    round.apply
                } else {
                    round.apply + round.prepare
                }
            };
            let prepare = |round: &Chunk| round.prepare;
            let figures = &mut self.figures[index];
            figures.apply_events_per_second = rate(|round| round.events, &apply);
            figures.apply_blocks_per_second = rate(|round| round.blocks, &apply);
            figures.hash_and_apply_events_per_second = rate(|round| round.events, &all);
            figures.hash_and_apply_blocks_per_second = rate(|round| round.blocks, &all);
            figures.event_hash_blocks_per_second = rate(|round| round.stored_blocks, &prepare);
            figures.bytes_per_pair = held as f64 / pairs.max(1) as f64;
        }
    }

    fn hash(&mut self, prompts: &[Vec<TokenId>]) {
        let prompts: Vec<&[TokenId]> = prompts.iter().map(Vec::as_slice).collect();
        let mut micros = vec![Vec::new(); self.kinds.len()];
        for round in 0..self.rounds {
            for index in self.order(round) {
                let start = Instant::now();
                self.contenders[index].hash(&prompts);
                let took = start.elapsed().as_secs_f64() * 1e6;
                micros[index].push(took / prompts.len() as f64);
            }
        }
        for (figures, micros) in self.figures.iter_mut().zip(micros) {
            figures.hash_us_per_prompt = median(micros);
        }
    }

    /// Compares answers with what the replicas hold, and notes how prompts look in `cell`.
    fn check(&mut self, replay: &Replay<'_>, chains: &[Vec<u64>], cell: Option<&mut Cell>) {
        let (mut blocks, mut holders, mut best) = (0, 0, 0);
        for (prompt, chain) in chains.iter().enumerate() {
            let truth = replay.fleet().overlaps(chain);
            blocks += chain.len();
            holders += truth.len();
            best += truth
                .iter()
                .map(|&(_, blocks)| blocks as usize)
                .max()
                .unwrap_or(0);
            for (contender, figures) in self.contenders.iter_mut().zip(&mut self.figures) {
                figures.compare(&contender.overlaps(prompt), &truth);
            }
        }
        if let Some(cell) = cell {
            let mean = |sum: usize| sum as f64 / chains.len().max(1) as f64;
            cell.prompt_blocks = mean(blocks);
            cell.holders = mean(holders);
            cell.best_blocks = mean(best);
        }
    }

    fn look_up(&mut self) {
        let none = vec![Vec::new(); self.kinds.len()];
        let (mut rates, mut p50, mut p99) = (none.clone(), none.clone(), none);
        for round in 0..self.rounds {
            for index in self.order(round) {
                let contender = &mut self.contenders[index];
                rates[index].push(look_up_rate(&mut **contender, self.pass));
                let mut nanos = Vec::new();
                contender.ready();
                contender.look_up_each(&mut nanos);
                p50[index].push(percentile(&mut nanos, 0.5));
                p99[index].push(percentile(&mut nanos, 0.99));
            }
        }
        for (index, figures) in self.figures.iter_mut().enumerate() {
            figures.lookups_per_second = median(rates[index].drain(..));
            figures.p50_ns = median(p50[index].drain(..));
            figures.p99_ns = median(p99[index].drain(..));
        }
    }

    fn look_up_beside(&mut self, replay: &mut Replay<'_>, options: &Options) -> Result<()> {
        let per_round = u64::from(options.writes_per_second) * options.beside_ms / 1000;
        let mut messages = Vec::new();
        let mut events = 0;
        while events < per_round as usize * self.rounds {
            let from = messages.len();
            if !replay.serve(&mut messages)? {
                break;
            }
            events += messages[from..]
                .iter()
                .map(|new| new.events.len())
                .sum::<usize>();
        }
        let pace = Pace {
            events_per_second: options.writes_per_second.max(1),
        };
        let none = vec![Vec::new(); self.kinds.len()];
        let (mut reads, mut writes, mut p99) = (none.clone(), none.clone(), none);
        let share = messages.len().div_ceil(self.rounds).max(1);
        for (round, messages) in messages.chunks(share).enumerate() {
            for index in self.order(round) {
                let contender = &mut self.contenders[index];
                contender.prepare(messages);
                let mut beside = contender.look_up_beside(messages, pace);
                reads[index].push(beside.lookups_per_second);
                writes[index].push(beside.events_per_second);
                p99[index].push(percentile(&mut beside.nanos, 0.99));
            }
        }
        for (index, figures) in self.figures.iter_mut().enumerate() {
            figures.beside_lookups_per_second = median(reads[index].drain(..));
            figures.beside_events_per_second = median(writes[index].drain(..));
            figures.beside_p99_ns = median(p99[index].drain(..));
        }
        Ok(())
    }
}

/// Whole passes over all prompts, for as long as `at_least`.
fn look_up_rate(contender: &mut dyn Contender, at_least: Duration) -> f64 {
    let (mut passes, mut took) = (0, Duration::ZERO);
    while took < at_least || passes == 0 {
        contender.ready();
        took += contender.look_up_all();
        passes += 1;
    }
    per_second(passes * contender.num_prompts(), took)
}

fn new_tokens(message: &Message) -> usize {
    let tokens = |event: &CacheEvent| match event {
        CacheEvent::Stored(stored) => stored.tokens.len(),
        _ => 0,
    };
    message.events.iter().map(tokens).sum()
}

fn count(messages: &[Message]) -> Chunk {
    let mut chunk = Chunk::default();
    for event in messages.iter().flat_map(|message| &message.events) {
        chunk.events += 1;
        chunk.blocks += num_blocks(event);
        if matches!(event, CacheEvent::Stored(_)) {
            chunk.stored_blocks += num_blocks(event);
        }
    }
    chunk
}

fn sum(chunks: &[Chunk]) -> Chunk {
    chunks.iter().fold(Chunk::default(), |sum, chunk| Chunk {
        events: sum.events + chunk.events,
        blocks: sum.blocks + chunk.blocks,
        stored_blocks: sum.stored_blocks + chunk.stored_blocks,
        prepare: sum.prepare + chunk.prepare,
        apply: sum.apply + chunk.apply,
    })
}
