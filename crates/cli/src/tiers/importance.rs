//! Stored prefixes of which only what matters is loaded: options made into sizes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use headstart_cache::policy::{self, Setting};
use headstart_cache::tiers::LoadWhen;
use headstart_engine::importance::{ImportanceConfig, PackingOptions};
use headstart_engine::kv::{KvStorageFormat, Probes};
use headstart_selective::{GuardOptions, NodeOptions, Selecting};
use headstart_store::tiered::{PartSlots, PartsConfig, StoreConfig};

use super::{FleetShape, UNIT_TOKENS};
use crate::config::importance::ImportanceOption;
use crate::exit::usage;

/// Share of the context cache's budget that packs may take.
const PACK_SHARE: f64 = 0.2;

/// The largest pack that a disk takes, bytes, and the share of its budget that it may be.
const MOST_PACK_BYTES: u64 = 60 << 20;
const SEGMENTS: u64 = 20;

/// Share of a folder's budget that records fill: the rest is room for cleaning.
const FILL: f64 = 0.7;

/// Prompts that are loaded in part at once, per replica.
const AT_ONCE: usize = 2;

/// Packs that were asked for and not begun yet.
const MOST_PACKS: usize = 64;

/// Stored prefixes that are loaded in part, in a model's sizes.
#[derive(Clone)]
pub(crate) struct PartialLoading {
    option: ImportanceOption,
    probes: Probes,
    block_size: usize,
    part_bytes: Vec<usize>,
    parts: PartsConfig,
    /// Bytes of parts that stay in memory.
    kept_bytes: u64,
    /// Units of one pack.
    units_of_one: usize,
    /// Units of a layer that packs may hold.
    most_pack_units: usize,
}

/// Budgets of what is loaded in part.
#[derive(Clone, Copy)]
pub(crate) struct LoadingBudgets {
    /// Of the context cache.
    pub(crate) cache_bytes: u64,
    /// Of parts in memory.
    pub(crate) kept_bytes: u64,
}

impl PartialLoading {
    /// Parses `text`.
    pub(crate) fn new(text: &str, shape: &FleetShape<'_>, budgets: LoadingBudgets) -> Result<Self> {
        let LoadingBudgets { cache_bytes, kept_bytes } = budgets;
        let option: ImportanceOption = text.parse()?;
        refuse(shape)?;
        let model = shape.model;
        let probes = Probes::of(model);
        let part_bytes = probes.part_bytes(model, shape.dtype, shape.block_size);
        // `refuse` has made sure that a unit is a whole number of blocks.
        let unit_blocks = UNIT_TOKENS / shape.block_size;
        let unit_parts = [part_bytes[0], part_bytes[model.num_layers]];
        // The first parts are the probes' keys of each layer, the next ones the rest of each layer.
        let [probe_bytes, rest_bytes] = unit_parts.map(|bytes| (bytes * unit_blocks).max(1) as u64);
        // A prompt needs its probes' keys twice, this layer's and the next one's.
        let longest = model.max_context.div_ceil(UNIT_TOKENS) + 1;
        let kept = RetainedParts::of(kept_bytes, [probe_bytes, rest_bytes]);
        let parts = PartsConfig {
            slots: AT_ONCE * 2 * longest + kept.parts,
            small_slots: AT_ONCE * 2 * longest + kept.parts,
            most_loads: AT_ONCE * 4 * longest,
            most_packs: MOST_PACKS,
            format: Arc::new(probes.rest_format(model, shape.dtype, shape.block_size)),
            host_line: None,
        };
        // A pack may be a twentieth of the budget, and no larger than a disk takes.
        let most = MOST_PACK_BYTES.min(cache_bytes / SEGMENTS);
        let units_of_one =
            (most as f64 / (rest_bytes as f64 * NodeOptions::default().most_share)) as usize;
        // Without reordering no pack is ever written, so none gets room.
        let pack_bytes = match option.reorder_s {
            Some(_) => cache_bytes as f64 * FILL * PACK_SHARE,
            None => 0.0,
        };
        let unit_bytes = rest_bytes as f64 * NodeOptions::default().most_share;
        Ok(Self {
            option,
            probes,
            block_size: shape.block_size,
            part_bytes,
            parts,
            kept_bytes: kept.bytes,
            units_of_one,
            most_pack_units: (pack_bytes / unit_bytes) as usize,
        })
    }

    /// Whether loading is weighed against computing.
    pub(crate) fn load(&self) -> LoadWhen {
        self.option.load
    }

    /// Of the context cache's budget, the share that is left for units.
    pub(crate) fn unit_share(&self) -> f64 {
        match self.option.reorder_s {
            Some(_) => 1.0 - PACK_SHARE,
            None => 1.0,
        }
    }

    /// Sets what the store must know.
    pub(crate) fn set_store(&self, store: &mut StoreConfig) {
        store.part_bytes.clone_from(&self.part_bytes);
        store.parts = Some(self.parts.clone());
    }

    /// Returns the settings of the engine.
    pub(crate) fn engine(&self) -> ImportanceConfig {
        let option = &self.option;
        let block_tokens = self.block_size as u32;
        let nodes = |seconds| NodeOptions {
            unit_tokens: UNIT_TOKENS,
            interval: Duration::from_secs_f64(seconds),
            most_pack_units: self.units_of_one.max(2),
            ..NodeOptions::default()
        };
        let packing = option.reorder_s.map(|seconds| PackingOptions {
            nodes: nodes(seconds),
            most_units: self.most_pack_units,
        });
        ImportanceConfig {
            probes: self.probes.clone(),
            selecting: Selecting {
                ratio: option.ratio,
                falls_back: option.falls_back,
                ..Selecting::default()
            },
            least_tokens: option.least_tokens,
            guard: GuardOptions {
                sample: option.check,
                most_kl: option.most_kl as f32,
                ..GuardOptions::default()
            },
            kept_bytes: [0, self.kept_bytes],
            is_host_far: false,
            most_at_once: AT_ONCE,
            packing,
            policy: Arc::new(move |capacity| {
                let setting = Setting { capacity, block_tokens };
                policy::by_name("importance", setting).expect("a policy of that name")
            }),
        }
    }
}

/// Parts that stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RetainedParts {
    /// Of each kind: a layer of a unit has one of both.
    parts: usize,
    /// Budget passed to the engine, which counts bytes of parts and not of slots.
    bytes: u64,
}

impl RetainedParts {
    /// As many as take `memory` bytes at most, with the slots that they are in. Of a unit's probe
    /// part and rest part, the bytes.
    fn of(memory: u64, [probe_bytes, rest_bytes]: [u64; 2]) -> Self {
        // A part takes more than its bytes, because slots are rounded up.
        let lens = [probe_bytes as usize, rest_bytes as usize];
        let slots = PartSlots::of(&lens);
        let parts = memory / (slots.large_bytes + slots.small_bytes) as u64;
        let both = probe_bytes + rest_bytes;
        Self {
            parts: parts as usize,
            // Half a pair more, so that no rounding makes it one pair less.
            bytes: parts * both + both / 2,
        }
    }
}

/// Explains why blocks of `block_size` tokens do not fit a chunk; `None` if they do.
fn wrong_block(block_size: usize) -> Option<String> {
    // A chunk is read as a whole, so its bounds must be those of blocks.
    (!UNIT_TOKENS.is_multiple_of(block_size)).then(|| {
        format!(
            "--importance reads chunks of {UNIT_TOKENS} tokens, and blocks of {block_size} do not \
             fit: give --block-size 16, 32 or 64, or leave out --importance"
        )
    })
}

/// Refuses what does not go together.
fn refuse(shape: &FleetShape<'_>) -> Result<()> {
    if shape.is_emulated {
        return Err(usage(
            "--importance chooses by keys and queries, and --executor cost-model=FILE computes \
             none: leave one of them out",
        ));
    }
    if shape.stored != KvStorageFormat::Same {
        return Err(usage(
            "--importance loads parts of what is stored as it is: leave out \
             --context-cache-dtype fp8",
        ));
    }
    match wrong_block(shape.block_size) {
        Some(problem) => Err(usage(problem)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kept parts, slots included, never exceed the requested memory and use nearly all of it. This
    /// also holds if both kinds of parts are of similar or equal length.
    #[test]
    fn parts_that_stay_take_no_more_memory_than_was_asked_for() {
        const PAGE: u64 = 4096;
        for memory in [0, 100_000, 64 << 20, 1 << 30] {
            for probe in [PAGE / 4, 2 * PAGE, 8 * PAGE, 32 * PAGE] {
                for times in [1, 2, 3, 7, 15] {
                    let rest = probe * times;
                    let kept = RetainedParts::of(memory, [probe, rest]);
                    let slots = PartSlots::of(&[probe as usize, rest as usize]);
                    let each = (slots.large_bytes + slots.small_bytes) as u64;
                    let taken = kept.parts as u64 * each;
                    let context = format!("{memory}: {probe}, {rest}");
                    assert!(taken <= memory && memory - taken < each, "{context}");
                    assert!(each <= probe + rest + 5 * PAGE, "{context}: {each}");
                    // As the engine counts.
                    for bytes in [probe, rest] {
                        let share = bytes as f64 / (probe + rest) as f64;
                        let count = (kept.bytes as f64 * share / bytes as f64) as usize;
                        assert_eq!(count, kept.parts, "{context}");
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_fit_a_chunk() {
        for (block_size, fits) in [(8, true), (16, true), (64, true), (48, false), (128, false)] {
            let problem = wrong_block(block_size);
            assert_eq!(problem.is_none(), fits, "{block_size}");
            let names = |message: &String| message.contains("give --block-size 16, 32 or 64");
            assert!(problem.iter().all(names), "{problem:?}");
        }
    }
}
