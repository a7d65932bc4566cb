//! The last requests that ended in an error, so that rows of requests have those too. Nothing of
//! them is kept but who was asked for what, and how it ended.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::lock::lock;

/// Failures that are kept: as many as rows are shown.
const FAILURES_MAX: usize = 12;

/// The last failures.
#[derive(Debug, Default)]
pub struct Failures(Mutex<VecDeque<FailedRequest>>);

/// A request that ended in an error.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedRequest {
    /// The client's id of the request (`x-request-id`).
    pub request_id: Option<String>,
    /// When it ended, seconds since 1970.
    pub at_unix_s: f64,
    /// Status of its answer.
    pub status: u16,
    /// The error's name, where it is this server's.
    pub code: Option<&'static str>,
    /// The route.
    pub route: &'static str,
}

impl Failures {
    /// Takes the next one.
    pub fn note(&self, failure: FailedRequest) {
        let mut kept = lock(&self.0);
        if kept.len() == FAILURES_MAX {
            kept.pop_front();
        }
        kept.push_back(failure);
    }

    /// All that are kept, the newest first.
    #[must_use]
    pub fn latest(&self) -> Vec<FailedRequest> {
        let kept = lock(&self.0);
        kept.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let failures = Failures::default();
        for second in 0..40 {
            failures.note(FailedRequest {
                request_id: None,
                at_unix_s: f64::from(second),
                status: 429,
                code: Some("queue_full"),
                route: "/v1/completions",
            });
        }
        let latest = failures.latest();
        assert_eq!((latest.len(), latest[0].at_unix_s), (FAILURES_MAX, 39.0));
    }
}
