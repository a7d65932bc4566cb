//! Load of one replica.
//!
//! Two sources, because each is blind where the other sees:
//!
//! | source | knows | blind to |
//! |---|---|---|
//! | own reservations | every request of this router, at once | other routers' requests |
//! | the replica's report | all requests, KV memory | what happened since |
//!
//! Where both speak, the larger figure counts. A report that is not fresh is not used.
//!
//! ```text
//! reserve ──► Prefill { tokens } ──first_token──► Decode ──finish──► gone
//!                   └─────────────finish (failed, cancelled)─────────▲
//! ```
//!
//! Source: Dynamo's tracking of active sequences by the router's own lifecycle calls, and the
//! engine metrics that llm-d scrapes.

use std::time::Duration;

use headstart_core::cost::Work;
use headstart_core::{EngineModel, Nanos};

use crate::backlog::Backlog;
use crate::placed::PlacedTokens;

/// Lifetime of a report. It spans several scrapes at a slow interval (one a second). In a longer
/// time, the queued requests are usually answered.
pub const REPORT_FRESHNESS: Duration = Duration::from_secs(5);

/// Load that a replica reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReportedLoad {
    /// Requests that wait to be scheduled.
    pub waiting: u32,
    /// Requests that run.
    pub running: u32,
    /// Share of the KV memory in use, in `[0, 1]`.
    pub kv_usage: f64,
    /// When it was so.
    pub at: Nanos,
}

/// Requests that this router sent and that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// All of them.
    pub requests: usize,
    /// Requests without a first token yet.
    pub queued: usize,
    /// Prompt tokens to compute for those, beyond what was found cached.
    pub prefill_tokens: usize,
    /// Prompt tokens of the others: at least what each of their steps reads.
    pub decode_tokens: usize,
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The replica computes (or will compute) the prompt.
    Prefill {
        /// Prompt tokens beyond what was found cached.
        tokens: usize,
    },
    /// The first token is out.
    Decode {
        /// Tokens of the prompt.
        tokens: usize,
    },
}

impl InFlight {
    /// A request enters `phase`.
    pub fn enter(&mut self, phase: Phase) {
        self.requests += 1;
        match phase {
            Phase::Prefill { tokens } => {
                self.queued += 1;
                self.prefill_tokens += tokens;
            }
            Phase::Decode { tokens } => self.decode_tokens += tokens,
        }
    }

    /// A request leaves `phase`, which it had entered.
    pub fn leave(&mut self, phase: Phase) {
        self.requests -= 1;
        match phase {
            Phase::Prefill { tokens } => {
                self.queued -= 1;
                self.prefill_tokens -= tokens;
            }
            Phase::Decode { tokens } => self.decode_tokens -= tokens,
        }
    }
}

/// One replica's load, from both sources.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// From the router's own calls.
    pub in_flight: InFlight,
    /// Estimated wait of a new prompt behind them.
    pub backlog: Backlog,
    /// Prompt tokens sent to it lately.
    pub placed: PlacedTokens,
    report: Option<ReportedLoad>,
}

impl Load {
    /// Takes a report over, unless a later one is known.
    pub fn report(&mut self, report: ReportedLoad) {
        // Scrapes may overlap, so an older report can come last.
        if self.report.is_none_or(|known| known.at <= report.at) {
            self.report = Some(report);
        }
    }

    /// Forgets the report.
    pub fn forget_report(&mut self) {
        self.report = None;
    }

    /// The last report, while it is fresh.
    #[must_use]
    pub fn fresh_report(&self, now: Nanos) -> Option<ReportedLoad> {
        let is_fresh = |report: &ReportedLoad| now.since(report.at) <= REPORT_FRESHNESS;
        self.report.filter(is_fresh)
    }

    /// Requests whose first token has not come.
    #[must_use]
    pub fn queue_depth(&self, now: Nanos) -> usize {
        let reported = self.reported_waiting(now);
        self.in_flight.queued.max(reported.unwrap_or(0))
    }

    /// Requests that wait by a fresh report.
    #[must_use]
    pub fn reported_waiting(&self, now: Nanos) -> Option<usize> {
        self.fresh_report(now).map(|report| report.waiting as usize)
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn requests(&self, now: Nanos) -> usize {
        let total = |report: ReportedLoad| report.waiting as usize + report.running as usize;
        let reported = self.fresh_report(now).map_or(0, total);
        self.in_flight.requests.max(reported)
    }

    /// Estimates the work per step of the sequences that decode there, with their prompts as
    /// context. Requests known only from a report count as much as the others on average.
    #[must_use]
    pub fn decoding(&self, engine: &EngineModel, now: Nanos) -> Work {
        let own = self.in_flight.requests - self.in_flight.queued;
        let own_tokens = self.in_flight.decode_tokens;
        let (sequences, kv_tokens) = match self.fresh_report(now) {
            Some(report) if report.running as usize > own => {
                let running = report.running as usize;
                let tokens = match own {
                    // None of the running requests is ours: the memory in use is the best measure
                    // of their context.
                    0 => (self.kv_usage(now).unwrap_or(0.0) * engine.kv_tokens as f64) as usize,
                    own => own_tokens * running / own,
                };
                (running, tokens)
            }
            _ => (own, own_tokens),
        };
        engine.cost.decode(sequences, kv_tokens)
    }

    /// Share of the KV memory in use; none without a fresh report that makes sense.
    #[must_use]
    pub fn kv_usage(&self, now: Nanos) -> Option<f64> {
        let usage = self.fresh_report(now)?.kv_usage;
        usage.is_finite().then(|| usage.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: u64) -> Nanos {
        Nanos(0) + Duration::from_secs(seconds)
    }

    fn report(waiting: u32, at: Nanos) -> ReportedLoad {
        ReportedLoad { waiting, running: 3, kv_usage: 0.5, at }
    }

    /// Expects (queue depth, requests, KV usage).
    fn check(load: &Load, now: Nanos, expected: (usize, usize, Option<f64>)) {
        let found = (load.queue_depth(now), load.requests(now), load.kv_usage(now));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_request_passes_through_its_phases() {
        let mut in_flight = InFlight::default();
        in_flight.enter(Phase::Prefill { tokens: 30 });
        in_flight.enter(Phase::Decode { tokens: 7 });
        let both = InFlight { requests: 2, queued: 1, prefill_tokens: 30, decode_tokens: 7 };
        assert_eq!(in_flight, both);
        in_flight.leave(Phase::Prefill { tokens: 30 });
        in_flight.leave(Phase::Decode { tokens: 7 });
        assert_eq!(in_flight, InFlight::default());
    }

    #[test]
    fn the_larger_figure_counts_while_the_report_is_fresh() {
        let mut load = Load::default();
        check(&load, second(0), (0, 0, None));
        load.report(report(2, second(1)));
        check(&load, second(6), (2, 5, Some(0.5)));
        check(&load, second(7), (0, 0, None));
        (0..9).for_each(|_| load.in_flight.enter(Phase::Prefill { tokens: 1 }));
        check(&load, second(6), (9, 9, Some(0.5)));
    }

    #[test]
    fn late_and_senseless_reports_do_no_harm() {
        let mut load = Load::default();
        load.report(report(2, second(3)));
        load.report(report(7, second(2)));
        check(&load, second(3), (2, 5, Some(0.5)));
        load.report(ReportedLoad { kv_usage: f64::NAN, ..report(1, second(4)) });
        check(&load, second(4), (1, 4, None));
    }
}
