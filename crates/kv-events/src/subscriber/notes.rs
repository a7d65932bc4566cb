//! Log lines about a stream, rate-limited: each problem that needs a fix is logged once.
//!
//! ```text
//! connection, replay    each cause once until it recovers; one line when it does
//! losses                the first at once, then one line per QUIET_TIME with what came since
//! unknown type, rank    once
//! ```
//!
//! The current problem is kept as well ([`Notes::problem`]). [`Notes`] outlives the subscription,
//! so that an engine which comes and goes does not repeat its lines.
//!
//! It does not know sockets, streams or the clock: `now` is an argument, and lines are returned,
//! to be written by a caller that holds no lock.

use std::time::Duration;

use headstart_router::index::DOUBT_TTL;
use tokio::time::Instant;

use super::SubscriberConfig;
use super::cause::{Side, SocketProblem};

/// Shortest time between two lines about losses of one stream: a publisher of garbage sends
/// thousands of messages a second.
pub(super) const QUIET_TIME: Duration = Duration::from_secs(60);

/// Time that a connection must stand before its problem counts as mended: longer than any pause
/// between attempts, so that a connection which keeps breaking is logged once.
pub(super) const STOOD_TIME: Duration = Duration::from_secs(2);

/// Consecutive failed replays that make a problem: a single one may be a busy engine.
pub(super) const REPLAYS_FAILED: u32 = 2;

/// Time for which an event of an unknown type counts as a problem: as long as the index keeps what
/// it put in doubt.
const UNKNOWN_TIME: Duration = DOUBT_TTL;

/// Most distinct causes logged for one socket until it recovers. There are fewer kinds, but two of
/// them carry the system's words.
const CAUSES_MAX: usize = 8;

/// Log state of one stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    events: Socket,
    replay: Socket,
    /// Replays that failed since one came to its end.
    replays_failed: u32,
    /// Whether a connection was ever made.
    was_followed: bool,
    losses: Losses,
    /// Type of the first event that was not known, and when the last such event came.
    unknown_type: Option<(String, Instant)>,
    /// The first other rank that a batch named, and when the last such batch came.
    other_rank: Option<(u32, Instant)>,
}

/// One of the publisher's sockets.
#[derive(Clone, Debug, Default)]
struct Socket {
    /// The current problem.
    cause: Option<SocketProblem>,
    /// Causes logged since the socket last worked.
    told: Vec<SocketProblem>,
}

/// Losses and unreadable messages, and the last log line about them.
#[derive(Clone, Debug, Default)]
struct Losses {
    /// When something was told last.
    told: Option<Instant>,
    /// Whether that an error was among it was ever told.
    was_error_told: bool,
    since: LossTally,
    /// The last error, and when it was.
    last: Option<(String, Instant)>,
}

/// Losses since the last log line about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LossTally {
    /// Messages that could not be read.
    pub(super) unreadable: u64,
    /// Batches that never came, or could not be read.
    pub(super) batches: u64,
    /// Times that what is known was put in doubt.
    pub(super) doubts: u64,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StreamLogLine {
    /// The first connection.
    Following,
    /// Something is wrong with a socket.
    Trouble(Side, SocketProblem),
    /// Recovery of a socket whose problem was logged.
    Mended(Side),
    /// Events are lost or late, and what is known is in doubt; the last error, where one was the
    /// reason.
    Lost(LossTally, Option<String>),
    /// An event of a type that is not known.
    UnknownType(String),
    /// A batch of another rank.
    OtherRank(u32),
}

impl Notes {
    /// A connection was made.
    pub(super) fn on_connected(&mut self) -> Option<StreamLogLine> {
        let is_first = !std::mem::replace(&mut self.was_followed, true);
        // After a logged problem the line about its end says the same.
        (is_first && self.events.told.is_empty()).then_some(StreamLogLine::Following)
    }

    /// A connection could not be made, or broke.
    pub(super) fn on_trouble(&mut self, cause: SocketProblem) -> Option<StreamLogLine> {
        self.events.fail(Side::Events, cause)
    }

    /// The connection has stood for [`STOOD_TIME`].
    pub(super) fn on_stood(&mut self) -> Option<StreamLogLine> {
        // That a silent socket can be connected to was never in question.
        let is_silent = self.events.cause == Some(SocketProblem::Silent);
        (!is_silent).then(|| self.events.mend(Side::Events))?
    }

    /// A live message came.
    pub(super) fn on_live(&mut self) -> Option<StreamLogLine> {
        // Only a message proves that a silent socket works: it could always be connected to.
        let was_silent = self.events.cause == Some(SocketProblem::Silent);
        was_silent.then(|| self.events.mend(Side::Events))?
    }

    /// A replay came to its end.
    pub(super) fn on_replayed(&mut self) -> Option<StreamLogLine> {
        self.replays_failed = 0;
        self.replay.mend(Side::Replay)
    }

    /// A replay failed.
    pub(super) fn on_replay_failed(&mut self, cause: SocketProblem) -> Option<StreamLogLine> {
        self.replays_failed = self.replays_failed.saturating_add(1);
        let is_enough = self.replays_failed >= REPLAYS_FAILED;
        is_enough.then(|| self.replay.fail(Side::Replay, cause))?
    }

    /// A message could not be read; told by [`Self::flush`].
    pub(super) fn on_unreadable(&mut self, error: String, now: Instant) {
        self.losses.since.unreadable += 1;
        self.losses.last = Some((error, now));
    }

    /// Counts a doubt about the replica's blocks and the `batches` lost; logged by [`Self::flush`].
    pub(super) fn on_doubt(&mut self, batches: u64) {
        self.losses.since.doubts += 1;
        self.losses.since.batches += batches;
    }

    /// An event of this type came, which is not known.
    pub(super) fn on_unknown_type(&mut self, name: &str, now: Instant) -> Option<StreamLogLine> {
        let is_first = note_first(&mut self.unknown_type, || name.to_owned(), now);
        is_first.then(|| StreamLogLine::UnknownType(name.to_owned()))
    }

    /// A batch came that names this rank, which is not the stream's.
    pub(super) fn on_other_rank(&mut self, rank: u32, now: Instant) -> Option<StreamLogLine> {
        let is_first = note_first(&mut self.other_rank, || rank, now);
        is_first.then_some(StreamLogLine::OtherRank(rank))
    }

    /// Returns the log line about losses, if one is due.
    pub(super) fn flush(&mut self, now: Instant) -> Option<StreamLogLine> {
        self.losses.flush(now)
    }

    /// When [`Self::flush`] has something to tell.
    pub(super) fn due(&self) -> Option<Instant> {
        let is_any = self.losses.since != LossTally::default();
        // Without an earlier line the next flush tells at once, and needs no timer.
        self.losses.told.filter(|_| is_any).map(|told| told + QUIET_TIME)
    }

    /// Describes the stream's problems at `now`, each with a suggested fix.
    pub(super) fn problem(&self, config: &SubscriberConfig, now: Instant) -> Option<String> {
        let sockets = [(Side::Events, &self.events), (Side::Replay, &self.replay)];
        let sockets = sockets.into_iter().filter_map(|(side, socket)| {
            let cause = socket.cause.as_ref()?;
            let remedy = cause.remedy(side, config.rank);
            Some(format!("{}: {cause}; {remedy}", config.address(side)))
        });
        let recent = |last: &Option<(String, Instant)>, limit| {
            let last = last.as_ref().filter(|(_, at)| now < *at + limit);
            last.map(|(text, _)| text.clone())
        };
        let unreadable = recent(&self.losses.last, QUIET_TIME).map(|error| {
            let address = config.address(Side::Events);
            format!("{address}: messages cannot be read ({error}); {UNREADABLE}")
        });
        let unknown = recent(&self.unknown_type, UNKNOWN_TIME).map(|name| {
            format!("events of type `{name}` came, which is not known; {UNKNOWN_TYPE}")
        });
        let other_rank = self.other_rank.filter(|(_, at)| now < *at + UNKNOWN_TIME);
        let other_rank =
            other_rank.map(|(rank, _)| format!("batches name rank {rank}; {OTHER_RANK}"));
        let problems = sockets.chain(unreadable).chain(unknown).chain(other_rank);
        let problems: Vec<String> = problems.collect();
        (!problems.is_empty()).then(|| problems.join(" | "))
    }
}

/// Keeps what came first, and when the last such thing came. Returns whether this is the first.
fn note_first<T>(known: &mut Option<(T, Instant)>, new: impl FnOnce() -> T, now: Instant) -> bool {
    let is_first = known.is_none();
    known.get_or_insert_with(|| (new(), now)).1 = now;
    is_first
}

/// The suggested fix for unreadable messages.
const UNREADABLE: &str = "is it an engine that publishes KV events there?";

/// The suggested fix for events of an unknown type.
const UNKNOWN_TYPE: &str = "such events are left out, and each puts what the replica holds in \
                            doubt; is there a version of Headstart that knows this engine's?";

/// The suggested fix for batches of another rank.
const OTHER_RANK: &str = "they are taken for this replica's; are kv= and data-parallel-size= those \
                          of this engine?";

impl Socket {
    fn fail(&mut self, side: Side, cause: SocketProblem) -> Option<StreamLogLine> {
        self.cause = Some(cause.clone());
        // Texts of the system may differ from attempt to attempt, and must not fill the log.
        if self.told.contains(&cause) || self.told.len() >= CAUSES_MAX {
            return None;
        }
        self.told.push(cause.clone());
        Some(StreamLogLine::Trouble(side, cause))
    }

    fn mend(&mut self, side: Side) -> Option<StreamLogLine> {
        self.cause = None;
        let was_told = !std::mem::take(&mut self.told).is_empty();
        was_told.then_some(StreamLogLine::Mended(side))
    }
}

impl Losses {
    fn flush(&mut self, now: Instant) -> Option<StreamLogLine> {
        if self.since == LossTally::default() {
            return None;
        }
        // Lines so far named no error, so the first one does not wait for the quiet time to end.
        let is_new = self.since.unreadable > 0 && !self.was_error_told;
        let is_quiet = self.told.is_some_and(|told| now < told + QUIET_TIME);
        if is_quiet && !is_new {
            return None;
        }
        self.told = Some(now);
        let tally = std::mem::take(&mut self.since);
        let has_error = tally.unreadable > 0;
        self.was_error_told |= has_error;
        let error = self.last.as_ref().filter(|_| has_error);
        Some(StreamLogLine::Lost(tally, error.map(|(error, _)| error.clone())))
    }
}

impl StreamLogLine {
    /// Writes it.
    pub(super) fn write(&self, config: &SubscriberConfig) {
        let (replica, upstream) = (&config.replica[..], config.upstream.as_deref());
        let rank = config.rank;
        let endpoint = config.address(match self {
            Self::Trouble(side, _) | Self::Mended(side) => *side,
            _ => Side::Events,
        });
        let warn = |what: &str| tracing::warn!(replica, upstream, rank, endpoint, "{what}");
        match self {
            Self::Following => {
                tracing::info!(replica, upstream, rank, endpoint, "following KV events");
            }
            Self::Trouble(side, cause) => {
                let what = match side {
                    Side::Events => "KV events cannot be followed",
                    Side::Replay => "missed KV events cannot be asked for",
                };
                warn(&format!("{what}: {cause}; {}", cause.remedy(*side, rank)));
            }
            Self::Mended(Side::Events) => warn("KV events are followed again"),
            Self::Mended(Side::Replay) => warn("missed KV events can be asked for again"),
            Self::Lost(tally, error) => lost(config, *tally, error.as_deref()),
            Self::UnknownType(name) => {
                warn(&format!("KV events of an unknown type, `{name}`: {UNKNOWN_TYPE}"));
            }
            Self::OtherRank(named) => {
                warn(&format!("KV events of data-parallel rank {named}: {OTHER_RANK}"));
            }
        }
    }
}

fn lost(config: &SubscriberConfig, tally: LossTally, error: Option<&str>) {
    let (replica, upstream) = (&config.replica[..], config.upstream.as_deref());
    let (rank, endpoint) = (config.rank, &config.endpoint[..]);
    let LossTally { unreadable, batches, doubts } = tally;
    let quiet_s = QUIET_TIME.as_secs();
    let what = match (error, batches) {
        (Some(error), _) => format!(
            "messages cannot be read as KV events ({error}); {UNREADABLE} What is lost puts in \
             doubt what the replica holds; at most one line in {quiet_s} s tells of that"
        ),
        (None, batches) => {
            let what = if batches > 0 { "lost" } else { "may be missing" };
            format!(
                "KV events {what}: what the replica holds is in doubt; at most one line in \
                 {quiet_s} s tells of that"
            )
        }
    };
    // Without an error no message was unreadable.
    let unreadable = error.map(|_| unreadable);
    tracing::warn!(replica, upstream, rank, endpoint, unreadable, batches, doubts, "{what}");
}

#[cfg(test)]
mod tests;
