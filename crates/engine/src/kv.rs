//! The paged pool of keys and values of one replica.
//!
//! Layout, per layer, so that the attention kernel reads whole vectors:
//!
//! ```text
//! keys    [block][kv_head][head_dim][block_size]    16 neighbouring keys are one vector
//! values  [block][kv_head][block_size][head_dim]    one value is whole vectors
//! ```
//!
//! Lower tiers have a block as it is in memory, or, where that was chosen, as [`fp8`].

pub mod fp8;
mod probes;
mod stored;

use std::sync::Arc;

use half::bf16;
use headstart_core::BlockId;

use crate::ModelConfig;

pub(crate) use probes::TokenSlot;
pub use probes::{Probes, RestFormat, Section, SectionOf, StoredToken};
pub use stored::KvStorageFormat;

/// Name of the layout, part of every block's identity.
pub const LAYOUT: &str = "k:bhds,v:bhsd";

/// Element type of weights and KV. Arithmetic is f32 either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// 32-bit floats.
    F32,
    /// bfloat16: half the memory traffic, 8 bits of precision.
    Bf16,
}

impl Dtype {
    /// Its usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }

    /// Bytes per element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

impl std::str::FromStr for Dtype {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f32" => Ok(Self::F32),
            "bf16" => Ok(Self::Bf16),
            other => Err(format!("unknown dtype `{other}`; known: f32, bf16")),
        }
    }
}

/// Numbers stored as f32 or bf16.
#[derive(Clone, Debug)]
pub enum Numbers {
    /// As they are.
    F32(Vec<f32>),
    /// Rounded to nearest even.
    Bf16(Vec<bf16>),
}

impl Numbers {
    /// `len` zeros. Untouched pages cost no memory.
    #[must_use]
    pub fn zeros(dtype: Dtype, len: usize) -> Self {
        match dtype {
            Dtype::F32 => Self::F32(vec![0.0; len]),
            Dtype::Bf16 => Self::Bf16(vec![bf16::ZERO; len]),
        }
    }

    /// `values`, rounded if need be.
    #[must_use]
    pub fn from_f32(dtype: Dtype, values: Vec<f32>) -> Self {
        match dtype {
            Dtype::F32 => Self::F32(values),
            Dtype::Bf16 => Self::Bf16(values.into_iter().map(bf16::from_f32).collect()),
        }
    }

    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::Bf16(_) => Dtype::Bf16,
        }
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of `range` as f32: in place, or widened into `scratch`. Inlined, so that it
    /// is compiled for the instructions of the kernel that calls it.
    #[inline(always)]
    pub fn widen<'a>(
        &'a self,
        range: std::ops::Range<usize>,
        scratch: &'a mut Vec<f32>,
    ) -> &'a [f32] {
        match self {
            Self::F32(values) => &values[range],
            Self::Bf16(values) => {
                // Overwritten in full below, so that old contents need no clearing.
                scratch.resize(range.len(), 0.0);
                widen_into(&values[range], scratch);
                scratch
            }
        }
    }

    /// The elements of `range` as they are in memory.
    fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        match self {
            Self::F32(values) => bytemuck::cast_slice(&values[range]),
            Self::Bf16(values) => bytemuck::cast_slice(&values[range]),
        }
    }

    /// The same, to be overwritten: any bytes are numbers.
    fn bytes_mut(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        match self {
            Self::F32(values) => bytemuck::cast_slice_mut(&mut values[range]),
            Self::Bf16(values) => bytemuck::cast_slice_mut(&mut values[range]),
        }
    }

    /// The elements of `range`, a group, as [`fp8`]: codes, and the exponent that is returned.
    fn encode(&self, range: std::ops::Range<usize>, codes: &mut [u8]) -> i8 {
        match self {
            Self::F32(values) => fp8::encode(&values[range], codes),
            Self::Bf16(values) => fp8::encode_bf16(&values[range], codes),
        }
    }

    /// Overwrites the elements of `range`, a group, with what codes and their exponent stand for.
    fn decode(&mut self, range: std::ops::Range<usize>, codes: &[u8], exponent: i8) {
        match self {
            Self::F32(values) => fp8::decode(codes, exponent, &mut values[range]),
            Self::Bf16(values) => fp8::decode_bf16(codes, exponent, &mut values[range]),
        }
    }

    #[inline]
    fn set(&mut self, index: usize, value: f32) {
        match self {
            Self::F32(values) => values[index] = value,
            Self::Bf16(values) => values[index] = bf16::from_f32(value),
        }
    }
}

/// `wide = narrow`, element by element.
#[inline(always)]
pub(crate) fn widen_into(narrow: &[bf16], wide: &mut [f32]) {
    for (wide, narrow) in wide.iter_mut().zip(narrow) {
        // A bf16 is the upper half of an f32: a shift, which compiles to vectors.
        *wide = f32::from_bits(u32::from(narrow.to_bits()) << 16);
    }
}

/// Keys and values of all layers.
#[derive(Debug)]
pub struct KvPool {
    layers: Vec<LayerKv>,
    block_size: usize,
}

/// Keys and values of one layer.
#[derive(Clone, Debug)]
pub struct LayerKv {
    keys: Numbers,
    values: Numbers,
    num_kv_heads: usize,
    head_dim: usize,
    block_size: usize,
    stored: KvStorageFormat,
    /// Whether a head's keys are a probe's, where those lie apart in lower tiers.
    probes: Option<Arc<[bool]>>,
}

impl KvPool {
    /// A pool of `num_blocks` blocks, which lower tiers store as they are.
    ///
    /// # Panics
    /// When the block size is not a multiple of 16: a key vector must not cross blocks.
    #[must_use]
    pub fn new(config: &ModelConfig, dtype: Dtype, num_blocks: usize, block_size: usize) -> Self {
        assert!(block_size.is_multiple_of(16), "the kernel reads 16 keys at a time");
        let (num_kv_heads, head_dim) = (config.num_kv_heads, config.head_dim);
        let len = num_blocks * num_kv_heads * head_dim * block_size;
        let layer = |_| LayerKv {
            keys: Numbers::zeros(dtype, len),
            values: Numbers::zeros(dtype, len),
            num_kv_heads,
            head_dim,
            block_size,
            stored: KvStorageFormat::Same,
            probes: None,
        };
        Self { layers: (0..config.num_layers).map(layer).collect(), block_size }
    }

    /// The same, which lower tiers store otherwise.
    #[must_use]
    pub fn with_stored(mut self, stored: KvStorageFormat) -> Self {
        for layer in &mut self.layers {
            layer.stored = stored;
        }
        self
    }

    /// The same, of which lower tiers store the keys of `probes` apart.
    #[must_use]
    pub fn with_probes(mut self, probes: &Probes) -> Self {
        for layer in &mut self.layers {
            layer.probes = Some(probes.is_probed().clone());
        }
        self
    }

    /// Tokens per block.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// One layer.
    #[must_use]
    pub fn layer(&self, layer: usize) -> &LayerKv {
        &self.layers[layer]
    }

    /// One layer, to write.
    pub fn layer_mut(&mut self, layer: usize) -> &mut LayerKv {
        &mut self.layers[layer]
    }

    /// All layers, to write.
    pub fn layers_mut(&mut self) -> &mut [LayerKv] {
        &mut self.layers
    }
}

impl LayerKv {
    /// Elements of a block's keys, and of its values.
    fn block_len(&self) -> usize {
        self.num_kv_heads * self.head_dim * self.block_size
    }

    fn block_range(&self, block: BlockId) -> std::ops::Range<usize> {
        let start = block.index() * self.block_len();
        start..start + self.block_len()
    }

    /// Bytes of a block as lower tiers store it.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        let numbers = self.head_dim * self.block_size;
        self.stored.bytes(self.keys.dtype(), self.num_kv_heads, numbers)
    }

    /// Copies a block, its keys, then its values, to `bytes`, which are [`Self::stored_bytes`];
    /// rounded if that was chosen ([`KvPool::with_stored`]).
    pub fn store(&self, block: BlockId, bytes: &mut [u8]) {
        if self.stored == KvStorageFormat::Fp8 {
            return self.store_fp8(block, bytes);
        }
        // Keys and values of a block have equal lengths.
        let (keys, values) = bytes.split_at_mut(bytes.len() / 2);
        keys.copy_from_slice(self.keys.bytes(self.block_range(block)));
        values.copy_from_slice(self.values.bytes(self.block_range(block)));
    }

    /// Copies `bytes`, which [`Self::store`] gave, to a block.
    pub fn load(&mut self, block: BlockId, bytes: &[u8]) {
        if self.stored == KvStorageFormat::Fp8 {
            return self.load_fp8(block, bytes);
        }
        let (keys, values) = bytes.split_at(bytes.len() / 2);
        let range = self.block_range(block);
        self.keys.bytes_mut(range.clone()).copy_from_slice(keys);
        self.values.bytes_mut(range).copy_from_slice(values);
    }

    fn store_fp8(&self, block: BlockId, bytes: &mut [u8]) {
        // All codes come first, then a pair of exponents for each head.
        let (codes, exponents) = bytes.split_at_mut(2 * self.block_len());
        let (keys, values) = codes.split_at_mut(self.block_len());
        let numbers = self.head_dim * self.block_size;
        for head in 0..self.num_kv_heads {
            let (range, codes) = (self.range(block, head), head * numbers..(head + 1) * numbers);
            exponents[2 * head] = self.keys.encode(range.clone(), &mut keys[codes.clone()]) as u8;
            exponents[2 * head + 1] = self.values.encode(range, &mut values[codes]) as u8;
        }
    }

    fn load_fp8(&mut self, block: BlockId, bytes: &[u8]) {
        let (codes, exponents) = bytes.split_at(2 * self.block_len());
        let (keys, values) = codes.split_at(self.block_len());
        let numbers = self.head_dim * self.block_size;
        for head in 0..self.num_kv_heads {
            let (range, codes) = (self.range(block, head), head * numbers..(head + 1) * numbers);
            self.keys.decode(range.clone(), &keys[codes.clone()], exponents[2 * head] as i8);
            self.values.decode(range, &values[codes], exponents[2 * head + 1] as i8);
        }
    }

    /// Tokens per block.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Writes one token's `key` and `value`, each `[num_kv_heads, head_dim]`.
    pub fn write(&mut self, block: BlockId, slot: usize, key: &[f32], value: &[f32]) {
        for head in 0..self.num_kv_heads {
            let base = self.base(block, head);
            // Keys are transposed inside a block, for the attention kernel; values are not.
            for dim in 0..self.head_dim {
                let from = head * self.head_dim + dim;
                self.keys.set(base + dim * self.block_size + slot, key[from]);
                self.values.set(base + slot * self.head_dim + dim, value[from]);
            }
        }
    }

    /// Keys of one head of a block, `[head_dim][block_size]`.
    #[inline(always)]
    pub fn keys<'a>(&'a self, block: BlockId, head: usize, scratch: &'a mut Vec<f32>) -> &'a [f32] {
        self.keys.widen(self.range(block, head), scratch)
    }

    /// Values of one head of a block, `[block_size][head_dim]`.
    #[inline(always)]
    pub fn values<'a>(
        &'a self,
        block: BlockId,
        head: usize,
        scratch: &'a mut Vec<f32>,
    ) -> &'a [f32] {
        self.values.widen(self.range(block, head), scratch)
    }

    fn base(&self, block: BlockId, head: usize) -> usize {
        (block.index() * self.num_kv_heads + head) * self.head_dim * self.block_size
    }

    fn range(&self, block: BlockId, head: usize) -> std::ops::Range<usize> {
        let base = self.base(block, head);
        base..base + self.head_dim * self.block_size
    }
}

#[cfg(test)]
mod tests;
