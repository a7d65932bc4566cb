//! Prompt tokens as the log counted them, beside those that are counted here.
//!
//! A log's server has another tokenizer than the built-in toy, whose tokens are shorter. Which
//! tokens are found again does not depend on that, but seconds, money and what a memory holds do:
//! they go by the log's counts.

use headstart_core::figures::thousands;

use super::prompt::LoggedPrompt;

/// Largest factor between a log's count and ours; beyond it the log's count is an error.
const FACTOR_MAX: u32 = 16;

/// Counts that differ by less are the same for a reader.
const DIFFERENCE_MIN: f64 = 0.02;

/// Prompt tokens of the requests that have a logged count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedTokenCounts {
    /// Number of requests.
    pub requests: u64,
    /// Their prompt tokens as the log says.
    pub logged: u64,
    /// The same prompt tokens as they are counted here.
    pub here: u64,
}

impl LoggedTokenCounts {
    /// Of `said`, of which counts that cannot be are dropped.
    pub(super) fn of(said: &mut [LoggedPrompt]) -> Self {
        let mut counts = Self::default();
        for said in said {
            let here = said.tokens.len() as u32;
            let is_likely = |logged: &u32| {
                here.div_ceil(FACTOR_MAX) <= *logged && logged.div_ceil(FACTOR_MAX) <= here
            };
            said.counted = said.counted.filter(|logged| *logged > 0 && is_likely(logged));
            if let Some(logged) = said.counted {
                counts.requests += 1;
                counts.logged += u64::from(logged);
                counts.here += u64::from(here);
            }
        }
        counts
    }

    /// Returns the tokens counted here per token of the log; 1 if the log counts none.
    pub fn factor(&self) -> f64 {
        match self.logged {
            0 => 1.0,
            logged => self.here as f64 / logged as f64,
        }
    }

    /// Whether a reader sees a difference.
    pub fn differ(&self) -> bool {
        (self.factor() - 1.0).abs() >= DIFFERENCE_MIN
    }

    /// Tells the reader how both counts differ.
    pub(super) fn remark(&self) -> Option<String> {
        self.differ().then(|| {
            format!(
                "the log counts {} prompt tokens where {} are counted here: time, money and what a \
                 replica holds go by the log's count; tokens below are those counted here, {:.2} \
                 for each of the log's",
                thousands(self.logged),
                thousands(self.here),
                self.factor()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logs_counts_are_taken_unless_they_cannot_be() {
        let said = |tokens: usize, counted: Option<u32>| LoggedPrompt {
            tokens: vec![1; tokens],
            counted,
            ..LoggedPrompt::default()
        };
        let mut all = [
            said(250, Some(100)),
            said(500, Some(200)),
            said(1000, None),
            said(1000, Some(1)),
            said(10, Some(u32::MAX)),
            said(10, Some(0)),
            said(0, Some(5)),
        ];
        let counts = LoggedTokenCounts::of(&mut all);
        let expected = LoggedTokenCounts { requests: 2, logged: 300, here: 750 };
        assert_eq!(counts, expected);
        assert_eq!(counts.factor(), 2.5);
        assert!(all[3..].iter().all(|said| said.counted.is_none()));
        let remark = counts.remark().expect("they differ");
        assert!(remark.contains("300") && remark.contains("750"), "{remark}");
        assert_eq!(LoggedTokenCounts::default().factor(), 1.0);
        assert_eq!(LoggedTokenCounts::default().remark(), None);
    }
}
