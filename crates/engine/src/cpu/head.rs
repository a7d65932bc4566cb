//! The output head: logits from the table that is also the embedding.

use pulp::Arch;
use rayon::prelude::*;

use crate::kv::Numbers;

/// `logits[row] = table · x[row]` where `table` is `[n, k]`, one row per vocabulary entry: the
/// layout of the embedding, so that a tied head needs no second copy.
///
/// # Panics
/// When the sizes do not fit.
pub fn rows_dot(x: &[f32], table: &Numbers, k: usize, logits: &mut [f32]) {
    let m = x.len() / k;
    let n = table.len() / k;
    assert!(logits.len() == m * n && table.len() == n * k, "logits are [m, n]");
    /// Vocabulary entries per task: some 0.1 ms of work at k = 512.
    const ENTRIES: usize = 256;
    let arch = Arch::new();
    let pieces: Vec<Vec<f32>> = (0..n.div_ceil(ENTRIES))
        .into_par_iter()
        .map(|piece| {
            let entries = piece * ENTRIES..n.min((piece + 1) * ENTRIES);
            // A buffer for each task, because a row of the logits has columns of all tasks.
            let mut values = vec![0.0; m * entries.len()];
            arch.dispatch(
                #[inline(always)]
                || dot_block(x, table, k, entries, &mut values),
            );
            values
        })
        .collect();
    for (piece, values) in pieces.iter().enumerate() {
        // Without rows there are no values: the divisor only must not be 0.
        let width = values.len() / m.max(1);
        for (row, values) in values.chunks_exact(width.max(1)).enumerate() {
            logits[row * n + piece * ENTRIES..][..width].copy_from_slice(values);
        }
    }
}

/// All dot products of the rows of `x` with `entries` of the table, `[rows of x, entries]`. An
/// entry is read once for all rows.
#[inline(always)]
fn dot_block(
    x: &[f32],
    table: &Numbers,
    k: usize,
    entries: std::ops::Range<usize>,
    values: &mut [f32],
) {
    let width = entries.len();
    let mut scratch = Vec::new();
    for (column, entry) in entries.enumerate() {
        let entry = table.widen(entry * k..(entry + 1) * k, &mut scratch);
        for (row, x) in x.chunks_exact(k).enumerate() {
            values[row * width + column] = dot(x, entry);
        }
    }
}

/// 64 partial sums: four vectors in flight, in an order that the compiler may keep.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 64];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    #[test]
    fn logits_are_dot_products_with_the_table() {
        let mut rng = Rng::new(1);
        let mut random =
            |len: usize| -> Vec<f32> { (0..len).map(|_| rng.next_f64() as f32 - 0.5).collect() };
        let (m, k, n) = (3, 80, 700);
        let (x, table) = (random(m * k), random(n * k));
        let mut logits = vec![0.0; m * n];
        rows_dot(&x, &Numbers::F32(table.clone()), k, &mut logits);
        for (at, logit) in logits.iter().enumerate() {
            let (x, entry) = (&x[at / n * k..][..k], &table[at % n * k..][..k]);
            let terms = x.iter().zip(entry).map(|(x, e)| f64::from(*x) * f64::from(*e));
            assert!((f64::from(*logit) - terms.sum::<f64>()).abs() < 1e-4);
        }
    }
}
