//! A layer's matrices, from what its heads are for.

use std::ops::Range;

use super::heads::{self, HeadRole, KeyLook, QueryLook};
use super::stream::{self, HIDDEN};
use super::{HeadLayout, LAYERS};
use crate::ModelConfig;
use crate::cpu::linear::Linear;
use crate::kv::{Dtype, Numbers};
use crate::model::DecoderLayer;

/// Units of a feed-forward layer: one per dimension of an answer, one for the verdict, the rest
/// unused.
pub(super) const INTERMEDIATE: usize = 32;

/// The unit of the verdict.
const VERDICT_UNIT: usize = 16;

/// Input of an open gate; `silu(8)` is 7.997, `silu(0)` exactly 0.
const OPEN_GATE: f32 = 8.0;

/// From a balance to a verdict: a majority by one in a hundred tokens becomes 0.64, which the head
/// turns into logits of ±6.
const VERDICT_GAIN: f32 = 64.0;

/// Share of what heads without a task add together, per layer.
pub(super) const BACKGROUND: f32 = 0.1;

/// Dimensions of a value vector that hold the code: the token's key in layer 0, its value later.
const CARRIED_CODE: Range<usize> = 0..16;
/// Dimensions that hold the character.
const CARRIED_SELF: Range<usize> = 16..24;
/// The dimension that holds the symbol.
const CARRIED_SYMBOL: usize = 24;

/// A matrix `[rows, columns]`, zero where nothing is set.
struct Matrix {
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    fn new(rows: usize, columns: usize) -> Self {
        Self { columns, values: vec![0.0; rows * columns] }
    }

    fn set(&mut self, row: usize, column: usize, value: f32) {
        self.values[row * self.columns + column] = value;
    }

    /// `scale` from each of `rows` to each of the columns from `first` on.
    fn copy(&mut self, rows: Range<usize>, first: usize, scale: f32) {
        for (offset, row) in rows.enumerate() {
            self.set(row, first + offset, scale);
        }
    }

    /// The product with `weights` from `rows` to one column.
    fn project(&mut self, rows: Range<usize>, column: usize, weights: &[f32]) {
        for (row, weight) in rows.zip(weights) {
            self.set(row, column, *weight);
        }
    }

    fn linear(self, dtype: Dtype) -> Linear {
        let rows = self.values.len() / self.columns;
        let weight = Numbers::from_f32(dtype, self.values);
        Linear::new(weight, rows, self.columns, None)
    }
}

/// Layer `layer` of `shape`.
pub(super) fn build(
    shape: HeadLayout,
    config: &ModelConfig,
    layer: usize,
    dtype: Dtype,
) -> DecoderLayer {
    let (gate_up, down) = feed_forward(layer);
    let plan = LayerPlan { shape, config, layer };
    DecoderLayer {
        attention_norm: vec![1.0; HIDDEN],
        qkv: plan.qkv().linear(dtype),
        head_norms: None,
        output: plan.output().linear(dtype),
        feed_forward_norm: vec![1.0; HIDDEN],
        gate_up: gate_up.linear(dtype),
        down: down.linear(dtype),
    }
}

/// Arrangement of one layer, from which its weights follow.
struct LayerPlan<'a> {
    shape: HeadLayout,
    config: &'a ModelConfig,
    layer: usize,
}

impl LayerPlan<'_> {
    fn role(&self, head: usize) -> HeadRole {
        self.shape.role(self.layer, head)
    }

    fn qkv(&self) -> Matrix {
        let (num_heads, num_kv) = (self.config.num_heads, self.config.num_kv_heads);
        let dim = self.config.head_dim;
        let mut qkv = Matrix::new(HIDDEN, (num_heads + 2 * num_kv) * dim);
        for head in 0..num_heads {
            self.query(&mut qkv, head, head * dim);
        }
        for kv_head in 0..num_kv {
            self.key(&mut qkv, kv_head, (num_heads + kv_head) * dim);
            self.value(&mut qkv, (num_heads + num_kv + kv_head) * dim);
        }
        qkv
    }

    /// Attention divides scores by the root of the dimension: queries bring it.
    fn query(&self, qkv: &mut Matrix, head: usize, first: usize) {
        let scale = (self.config.head_dim as f32).sqrt();
        let look = QueryLook::of(self.layer, head);
        let slowest = heads::PLACE.end - 1;
        let mut turned = |pair: usize, strength: f32, phase: f32| {
            let (sin, cos) = phase.sin_cos();
            qkv.set(stream::ONE, first + pair, scale * strength * cos);
            let partner = first + pair + heads::PAIRS;
            qkv.set(stream::ONE, partner, scale * strength * sin);
        };
        match self.role(head) {
            HeadRole::Previous => {
                for (pair, strength) in heads::PLACE.zip(heads::PREVIOUS) {
                    // Turned by one position, so that the score is largest at the token before.
                    let exponent = -((2 * pair) as f32) / self.config.head_dim as f32;
                    turned(pair, strength, -self.config.rope.theta.powf(exponent));
                }
            }
            HeadRole::Local => turned(slowest, heads::LOCAL, heads::RECENT_PHASE),
            HeadRole::Sink => {
                turned(slowest, heads::LOCAL, heads::RECENT_PHASE);
                qkv.set(stream::ONE, first + heads::FIRST, scale * heads::SINK);
            }
            HeadRole::Salient | HeadRole::Match => {
                turned(slowest, look.leaning, heads::RECENT_PHASE);
                qkv.set(stream::ONE, first + heads::SALIENT, scale);
                qkv.set(stream::ONE, first + heads::CHARACTER, scale * look.second);
                qkv.set(stream::MOOD, first + heads::CHARACTER, scale * look.mood);
            }
            HeadRole::Count => {}
        }
        if self.role(head) == HeadRole::Match {
            for (i, row) in stream::KEY.enumerate() {
                let column = first + heads::code_dim(i);
                qkv.set(row, column, scale * look.sharpness);
            }
        }
    }

    /// Keys show contents only where a query of their group looks at them.
    fn key(&self, qkv: &mut Matrix, kv_head: usize, first: usize) {
        for pair in heads::PLACE {
            qkv.set(stream::ONE, first + pair, 1.0);
        }
        qkv.set(stream::START, first + heads::FIRST, 1.0);
        let group = self.config.group();
        let mut queries = kv_head * group..(kv_head + 1) * group;
        if !queries.any(|head| matches!(self.role(head), HeadRole::Salient | HeadRole::Match)) {
            return;
        }
        let look = KeyLook::of(self.layer, kv_head);
        qkv.set(stream::SALIENCE, first + heads::SALIENT, 1.0);
        qkv.project(stream::SELF, first + heads::SALIENT, &look.own);
        qkv.project(stream::EARLIER_SELF, first + heads::SALIENT, &look.earlier);
        qkv.project(stream::SELF, first + heads::CHARACTER, &look.second);
        for (i, row) in stream::EARLIER_KEY.enumerate() {
            qkv.set(row, first + heads::code_dim(i), 1.0);
        }
    }

    fn value(&self, qkv: &mut Matrix, first: usize) {
        let code = if self.layer == 0 { stream::KEY } else { stream::VALUE };
        qkv.copy(code, first + CARRIED_CODE.start, 1.0);
        qkv.copy(stream::SELF, first + CARRIED_SELF.start, 1.0);
        qkv.set(stream::SYMBOL, first + CARRIED_SYMBOL, 1.0);
    }

    /// Output projection. Heads of one role write their mean, over all layers that have such heads.
    fn output(&self) -> Matrix {
        let (num_heads, dim) = (self.config.num_heads, self.config.head_dim);
        let mut output = Matrix::new(num_heads * dim, HIDDEN);
        let background = BACKGROUND / num_heads as f32;
        for head in 0..num_heads {
            let role = self.role(head);
            let at = |part: Range<usize>| head * dim + part.start..head * dim + part.end;
            let (code, character) = (at(CARRIED_CODE), at(CARRIED_SELF));
            match role {
                HeadRole::Previous => {
                    let share = 1.0 / self.heads_of(role) as f32;
                    output.copy(code, stream::EARLIER_KEY.start, share);
                    output.copy(character, stream::EARLIER_SELF.start, share);
                }
                HeadRole::Match => {
                    let share = 1.0 / self.heads_of(role) as f32;
                    output.copy(code, stream::FOUND.start, share);
                }
                HeadRole::Count => output.set(head * dim + CARRIED_SYMBOL, stream::BALANCE, 1.0),
                HeadRole::Salient | HeadRole::Local | HeadRole::Sink if self.layer == 0 => {
                    output.copy(character, stream::EARLIER_SELF.start, background);
                }
                HeadRole::Salient | HeadRole::Local | HeadRole::Sink => {
                    output.copy(code, stream::FOUND.start, background);
                }
            }
        }
        output
    }

    /// Heads with this task in the whole model.
    fn heads_of(&self, role: HeadRole) -> usize {
        let of_layer = |layer| {
            let heads = 0..self.config.num_heads;
            heads.filter(|head| self.shape.role(layer, *head) == role).count()
        };
        (0..LAYERS).map(of_layer).sum()
    }
}

/// Gate and up, and down: in the last layer the gates between what was found and what was asked,
/// before it nothing.
fn feed_forward(layer: usize) -> (Matrix, Matrix) {
    let mut gate_up = Matrix::new(HIDDEN, 2 * INTERMEDIATE);
    let mut down = Matrix::new(INTERMEDIATE, HIDDEN);
    if layer + 1 == LAYERS {
        let open = OPEN_GATE / (1.0 + (-OPEN_GATE).exp());
        for (unit, (found, answer)) in stream::FOUND.zip(stream::ANSWER).enumerate() {
            gate_up.set(stream::ASKS_VALUE, unit, OPEN_GATE);
            gate_up.set(found, INTERMEDIATE + unit, 1.0);
            down.set(unit, answer, 1.0 / open);
        }
        gate_up.set(stream::ASKS_MOST, VERDICT_UNIT, OPEN_GATE);
        gate_up.set(stream::BALANCE, INTERMEDIATE + VERDICT_UNIT, 1.0);
        down.set(VERDICT_UNIT, stream::VERDICT, VERDICT_GAIN / open);
    }
    (gate_up, down)
}
