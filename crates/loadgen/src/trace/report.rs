//! The figures of one run of a trace.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use headstart_core::stats::{HitCount, Summary};
use serde::Serialize;

use super::TraceObserved;

/// Failures reported in words; the rest most often says the same.
const FAILURE_SAMPLES: usize = 5;

/// Lateness worth a warning, milliseconds at the 99th percentile: a busy machine is late by some
/// tens of them.
const LATE_MS: f64 = 100.0;

/// Figures of a server on a trace. Percentiles are nearest rank over requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceReport {
    /// Requests sent.
    pub requests: usize,
    /// Of these, without a complete answer.
    pub failed: usize,
    /// The first few errors.
    pub failures: Vec<String>,
    /// Prompt tokens of the answered requests.
    pub prompt_tokens: u64,
    /// Of these, found in a cache.
    pub cached_tokens: u64,
    /// Cached prompt tokens / prompt tokens.
    pub hit_rate: f64,
    /// Tokens of all answers.
    pub output_tokens: u64,
    /// Median time to first token, milliseconds.
    pub ttft_ms_p50: f64,
    /// Its 90th percentile.
    pub ttft_ms_p90: f64,
    /// Its 99th percentile.
    pub ttft_ms_p99: f64,
    /// Median time to last token, milliseconds.
    pub e2e_ms_p50: f64,
    /// Its 99th percentile.
    pub e2e_ms_p99: f64,
    /// Time that requests were sent after they were due, milliseconds, 99th percentile.
    pub late_ms_p99: f64,
    /// Duration of the run, seconds.
    pub wall_s: f64,
    /// Requests per replica, where the server names replicas.
    pub replicas: BTreeMap<String, usize>,
}

impl TraceReport {
    /// The figures of `observed`; all zero where nothing was answered.
    #[must_use]
    pub fn of(observed: &TraceObserved) -> Self {
        let samples = &observed.samples;
        let mut tokens = HitCount::default();
        let mut replicas = BTreeMap::new();
        for sample in samples {
            tokens.record(sample.prompt_tokens as usize, sample.cached_tokens as usize);
            if let Some(replica) = &sample.replica {
                *replicas.entry(replica.clone()).or_insert(0) += 1;
            }
        }
        let summary = |value: fn(&super::TraceSample) -> std::time::Duration| {
            let ms = samples.iter().map(|sample| value(sample).as_secs_f64() * 1e3);
            Summary::of(&mut ms.collect::<Vec<f64>>())
        };
        let (ttft, e2e) = (summary(|s| s.ttft), summary(|s| s.e2e));
        let failures = observed.failures.iter().take(FAILURE_SAMPLES);
        let failures = failures.map(|(number, error)| format!("request {number}: {error}"));
        Self {
            requests: samples.len() + observed.failures.len(),
            failed: observed.failures.len(),
            failures: failures.collect(),
            prompt_tokens: tokens.lookups,
            cached_tokens: tokens.hits,
            hit_rate: tokens.rate(),
            output_tokens: samples.iter().map(|s| u64::from(s.output_tokens)).sum(),
            ttft_ms_p50: ttft.p50,
            ttft_ms_p90: ttft.p90,
            ttft_ms_p99: ttft.p99,
            e2e_ms_p50: e2e.p50,
            e2e_ms_p99: e2e.p99,
            late_ms_p99: summary(|s| s.late).p99,
            wall_s: observed.wall.as_secs_f64(),
            replicas,
        }
    }

    /// A table of one row and what else is to be known.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = format!(
            "| requests | failed | prompt tokens | cached | hit rate \
             | TTFT p50, ms | p90 | p99 | E2E p50, ms | p99 |\n\
             |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n\
             | {} | {} | {} | {} | {:.2} % | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |\n\n\
             {} output tokens in {:.1} s\n",
            self.requests,
            self.failed,
            self.prompt_tokens,
            self.cached_tokens,
            self.hit_rate * 100.0,
            self.ttft_ms_p50,
            self.ttft_ms_p90,
            self.ttft_ms_p99,
            self.e2e_ms_p50,
            self.e2e_ms_p99,
            self.output_tokens,
            self.wall_s,
        );
        // With one replica there is no split to show.
        if self.replicas.len() > 1 {
            let counts = self.replicas.iter();
            let counts: Vec<_> = counts.map(|(name, count)| format!("{name} {count}")).collect();
            let _ = writeln!(text, "\nRequests per replica: {}", counts.join(", "));
        }
        // Sequential runs are never late, so this concerns open mode only.
        if self.late_ms_p99 > LATE_MS {
            let _ = writeln!(
                text,
                "\nOne request in a hundred was sent {:.0} ms late or more: the load was lighter \
                 than the trace's. Allow more requests at once, or lower the speed.",
                self.late_ms_p99
            );
        }
        for failure in &self.failures {
            let _ = write!(text, "\n- {failure}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::LoadgenError;
    use crate::trace::TraceSample;

    fn sample(cached_tokens: u32, ttft_ms: u64, late_ms: u64) -> TraceSample {
        TraceSample {
            number: 0,
            prompt_tokens: 100,
            cached_tokens,
            output_tokens: 2,
            ttft: Duration::from_millis(ttft_ms),
            e2e: Duration::from_millis(ttft_ms + 5),
            late: Duration::from_millis(late_ms),
            replica: Some(format!("r{}", cached_tokens % 2)),
        }
    }

    fn check(samples: Vec<TraceSample>, num_failures: u64, shown: &[&str], absent: &str) {
        let failures = (0..num_failures).map(|number| (number, LoadgenError::ApiKey));
        let observed =
            TraceObserved { samples, failures: failures.collect(), wall: Duration::from_secs(3) };
        let text = TraceReport::of(&observed).to_markdown();
        for part in shown {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        assert!(!text.contains(absent), "{text} has {absent}");
    }

    #[test]
    fn a_report_has_the_figures_of_answered_requests() {
        check(
            vec![sample(0, 10, 0), sample(51, 20, 0), sample(80, 30, 0)],
            7,
            &[
                "| 10 | 7 | 300 | 131 | 43.67 % | 20.0 | 30.0 | 30.0 | 25.0 | 35.0 |",
                "6 output tokens in 3.0 s",
                "r0 2, r1 1",
                "request 4: ",
            ],
            "request 5: ",
        );
        check(vec![], 0, &["| 0 | 0 | 0 | 0 | 0.00 % |"], "late");
    }

    #[test]
    fn a_load_lighter_than_the_trace_is_said() {
        check(vec![sample(0, 10, 400)], 0, &["400 ms late"], "per replica");
        check(vec![sample(0, 10, 99)], 0, &[], "late");
    }
}
