//! The kinds of streams, told apart in one place.

use std::time::Duration;

use headstart_core::{Nanos, TraceRequest};

use super::agents::{self, Agents};
use super::bursts::{self, Bursts};
use super::conversations::{self, Conversations};
use super::draw::Gap;
use super::prompt::Ids;
use crate::TraceInfo;

/// One stream of requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Stream {
    /// Conversations of one or more turns, with or without shared openings.
    Conversations(Conversations),
    /// Agents with tool steps and forks.
    Agents(Agents),
    /// API bursts.
    Bursts(Bursts),
}

/// Parameters of the run for a source.
pub(super) struct StreamSetting<'a> {
    /// One for behaviour, one for its changes, one for labels.
    pub(super) seeds: [u64; 3],
    /// Intended length of the run.
    pub(super) nominal: Duration,
    /// Learns the names of the types.
    pub(super) info: &'a mut TraceInfo,
}

impl StreamSetting<'_> {
    /// The point of the run at `fraction`.
    pub(super) fn at(&self, fraction: f64) -> Nanos {
        Nanos::from_secs_f64(self.nominal.as_secs_f64() * fraction)
    }
}

impl Stream {
    /// Requests a second in the long run, were there no context limit.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        match self {
            Self::Conversations(config) => config.starts_per_s * config.requests_per_start(),
            Self::Agents(config) => config.starts_per_s * config.requests_per_start(),
            Self::Bursts(config) => config.starts_per_s * config.size,
        }
    }

    /// Starts sessions `factor` times as often; the sessions stay as they are.
    pub fn scale_rate(&mut self, factor: f64) {
        let starts_per_s = match self {
            Self::Conversations(config) => &mut config.starts_per_s,
            Self::Agents(config) => &mut config.starts_per_s,
            Self::Bursts(config) => &mut config.starts_per_s,
        };
        *starts_per_s *= factor;
    }

    /// Replaces the time that people take between turns; tools and bursts keep theirs.
    pub fn set_gap(&mut self, gap: &Gap) {
        match self {
            Self::Conversations(config) => config.gap = gap.clone(),
            Self::Agents(config) => config.user_gap = gap.clone(),
            Self::Bursts(_) => {}
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::Conversations(config) => config.check(),
            Self::Agents(config) => config.check(),
            Self::Bursts(config) => config.check(),
        }
    }

    pub(super) fn source(&self, setting: &mut StreamSetting) -> StreamSource {
        match self {
            Self::Conversations(config) => StreamSource::Conversations(Box::new(
                conversations::ConversationSource::new(config, setting),
            )),
            Self::Agents(config) => {
                StreamSource::Agents(Box::new(agents::Source::new(config, setting)))
            }
            Self::Bursts(config) => {
                StreamSource::Bursts(Box::new(bursts::BurstSource::new(config, setting)))
            }
        }
    }
}

/// A running stream.
#[derive(Clone, Debug)]
pub(super) enum StreamSource {
    Conversations(Box<conversations::ConversationSource>),
    Agents(Box<agents::Source>),
    Bursts(Box<bursts::BurstSource>),
}

impl StreamSource {
    /// When its next request arrives.
    pub(super) fn next_at(&self) -> Nanos {
        match self {
            Self::Conversations(source) => source.next_at(),
            Self::Agents(source) => source.next_at(),
            Self::Bursts(source) => source.next_at(),
        }
    }

    /// Its next request.
    pub(super) fn step(&mut self, ids: &mut Ids) -> TraceRequest {
        match self {
            Self::Conversations(source) => source.step(ids),
            Self::Agents(source) => source.step(ids),
            Self::Bursts(source) => source.step(ids),
        }
    }
}

pub(super) fn check_rate(starts_per_s: f64) -> Result<(), String> {
    let ok = (1e-9..=1e9).contains(&starts_per_s);
    ok.then_some(()).ok_or(format!("{starts_per_s} starts a second; 1e-9 to 1e9 are possible"))
}

pub(super) fn check_context(tokens: u32) -> Result<(), String> {
    let ok = (64..=1 << 24).contains(&tokens);
    ok.then_some(()).ok_or(format!("a context of {tokens} tokens; 64 to 16,777,216 are possible"))
}

/// Below 1, or a session would have no end.
pub(super) fn check_probability(name: &str, p: f64) -> Result<(), String> {
    let ok = (0.0..=0.999).contains(&p);
    ok.then_some(()).ok_or(format!("{name} is {p}; probabilities from 0 to 0.999 are possible"))
}
