//! The obvious selection of important tokens, and how far apart two outcomes are.

/// Positions of the `keep` largest of `importance`, the earlier first among equals; ascending.
#[must_use]
pub(crate) fn top(importance: &[f32], keep: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..importance.len()).collect();
    order.sort_by(|a, b| importance[*b].total_cmp(&importance[*a]).then(a.cmp(b)));
    order.truncate(keep);
    order.sort_unstable();
    order
}

/// The top `ratio` of each probe, at least one token.
#[must_use]
pub(crate) fn top_sets(importance: &[Vec<f32>], ratio: f64) -> Vec<Vec<usize>> {
    let keep = |probe: &Vec<f32>| (probe.len() as f64 * ratio).round().max(1.0) as usize;
    let sets = importance.iter().map(|probe| top(probe, keep(probe)));
    sets.collect()
}

/// Union of the sets, ascending.
#[must_use]
pub(crate) fn union(sets: &[Vec<usize>]) -> Vec<usize> {
    let mut all: Vec<usize> = sets.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Shared share, `|A ∩ B| / |A ∪ B|`, of each pair of ascending sets.
#[must_use]
pub(crate) fn jaccard(sets: &[Vec<usize>]) -> Vec<f64> {
    let mut pairs = Vec::new();
    for (index, a) in sets.iter().enumerate() {
        for b in &sets[index + 1..] {
            let shared = a.iter().filter(|x| b.binary_search(x).is_ok()).count();
            pairs.push(shared as f64 / (a.len() + b.len() - shared).max(1) as f64);
        }
    }
    pairs
}

/// Kullback-Leibler divergence of the distribution of `logits` from that of `exact`, nats.
#[must_use]
pub(crate) fn divergence(exact: &[f32], logits: &[f32]) -> f64 {
    let (exact, other) = (log_softmax(exact), log_softmax(logits));
    let terms = exact.iter().zip(&other);
    terms.map(|(p, q)| p.exp() * (p - q)).sum()
}

/// The likeliest token.
#[must_use]
pub(crate) fn likeliest(logits: &[f32]) -> usize {
    let order = logits.iter().enumerate();
    let best = order.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    best.map_or(0, |(token, _)| token)
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shifted = || logits.iter().map(|x| f64::from(*x) - f64::from(max));
    let total = shifted().map(f64::exp).sum::<f64>().ln();
    shifted().map(|x| x - total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_their_overlap() {
        let first = vec![0.1, 0.9, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0];
        let second = vec![0.9, 0.8, 0.1, 0.1, 0.0, 0.0, 0.0, 0.2];
        let sets = top_sets(&[first, second], 0.25);
        assert_eq!(sets, [vec![1, 2], vec![0, 1]]);
        assert_eq!(union(&sets), [0, 1, 2]);
        assert_eq!(jaccard(&sets), [1.0 / 3.0]);
    }

    #[test]
    fn divergence_is_that_of_the_definition() {
        let (exact, other) = ([0.0f32, 0.0], [1.0f32, 0.0]);
        let q = 1.0f64.exp() / (1.0 + 1.0f64.exp());
        let expected = -0.5 * (2.0 * q).ln() - 0.5 * (2.0 * (1.0 - q)).ln();
        assert!((divergence(&exact, &other) - expected).abs() < 1e-12);
        assert!(divergence(&exact, &exact).abs() < 1e-12);
        assert_eq!(likeliest(&[0.5, 2.0, 2.0]), 1);
    }
}
