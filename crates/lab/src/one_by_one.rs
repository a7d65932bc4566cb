//! One engine over one slow disk, asked one prompt at a time: what `headstart-lab tiers` and
//! `headstart-lab importance` share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use headstart_cache::Tiers;
use headstart_cache::policy::Lru;
use headstart_cache::tiers::{LoadWhen, Shares, TiersConfig};
use headstart_core::{Nanos, SeqId, Tier, TokenId};
use headstart_engine::engine::EngineConfig;
use headstart_engine::kv::{Dtype, KvStorageFormat};
use headstart_engine::{Engine, LanguageModel, QueueOrder, Submission};
use headstart_store::backend::Waker;
use headstart_store::disk::DiskStats;
use headstart_store::line::Rate;
use headstart_store::tiered::{Below, StoreConfig};
use headstart_store::{Disk, DiskOptions};
use headstart_terminal as output;

use headstart::parts::{DISK, tier, unknown_engine};

use crate::counted::CountedBackend;
use crate::throttled::{ThrottleRates, ThrottledBackend};

/// Tokens of a block, as in `serve`.
pub(super) const BLOCK_TOKENS: usize = 16;

/// Longest pause while nothing happens.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Timeout for an answer, or for the disk work after it.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// Tokens of a step, as in `serve`.
const MAX_BATCHED_TOKENS: usize = 512;

/// A folder that is deleted at the end.
pub(super) struct ScratchFolder(pub(super) PathBuf);

impl ScratchFolder {
    pub(super) fn new(parent: &Path) -> Result<Self> {
        // The process id keeps two benchmarks in one folder apart.
        let path = parent.join(format!("headstart-bench-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| {
            format!("cannot make a folder in {}; name another one with --dir", parent.display())
        })?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            output::note(&format!("{} could not be deleted: {error}", self.0.display()));
        }
    }
}

/// An engine's time, and what ends its pauses.
pub(super) struct Pulse {
    began: Instant,
    woken: Receiver<()>,
}

impl Pulse {
    /// Begins now; the waker ends a pause.
    pub(super) fn new() -> (Self, Waker) {
        // A channel of one slot: wake-ups are not counted.
        let (wakes, woken) = sync_channel(1);
        // A wake-up that waits already is enough.
        let waker: Waker = Arc::new(move || wakes.try_send(()).unwrap_or_default());
        let began = Instant::now();
        (Self { began, woken }, waker)
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos::default() + self.began.elapsed()
    }

    /// Waits until something was moved, or for `pause`; how long.
    pub(super) fn rest(&self, pause: Duration) -> Duration {
        let began = Instant::now();
        // A timeout and a wake-up both end the pause.
        let _ = self.woken.recv_timeout(pause);
        began.elapsed()
    }
}

/// A disk whose reads come through a line.
pub(super) struct SlowDisk {
    pub(super) below: Below,
    pub(super) capacity_units: usize,
    /// Its reads and writes under way.
    pub(super) num_under_way: Arc<AtomicUsize>,
    pub(super) stats: Arc<DiskStats>,
    /// Whether it is as fast as it can.
    pub(super) is_lifted: Arc<AtomicBool>,
}

impl SlowDisk {
    /// Opens what is in the folder, whose units have `unit_bytes`.
    pub(super) fn open(
        options: DiskOptions,
        unit_bytes: u64,
        reads: Rate,
        waker: &Waker,
    ) -> Result<Self> {
        let (disk, found) = Disk::open(options, waker.clone())?;
        let capacity_units = disk.capacity_records(unit_bytes);
        let stats = disk.stats().clone();
        let limits = ThrottleRates { reads, writes: Rate::UNLIMITED };
        // Writes are not slowed: only reads are on the way to an answer.
        let throttled = ThrottledBackend::new(Box::new(disk), limits, waker.clone())?;
        let is_lifted = throttled.is_lifted();
        let counted = CountedBackend::new(Box::new(throttled));
        Ok(Self {
            capacity_units,
            num_under_way: counted.num_under_way(),
            stats,
            is_lifted,
            below: Below { tier: Tier::Disk, backend: Box::new(counted), found },
        })
    }

    /// The tiers above it, of which none but it keeps anything.
    pub(super) fn tiers(&self, store: &StoreConfig, most_at_hand: usize, load: LoadWhen) -> Tiers {
        let config = TiersConfig {
            unit_blocks: store.unit_blocks,
            block_tokens: BLOCK_TOKENS,
            unit_bytes: store.unit_bytes(),
            most_at_hand,
            engine: unknown_engine(),
            load,
        };
        let disk = tier(Tier::Disk, self.capacity_units, DISK, Shares::default());
        Tiers::new(config, vec![disk])
    }
}

/// Creates an engine with room for one prompt of `prompt_tokens` tokens, and little more.
pub(super) fn engine(
    model: &Arc<LanguageModel>,
    dtype: Dtype,
    stored: KvStorageFormat,
    prompt_tokens: usize,
) -> Engine {
    // A few blocks more than the prompt, for the answer and for rounding.
    let cache_blocks = prompt_tokens / BLOCK_TOKENS + 16;
    let config = EngineConfig {
        cache_blocks,
        block_size: BLOCK_TOKENS,
        kv_dtype: dtype,
        stored,
        max_batched_tokens: MAX_BATCHED_TOKENS,
        // One sequence at a time, so times are not shared with another prompt.
        max_sequences: 1,
        max_waiting: 2,
        order: QueueOrder::FirstCome,
    };
    let policy = Box::new(Lru::new(cache_blocks));
    Engine::new(model.clone(), "bench", config, policy)
}

/// Asks for the most likely tokens.
pub(super) fn submission(id: u64, prompt: Vec<TokenId>, max_tokens: usize) -> Submission {
    Submission::greedy(SeqId(id), prompt, max_tokens)
}
