//! Attention inside each text of a batch, without padding.
//!
//! A task is one head of one text:
//!
//! ```text
//! scores[query][key] = q[query, :] · k[key, :]
//! weights            = softmax along each row
//! out[query][d]      = Σ weights[query][key] · v[key][d]
//! ```

use std::ops::Range;

use pulp::Arch;
use rayon::prelude::*;

use super::ops::{LANES, RowWork};
use crate::kernel::{AccumulationMode, LeftOperand, product};

/// Attention of `num_heads` heads over texts of `lengths` tokens. Rows of `qkv` are queries (scaled
/// already), keys and values, `[3][num_heads][dim]`. Returns `[tokens][num_heads · dim]`.
pub(super) fn attention(
    qkv: &[f32],
    width: usize,
    num_heads: usize,
    lengths: impl Iterator<Item = usize>,
) -> Vec<f32> {
    let mut out = vec![0.0; qkv.len() / 3];
    let (mut qkv, mut rest) = (qkv, &mut out[..]);
    let mut texts = Vec::new();
    for length in lengths.filter(|&length| length > 0) {
        let (text, others) = qkv.split_at(length * 3 * width);
        let (own, behind) = rest.split_at_mut(length * width);
        texts.push((text, own));
        (qkv, rest) = (others, behind);
    }
    texts.into_par_iter().for_each(|(qkv, out)| attend(qkv, width, num_heads, out));
    out
}

/// The attention of all heads in one text.
fn attend(qkv: &[f32], width: usize, num_heads: usize, out: &mut [f32]) {
    let dim = width / num_heads;
    let heads = (0..num_heads).into_par_iter();
    let heads: Vec<Vec<f32>> =
        heads.map(|head| attend_by(head * dim..(head + 1) * dim, qkv, width)).collect();
    for (token, out) in out.chunks_exact_mut(width).enumerate() {
        for (out, head) in out.chunks_exact_mut(dim).zip(&heads) {
            out.copy_from_slice(&head[token * dim..][..dim]);
        }
    }
}

/// The output, `[tokens, dim]`, of the head that has these features.
fn attend_by(features: Range<usize>, qkv: &[f32], width: usize) -> Vec<f32> {
    let dim = features.len();
    let tokens = qkv.len() / (3 * width);
    // Zeros fill the last vector of keys, because the kernel is slow beyond whole vectors.
    let num_keys = tokens.next_multiple_of(LANES);
    let mut queries = Vec::with_capacity(tokens * dim);
    let mut keys = vec![0.0; dim * num_keys]; // [dim, num_keys]
    let mut values = vec![0.0; num_keys * dim]; // [num_keys, dim]
    for (token, row) in qkv.chunks_exact(3 * width).enumerate() {
        queries.extend_from_slice(&row[features.clone()]);
        for (d, key) in row[width..][features.clone()].iter().enumerate() {
            keys[d * num_keys + token] = *key;
        }
        values[token * dim..][..dim].copy_from_slice(&row[2 * width..][features.clone()]);
    }
    let mut scores = vec![0.0; tokens * num_keys];
    let queries = LeftOperand::rows(&queries, dim);
    product(queries, &keys, &mut scores, num_keys, AccumulationMode::Replace);
    Arch::new().dispatch(RowWork::Soften { scores: &mut scores, width: num_keys, tokens });
    let mut out = vec![0.0; tokens * dim];
    let weights = LeftOperand::rows(&scores, num_keys);
    product(weights, &values, &mut out, dim, AccumulationMode::Replace);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    /// Output of token `query` for one head, by the definition.
    fn plain(qkv: &[&[f32]], text: Range<usize>, query: usize, head: Range<usize>) -> Vec<f64> {
        let width = qkv[0].len() / 3;
        let at = |token: usize, feature: usize| f64::from(qkv[token][feature]);
        let dot = |key: usize| -> f64 {
            let terms = head.clone().map(|d| at(query, d) * at(key, width + d));
            terms.sum()
        };
        let weights: Vec<f64> = text.clone().map(|key| dot(key).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let value = |d: usize| -> f64 {
            let terms = text.clone().zip(&weights);
            terms.map(|(key, weight)| weight * at(key, 2 * width + d)).sum::<f64>() / sum
        };
        head.clone().map(value).collect()
    }

    fn check(lengths: &[usize], num_heads: usize, dim: usize) {
        let mut rng = Rng::new((lengths.len() * 100 + dim) as u64);
        let width = num_heads * dim;
        let num_tokens: usize = lengths.iter().sum();
        let values = (0..num_tokens * 3 * width).map(|_| rng.next_f64() as f32 * 2.0 - 1.0);
        let qkv: Vec<f32> = values.collect();
        let out = attention(&qkv, width, num_heads, lengths.iter().copied());
        let rows: Vec<&[f32]> = qkv.chunks(3 * width).collect();
        let mut start = 0;
        for length in lengths {
            let text = start..start + length;
            for query in text.clone() {
                for head in 0..num_heads {
                    let features = head * dim..(head + 1) * dim;
                    let expected = plain(&rows, text.clone(), query, features.clone());
                    for (d, expected) in features.zip(expected) {
                        let found = out[query * width + d];
                        assert!(
                            (f64::from(found) - expected).abs() < 2e-5,
                            "{lengths:?}, dim {dim}, token {query}, feature {d}"
                        );
                    }
                }
            }
            start = text.end;
        }
    }

    #[test]
    fn attention_stays_inside_each_text() {
        for dim in [4, 8, 20, 32] {
            check(&[1], 2, dim);
            check(&[32, 32], 2, dim);
            check(&[5, 1, 0, 40, 3, 70, 2], 3, dim);
            check(&[100, 31, 64], 1, dim);
        }
    }
}
