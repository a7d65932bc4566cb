//! Units whose probe heads' keys lie apart, so that they can be loaded first.
//!
//! ```text
//! part l       probe part   of layer l: keys of the probes' key-value heads
//! part L + l   rest part    of layer l: all other keys, then all values
//! ```
//!
//! Each part has a unit's blocks one behind the other, and a block has its heads as the pool has
//! them: keys `[kv_head][head_dim][block_size]`, values `[kv_head][block_size][head_dim]`. Nothing
//! is stored twice.
//!
//! Source: Chen et al., "IMPRESS", FAST'25: a redundant copy of the probe heads' keys. Here the
//! keys are moved there instead. Under grouped-query attention the probes are of distinct
//! key-value heads, because probes that share one cannot disagree about what others look at.

use std::fmt::Write as _;
use std::sync::Arc;

use headstart_core::BlockId;
use headstart_core::transfer::{DevicePart, TokenFormat};

use super::{Dtype, LayerKv};
use crate::ModelConfig;

/// Default number of probe heads per layer, as in the source.
const PROBES: usize = 3;

/// The heads whose queries and keys tell what matters, the same in each layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    /// Query heads, in order.
    heads: Vec<usize>,
    /// Whether a key-value head is a probe's.
    is_probed: Arc<[bool]>,
    group: usize,
}

impl Probes {
    /// These query heads of a model.
    ///
    /// # Errors
    /// When there are none, the model has no such head, or one is named twice.
    pub fn new(heads: &[usize], config: &ModelConfig) -> Result<Self, String> {
        let mut heads = heads.to_vec();
        // Sorting puts a head that is named twice next to itself.
        heads.sort_unstable();
        let num_heads = config.num_heads;
        if heads.is_empty() {
            return Err("no probe heads: name at least one".to_owned());
        }
        if let Some(head) = heads.iter().find(|&&head| head >= num_heads) {
            let last = num_heads - 1;
            return Err(format!("there is no head {head}: the model has heads 0 to {last}"));
        }
        if heads.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("a probe head is named twice".to_owned());
        }
        let group = config.group();
        let is_probed = |kv_head| heads.iter().any(|head| head / group == kv_head);
        let is_probed = (0..config.num_kv_heads).map(is_probed).collect();
        Ok(Self { heads, is_probed, group })
    }

    /// Three heads: 0, 1 and 2 where each has keys of its own, else the first one of the middle
    /// group of each third. A model with fewer key-value heads has more probes on each.
    #[must_use]
    pub fn of(config: &ModelConfig) -> Self {
        let (kv_heads, group) = (config.num_kv_heads, config.group());
        let count = PROBES.min(config.num_heads);
        let heads: Vec<usize> = match group {
            1 => (0..count).collect(),
            _ => (0..count)
                .map(|probe| {
                    if kv_heads >= count {
                        // The middle group of the probe's share, as a whole number, then its first
                        // query head.
                        (2 * probe + 1) * kv_heads / (2 * count) * group
                    } else {
                        // The key-value heads take turns; each turn takes the next query head of a
                        // group.
                        probe % kv_heads * group + probe / kv_heads
                    }
                })
                .collect(),
        };
        Self::new(&heads, config).expect("they are heads of the model, and differ")
    }

    /// All heads: then only values are left to choose from, as H2O does.
    #[must_use]
    pub fn all(config: &ModelConfig) -> Self {
        let heads: Vec<usize> = (0..config.num_heads).collect();
        Self::new(&heads, config).expect("they are heads of the model, and differ")
    }

    /// Query heads, in order.
    #[must_use]
    pub fn heads(&self) -> &[usize] {
        &self.heads
    }

    /// Whether a key-value head is a probe's.
    pub(super) fn is_probed(&self) -> &Arc<[bool]> {
        &self.is_probed
    }

    /// Returns the index of a query head's keys among those of the probes.
    #[must_use]
    pub(crate) fn place_of(&self, head: usize) -> usize {
        let before = &self.is_probed[..head / self.group];
        before.iter().filter(|is_probed| **is_probed).count()
    }

    /// Key-value heads that are probes'.
    #[must_use]
    pub fn num_probed(&self) -> usize {
        self.is_probed.iter().filter(|is_probed| **is_probed).count()
    }

    /// Share of the bytes of keys and values that are probes' keys.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.num_probed() as f64 / (2 * self.is_probed.len()) as f64
    }

    /// Bytes of each part of a block, as units have them.
    #[must_use]
    pub fn part_bytes(&self, config: &ModelConfig, dtype: Dtype, block_size: usize) -> Vec<usize> {
        let head = config.head_dim * block_size * dtype.bytes();
        let probes = self.num_probed() * head;
        let rest = (2 * config.num_kv_heads - self.num_probed()) * head;
        let parts = |bytes: usize| std::iter::repeat_n(bytes, config.num_layers);
        // In the order of a unit's parts: probe parts of all layers, then rest parts.
        parts(probes).chain(parts(rest)).collect()
    }

    /// Layout of the units of these probes, as part of a block's identity.
    #[must_use]
    pub fn layout(&self) -> String {
        let mut layout = format!("{},probes", super::LAYOUT);
        let probed = self.is_probed.iter().enumerate();
        for (head, _) in probed.filter(|(_, is_probed)| **is_probed) {
            // Writing to a string cannot fail.
            let _ = write!(layout, ":{head}");
        }
        layout
    }

    /// Returns the token layout of a rest part.
    #[must_use]
    pub fn rest_format(&self, config: &ModelConfig, dtype: Dtype, block_size: usize) -> RestFormat {
        RestFormat {
            keys: config.num_kv_heads - self.num_probed(),
            values: config.num_kv_heads,
            dim: config.head_dim,
            block_size,
            element: dtype.bytes(),
        }
    }
}

/// Token layout of a rest part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestFormat {
    keys: usize,
    values: usize,
    dim: usize,
    block_size: usize,
    element: usize,
}

impl RestFormat {
    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        (self.keys + self.values) * self.dim * self.block_size * self.element
    }
}

impl TokenFormat for RestFormat {
    fn copy_token(&self, from: &[u8], at: usize, to: &mut [u8], to_at: usize) {
        let size = self.block_size;
        // A part has several blocks, and the token lies in one of them.
        let from = &from[at / size * self.block_bytes()..][..self.block_bytes()];
        let to = &mut to[to_at / size * self.block_bytes()..][..self.block_bytes()];
        let keys = Columns { size, element: self.element };
        let values = Columns { size, element: self.dim * self.element };
        let key_bytes = self.keys * self.dim * size * self.element;
        let (from_keys, from_values) = from.split_at(key_bytes);
        let (to_keys, to_values) = to.split_at_mut(key_bytes);
        keys.copy(from_keys, at % size, to_keys, to_at % size);
        values.copy(from_values, at % size, to_values, to_at % size);
    }
}

/// Columns of `size` tokens, with `element` bytes of each. Keys are transposed: a token has one
/// number in each of many columns. Of a head's values it has one piece, in one column.
#[derive(Clone, Copy)]
struct Columns {
    size: usize,
    element: usize,
}

impl Columns {
    /// Copies a token from slot `at` to slot `to_at` of other columns.
    fn copy(self, from: &[u8], at: usize, to: &mut [u8], to_at: usize) {
        let Self { size, element } = self;
        let columns = from.chunks_exact(size * element);
        for (from, to) in columns.zip(to.chunks_exact_mut(size * element)) {
            to[to_at * element..][..element].copy_from_slice(&from[at * element..][..element]);
        }
    }
}

/// The two parts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// The probes' keys.
    Probes,
    /// All else.
    Rest,
}

/// One of a layer's two parts.
pub struct SectionOf<'a> {
    pub(crate) layer: &'a mut LayerKv,
    pub(crate) section: Section,
}

impl DevicePart for SectionOf<'_> {
    fn block_bytes(&self) -> usize {
        self.layer.heads_of(self.section).count() * self.layer.head_bytes()
    }

    fn read(&self, block: BlockId, bytes: &mut [u8]) {
        let pieces = bytes.chunks_exact_mut(self.layer.head_bytes());
        for (piece, (side, head)) in pieces.zip(self.layer.heads_of(self.section)) {
            let range = self.layer.range(block, head);
            piece.copy_from_slice(match side {
                Side::Keys => self.layer.keys.bytes(range),
                Side::Values => self.layer.values.bytes(range),
            });
        }
    }

    fn write(&mut self, block: BlockId, bytes: &[u8]) {
        let pieces = bytes.chunks_exact(self.layer.head_bytes());
        for (piece, (side, head)) in pieces.zip(self.layer.heads_of(self.section)) {
            self.layer.head_mut(block, side, head).copy_from_slice(piece);
        }
    }
}

/// A part of a head's data for a token.
#[derive(Clone, Copy)]
enum Side {
    Keys,
    Values,
}

/// A token in a copy of a section of a block.
#[derive(Clone, Copy)]
pub struct StoredToken<'a> {
    /// The section's bytes.
    pub block: &'a [u8],
    /// Its slot in the block.
    pub slot: usize,
}

/// A token's place on the device.
#[derive(Clone, Copy)]
pub(crate) struct TokenSlot {
    pub(crate) block: BlockId,
    pub(crate) slot: usize,
}

impl LayerKv {
    /// Whether lower tiers store it as two parts.
    pub(crate) fn has_probes(&self) -> bool {
        self.probes.is_some()
    }

    /// Bytes of what a head has of a block: keys, or values.
    pub(crate) fn head_bytes(&self) -> usize {
        self.head_dim * self.block_size * self.keys.dtype().bytes()
    }

    /// The heads of a section, each with what of it the section has: first keys, then values.
    fn heads_of(&self, section: Section) -> impl Iterator<Item = (Side, usize)> + use<> {
        let probes = self.probes.clone().expect("its probes lie apart");
        let (wants_probed, num_values) = match section {
            Section::Probes => (true, 0),
            Section::Rest => (false, self.num_kv_heads),
        };
        let keys = (0..self.num_kv_heads).filter(move |&head| probes[head] == wants_probed);
        let values = (0..num_values).map(|head| (Side::Values, head));
        keys.map(|head| (Side::Keys, head)).chain(values)
    }

    /// A head's keys or values of a block.
    fn head_mut(&mut self, block: BlockId, side: Side, head: usize) -> &mut [u8] {
        let range = self.range(block, head);
        match side {
            Side::Keys => self.keys.bytes_mut(range),
            Side::Values => self.values.bytes_mut(range),
        }
    }

    /// Copies one token of a block's section.
    pub(crate) fn place_token(&mut self, section: Section, token: StoredToken<'_>, to: TokenSlot) {
        let StoredToken { block: from, slot } = token;
        let (size, number) = (self.block_size, self.keys.dtype().bytes());
        let pieces = from.chunks_exact(self.head_bytes());
        for (from, (side, head)) in pieces.zip(self.heads_of(section)) {
            let element = match side {
                Side::Keys => number,
                Side::Values => self.head_dim * number,
            };
            let head = self.head_mut(to.block, side, head);
            Columns { size, element }.copy(from, slot, head, to.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::KvPool;
    use crate::model::toy;
    use headstart_core::Rng;

    fn pool(config: &ModelConfig, dtype: Dtype, probes: &Probes) -> KvPool {
        let mut pool = KvPool::new(config, dtype, 6, 16).with_probes(probes);
        let mut rng = Rng::new(5);
        let width = config.num_kv_heads * config.head_dim;
        let mut random = || -> Vec<f32> { (0..width).map(|_| rng.next_f64() as f32).collect() };
        for (block, slot) in (0..6).flat_map(|block| (0..16).map(move |slot| (block, slot))) {
            let (key, value) = (random(), random());
            pool.layer_mut(0).write(BlockId(block), slot, &key, &value);
        }
        pool
    }

    fn config() -> ModelConfig {
        let mut config = toy::config();
        (config.num_layers, config.num_heads) = (1, 12);
        (config.num_kv_heads, config.head_dim) = (6, 16);
        config
    }

    fn block(pool: &mut KvPool, block: u32) -> Vec<u8> {
        let layer = pool.layer_mut(0);
        let mut bytes = vec![0; layer.stored_bytes()];
        layer.store(BlockId(block), &mut bytes);
        bytes
    }

    fn read(pool: &mut KvPool, section: Section, block: u32) -> Vec<u8> {
        let layer = pool.layer_mut(0);
        let part = SectionOf { layer, section };
        let mut bytes = vec![0; part.block_bytes()];
        part.read(BlockId(block), &mut bytes);
        bytes
    }

    #[test]
    fn both_sections_are_the_block_and_each_token_of_it() {
        let config = config();
        for dtype in [Dtype::F32, Dtype::Bf16] {
            for heads in [&[0, 4, 8][..], &[0, 1, 2], &[11]] {
                let probes = Probes::new(heads, &config).expect("heads");
                let mut pool = pool(&config, dtype, &probes);
                let expected = block(&mut pool, 1);
                let sections = [Section::Probes, Section::Rest];
                let bytes = sections.map(|section| read(&mut pool, section, 1));
                assert_eq!(bytes[0].len() + bytes[1].len(), expected.len());
                let share = bytes[0].len() as f64 / expected.len() as f64;
                assert!((share - probes.share()).abs() < 1e-9);
                for (section, bytes) in sections.into_iter().zip(&bytes) {
                    let layer = pool.layer_mut(0);
                    SectionOf { layer, section }.write(BlockId(2), bytes);
                    for slot in 0..16 {
                        let token = StoredToken { block: bytes, slot };
                        let to = TokenSlot { block: BlockId(3), slot };
                        pool.layer_mut(0).place_token(section, token, to);
                    }
                }
                assert!(block(&mut pool, 2) == expected, "as sections");
                assert!(block(&mut pool, 3) == expected, "token by token");
            }
        }
    }

    #[test]
    fn a_token_is_copied_from_one_unit_to_another() {
        let config = config();
        let probes = Probes::of(&config);
        let mut pool = pool(&config, Dtype::Bf16, &probes);
        let format = probes.rest_format(&config, Dtype::Bf16, 16);
        let unit: Vec<u8> =
            [read(&mut pool, Section::Rest, 0), read(&mut pool, Section::Rest, 1)].concat();
        assert_eq!(unit.len(), 2 * format.block_bytes());
        let mut other = vec![0; unit.len()];
        let mut back = vec![0; unit.len()];
        let mut order: Vec<usize> = (0..32).collect();
        Rng::new(1).shuffle(&mut order);
        for (place, &token) in order.iter().enumerate() {
            format.copy_token(&unit, token, &mut other, place);
        }
        assert!(other != unit, "another order");
        for (place, &token) in order.iter().enumerate() {
            format.copy_token(&other, place, &mut back, token);
        }
        assert!(back == unit, "and back");
        let to = TokenSlot { block: BlockId(5), slot: 7 };
        let block = &unit[order[20] / 16 * format.block_bytes()..][..format.block_bytes()];
        let from = StoredToken { block, slot: order[20] % 16 };
        pool.layer_mut(0).place_token(Section::Rest, from, to);
        let placed = read(&mut pool, Section::Rest, 5);
        let from = StoredToken { block: &other[format.block_bytes()..], slot: 4 };
        pool.layer_mut(0).place_token(Section::Rest, from, to);
        assert!(read(&mut pool, Section::Rest, 5) == placed, "from either");
    }

    #[test]
    fn probes_are_of_distinct_keys_where_there_are_such() {
        let mut config = config();
        let heads = |config: &ModelConfig| Probes::of(config).heads().to_vec();
        assert_eq!(heads(&config), [2, 6, 10]);
        config.num_kv_heads = 12;
        assert_eq!(heads(&config), [0, 1, 2]);
        config.num_kv_heads = 2;
        assert_eq!(heads(&config), [0, 1, 6]);
        config.num_kv_heads = 1;
        assert_eq!(heads(&config), [0, 1, 2]);
        (config.num_heads, config.num_kv_heads) = (1, 1);
        assert_eq!(heads(&config), [0]);
        assert!((Probes::all(&config).share() - 0.5).abs() < 1e-9);
        for wrong in [&[][..], &[1], &[0, 0]] {
            assert!(Probes::new(wrong, &config).is_err());
        }
    }
}
