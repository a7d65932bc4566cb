//! Fused causal attention over paged keys and values.
//!
//! A task is one key-value head and a tile of query tokens. It walks the sequence's blocks once,
//! 128 keys at a time: scores into a small buffer, a running maximum and sum per row, values
//! added to the output; nothing of size tokens × context is ever stored.
//!
//! ```text
//! rows = tile tokens × query heads that share the kv head
//! scores[row, key] = q[row] · k[key]      8 rows × 2 key vectors in registers
//! out[row, :]     += p[row, key] · v[key]  4 rows × 4 value vectors in registers
//! ```
//!
//! Source: Dao et al., "FlashAttention", NeurIPS'22 (online softmax); Kwon et al.,
//! "PagedAttention", SOSP'23 (block tables). Here keys are stored transposed inside a block, so
//! that neighbouring keys, not neighbouring dimensions, fill a vector.

pub mod column_sums;
mod kernels;

use headstart_core::BlockId;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::ModelConfig;
use crate::kv::LayerKv;
use kernels::{KEYS, RowState, SCORE_ROWS, VALUE_ROWS, add_rows, score_vectors, soften};

/// Rows aimed at per task; a multiple of [`SCORE_ROWS`].
const TILE_ROWS: usize = 32;

/// One sequence's queries in a batch.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// First row of the batch's activations.
    pub first_row: usize,
    /// Tokens.
    pub num_tokens: usize,
    /// Position of the first token in its sequence.
    pub start: usize,
    /// Block table, covering positions up to `start + num_tokens`.
    pub blocks: &'a [BlockId],
}

/// Head counts and width.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Key-value heads.
    pub num_kv: usize,
    /// Query heads per key-value head.
    pub group: usize,
    /// Values per head.
    pub dim: usize,
}

impl Heads {
    /// Those of a model.
    #[must_use]
    pub fn of(config: &ModelConfig) -> Self {
        Self { num_kv: config.num_kv_heads, group: config.group(), dim: config.head_dim }
    }

    fn query_width(self) -> usize {
        self.num_kv * self.group * self.dim
    }
}

/// One layer's attention for a batch. Keys and values of the tokens themselves must be in `kv`.
#[derive(Clone, Copy)]
pub struct LayerAttention<'a> {
    /// Rows of `q_stride` values that begin with the query heads, `[num_kv * group, dim]`.
    pub q: &'a [f32],
    /// Distance between two rows of `q`.
    pub q_stride: usize,
    /// The batch's sequences.
    pub queries: &'a [Queries<'a>],
    /// The layer's keys and values.
    pub kv: &'a LayerKv,
    /// Head counts and width.
    pub heads: Heads,
}

impl LayerAttention<'_> {
    /// Writes the outputs to `out`, `[rows, num_kv * group * dim]`; `staging` is reused between
    /// calls.
    pub fn run(&self, staging: &mut Vec<f32>, out: &mut [f32]) {
        let heads = self.heads;
        let tiles = tiles(self.queries, heads);
        staging.clear();
        staging.resize(out.len(), 0.0);
        let arch = Arch::new();
        // Each task gets a piece of its own, so that no two threads write one row.
        let mut rest = &mut staging[..];
        let mut tasks = Vec::with_capacity(tiles.len());
        for tile in &tiles {
            let (mine, others) = rest.split_at_mut(tile.rows(heads) * heads.dim);
            tasks.push((tile, mine));
            rest = others;
        }
        tasks.into_par_iter().for_each(|(tile, out)| {
            arch.dispatch(TileAttention { layer: self, tile, out });
        });
        // The tiles of a token's heads are apart; the caller wants them side by side.
        gather(&tiles, heads, staging, out);
    }
}

/// A task: `num_tokens` tokens of one sequence for one key-value head.
struct QueryTile<'a> {
    kv_head: usize,
    first_row: usize,
    num_tokens: usize,
    start: usize,
    blocks: &'a [BlockId],
}

impl QueryTile<'_> {
    fn rows(&self, heads: Heads) -> usize {
        self.num_tokens * heads.group
    }
}

fn tiles<'a>(queries: &[Queries<'a>], heads: Heads) -> Vec<QueryTile<'a>> {
    // At least one token, even if its group has more query heads than a tile has rows.
    let tile_tokens = (TILE_ROWS / heads.group).max(1);
    let mut tiles = Vec::new();
    for query in queries {
        for kv_head in 0..heads.num_kv {
            for offset in (0..query.num_tokens).step_by(tile_tokens) {
                tiles.push(QueryTile {
                    kv_head,
                    first_row: query.first_row + offset,
                    num_tokens: tile_tokens.min(query.num_tokens - offset),
                    start: query.start + offset,
                    blocks: query.blocks,
                });
            }
        }
    }
    tiles
}

/// Copies the tiles' outputs, `[token, group, dim]` each, to their rows and heads.
fn gather(tiles: &[QueryTile<'_>], heads: Heads, staging: &[f32], out: &mut [f32]) {
    let width = heads.group * heads.dim;
    let mut rows = staging.chunks_exact(width);
    for tile in tiles {
        for token in 0..tile.num_tokens {
            let at = (tile.first_row + token) * heads.query_width() + tile.kv_head * width;
            out[at..at + width].copy_from_slice(rows.next().expect("tiles cover the staging"));
        }
    }
}

struct TileAttention<'a> {
    layer: &'a LayerAttention<'a>,
    tile: &'a QueryTile<'a>,
    out: &'a mut [f32], // [rows, dim]
}

impl WithSimd for TileAttention<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let rows = self.tile.rows(self.layer.heads);
        let queries = self.pack_queries(rows);
        // Rounded up, because the kernel writes whole groups of rows.
        let mut scores = vec![0.0f32; rows.next_multiple_of(SCORE_ROWS) * KEYS];
        let mut states = vec![RowState { max: f32::NEG_INFINITY, sum: 0.0 }; rows];
        let context = self.tile.start + self.tile.num_tokens;
        let (mut key_scratch, mut value_scratch) = (Vec::new(), Vec::new());
        for first in (0..context).step_by(KEYS) {
            let count = KEYS.min(context - first);
            self.score(simd, &queries, first, count, &mut key_scratch, &mut scores);
            for row in 0..rows {
                let position = self.tile.start + row / self.layer.heads.group;
                // Keys of this pass that the row may see.
                let seen = (position + 1).saturating_sub(first).min(count);
                let out = &mut self.out[row * self.layer.heads.dim..][..self.layer.heads.dim];
                let scores = &mut scores[row * KEYS..][..count];
                soften(scores, seen, &mut states[row], out);
            }
            self.add_values(simd, first, count, &mut value_scratch, &scores);
        }
        for (state, out) in states.iter().zip(self.out.chunks_exact_mut(self.layer.heads.dim)) {
            // A row sees at least its own key, so the sum is not 0.
            let scale = 1.0 / state.sum;
            out.iter_mut().for_each(|value| *value *= scale);
        }
    }
}

impl TileAttention<'_> {
    /// The tile's queries, scaled, as `[rows / 8][dim][8]`, missing rows as zero.
    #[inline(always)]
    fn pack_queries(&self, rows: usize) -> Vec<f32> {
        let Heads { group, dim, .. } = self.layer.heads;
        let scale = 1.0 / (dim as f32).sqrt();
        let mut packed = vec![0.0; rows.next_multiple_of(SCORE_ROWS) * dim];
        for row in 0..rows {
            let (token, head) = (row / group, row % group);
            let at = (self.tile.first_row + token) * self.layer.q_stride
                + (self.tile.kv_head * group + head) * dim;
            let to = row / SCORE_ROWS * SCORE_ROWS * dim + row % SCORE_ROWS;
            for (slot, q) in
                packed[to..].iter_mut().step_by(SCORE_ROWS).zip(&self.layer.q[at..at + dim])
            {
                *slot = q * scale;
            }
        }
        packed
    }

    /// `scores[row][key]` for keys `[first, first + count)`, rounded up to whole vectors: what
    /// lies beyond `count` is not read by anyone.
    #[inline(always)]
    fn score<S: Simd>(
        &self,
        simd: S,
        queries: &[f32],
        first: usize,
        count: usize,
        scratch: &mut Vec<f32>,
        scores: &mut [f32],
    ) {
        let (dim, size) = (self.layer.heads.dim, self.layer.kv.block_size());
        let lanes = S::F32_LANES;
        let mut key = 0;
        while key < count {
            let block = self.tile.blocks[(first + key) / size];
            let keys = self.layer.kv.keys(block, self.tile.kv_head, scratch);
            // Keys of this block that belong to this pass; passes start on vector borders.
            let offset = (first + key) % size;
            let end = (size - offset).min(KEYS - key);
            for (group, queries) in queries.chunks_exact(dim * SCORE_ROWS).enumerate() {
                let (queries, _) = queries.as_chunks::<SCORE_ROWS>();
                let scores = &mut scores[group * SCORE_ROWS * KEYS + key..];
                let mut lane = 0;
                while lane + 2 * lanes <= end && key + lane < count {
                    let keys = keys[offset + lane..].chunks(size);
                    score_vectors::<S, 2>(simd, queries, keys, &mut scores[lane..]);
                    lane += 2 * lanes;
                }
                while lane + lanes <= end && key + lane < count {
                    let keys = keys[offset + lane..].chunks(size);
                    score_vectors::<S, 1>(simd, queries, keys, &mut scores[lane..]);
                    lane += lanes;
                }
            }
            key += end;
        }
    }

    /// `out[row] += Σ scores[row][key] · v[key]`. Only keys of this sequence are read: a zero
    /// weight times whatever an unused slot holds could still be a NaN.
    #[inline(always)]
    fn add_values<S: Simd>(
        &mut self,
        simd: S,
        first: usize,
        count: usize,
        scratch: &mut Vec<f32>,
        scores: &[f32],
    ) {
        let (dim, size) = (self.layer.heads.dim, self.layer.kv.block_size());
        let mut key = 0;
        while key < count {
            let block = self.tile.blocks[(first + key) / size];
            let values = self.layer.kv.values(block, self.tile.kv_head, scratch);
            let offset = (first + key) % size;
            // Slots after the last key of the sequence are not read.
            let end = (size - offset).min(count - key);
            let values = &values[offset * dim..(offset + end) * dim];
            for (group, out) in self.out.chunks_mut(VALUE_ROWS * dim).enumerate() {
                let scores = &scores[group * VALUE_ROWS * KEYS + key..];
                // The last rows of a tile may be fewer than the kernel takes.
                if out.len() == VALUE_ROWS * dim {
                    add_rows::<S, VALUE_ROWS>(simd, scores, values, dim, out);
                } else {
                    for (row, out) in out.chunks_exact_mut(dim).enumerate() {
                        add_rows::<S, 1>(simd, &scores[row * KEYS..], values, dim, out);
                    }
                }
            }
            key += end;
        }
    }
}
