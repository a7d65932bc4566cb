//! Reported hits of a live engine beside predicted ones, request by request, each difference with
//! its reason.
//!
//! The requests ran one after the other, so that order explains nothing. Two predictions bound
//! what an engine may report: that of its own cache, and that of a cache without a limit.
//!
//! | reported | reason |
//! |---|---|
//! | no multiple of the block size | another block size |
//! | more than an unlimited cache finds | content from before the run, or of other requests |
//! | between the two predictions | the engine evicted in another order |
//! | less, and the cache had room | blocks went for another reason |

use serde::Serialize;

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValidatedRequest {
    /// Its id or number.
    pub name: String,
    /// Prompt length as it was sent, tokens.
    pub sent_tokens: u32,
    /// Prompt length as the engine counts it, tokens.
    pub prompt_tokens: u32,
    /// Cached tokens that the engine reported.
    pub reported: u32,
    /// Cached tokens of the predicted cache.
    pub predicted: u32,
    /// Cached tokens of a cache without a limit.
    pub unlimited: u32,
    /// Whether the predicted cache had evicted a block by then.
    pub had_evicted: bool,
}

/// Reason of a difference, by the engine's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DifferenceReason {
    /// The engine reports no hits at all.
    NoHits,
    /// The engine counts other prompt tokens than were sent.
    PromptLength,
    /// The engine's blocks have another length.
    BlockSize,
    /// The engine finds one block more of a prompt of whole blocks.
    LastBlock,
    /// The engine holds content from before the run or of other requests.
    WarmStart,
    /// The engine kept blocks that the prediction evicts.
    KeptLonger,
    /// The engine evicted blocks that the prediction keeps.
    EvictedEarlier,
    /// Blocks went although the cache had room.
    Lost,
}

impl DifferenceReason {
    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoHits => "no-hits",
            Self::PromptLength => "prompt-length",
            Self::BlockSize => "block-size",
            Self::LastBlock => "last-block",
            Self::WarmStart => "warm-start",
            Self::KeptLonger => "kept-longer",
            Self::EvictedEarlier => "evicted-earlier",
            Self::Lost => "lost",
        }
    }

    /// The reason in one sentence, with what to do.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::NoHits => {
                "the engine reports no cached token: prefix caching is off, its model cannot reuse \
                 blocks, or it does not report them (vLLM: --enable-prompt-tokens-details)"
            }
            Self::PromptLength => {
                "the engine counts other prompt tokens than were sent: it adds or cuts tokens"
            }
            Self::BlockSize => {
                "the reported counts are no multiples of the block size: pass --block-size"
            }
            Self::LastBlock => {
                "the engine serves the last block of a prompt of whole blocks; vLLM computes it \
                 again"
            }
            Self::WarmStart => {
                "the engine held these blocks before the run, or other clients share them"
            }
            Self::KeptLonger => {
                "the engine still held blocks that the prediction evicts: pass its --cache-blocks \
                 and --policy"
            }
            Self::EvictedEarlier => {
                "the engine had evicted blocks that the prediction keeps: pass its --cache-blocks \
                 and --policy, and let no other client use it"
            }
            Self::Lost => {
                "blocks went although the cache had room: the engine was reset or restarted, other \
                 clients use it, or it has fewer blocks than --cache-blocks"
            }
        }
    }
}

/// Requests that differ for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DifferenceRow {
    /// The reason.
    pub reason: DifferenceReason,
    /// The same in a sentence.
    pub sentence: &'static str,
    /// Requests.
    pub requests: usize,
    /// Reported minus predicted tokens.
    pub tokens: i64,
    /// The first of them.
    pub first: ValidatedRequest,
}

/// The whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// Answered requests.
    pub requests: usize,
    /// Of these, those with equal counts.
    pub equal: usize,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Predicted cached tokens.
    pub predicted_tokens: u64,
    /// Reported cached tokens.
    pub reported_tokens: u64,
    /// Cached tokens of a cache without a limit.
    pub unlimited_tokens: u64,
    /// The reasons of all differences, most requests first.
    pub differences: Vec<DifferenceRow>,
    /// The greatest length of which all reported counts are multiples, tokens; 0 without hits.
    pub reported_step: u32,
}

impl Validation {
    /// Compares the answers of a run on an engine whose blocks have `block_size` tokens.
    #[must_use]
    pub fn of(rows: &[ValidatedRequest], block_size: u32) -> Self {
        let sum = |count: fn(&ValidatedRequest) -> u32| {
            rows.iter().map(|row| u64::from(count(row))).sum::<u64>()
        };
        let reported_tokens = sum(|row| row.reported);
        let mut differences: Vec<DifferenceRow> = Vec::new();
        for row in rows.iter().filter(|row| row.reported != row.predicted) {
            let reason = match reported_tokens {
                0 => DifferenceReason::NoHits,
                _ => reason(row, block_size),
            };
            let tokens = i64::from(row.reported) - i64::from(row.predicted);
            match differences.iter_mut().find(|known| known.reason == reason) {
                Some(known) => {
                    known.requests += 1;
                    known.tokens += tokens;
                }
                None => differences.push(DifferenceRow {
                    reason,
                    sentence: reason.sentence(),
                    requests: 1,
                    tokens,
                    first: row.clone(),
                }),
            }
        }
        differences.sort_by_key(|row| (std::cmp::Reverse(row.requests), row.reason));
        let differing: usize = differences.iter().map(|row| row.requests).sum();
        Self {
            requests: rows.len(),
            equal: rows.len() - differing,
            prompt_tokens: sum(|row| row.prompt_tokens),
            predicted_tokens: sum(|row| row.predicted),
            reported_tokens,
            unlimited_tokens: sum(|row| row.unlimited),
            differences,
            reported_step: rows.iter().fold(0, |step, row| gcd(step, row.reported)),
        }
    }

    /// Reported minus predicted hit rate, percentage points.
    #[must_use]
    pub fn points(&self) -> f64 {
        100.0 * (self.rate(self.reported_tokens) - self.rate(self.predicted_tokens))
    }

    /// Tokens as a share of all prompt tokens.
    #[must_use]
    pub fn rate(&self, tokens: u64) -> f64 {
        tokens as f64 / self.prompt_tokens.max(1) as f64
    }
}

/// The reason of one difference.
fn reason(row: &ValidatedRequest, block_size: u32) -> DifferenceReason {
    let block_size = block_size.max(1);
    if row.prompt_tokens != row.sent_tokens {
        DifferenceReason::PromptLength
    } else if !row.reported.is_multiple_of(block_size) {
        DifferenceReason::BlockSize
    } else if row.reported > row.unlimited {
        let is_last = row.sent_tokens.is_multiple_of(block_size)
            && row.reported == row.sent_tokens
            && row.reported - row.unlimited <= block_size;
        if is_last { DifferenceReason::LastBlock } else { DifferenceReason::WarmStart }
    } else if row.reported > row.predicted {
        DifferenceReason::KeptLonger
    } else if row.had_evicted {
        DifferenceReason::EvictedEarlier
    } else {
        DifferenceReason::Lost
    }
}

/// The greatest common divisor; 0 only of two zeros.
pub(crate) fn gcd(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { gcd(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(reported: u32, predicted: u32, unlimited: u32) -> ValidatedRequest {
        ValidatedRequest {
            name: "r".to_owned(),
            sent_tokens: 64,
            prompt_tokens: 64,
            reported,
            predicted,
            unlimited,
            had_evicted: false,
        }
    }

    fn check(row: ValidatedRequest, expected: DifferenceReason) {
        // A second request, so that the engine reports some hits.
        let others = ValidatedRequest { name: "other".to_owned(), ..self::row(16, 16, 16) };
        let told = Validation::of(&[others, row], 16);
        assert_eq!((told.equal, told.differences.len()), (1, 1));
        assert_eq!(told.differences[0].reason, expected);
    }

    #[test]
    fn each_difference_has_its_reason() {
        check(row(32, 48, 48), DifferenceReason::Lost);
        check(
            ValidatedRequest { had_evicted: true, ..row(32, 48, 48) },
            DifferenceReason::EvictedEarlier,
        );
        check(row(32, 16, 48), DifferenceReason::KeptLonger);
        check(row(48, 16, 16), DifferenceReason::WarmStart);
        check(row(64, 48, 48), DifferenceReason::LastBlock);
        check(row(40, 48, 48), DifferenceReason::BlockSize);
        check(
            ValidatedRequest { prompt_tokens: 65, ..row(16, 48, 48) },
            DifferenceReason::PromptLength,
        );
    }

    #[test]
    fn an_engine_without_any_hit_is_one_reason() {
        let told = Validation::of(&[row(0, 0, 0), row(0, 48, 48), row(0, 32, 48)], 16);
        assert_eq!((told.requests, told.equal, told.reported_step), (3, 1, 0));
        assert_eq!(told.differences.len(), 1);
        assert_eq!(told.differences[0].reason, DifferenceReason::NoHits);
        assert_eq!((told.differences[0].requests, told.differences[0].tokens), (2, -80));
    }

    #[test]
    fn rates_are_shares_of_all_prompt_tokens() {
        let told = Validation::of(&[row(48, 48, 48), row(16, 32, 48)], 16);
        assert!((told.points() + 12.5).abs() < 1e-9, "{}", told.points());
        assert_eq!(told.reported_step, 16);
        assert_eq!(Validation::of(&[], 16).points(), 0.0);
    }
}
