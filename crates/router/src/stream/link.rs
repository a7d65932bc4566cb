//! The connection as the stream sees it: up or down, heard of or silent.
//!
//! Live messages reach a subscriber only from the moment when its subscription has arrived, which
//! nothing confirms. So a connection that has been silent for a moment is asked about once more
//! before anything is claimed about it. Later, silence is suspicious: an idle engine and a dead
//! connection look alike, and only the replay socket can tell them apart.

use std::time::Duration;

use headstart_core::Nanos;

/// Time after which the subscription of a new connection is in place.
pub const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Silence that makes a settled connection suspicious. A busy engine sends several batches per
/// second; asking an idle one costs it two small messages.
pub const SILENCE_TIME_MAX: Duration = Duration::from_secs(30);

/// The connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConnectionState {
    /// Not there.
    Down,
    /// There.
    Up {
        since: Nanos,
        /// When something came last: a live message, or the end of a replay.
        heard: Nanos,
        /// Silence allowed after that.
        patience: Duration,
        /// Whether the subscription is known to be in place.
        is_settled: bool,
    },
}

impl ConnectionState {
    pub(super) fn up(now: Nanos) -> Self {
        Self::Up { since: now, heard: now, patience: SETTLE_TIME, is_settled: false }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }

    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::Up { is_settled: true, .. })
    }

    /// A live message came.
    pub(super) fn on_live(&mut self, now: Nanos) {
        if let Self::Up { heard, patience, is_settled, .. } = self {
            (*heard, *patience, *is_settled) = (now, SILENCE_TIME_MAX, true);
        }
    }

    /// A replay that was asked for at `asked` is over.
    pub(super) fn on_replay(&mut self, now: Nanos, asked: Nanos, is_complete: bool) {
        if let Self::Up { since, heard, patience, is_settled } = self {
            *heard = now;
            // Asked earlier, the replay may lack what was sent before the subscription was in
            // place.
            if asked >= *since + SETTLE_TIME {
                *patience = SILENCE_TIME_MAX;
                *is_settled |= is_complete;
            }
        }
    }

    /// When silence has lasted too long.
    pub(super) fn silent_at(&self) -> Option<Nanos> {
        match self {
            Self::Down => None,
            Self::Up { heard, patience, .. } => Some(*heard + *patience),
        }
    }
}
