//! From logits to a token.

use headstart_core::{Rng, TokenId};
use headstart_scheduler::Sampling;

/// Chooses the token at `position` of its sequence. Tokens in `suppressed` (ascending) are never
/// chosen, and neither is one whose logit is minus infinity or not a number. `None` where no token
/// is left. Same logits, seed and position: same token, whatever else is in the batch.
#[must_use]
pub fn sample(
    logits: &[f32],
    suppressed: &[TokenId],
    sampling: &Sampling,
    position: usize,
) -> Option<TokenId> {
    // The softmax below divides by the temperature.
    if sampling.temperature <= 0.0 {
        return greedy(logits, suppressed);
    }
    let mut candidates = candidates(logits, suppressed);
    if sampling.top_k > 0 {
        candidates.truncate(sampling.top_k);
    }
    let best = candidates.first()?.0;
    let weights = softmax(&candidates, best, sampling.temperature);
    let kept = nucleus(&weights, sampling.top_p);
    let total: f64 = weights[..kept].iter().sum();
    // A generator for each position: no token depends on how many draws came before.
    let mut rng = Rng::new(sampling.seed ^ (position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut point = rng.next_f64() * total;
    for (candidate, weight) in candidates.iter().zip(&weights[..kept]) {
        point -= weight;
        if point < 0.0 {
            return Some(candidate.1);
        }
    }
    // Rounding may leave a rest after the last weight.
    Some(candidates[kept - 1].1)
}

/// The likeliest token, of equals the first, with the limits of [`sample`].
#[must_use]
pub fn greedy(logits: &[f32], suppressed: &[TokenId]) -> Option<TokenId> {
    let mut best = None;
    for (logit, token) in allowed(logits, suppressed) {
        if best.is_none_or(|(highest, _)| logit > highest) {
            best = Some((logit, token));
        }
    }
    best.map(|(_, token)| token)
}

/// The tokens that may be chosen, in their order.
fn allowed(logits: &[f32], suppressed: &[TokenId]) -> impl Iterator<Item = (f32, TokenId)> {
    // Both lists ascend, so one walk over the suppressed tokens is enough.
    let mut suppressed = suppressed.iter().copied().peekable();
    let all = logits.iter().enumerate().map(|(token, &logit)| (logit, token as TokenId));
    let free = all.filter(move |(_, token)| suppressed.next_if_eq(token).is_none());
    // False for NaN as well. A difference of two infinities would be one.
    let free = free.filter(|(logit, _)| *logit > f32::NEG_INFINITY);
    free.map(|(logit, token)| (logit.min(f32::MAX), token))
}

/// The same, likeliest first; equal logits by token.
fn candidates(logits: &[f32], suppressed: &[TokenId]) -> Vec<(f32, TokenId)> {
    let mut kept: Vec<_> = allowed(logits, suppressed).collect();
    // A total order: equal inputs give the same candidates.
    kept.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    kept
}

/// Unnormalized probabilities: 1 for a logit of `best`.
fn softmax(candidates: &[(f32, TokenId)], best: f32, temperature: f32) -> Vec<f64> {
    // Relative to the largest, so that no exponential overflows.
    let weight = |&(logit, _): &(f32, TokenId)| f64::from((logit - best) / temperature).exp();
    candidates.iter().map(weight).collect()
}

/// Counts the most likely tokens that together reach a share of `top_p`; at least one.
fn nucleus(weights: &[f64], top_p: f32) -> usize {
    let target = weights.iter().sum::<f64>() * f64::from(top_p);
    let mut sum = 0.0;
    let reached = weights.iter().position(|weight| {
        sum += weight;
        sum >= target
    });
    // The running sum may round differently and miss the target.
    reached.map_or(weights.len(), |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(logits: &[f32], sampling: Sampling) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        for position in 0..20_000 {
            let token = sample(logits, &[], &sampling, position).expect("some logit is finite");
            counts[token as usize] += 1;
        }
        counts
    }

    #[test]
    fn draws_follow_the_softmax() {
        let logits = [1.0, 2.0, 0.0, 1.0];
        let sampling = Sampling { temperature: 0.5, seed: 9, ..Sampling::default() };
        let weights: Vec<f64> = logits.iter().map(|&x| f64::from(x * 2.0).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (count, weight) in draw(&logits, sampling).iter().zip(&weights) {
            let expected = weight / total * 20_000.0;
            assert!((*count as f64 - expected).abs() < 5.0 * expected.sqrt() + 5.0);
        }
    }

    #[test]
    fn limits_cut_the_tail() {
        let logits = [1.0, 2.0, 0.0, 1.5];
        let base = Sampling { temperature: 1.0, seed: 3, ..Sampling::default() };
        let two = draw(&logits, Sampling { top_k: 2, ..base });
        assert!(two[0] == 0 && two[2] == 0 && two[1] > two[3] && two[3] > 0);
        let first = draw(&logits, Sampling { top_p: 0.2, ..base });
        assert_eq!(first[1], 20_000);
        let none = draw(&logits, Sampling { top_p: 0.0, ..base });
        assert_eq!(none[1], 20_000, "at least one candidate stays");
    }

    #[test]
    fn suppressed_tokens_are_never_chosen() {
        let logits = [3.0, 2.0, 9.0];
        let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
        assert_eq!(greedy(&logits, &[2]), Some(0));
        assert!((0..500).all(|position| sample(&logits, &[0, 2], &sampling, position) == Some(1)));
    }

    #[test]
    fn what_is_not_a_number_is_never_chosen() {
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        let rows: [(&[f32], &[TokenId], Option<TokenId>); 8] = [
            (&[nan, 1.0, -nan], &[], Some(1)),
            (&[nan, -infinity, -9e30], &[], Some(2)),
            (&[1.0, infinity, nan], &[], Some(1)),
            (&[nan, nan], &[], None),
            (&[nan, 1.0], &[1], None),
            (&[1.0, 2.0], &[0, 1], None),
            (&[-infinity, -infinity], &[], None),
            (&[], &[], None),
        ];
        for (logits, suppressed, expected) in rows {
            assert_eq!(greedy(logits, suppressed), expected, "{logits:?}");
            for temperature in [0.0, 0.1, 1.0] {
                let sampling = Sampling { temperature, seed: 5, ..Sampling::default() };
                for position in 0..50 {
                    let token = sample(logits, suppressed, &sampling, position);
                    assert_eq!(token, expected, "{logits:?} at {temperature}");
                }
            }
        }
    }

    #[test]
    fn the_seed_and_position_fix_the_draw() {
        let logits: Vec<f32> = (0..50).map(|i| (i as f32).sin()).collect();
        let at = |seed, position| {
            let sampling = Sampling { temperature: 1.0, seed, ..Sampling::default() };
            sample(&logits, &[], &sampling, position)
        };
        assert_eq!(at(1, 5), at(1, 5));
        assert!((0..50).any(|position| at(1, position) != at(2, position)));
        assert!((0..50).any(|position| at(1, position) != at(1, position + 1)));
    }
}
