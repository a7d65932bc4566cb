//! Stored prefixes of which only what matters is loaded: options made into sizes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use headstart_cache::importance::{GuardOptions, NodeOptions, Selecting};
use headstart_cache::policy::{self, Setting};
use headstart_cache::tiers::LoadWhen;
use headstart_engine::importance::{ImportanceConfig, PackingOptions};
use headstart_engine::kv::{KvStorageFormat, Probes};
use headstart_store::tiered::{PartSlots, PartsConfig, StoreConfig};

use super::{Shape, usage};
use crate::config::importance::ImportanceOption;

/// Share of the context cache's budget that packs may take.
const PACK_SHARE: f64 = 0.2;

/// Tokens that a chunk may have.
const CHUNKS: [usize; 3] = [16, 32, 64];

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
pub(crate) struct Importance {
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

impl Importance {
    /// Parses `text`. `budget_bytes` is the budget of the context cache, `kept_bytes` that of parts
    /// in memory.
    pub(crate) fn new(
        text: &str,
        shape: &Shape<'_>,
        (budget_bytes, kept_bytes): (u64, u64),
    ) -> Result<Self> {
        let option: ImportanceOption = text.parse()?;
        refuse(&option, shape)?;
        let model = shape.model;
        let probes = match &option.probes {
            None => Ok(Probes::of(model)),
            Some(heads) => Probes::new(heads, model),
        };
        let probes = probes.map_err(|problem| usage(&format!("--importance probes: {problem}")))?;
        let part_bytes = probes.part_bytes(model, shape.dtype, shape.block_size);
        let unit_blocks = option.chunk_tokens / shape.block_size;
        let unit_parts = [part_bytes[0], part_bytes[model.num_layers]];
        let [probe_bytes, rest_bytes] = unit_parts.map(|bytes| (bytes * unit_blocks).max(1) as u64);
        // A prompt needs its probes' keys twice, this layer's and the next one's.
        let longest = model.max_context.div_ceil(option.chunk_tokens) + 1;
        let kept = Kept::of(kept_bytes, [probe_bytes, rest_bytes]);
        let parts = PartsConfig {
            slots: AT_ONCE * 2 * longest + kept.parts,
            small_slots: AT_ONCE * 2 * longest + kept.parts,
            most_loads: AT_ONCE * 4 * longest,
            most_packs: MOST_PACKS,
            format: Arc::new(probes.rest_format(model, shape.dtype, shape.block_size)),
            host_line: None,
        };
        let most = MOST_PACK_BYTES.min(budget_bytes / SEGMENTS);
        let units_of_one =
            (most as f64 / (rest_bytes as f64 * NodeOptions::default().most_share)) as usize;
        let pack_bytes = match option.reorder_s {
            Some(_) => budget_bytes as f64 * FILL * PACK_SHARE,
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

    /// Tokens of a unit.
    pub(crate) fn unit_tokens(&self) -> usize {
        self.option.chunk_tokens
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
        let (name, block_tokens) = (option.policy.clone(), self.block_size as u32);
        let nodes = |seconds| NodeOptions {
            unit_tokens: option.chunk_tokens,
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
                spared: option.spared,
                whole_parts: option.whole_parts,
                merge: option.merge,
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
                let setting = Setting {
                    capacity,
                    block_tokens,
                };
                policy::by_name(&name, setting).expect("the name was checked at start")
            }),
        }
    }
}

/// Parts that stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    /// Of each kind: a layer of a unit has one of both.
    parts: usize,
    /// Budget passed to the engine, which counts bytes of parts and not of slots.
    bytes: u64,
}

impl Kept {
    /// As many as take `memory` bytes at most, with the slots that they are in. Of a unit's probe
    /// part and rest part, the bytes.
    fn of(memory: u64, [probe_bytes, rest_bytes]: [u64; 2]) -> Self {
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

/// Explains why a chunk of `chunk` tokens does not fit blocks of `block_size` tokens; `None` if it
/// does.
fn wrong_chunk(chunk: usize, block_size: usize) -> Option<String> {
    let fits = |chunk: &usize| chunk.is_multiple_of(block_size);
    if fits(&chunk) {
        return None;
    }
    let fitting: Vec<String> = CHUNKS
        .iter()
        .filter(|it| fits(it))
        .map(usize::to_string)
        .collect();
    Some(match fitting.is_empty() {
        true => format!(
            "--importance reads chunks of 16, 32 or 64 tokens, and a block of --block-size \
             {block_size} fits into none: give --block-size 16, 32 or 64, or leave out --importance"
        ),
        false => format!(
            "--importance chunk={chunk} is no multiple of --block-size {block_size}: give \
             chunk={}, or a smaller --block-size",
            fitting.join(" or chunk=")
        ),
    })
}

/// Refuses what does not go together.
fn refuse(option: &ImportanceOption, shape: &Shape<'_>) -> Result<()> {
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
    if let Some(problem) = wrong_chunk(option.chunk_tokens, shape.block_size) {
        return Err(usage(&problem));
    }
    let setting = Setting {
        capacity: 1,
        block_tokens: shape.block_size as u32,
    };
    let policy = policy::by_name(&option.policy, setting);
    policy
        .map(drop)
        .map_err(|problem| usage(&format!("--importance policy: {problem}")))
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
                    let kept = Kept::of(memory, [probe, rest]);
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
    fn what_does_not_fit_is_told_with_what_does() {
        for (chunk, block_size, told) in [
            (64, 16, None),
            (16, 8, None),
            (64, 64, None),
            (
                16,
                64,
                Some("chunk=16 is no multiple of --block-size 64: give chunk=64, or"),
            ),
            (
                16,
                32,
                Some("give chunk=32 or chunk=64, or a smaller --block-size"),
            ),
            (
                64,
                128,
                Some("give --block-size 16, 32 or 64, or leave out --importance"),
            ),
            (64, 48, Some("a block of --block-size 48 fits into none")),
        ] {
            let problem = wrong_chunk(chunk, block_size);
            match (told, &problem) {
                (Some(told), Some(problem)) => assert!(problem.contains(told), "{problem}"),
                (told, problem) => assert_eq!(told, problem.as_deref(), "{chunk} {block_size}"),
            }
        }
    }
}
