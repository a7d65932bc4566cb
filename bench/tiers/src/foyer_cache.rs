//! foyer's hybrid cache: a block engine on files opened for direct I/O.
//!
//! foyer drops what is put faster than it writes. Here what was put and is not written yet never
//! exceeds a window: its buffers hold a window each, and a batch is only put once the batch a
//! window before it was written.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy, IoEngineConfig, PsyncIoEngineConfig, RecoverMode, Source,
    UringIoEngineConfig,
};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::options::{FoyerIo, MIB, Options};
use crate::payload::{PAGE, mix};
use crate::subject::{Check, Durable, Load, Opened, Reads, Subject, sync_file_system};

/// Batches of puts in a window.
const BATCHES: usize = 4;

/// Bytes that foyer evicts together and has a file for: its default.
const BLOCK_BYTES: usize = 16 * MIB;

/// Blocks that it has beyond what records need: as many as it never has to evict with.
const SPARE_BLOCKS: usize = 16;

/// Longest time for its tasks to end.
const PATIENCE: Duration = Duration::from_secs(10);

type Cache = HybridCache<u64, Vec<u8>>;

/// foyer, driven.
pub(crate) struct Foyer {
    name: &'static str,
    runtime: Runtime,
    cache: Cache,
    load: Arc<Load>,
    dir: PathBuf,
    depth: usize,
    /// Records of a batch.
    batch: u32,
}

impl Foyer {
    /// Opens it in an empty folder.
    pub(crate) fn open(
        options: &Options,
        io: FoyerIo,
        dir: &Path,
        load: &Arc<Load>,
    ) -> Result<Opened> {
        let runtime = Runtime::new()?;
        let start = Instant::now();
        let cache = runtime.block_on(build(options, io, dir, load))?;
        let took = start.elapsed();
        let name = match io {
            FoyerIo::Uring => "foyer, io_uring",
            FoyerIo::Psync => "foyer, psync",
        };
        let subject = Box::new(Self {
            name,
            runtime,
            cache,
            load: load.clone(),
            dir: dir.to_owned(),
            depth: options.depth,
            batch: load.num_warm_up.div_ceil(BATCHES as u32),
        });
        Ok(Opened { subject, took })
    }
}

async fn build(options: &Options, io: FoyerIo, dir: &Path, load: &Load) -> Result<Cache> {
    // A page more for each record's own header, and one for the index of what was flushed with it.
    let stored_bytes = load.record_bytes + PAGE;
    let all_bytes = load.num_all() as usize * (stored_bytes + PAGE);
    let num_blocks = (all_bytes + all_bytes / 4).div_ceil(BLOCK_BYTES) + SPARE_BLOCKS;
    let device = FsDeviceBuilder::new(dir)
        .with_capacity(num_blocks * BLOCK_BYTES)
        .with_direct(true)
        .build()?;
    let window_bytes = (load.num_warm_up as usize + 1) * stored_bytes;
    let engine = BlockEngineConfig::new(device)
        .with_block_size(BLOCK_BYTES)
        .with_flushers(options.foyer_flushers)
        .with_buffer_pool_size(options.foyer_flushers * window_bytes)
        .with_submit_queue_size_threshold(2 * window_bytes);
    let io: Box<dyn IoEngineConfig> = match io {
        FoyerIo::Uring => UringIoEngineConfig::new().boxed(),
        FoyerIo::Psync => PsyncIoEngineConfig::new().boxed(),
    };
    let cache = HybridCacheBuilder::new()
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .with_flush_on_close(false)
        .memory(options.foyer_memory_mib * MIB)
        .with_weighter(|_: &u64, value: &Vec<u8>| value.len())
        .storage()
        .with_io_engine_config(io)
        .with_engine_config(engine)
        .with_recover_mode(RecoverMode::None)
        .build();
    cache.await.context("foyer cannot be opened")
}

impl Subject for Foyer {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn fill(&mut self, records: Range<u32>) -> Result<()> {
        let Self { cache, load, .. } = self;
        let batch = self.batch;
        self.runtime.block_on(async {
            let mut under_way: VecDeque<JoinHandle<()>> = VecDeque::new();
            for record in records.clone() {
                let is_next_batch = (record - records.start).is_multiple_of(batch);
                if is_next_batch && record > records.start {
                    under_way.push_back(tokio::spawn(written(cache.clone())));
                }
                if under_way.len() >= BATCHES
                    && let Some(oldest) = under_way.pop_front()
                {
                    oldest.await?;
                }
                let mut value = Vec::with_capacity(load.record_bytes);
                load.payload.append(record, &mut value);
                cache.insert(key_of(record), value);
            }
            for batch in under_way {
                batch.await?;
            }
            written(cache.clone()).await;
            Ok(())
        })
    }

    fn sync(&mut self) -> Result<Durable> {
        // foyer itself never does; one call for its files costs least.
        sync_file_system(&self.dir)?;
        Ok(Durable::WithSync)
    }

    fn cool(&mut self) {
        self.cache.memory().clear();
    }

    fn read(&mut self, order: &[u32], check: Check) -> Result<Reads> {
        let order: Arc<[u32]> = order.into();
        let next = Arc::new(AtomicUsize::new(0));
        self.runtime.block_on(async {
            let reader = |_| {
                let (cache, load) = (self.cache.clone(), self.load.clone());
                let (order, next) = (order.clone(), next.clone());
                tokio::spawn(async move {
                    let mut reads = Reads::default();
                    while let Some(&record) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let Some(entry) = cache.get(&key_of(record)).await? else {
                            continue;
                        };
                        let bytes: &Vec<u8> = entry.value();
                        let is_right = bytes.len() == load.record_bytes
                            && load.is_right(check, record, 0, bytes);
                        reads.found += 1;
                        reads.from_memory += usize::from(entry.source() == Source::Memory);
                        reads.wrong += usize::from(!is_right);
                    }
                    Ok::<_, foyer::Error>(reads)
                })
            };
            let readers: Vec<_> = (0..self.depth).map(reader).collect();
            let mut all = Reads::default();
            for reader in readers {
                let reads = reader.await??;
                all.found += reads.found;
                all.from_memory += reads.from_memory;
                all.wrong += reads.wrong;
            }
            Ok(all)
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { runtime, cache, .. } = *self;
        runtime.block_on(cache.close())?;
        drop(cache);
        runtime.shutdown_timeout(PATIENCE);
        Ok(())
    }
}

/// Ends when all that was put before is written.
async fn written(cache: Cache) {
    cache.storage().wait().await;
}

fn key_of(record: u32) -> u64 {
    mix(u64::from(record))
}
