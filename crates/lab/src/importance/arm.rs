//! One engine over one disk, asked one question at a time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use headstart_cache::policy::{self, Setting as PolicySetting};
use headstart_cache::tiers::{LoadWhen, Tiers};
use headstart_core::{Nanos, TokenId};
use headstart_engine::importance::{ImportanceConfig, PackingOptions, PartialLoadTally};
use headstart_engine::kv::{Dtype, KvStorageFormat};
use headstart_engine::{Engine, LanguageModel, Output, Submit};
use headstart_selective::{GuardCounts, GuardOptions, Merge, NodeOptions};
use headstart_store::disk::{DiskStats, unix_seconds};
use headstart_store::line::Rate;
use headstart_store::record::Exactness;
use headstart_store::tiered::{Lifetimes, PartsConfig, StoreConfig};
use headstart_store::{DiskOptions, TieredStore};

use super::variants::Variant;
use super::workload::QUESTION_TOKENS;
use crate::one_by_one::{self, BLOCK_TOKENS, PATIENCE, PAUSE, Pulse, SlowDisk, submission};

/// Settings of an arm.
#[derive(Clone, Copy)]
pub(super) struct ImportanceArmSettings<'a> {
    pub(super) variant: Variant,
    pub(super) ratio: f64,
    pub(super) spared: f64,
    pub(super) merge: Merge,
    pub(super) model: &'a Arc<LanguageModel>,
    pub(super) dtype: Dtype,
    pub(super) folder: &'a Path,
    pub(super) chunk_tokens: usize,
    pub(super) document_tokens: usize,
    pub(super) documents: usize,
    pub(super) disk: Rate,
    pub(super) host: Rate,
    /// Shares of all documents that stay on the device and in host memory.
    pub(super) kept: [f64; 2],
    /// Whether all answers are recomputed in full, to compare them.
    pub(super) is_checked: bool,
}

impl ImportanceArmSettings<'_> {
    fn units(&self) -> usize {
        self.document_tokens / self.chunk_tokens
    }

    fn unit_blocks(&self) -> usize {
        self.chunk_tokens / BLOCK_TOKENS
    }

    /// Bytes of a unit's parts.
    fn unit_bytes(&self) -> u64 {
        let token = self.model.config.kv_bytes_per_token(self.dtype.bytes());
        (token * self.chunk_tokens) as u64
    }

    /// Bytes of a document's keys and values.
    pub(super) fn document_bytes(&self) -> u64 {
        self.unit_bytes() * self.units() as u64
    }

    fn kept_bytes(&self) -> [u64; 2] {
        let all = (self.document_bytes() * self.documents as u64) as f64;
        self.kept.map(|share| (share * all) as u64)
    }

    /// Bytes of a block's parts: of importance's layout, or of that of `serve` without it.
    fn part_bytes(&self) -> Vec<usize> {
        let config = &self.model.config;
        if self.variant.is_partly() {
            let probes = self.variant.probes(config);
            return probes.part_bytes(config, self.dtype, BLOCK_TOKENS);
        }
        let layer_bytes = KvStorageFormat::Same.layer_bytes(config, self.dtype, BLOCK_TOKENS);
        // One layer's part for each layer, as `serve` stores it.
        vec![layer_bytes; config.num_layers]
    }

    /// Returns the configuration of the in-memory cache of parts.
    fn parts(&self, part_bytes: &[usize]) -> PartsConfig {
        let (config, probes) = (&self.model.config, self.variant.probes(&self.model.config));
        let kept: u64 = self.kept_bytes().iter().sum();
        let layers = config.num_layers;
        let slots = |part: usize| {
            let bytes = (part_bytes[part] * self.unit_blocks()).max(1) as u64;
            // The memory is divided as the bytes of one unit divide into probes and rest.
            let share = part_bytes[part] as f64 / (part_bytes[0] + part_bytes[layers]) as f64;
            // Room beyond the kept parts, for the loads of a question.
            (kept as f64 * share / bytes as f64) as usize + 3 * self.units() + 16
        };
        PartsConfig {
            slots: slots(layers),
            small_slots: slots(0),
            most_loads: 8 * self.units() + 64,
            most_packs: 64,
            format: Arc::new(probes.rest_format(config, self.dtype, BLOCK_TOKENS)),
            host_line: Some(self.host),
        }
    }

    fn store(&self) -> StoreConfig {
        let part_bytes = self.part_bytes();
        let is_partly = self.variant.is_partly();
        StoreConfig {
            parts: is_partly.then(|| self.parts(&part_bytes)),
            part_bytes,
            exactness: Exactness::Exact,
            unit_blocks: self.unit_blocks(),
            unit_tokens: self.chunk_tokens as u32,
            host_units: 0,
            staging_units: 2 * self.units() + 16,
            lifetimes: Lifetimes::default(),
            now_s: unix_seconds,
            notes: None,
        }
    }

    fn importance(&self) -> ImportanceConfig {
        let (variant, config) = (self.variant, &self.model.config);
        let packing = variant.packs().then(|| PackingOptions {
            nodes: NodeOptions {
                unit_tokens: self.chunk_tokens,
                // A pack may be made at once: the benchmark waits for it before the next question.
                interval: Duration::from_millis(1),
                ..NodeOptions::default()
            },
            // Room for all units of all layers, so no pack is refused for lack of it.
            most_units: self.units() * self.documents * config.num_layers,
        });
        ImportanceConfig {
            probes: variant.probes(config),
            selecting: variant.selecting(self.ratio, self.spared, self.merge),
            // Every document qualifies: it has at least one chunk.
            least_tokens: self.chunk_tokens,
            guard: GuardOptions {
                // A share of one checks each answer, a share of zero none.
                sample: f64::from(u8::from(self.is_checked)),
                // It looks on, and bars nothing.
                most_kl: f32::INFINITY,
                most_disagreements: u32::MAX,
                ..GuardOptions::default()
            },
            kept_bytes: self.kept_bytes(),
            is_host_far: true,
            most_at_once: 1,
            packing,
            policy: Arc::new(move |capacity| {
                let setting = PolicySetting { capacity, block_tokens: BLOCK_TOKENS as u32 };
                policy::by_name(variant.policy(), setting).expect("a policy that there is")
            }),
        }
    }

    fn engine(&self) -> Engine {
        // The document and the question, and as much again for the answer.
        let prompt_tokens = self.document_tokens + 2 * QUESTION_TOKENS;
        one_by_one::engine(self.model, self.dtype, KvStorageFormat::Same, prompt_tokens)
    }
}

/// An engine over a disk.
pub(super) struct ImportanceArm {
    engine: Engine,
    pulse: Pulse,
    num_under_way: Arc<AtomicUsize>,
    disk: Arc<DiskStats>,
    /// Whether the disk is as fast as it can: while nothing is measured.
    is_lifted: Arc<AtomicBool>,
    last_id: u64,
}

/// Result of a question.
#[derive(Clone, Debug)]
pub(super) struct AnswerMeasurement {
    pub(super) token: TokenId,
    pub(super) ttft: Duration,
    /// Time in which there was nothing to compute: it waited for what was to be loaded.
    pub(super) io: Duration,
    /// Counts of partial loads.
    pub(super) tally: PartialLoadTally,
    /// Bytes that the disk read for it, whole pages.
    pub(super) disk_bytes: u64,
    /// Comparison with the full computation.
    pub(super) compared: FullComputeComparison,
}

/// Comparison with full computations of the same questions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullComputeComparison {
    pub(super) compared: u64,
    /// Questions with the same most likely token.
    pub(super) agreed: u64,
    /// Questions whose divergence is infinite or not a number; neither figure below includes them.
    pub(super) infinite: u64,
    /// Sum, and largest, of the others' divergences, nats.
    pub(super) kl_sum: f64,
    pub(super) kl_max: f64,
}

impl FullComputeComparison {
    /// Returns the guard's counts of one question. The guard leaves infinite divergences out of the
    /// sum: such a question adds 0, does not agree, and makes the largest infinite.
    pub(super) fn of(before: &GuardCounts, after: &GuardCounts) -> Self {
        let compared = after.compared - before.compared;
        let agreed = after.agreed - before.agreed;
        let kl = after.kl_sum - before.kl_sum;
        let is_infinite = kl == 0.0 && agreed < compared && after.kl_max.is_infinite();
        Self {
            compared,
            agreed,
            infinite: if is_infinite { compared } else { 0 },
            kl_sum: kl,
            kl_max: kl,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        self.agreed += other.agreed;
        self.infinite += other.infinite;
        self.kl_sum += other.kl_sum;
        self.kl_max = self.kl_max.max(other.kl_max);
    }

    /// Of those that are finite.
    pub(super) fn kl_mean(&self) -> f64 {
        self.kl_sum / (self.compared - self.infinite).max(1) as f64
    }
}

impl ImportanceArm {
    /// Opens what is in the folder.
    pub(super) fn open(setting: &ImportanceArmSettings<'_>) -> Result<Self> {
        let (pulse, waker) = Pulse::new();
        let store = setting.store();
        let unit_bytes = store.unit_bytes();
        // As much again: questions are stored, packs are, and segments are not filled to the end.
        let units = (setting.units() + 4) * (setting.documents + 1);
        let budget_bytes = 2 * unit_bytes * units as u64 + (128 << 20);
        let options = DiskOptions::new(setting.folder, budget_bytes);
        let disk = SlowDisk::open(options, unit_bytes, setting.disk, &waker)?;
        // The choice between loading and computing is not under test here.
        let load = match setting.variant {
            Variant::Recompute => LoadWhen::Never,
            _ => LoadWhen::Always,
        };
        let tiers = disk.tiers(&store, setting.units() + 4, load);
        let (num_under_way, stats, is_lifted) = (disk.num_under_way, disk.stats, disk.is_lifted);
        let store = TieredStore::new(store, vec![disk.below], waker)?;
        let engine = setting.engine().with_tiers(tiers, Box::new(store));
        Ok(Self {
            engine: if setting.variant.is_partly() {
                engine.with_importance(setting.importance())
            } else {
                engine
            },
            pulse,
            num_under_way,
            disk: stats,
            is_lifted,
            last_id: 0,
        })
    }

    /// Asks while the disk is as fast as it can: what follows on answers matters, not they.
    pub(super) fn warm(&mut self, prompt: Vec<TokenId>) -> Result<()> {
        // The flag is read by the disk's thread on its own; no other data depends on it.
        self.is_lifted.store(true, Ordering::Relaxed);
        self.ask_now(prompt).map(drop)
    }

    /// Asks with nothing on the device, and waits for all work that follows. No caller waits for
    /// that work, so the disk is not throttled during it.
    pub(super) fn ask(&mut self, prompt: Vec<TokenId>) -> Result<AnswerMeasurement> {
        self.is_lifted.store(false, Ordering::Relaxed);
        self.ask_now(prompt)
    }

    fn ask_now(&mut self, prompt: Vec<TokenId>) -> Result<AnswerMeasurement> {
        // Without this the device would hold the prefix and nothing would be loaded.
        self.engine.clear_device(self.now());
        self.last_id += 1;
        let submission = submission(self.last_id, prompt, 1);
        let before = (self.tally(), self.guard(), self.disk.read_bytes.get());
        let asked = self.now();
        match self.engine.submit(submission, asked) {
            Submit::Queued => {}
            // One prompt at a time cannot find the queue full, so another answer is a defect.
            refused => bail!("the engine refused the question: {refused:?}"),
        }
        let (token, ttft, io) = self.answer(asked)?;
        let tally = self.tally().since(&before.0);
        let disk_bytes = self.disk.read_bytes.get() - before.2;
        self.is_lifted.store(true, Ordering::Relaxed);
        self.settle()?;
        Ok(AnswerMeasurement {
            token,
            ttft,
            io,
            tally,
            disk_bytes,
            compared: FullComputeComparison::of(&before.1, &self.guard()),
        })
    }

    /// Counts of partial loads; zeros without importance.
    fn tally(&self) -> PartialLoadTally {
        self.engine
            .importance()
            .map_or_else(PartialLoadTally::default, |importance| importance.tally)
    }

    fn guard(&self) -> GuardCounts {
        self.engine.importance().map_or_else(GuardCounts::default, |importance| importance.guard)
    }

    /// Packs: that there are, and that are being made.
    pub(super) fn packs(&self) -> (usize, usize) {
        self.engine
            .importance()
            .map_or((0, 0), |importance| (importance.packs.packs, importance.packs.pending))
    }

    /// Units whose write has not ended. The disk learns of one only once its checksum is computed.
    fn writes(&self) -> usize {
        let counts = self.engine.tiers().map(Tiers::counts).unwrap_or_default();
        let in_flight = counts.iter().map(|(_, held, _)| held.in_flight);
        in_flight.sum()
    }

    /// Steps until the first token: which, after how long, and how much of that was waiting.
    fn answer(&mut self, asked: Nanos) -> Result<(TokenId, Duration, Duration)> {
        let mut io = Duration::ZERO;
        loop {
            let began = self.now();
            let step = self.engine.step(began);
            let seconds = self.now().since(began).as_secs_f64();
            // The engine learns the speed of its steps, as in a server.
            self.engine.took(&step, seconds);
            for output in &step.outputs {
                if let Output::Token { token, .. } = output {
                    return Ok((*token, self.now().since(asked), io));
                }
            }
            if step.is_empty {
                // Only empty steps count: a load beside a computing step delays nothing.
                io += self.pulse.rest(PAUSE);
            }
            if self.now().since(asked) > PATIENCE {
                bail!("no answer after {} s", PATIENCE.as_secs());
            }
        }
    }

    /// Waits until nothing is computed, moved or packed any more.
    fn settle(&mut self) -> Result<()> {
        let began = Instant::now();
        let mut still = 0;
        // Three quiet rounds in a row: in a single one, work may be between two threads.
        while still < 3 {
            let now = self.now();
            let is_empty = if self.engine.is_idle() {
                // An idle engine takes no steps, so the tiers are looked after directly.
                self.engine.look_round(now).is_empty()
            } else {
                self.engine.step(now).is_empty
            };
            // Requests that the engine has given to the disk and not got back.
            let under_way = self.num_under_way.load(Ordering::Relaxed);
            let is_idle = self.engine.is_idle() && self.packs().1 == 0;
            let is_still = is_empty && is_idle && under_way == 0 && self.writes() == 0;
            still = if is_still { still + 1 } else { 0 };
            if began.elapsed() > PATIENCE {
                bail!("the disk is busy after {} s", PATIENCE.as_secs());
            }
            self.pulse.rest(Duration::from_millis(1));
        }
        // A wrong count would make all later figures wrong.
        self.engine.check();
        Ok(())
    }

    fn now(&self) -> Nanos {
        self.pulse.now()
    }
}
