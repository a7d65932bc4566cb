//! One replica's engine: scheduler, cache and executor, a step at a time.

mod partly;

use std::borrow::Cow;
use std::sync::Arc;

use headstart_cache::{Policy, PrefixCache, Tiers};
use headstart_core::cost::Work;
use headstart_core::cost::learned::LearnedCost;
use headstart_core::transfer::{BlockMover, Transfer};
use headstart_core::{
    BlockHasher, BlockIdentity, CacheEvent, EngineModel, Nanos, Probability, SeqId, Tier, TokenId,
};
use headstart_scheduler::{
    Batch, Copies, Executor, Output, QueueOrder, Scheduler, SchedulerConfig, SchedulerLoad,
    Submission, Submit,
};

use crate::importance::ImportanceLoader;
use crate::kv::{self, Dtype, KvStorageFormat};
use crate::{CpuExecutor, LanguageModel};

/// An executor, and the longest sequence that it computes.
pub struct BoundedExecutor {
    /// The executor.
    pub executor: Box<dyn Executor + Send>,
    /// Most tokens of a sequence.
    pub max_context: usize,
}

/// Limits of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Blocks of keys and values.
    pub cache_blocks: usize,
    /// Tokens per block, a multiple of 16.
    pub block_size: usize,
    /// Element type of keys and values on the device.
    pub kv_dtype: Dtype,
    /// Storage format of the lower tiers.
    pub stored: KvStorageFormat,
    /// Most tokens computed in one step.
    pub max_batched_tokens: usize,
    /// Most sequences running at once.
    pub max_sequences: usize,
    /// Most sequences waiting.
    pub max_waiting: usize,
    /// Order in which waiting sequences are admitted.
    pub order: QueueOrder,
}

/// Work and results of one step.
#[derive(Debug, Default)]
pub struct EngineStep {
    /// Whether there was nothing to do, or all wait for loads.
    pub is_empty: bool,
    /// Tokens computed.
    pub num_tokens: usize,
    /// Pairs of a query and a key.
    pub pairs: u128,
    /// Tokens whose keys and values were copied between the device and host memory beside it.
    pub copied_tokens: usize,
    /// Whether it computed layers of prompts whose prefix is loaded in part, beside its tokens.
    pub is_partly: bool,
    /// Tokens and ends of sequences.
    pub outputs: Vec<Output>,
    /// Changes of residency.
    pub events: Vec<CacheEvent>,
}

/// The executor in use.
enum Computer {
    Cpu(Box<CpuExecutor>),
    Other(Box<dyn Executor + Send>),
}

impl Computer {
    fn executor(&mut self) -> &mut dyn Executor {
        match self {
            Self::Cpu(executor) => &mut **executor,
            Self::Other(executor) => &mut **executor,
        }
    }
}

/// One replica's engine.
pub struct Engine {
    model: Arc<LanguageModel>,
    name: String,
    config: EngineConfig,
    scheduler: Scheduler,
    executor: Computer,
    importance: Option<ImportanceLoader>,
    mover: Option<Box<dyn BlockMover>>,
    /// Blocks that are to be stored and were not read yet.
    unread_blocks: usize,
    learned: LearnedCost,
    hasher: Arc<BlockHasher>,
}

impl Engine {
    /// An engine for `model`, served as `name`, whose victims `policy` chooses.
    #[must_use]
    pub fn new(
        model: Arc<LanguageModel>,
        name: &str,
        config: EngineConfig,
        policy: Box<dyn Policy>,
    ) -> Self {
        let executor = CpuExecutor::new(
            model.clone(),
            config.kv_dtype,
            config.cache_blocks,
            config.block_size,
        )
        .with_stored(config.stored);
        let max_context = model.config.max_context;
        let scheduler = scheduler(&config, policy, max_context);
        Self::with_computer(model, name, config, scheduler, Computer::Cpu(Box::new(executor)))
    }

    /// Same as [`Self::new`] with another executor.
    #[must_use]
    pub fn with_executor(
        model: Arc<LanguageModel>,
        name: &str,
        config: EngineConfig,
        policy: Box<dyn Policy>,
        bounded: BoundedExecutor,
    ) -> Self {
        let scheduler = scheduler(&config, policy, bounded.max_context);
        Self::with_computer(model, name, config, scheduler, Computer::Other(bounded.executor))
    }

    fn with_computer(
        model: Arc<LanguageModel>,
        name: &str,
        config: EngineConfig,
        scheduler: Scheduler,
        executor: Computer,
    ) -> Self {
        let hasher = Arc::new(hasher(&model, name, &config, None, None));
        Self {
            model,
            name: name.to_owned(),
            config,
            scheduler,
            executor,
            importance: None,
            mover: None,
            unread_blocks: 0,
            learned: LearnedCost::default(),
            hasher,
        }
    }

    /// The same with lower tiers, whose units `mover` moves.
    #[must_use]
    pub fn with_tiers(self, tiers: Tiers, mover: Box<dyn BlockMover>) -> Self {
        Self { scheduler: self.scheduler.with_tiers(tiers), mover: Some(mover), ..self }
    }

    /// The lower tiers, if there are any.
    #[must_use]
    pub fn tiers(&self) -> Option<&Tiers> {
        self.scheduler.tiers()
    }

    /// The longest sequence (prompt and answer) that it can hold, in tokens.
    #[must_use]
    pub fn context(&self) -> usize {
        self.scheduler.context()
    }

    /// Puts a request in the queue.
    pub fn submit(&mut self, submission: Submission, now: Nanos) -> Submit {
        // A salt is part of a block's identity, so its requests need a hasher of their own.
        let hasher = match &submission.salt {
            None => self.hasher.clone(),
            Some(salt) => {
                let layout = self.importance.as_ref().map(ImportanceLoader::layout);
                Arc::new(hasher(&self.model, &self.name, &self.config, layout, Some(salt)))
            }
        };
        self.scheduler.submit(submission, hasher, now)
    }

    /// Takes note of a prediction for a request that waits or runs; too late, it is ignored.
    pub fn annotate(&mut self, seq: SeqId, p_continue: Probability) {
        self.scheduler.annotate(seq, p_continue);
    }

    /// Forgets a request; unknown ids are ignored.
    pub fn cancel(&mut self, seq: SeqId, now: Nanos) {
        self.scheduler.cancel(seq, now);
        // It may have been the last request: no further step would read blocks that wait to be
        // stored.
        self.copy_if_idle();
    }

    /// Schedules, computes and completes one step. What it has computed is stored beside the next
    /// one, which must follow unless [`Self::is_idle`].
    pub fn step(&mut self, now: Nanos) -> EngineStep {
        // Arrivals come first, so that the batch can use their blocks.
        self.take_moved(now);
        self.begin_check(now);
        let batch = self.scheduler.schedule(now);
        // The batch overwrites evicted blocks; its copies read those that are handed over here
        // first.
        self.hand_over();
        let arrived = batch.arrivals.iter().map(|arrival| arrival.blocks.len());
        // The count is taken here, because the copies below reset the number of unread blocks.
        let copied_blocks = self.unread_blocks + arrived.sum::<usize>();
        let tokens = self.copy_and_compute(&batch);
        if !batch.is_empty() {
            self.scheduler.complete(&batch, &tokens, now);
            self.hand_over();
        }
        let has_advanced = self.advance_partly(now);
        let pairs = batch.entries.iter().map(|entry| {
            // Attention is causal: each new token sees all tokens before it, and itself.
            let (before, new) = (entry.start as u128, entry.tokens.len() as u128);
            new * before + new * (new + 1) / 2
        });
        // The partial prompts have advanced: their first tokens belong to this step.
        let outputs = self.take_outputs();
        self.copy_if_idle();
        EngineStep {
            is_empty: batch.is_empty() && !has_advanced,
            pairs: pairs.sum(),
            is_partly: has_advanced,
            copied_tokens: copied_blocks * self.config.block_size,
            num_tokens: batch.num_tokens(),
            outputs,
            events: self.scheduler.take_events(),
        }
    }

    /// A step took so long: what loading is compared with.
    pub fn took(&mut self, step: &EngineStep, seconds: f64) {
        // Copies beside a short step would be taken for the cost of its few tokens.
        let is_copying = step.copied_tokens > 2 * step.num_tokens;
        // Nor do its tokens tell what the layers of others cost.
        let tells_nothing = step.num_tokens == 0 || is_copying || step.is_partly;
        // Without lower tiers no load is compared with computing.
        if self.mover.is_none() || tells_nothing {
            return;
        }
        let work = Work { tokens: step.num_tokens, ..Work::default() };
        self.learned.observe(work, step.pairs, seconds);
        if let Some(engine) = self.learned() {
            self.scheduler.set_engine(engine);
        }
    }

    /// Drops all blocks without a holder from the device, as if other requests had needed the room;
    /// lower tiers keep theirs.
    pub fn clear_device(&mut self, now: Nanos) {
        self.scheduler.clear_device(now);
        // Evicted blocks may still have to be stored, and no step may follow that reads them.
        self.hand_over();
        self.copy_and_compute(&Batch::default());
    }

    /// Costs of steps, learned from [`Engine::took`]. Available only with lower tiers and after the
    /// first computed prompt.
    #[must_use]
    pub fn learned(&self) -> Option<EngineModel> {
        let config = &self.config;
        let kv_tokens = config.cache_blocks * config.block_size;
        self.learned.engine(config.max_batched_tokens, kv_tokens)
    }

    /// The tables of the eviction policies of device and tiers, of those that learn.
    #[must_use]
    pub fn learned_tables(&self) -> Vec<(Tier, Vec<u8>)> {
        self.scheduler.learned_tables()
    }

    /// There is nothing to do, and was not for a while: what a restart should know is noted.
    pub fn rest(&mut self) {
        self.scheduler.rest();
        self.hand_over();
    }

    /// Processes finished transfers and returns how residency changed; to be called from time to
    /// time while idle.
    pub fn look_round(&mut self, now: Nanos) -> Vec<CacheEvent> {
        self.take_moved(now);
        self.tend_partly(now);
        self.hand_over();
        self.copy_if_idle();
        self.scheduler.take_events()
    }

    /// Earliest deadline of a request that waits for a load, if any waits. An engine with nothing
    /// else to do can sleep until then.
    #[must_use]
    pub fn waits_until(&self, now: Nanos) -> Option<Nanos> {
        self.scheduler.waits_until(now)
    }

    fn take_moved(&mut self, now: Nanos) {
        let Some(mover) = &mut self.mover else { return };
        let mut moved = Vec::new();
        mover.poll(&mut moved);
        for moved in moved {
            // Reports about parts and packs end here: the scheduler knows whole units only.
            let moved = match &mut self.importance {
                Some(importance) => importance.moved(moved, &mut self.scheduler, now),
                None => Some(moved),
            };
            if let Some(moved) = moved {
                self.scheduler.moved(moved, now);
            }
        }
    }

    /// Hands over what shall be moved. What is to be stored is read with the next copies, the first
    /// that can overwrite it.
    fn hand_over(&mut self) {
        let Some(mover) = &mut self.mover else { return };
        for transfer in self.scheduler.take_transfers() {
            match (&transfer, &mut self.importance) {
                (Transfer::Store { blocks, .. }, _) => self.unread_blocks += blocks.len(),
                // A unit that leaves its tier must not be served from parts in memory either.
                (Transfer::Forget { tier, names }, Some(importance)) => {
                    importance.forgotten(*tier, names);
                }
                _ => {}
            }
            mover.submit(transfer);
        }
    }

    /// Computes `batch`. Beside it, layer by layer, what is to be stored is read and then what has
    /// arrived is copied into its blocks.
    fn copy_and_compute(&mut self, batch: &Batch) -> Vec<TokenId> {
        let unread = std::mem::take(&mut self.unread_blocks);
        let mover = self.mover.as_deref_mut();
        let copies = mover.and_then(|mover| Copies::new(mover, &batch.arrivals, unread));
        let mut tokens = Vec::new();
        // Copies go beside the layers, so that a step does not wait for them.
        if !batch.entries.is_empty() {
            tokens = self.executor.executor().execute(batch, copies);
        } else if let Some(copies) = copies {
            // No layer is computed, so the copies run alone.
            self.executor.executor().copy(copies);
        }
        tokens
    }

    /// Nothing waits for a step that may not come.
    fn copy_if_idle(&mut self) {
        if self.is_idle() {
            self.copy_and_compute(&Batch::default());
        }
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let importance = self.importance.as_ref();
        let has_checked = importance.is_none_or(|importance| importance.checks.is_empty());
        self.scheduler.is_idle() && has_checked
    }

    /// Returns the numbers of running and waiting sequences, of blocks and of preemptions.
    #[must_use]
    pub fn load(&self) -> SchedulerLoad {
        self.scheduler.load()
    }

    /// Asserts the invariants of scheduler and cache.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.scheduler.check();
        if let Some(importance) = &self.importance {
            importance.check();
        }
    }
}

/// A scheduler of sequences of at most `max_context` tokens.
fn scheduler(config: &EngineConfig, policy: Box<dyn Policy>, max_context: usize) -> Scheduler {
    let limits = SchedulerConfig {
        max_batched_tokens: config.max_batched_tokens,
        max_sequences: config.max_sequences,
        max_waiting: config.max_waiting,
        max_context,
        block_size: config.block_size,
        order: config.order,
    };
    Scheduler::new(limits, PrefixCache::new(config.cache_blocks, policy))
}

/// The one place where a block's whole identity comes together.
fn hasher(
    model: &LanguageModel,
    name: &str,
    config: &EngineConfig,
    layout: Option<String>,
    salt: Option<&str>,
) -> BlockHasher {
    let layout = layout.map_or(Cow::Borrowed(kv::LAYOUT), Cow::Owned);
    BlockHasher::new(&BlockIdentity {
        model: name,
        weights_revision: &model.revision,
        kv_dtype: &config.stored.kv_dtype(config.kv_dtype),
        kv_layout: &layout,
        adapter: None,
        salt,
        block_size: config.block_size as u32,
    })
}
