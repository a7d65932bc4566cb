//! One engine over one disk, asked one prompt at a time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use headstart_cache::tiers::LoadWhen;
use headstart_core::{Nanos, Rng, TokenId};
use headstart_engine::kv::{Dtype, KvStorageFormat};
use headstart_engine::{Engine, LanguageModel, Output, Submit};
use headstart_store::disk::unix_seconds;
use headstart_store::line::Rate;
use headstart_store::tiered::{Lifetimes, StoreConfig};
use headstart_store::{DiskOptions, TieredStore};

use crate::one_by_one::{self, BLOCK_TOKENS, PATIENCE, PAUSE, Pulse, SlowDisk, submission};
use headstart::parts::{UNIT_TOKENS, exactness};

/// Tokens behind the prefix, which are always computed.
pub(super) const NEW_TOKENS: usize = 100;

/// Tokens of an answer: steps that only decode tell what a step costs at least.
const ANSWER_TOKENS: usize = 4;

/// Prefixes that fit the disk beside one another.
const MOST_PREFIXES: usize = 4;

/// Settings of an arm.
#[derive(Clone, Copy)]
pub(super) struct TierArmSettings<'a> {
    pub(super) model: &'a Arc<LanguageModel>,
    pub(super) dtype: Dtype,
    pub(super) stored: KvStorageFormat,
    pub(super) load: LoadWhen,
    /// Folder of its records; existing ones are reused.
    pub(super) folder: &'a Path,
    pub(super) prefix_tokens: usize,
    pub(super) reads: Rate,
}

impl TierArmSettings<'_> {
    /// Units of a prompt.
    fn units(&self) -> usize {
        // A partial unit at the end is not stored.
        (self.prefix_tokens + NEW_TOKENS) / UNIT_TOKENS
    }

    fn store(&self) -> StoreConfig {
        let config = &self.model.config;
        let layer_bytes = self.stored.layer_bytes(config, self.dtype, BLOCK_TOKENS);
        StoreConfig {
            part_bytes: vec![layer_bytes; config.num_layers],
            exactness: exactness(self.stored),
            unit_blocks: UNIT_TOKENS / BLOCK_TOKENS,
            unit_tokens: UNIT_TOKENS as u32,
            host_units: 0,
            staging_units: 2 * self.units() + 16,
            lifetimes: Lifetimes::default(),
            now_s: unix_seconds,
            notes: None,
            parts: None,
        }
    }

    fn engine(&self) -> Engine {
        let prompt_tokens = self.prefix_tokens + 2 * NEW_TOKENS;
        one_by_one::engine(self.model, self.dtype, self.stored, prompt_tokens)
    }

    /// Bytes of the prefix, as they are stored.
    pub(super) fn prefix_bytes(&self) -> u64 {
        self.store().unit_bytes() * (self.prefix_tokens / UNIT_TOKENS) as u64
    }
}

/// An engine over a disk.
pub(super) struct TierArm {
    engine: Engine,
    pulse: Pulse,
    num_under_way: Arc<AtomicUsize>,
    prefix: Vec<TokenId>,
    /// Whether it is on the disk.
    knows_prefix: bool,
    vocab: usize,
    last_id: u64,
}

/// Result of a prompt.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptMeasurement {
    pub(super) ttft: Duration,
    /// Tokens that came from the disk.
    pub(super) loaded_tokens: usize,
}

/// A prompt of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BenchPrompt {
    /// The prefix, and something new behind it; numbers tell these apart.
    Known(u64),
    /// Nothing that was ever asked before.
    Unknown(u64),
}

impl TierArm {
    /// Opens what is in the folder.
    pub(super) fn open(setting: &TierArmSettings<'_>) -> Result<Self> {
        let (pulse, waker) = Pulse::new();
        let store = setting.store();
        let unit_bytes = store.unit_bytes();
        // Twice as much: segments are not filled to the last byte, and some are kept empty.
        let budget_bytes = 2 * MOST_PREFIXES as u64 * unit_bytes * setting.units() as u64;
        let options = DiskOptions::new(setting.folder, budget_bytes + (64 << 20));
        let disk = SlowDisk::open(options, unit_bytes, setting.reads, &waker)?;
        // The folder holds one prefix only, so enough units mean that it is stored.
        let knows_prefix = disk.below.found.len() * UNIT_TOKENS >= setting.prefix_tokens;
        let tiers = disk.tiers(&store, setting.units() + 1, setting.load);
        let num_under_way = disk.num_under_way;
        let store = TieredStore::new(store, vec![disk.below], waker)?;
        let vocab = setting.model.config.vocab;
        Ok(Self {
            engine: setting.engine().with_tiers(tiers, Box::new(store)),
            pulse,
            num_under_way,
            prefix: tokens(0, setting.prefix_tokens, vocab),
            knows_prefix,
            vocab,
            last_id: 0,
        })
    }

    /// Asks with nothing on the device, and waits until nothing moves any more.
    pub(super) fn ask(&mut self, prompt: BenchPrompt) -> Result<PromptMeasurement> {
        // Nothing may be found on the device: the tier is under test.
        self.engine.clear_device(self.now());
        self.last_id += 1;
        let prompt_tokens = self.tokens(prompt);
        let submission = submission(self.last_id, prompt_tokens, ANSWER_TOKENS);
        let stored = self.stored()?;
        let asked = self.now();
        match self.engine.submit(submission, asked) {
            Submit::Queued => {}
            refused => bail!("the engine refused the prompt: {refused:?}"),
        }
        let answer = self.answer(asked)?;
        self.settle(stored, prompt)?;
        Ok(answer)
    }

    fn tokens(&self, prompt: BenchPrompt) -> Vec<TokenId> {
        match prompt {
            BenchPrompt::Known(number) => {
                // Odd numbers are for known prompts and even ones for unknown, so no tokens repeat.
                let new = tokens(2 * number + 1, NEW_TOKENS, self.vocab);
                [&self.prefix[..], &new].concat()
            }
            BenchPrompt::Unknown(number) => {
                let len = self.prefix.len() + NEW_TOKENS;
                tokens(2 * number + 2, len, self.vocab)
            }
        }
    }

    /// Steps until the last token, as a replica's thread does.
    fn answer(&mut self, asked: Nanos) -> Result<PromptMeasurement> {
        let mut loaded_tokens = 0;
        let mut ttft = None;
        loop {
            let began = self.now();
            let step = self.engine.step(began);
            let seconds = self.now().since(began).as_secs_f64();
            self.engine.took(&step, seconds);
            for output in step.outputs {
                match output {
                    Output::Loaded { tokens, .. } => loaded_tokens += tokens,
                    Output::Token { finish, .. } => {
                        // The first token counts, and the later ones teach the cost of a decoding
                        // step.
                        let told = *ttft.get_or_insert_with(|| self.pulse.now());
                        if finish.is_some() {
                            return Ok(PromptMeasurement {
                                ttft: told.since(asked),
                                loaded_tokens,
                            });
                        }
                    }
                    Output::Started { .. } | Output::Partly { .. } => {}
                }
            }
            let now = self.now();
            if now.since(asked) > PATIENCE {
                bail!("no answer after {} s", PATIENCE.as_secs());
            }
            if step.is_empty {
                // The engine may wait for a deadline of its own, such as a late load.
                let until = self.engine.waits_until(now).unwrap_or(now + PAUSE);
                self.pulse.rest(until.since(now).min(PAUSE));
            }
        }
    }

    /// Waits until what is new in a prompt is stored, and nothing is read any more.
    fn settle(&mut self, stored_before: u64, prompt: BenchPrompt) -> Result<()> {
        let known = match prompt {
            BenchPrompt::Known(_) if self.knows_prefix => self.prefix.len(),
            _ => 0,
        };
        let units = self.prefix.len() + NEW_TOKENS;
        // Units that were stored before are not stored again.
        let new = (units / UNIT_TOKENS - known / UNIT_TOKENS) as u64;
        let began = Instant::now();
        loop {
            self.engine.look_round(self.now());
            let is_still = self.num_under_way.load(Relaxed) == 0;
            // Reads that came too late must not take bandwidth from the next prompt.
            if is_still && self.stored()? >= stored_before + new {
                self.engine.check();
                self.knows_prefix |= matches!(prompt, BenchPrompt::Known(_));
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                bail!("the disk does not store: {} of {new} units", self.stored()? - stored_before);
            }
            self.pulse.rest(Duration::from_millis(1));
        }
    }

    /// Units that were stored since it was opened.
    fn stored(&self) -> Result<u64> {
        let tiers = self.engine.tiers().context("made with tiers")?;
        Ok(tiers.summary().iter().map(|tier| tier.counts.stored).sum())
    }

    fn now(&self) -> Nanos {
        self.pulse.now()
    }
}

/// Tokens that a number fixes.
fn tokens(number: u64, len: usize, vocab: usize) -> Vec<TokenId> {
    let mut rng = Rng::new(number);
    (0..len).map(|_| rng.below(vocab) as TokenId).collect()
}
