//! Measurements of one index in one cell.

use std::time::Duration;

use serde::Serialize;

/// Medians over the rounds, unless a line says otherwise.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// Name of the index.
    pub(crate) index: String,
    /// Whole prompts looked up per second by one thread, hashed before.
    pub(crate) lookups_per_second: f64,
    /// Time of one look-up, nanoseconds, 50th percentile.
    pub(crate) p50_ns: f64,
    /// The 99th.
    pub(crate) p99_ns: f64,
    /// Look-ups per second beside a writer.
    pub(crate) beside_lookups_per_second: f64,
    /// Their 99th percentile, nanoseconds.
    pub(crate) beside_p99_ns: f64,
    /// Events per second that this writer applied.
    pub(crate) beside_events_per_second: f64,
    /// From a prompt's tokens to what the index is asked with, microseconds, mean over prompts.
    pub(crate) hash_us_per_prompt: f64,
    /// Hashing of events, in stored blocks per second.
    pub(crate) event_hash_blocks_per_second: f64,
    /// Events per second, hashed before.
    pub(crate) apply_events_per_second: f64,
    /// The same in blocks, stored and removed.
    pub(crate) apply_blocks_per_second: f64,
    /// Events per second, hashing included.
    pub(crate) hash_and_apply_events_per_second: f64,
    /// The same in blocks.
    pub(crate) hash_and_apply_blocks_per_second: f64,
    /// Bytes of its heap per (block, replica) pair, after the build.
    pub(crate) bytes_per_pair: f64,
    /// Comparison of its answers with what the replicas hold.
    pub(crate) answers: Answers,
}

/// Comparison of answers with the truth.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Answers {
    /// Prompts compared.
    pub(crate) prompts: usize,
    /// Prompts with a difference.
    pub(crate) different: usize,
    /// Replicas that were said to hold more than they do, over all prompts.
    pub(crate) too_much: usize,
    /// Replicas that were said to hold less.
    pub(crate) too_little: usize,
    /// The first difference: replica, blocks said, blocks held.
    pub(crate) first: Option<(u32, u32, u32)>,
}

impl Figures {
    /// Nothing measured yet.
    pub(crate) fn new(index: &str) -> Self {
        Self {
            index: index.to_owned(),
            ..Self::default()
        }
    }

    /// Notes one answer; both are by ascending replica and without zeros.
    pub(crate) fn compare(&mut self, said: &[(u32, u32)], held: &[(u32, u32)]) {
        let answers = &mut self.answers;
        answers.prompts += 1;
        if said == held {
            return;
        }
        answers.different += 1;
        let of = |list: &[(u32, u32)], replica| {
            let found = list.binary_search_by_key(&replica, |&(replica, _)| replica);
            found.map_or(0, |at| list[at].1)
        };
        let mut replicas: Vec<u32> = said
            .iter()
            .chain(held)
            .map(|&(replica, _)| replica)
            .collect();
        replicas.sort_unstable();
        replicas.dedup();
        for replica in replicas {
            let (said, held) = (of(said, replica), of(held, replica));
            answers.too_much += usize::from(said > held);
            answers.too_little += usize::from(said < held);
            if said != held {
                answers.first.get_or_insert((replica, said, held));
            }
        }
    }
}

/// Half of them are below; the mean of the middle two where their number is even.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// The value that a share `rank` of them do not exceed.
pub(crate) fn percentile(values: &mut [u64], rank: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let at = (values.len() as f64 * rank).ceil() as usize;
    let at = at.clamp(1, values.len()) - 1;
    *values.select_nth_unstable(at).1 as f64
}

/// `count` in that time.
pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_a_direction() {
        let mut figures = Figures::new("i");
        figures.compare(&[(1, 2), (4, 9)], &[(1, 2), (4, 9)]);
        figures.compare(&[(1, 2), (4, 9)], &[(1, 3), (3, 1)]);
        let answers = &figures.answers;
        assert_eq!((answers.prompts, answers.different), (2, 1));
        assert_eq!((answers.too_much, answers.too_little), (1, 2));
        assert_eq!(answers.first, Some((1, 2, 3)));
    }

    #[test]
    fn middles_and_percentiles() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        let mut values: Vec<u64> = (1..=200).rev().collect();
        assert_eq!(percentile(&mut values, 0.99), 198.0);
        assert_eq!(percentile(&mut values, 0.5), 100.0);
        assert_eq!(percentile(&mut [7], 0.99), 7.0);
    }
}
