//! The kinds of streams, told apart in one place.

use headstart_core::{Nanos, TraceRequest};

use super::agents::{AgentSource, Agents};
use super::bursts::{BurstSource, Bursts};
use super::conversations::{ConversationSource, Conversations};
use super::draw::Gap;
use super::prompt::Ids;
use super::setting::StreamSetting;

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

    pub(super) fn source(&self, setting: &mut StreamSetting) -> Box<dyn StreamSource> {
        match self {
            Self::Conversations(config) => Box::new(ConversationSource::new(config, setting)),
            Self::Agents(config) => Box::new(AgentSource::new(config, setting)),
            Self::Bursts(config) => Box::new(BurstSource::new(config, setting)),
        }
    }
}

/// A running stream.
pub(super) trait StreamSource: std::fmt::Debug + Send {
    /// When its next request arrives.
    fn next_at(&self) -> Nanos;

    /// Its next request.
    fn step(&mut self, ids: &mut Ids) -> TraceRequest;
}
