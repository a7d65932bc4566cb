//! Requests whose log says itself how much of the prompt a cache served.
//!
//! The replay knows what a fleet would have held, the log what an engine served. The log is right
//! about what was served. About the rest it shows only whether it had been computed before. So
//! tokens that the replay would have found, lost to eviction or left on another replica, and that
//! the engine did not serve, are one bucket: [`Bucket::IndexWrong`], known and not served. The
//! replay alone is never wrong, so nothing else is in it.

use headstart_insight::{Bucket, BucketTokens};

use crate::traffic::LoggedPrompt;

/// Buckets whose tokens a log may say were served all the same, the likeliest first.
const SERVED_AFTER_ALL: [Bucket; 7] = [
    Bucket::HeldElsewhere,
    Bucket::Evicted,
    Bucket::InFlight,
    Bucket::Namespace,
    Bucket::Diverged,
    Bucket::NeverSeen,
    Bucket::BlockFloor,
];

/// Buckets that only the replay can assign to a known token.
const OF_THE_REPLAY: [Bucket; 3] = [Bucket::HeldElsewhere, Bucket::Reset, Bucket::Evicted];

/// Returns the cached tokens according to the log, scaled to our count of tokens: the server may
/// count differently.
pub(crate) fn served(said: &LoggedPrompt, split: &BucketTokens) -> Option<u32> {
    let (prompt, cached) = said.cached.filter(|(prompt, _)| *prompt > 0)?;
    // A log that reports more cached tokens than the prompt has is taken at the whole prompt.
    let share = (f64::from(cached) / f64::from(prompt)).min(1.0);
    // The share is at most 1, so the product fits the prompt's `u32`.
    Some((share * split.total() as f64).round() as u32)
}

/// Returns `split`, corrected to `served` served tokens.
pub(crate) fn corrected(split: &BucketTokens, served: u32) -> BucketTokens {
    // Tokens move between buckets and never vanish: the corrected sum is the prompt's.
    let mut left = Bucket::ALL.map(|bucket| (bucket, split.get(bucket)));
    let mut take = |bucket: Bucket, most: u32| {
        let place = left.iter_mut().find(|(name, _)| *name == bucket);
        place.map_or(0, |(_, tokens)| {
            let taken = most.min(*tokens);
            *tokens -= taken;
            taken
        })
    };
    // The replay's hits are the first that the log confirms.
    let found = take(Bucket::Device, u32::MAX);
    let mut more = served.saturating_sub(found);
    // The log served more than the replay found: those tokens come from the likeliest buckets.
    for bucket in SERVED_AFTER_ALL {
        more -= take(bucket, more);
    }
    // The engine did not serve these, whatever cause the replay gave them.
    let of_the_replay: u32 = OF_THE_REPLAY.map(|bucket| take(bucket, u32::MAX)).iter().sum();
    let mut corrected = BucketTokens::default();
    for (bucket, tokens) in left {
        corrected.put(bucket, tokens);
    }
    // `more` is left over only where no bucket has tokens; it never exceeds `served`.
    corrected.put(Bucket::Device, served - more);
    corrected.put(Bucket::IndexWrong, found.saturating_sub(served) + of_the_replay);
    corrected
}

/// The same request with `tokens` of `from` in `to`, or all that there are.
pub(crate) fn moved(split: &BucketTokens, from: Bucket, to: Bucket, tokens: u32) -> BucketTokens {
    let tokens = tokens.min(split.get(from));
    let mut moved = BucketTokens::default();
    for (bucket, here) in split.iter() {
        moved.put(bucket, if bucket == from { here - tokens } else { here });
    }
    moved.put(to, tokens);
    moved
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;

    fn split(parts: &[(Bucket, u32)]) -> BucketTokens {
        let mut split = BucketTokens::default();
        parts.iter().for_each(|&(bucket, tokens)| split.put(bucket, tokens));
        split
    }

    /// Nothing is said of an engine's memory: what was known and not served is one bucket.
    #[test]
    fn what_the_log_says_was_served_is_served() {
        let replayed = split(&[
            (Bucket::Device, 64),
            (Bucket::HeldElsewhere, 6),
            (Bucket::Evicted, 10),
            (Bucket::NeverSeen, 20),
        ]);
        for (served, not_served, unseen) in
            [(64, 16, 20), (0, 80, 20), (70, 10, 20), (90, 0, 10), (100, 0, 0)]
        {
            let split = corrected(&replayed, served);
            assert_eq!(split.total(), 100, "{served}");
            assert_eq!(split.get(Bucket::Device), served);
            let rest = [split.get(Bucket::IndexWrong), split.get(Bucket::NeverSeen)];
            assert_eq!(rest, [not_served, unseen], "{served}");
            assert_eq!(split.get(Bucket::Evicted), 0, "nobody knows that");
        }
    }

    #[test]
    fn a_prompt_keeps_its_tokens_whatever_a_log_says() {
        let mut rng = Rng::new(4);
        for _ in 0..500 {
            let parts = Bucket::ALL.map(|bucket| (bucket, rng.below(3) as u32 * 10));
            let replayed = split(&parts);
            let total = replayed.total();
            let got = corrected(&replayed, rng.below(total as usize + 1) as u32);
            assert_eq!(got.total(), total);
            let moved = moved(&got, Bucket::NeverSeen, Bucket::Diverged, 15);
            assert_eq!(moved.total(), total);
        }
    }

    #[test]
    fn cached_tokens_count_as_their_share_of_the_prompt() {
        let unseen = split(&[(Bucket::NeverSeen, 50)]);
        let said = |cached| LoggedPrompt { cached, ..LoggedPrompt::default() };
        assert_eq!(served(&said(Some((100, 40))), &unseen), Some(20));
        assert_eq!(served(&said(Some((10, 40))), &unseen), Some(50), "a slip");
        assert_eq!(served(&said(Some((0, 0))), &unseen), None);
        assert_eq!(served(&said(None), &unseen), None);
    }
}
