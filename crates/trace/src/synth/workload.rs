//! Several streams at once, merged by arrival.

use std::time::Duration;

use headstart_core::{Nanos, Rng, TraceRequest};

use super::draw::Gap;
use super::prompt::Ids;
use super::setting::StreamSetting;
use super::stream::{Stream, StreamSource};
use crate::{Provenance, TraceInfo};

/// Arrivals are whole milliseconds, as in the published traces.
const TICK_NANOS: u64 = 1_000_000;

/// Longest run: a century, which [`Nanos`] can still count.
const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Parameters of a synthetic trace. Equal workloads give equal requests, on any machine.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthWorkload {
    /// All randomness comes from it.
    pub seed: u64,
    /// Tokens per block.
    pub block_tokens: u32,
    /// The trace ends before this, if given.
    pub duration: Option<Duration>,
    /// The trace ends after as many requests, if given.
    pub requests: Option<u64>,
    /// Each draws on its own: another stream beside it changes nothing but the numbers of its
    /// blocks and sessions.
    pub streams: Vec<Stream>,
}

/// A workload that cannot be; says what must change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this workload cannot be generated: {0}")]
pub struct InvalidWorkload(String);

impl SynthWorkload {
    /// Requests a second, of all streams.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        self.streams.iter().map(Stream::requests_per_s).sum()
    }

    /// Scales all streams alike, so that together they send `requests_per_s`. As sessions must
    /// first open, a run begins with less.
    pub fn set_rate(&mut self, requests_per_s: f64) {
        let factor = requests_per_s / self.requests_per_s();
        self.streams.iter_mut().for_each(|stream| stream.scale_rate(factor));
    }

    /// Replaces the time that people take between turns, in all streams; classes keep their
    /// scale, tools and bursts their times.
    pub fn set_gap(&mut self, gap: &Gap) {
        self.streams.iter_mut().for_each(|stream| stream.set_gap(gap));
    }

    /// Returns the intended length of the run: its duration, or the average time that its requests
    /// take. Changes during a run are placed relative to it.
    #[must_use]
    pub fn nominal_duration(&self) -> Duration {
        let seconds = self.requests.unwrap_or(0) as f64 / self.requests_per_s();
        // A rate of 0 makes the quotient infinite or NaN.
        let by_requests = Duration::try_from_secs_f64(seconds).unwrap_or(DURATION_MAX);
        self.duration.unwrap_or(by_requests).min(DURATION_MAX)
    }

    /// The requests, in order of arrival.
    ///
    /// # Errors
    /// When a parameter is impossible, or nothing ends the trace.
    pub fn generate(&self) -> Result<RequestGenerator, InvalidWorkload> {
        self.check().map_err(InvalidWorkload)?;
        let mut info = TraceInfo {
            sessions: Provenance::Given,
            turns: Provenance::Given,
            types_from: Provenance::Given,
            ..TraceInfo::new(self.block_tokens)
        };
        let mut rng = Rng::new(self.seed);
        let nominal = self.nominal_duration();
        let sources = self.streams.iter().map(|stream| {
            stream.source(&mut StreamSetting {
                // Streams draw their seeds in turn, so one added at the end leaves the others as
                // they are.
                seeds: std::array::from_fn(|_| rng.next_u64()),
                nominal,
                info: &mut info,
            })
        });
        Ok(RequestGenerator {
            sources: sources.collect(),
            ids: Ids::new(self.block_tokens),
            left: self.requests.unwrap_or(u64::MAX),
            end: Nanos(0) + self.duration.unwrap_or(DURATION_MAX).min(DURATION_MAX),
            info,
        })
    }

    fn check(&self) -> Result<(), String> {
        if self.streams.is_empty() {
            return Err("it has no stream".to_owned());
        }
        if self.duration.is_none() && self.requests.is_none() {
            return Err("nothing ends it; give a duration or a number of requests".to_owned());
        }
        if self.block_tokens == 0 {
            return Err("blocks need at least one token".to_owned());
        }
        self.streams.iter().try_for_each(Stream::check)
    }
}

/// The requests of a workload, one at a time. Holds the open sessions and the shared prompts,
/// nothing of what it has given out.
#[derive(Debug)]
pub struct RequestGenerator {
    info: TraceInfo,
    sources: Vec<Box<dyn StreamSource>>,
    ids: Ids,
    left: u64,
    end: Nanos,
}

impl RequestGenerator {
    /// Returns the facts about the trace; complete from the start.
    #[must_use]
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }
}

impl Iterator for RequestGenerator {
    type Item = TraceRequest;

    fn next(&mut self) -> Option<TraceRequest> {
        // `min_by_key` keeps the first of equal times, so ties go by the order of streams.
        let source = self.sources.iter_mut().min_by_key(|source| source.next_at())?;
        if self.left == 0 || source.next_at() >= self.end {
            return None;
        }
        self.left -= 1;
        let mut request = source.step(&mut self.ids);
        // Rounded only on the way out; the streams keep exact times.
        request.arrival = Nanos(request.arrival.0 / TICK_NANOS * TICK_NANOS);
        Some(request)
    }
}
