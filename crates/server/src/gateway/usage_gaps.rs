//! Gaps in the usage that engines report, and the engine option that closes each. Without usage a
//! gateway cannot verify its predictions.

use std::collections::BTreeMap;
use std::sync::Mutex;

use headstart_core::ReplicaId;

use crate::lock::lock;

/// A gap in the usage of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsageGap {
    /// All of its usage, as a stream does whose client did not ask for it.
    All,
    /// The number of cached prompt tokens.
    Cached,
}

/// Answers with gaps, by replica. Each pair is logged once.
#[derive(Debug, Default)]
pub struct UsageGaps(Mutex<BTreeMap<(ReplicaId, UsageGap), u64>>);

impl UsageGap {
    fn advice(self) -> &'static str {
        match self {
            Self::All => {
                "answers have no usage, so that they are not explained: clients ask for it with \
                 stream_options.include_usage, and vLLM adds it to all with \
                 --enable-force-include-usage"
            }
            Self::Cached => {
                "answers do not tell how many prompt tokens were cached: start vLLM with \
                 --enable-prompt-tokens-details, SGLang with --enable-cache-report"
            }
        }
    }
}

impl UsageGaps {
    /// Counts an answer; logs the first one.
    pub fn note(&self, replica: ReplicaId, gap: UsageGap) {
        let mut gaps = lock(&self.0);
        let count = gaps.entry((replica, gap)).or_default();
        *count += 1;
        if *count == 1 {
            tracing::warn!(%replica, "{}", gap.advice());
        }
    }

    /// A sentence for each replica and gap.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let gaps = lock(&self.0);
        let notices = gaps.iter().map(|((replica, gap), count)| {
            let advice = gap.advice();
            format!("replica {replica}: {count} {advice}")
        });
        notices.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replica_and_gap_has_its_notice() {
        let gaps = UsageGaps::default();
        for replica in [0, 1, 1] {
            gaps.note(ReplicaId(replica), UsageGap::Cached);
        }
        gaps.note(ReplicaId(1), UsageGap::All);
        let notices = gaps.notices();
        assert_eq!(notices.len(), 3);
        assert!(notices[0].starts_with("replica 0: 1 answers do not tell"));
        assert!(notices[1].starts_with("replica 1: 1 answers have no usage"));
        assert!(notices[2].contains("2 answers") && notices[2].contains("--enable-cache-report"));
    }
}
