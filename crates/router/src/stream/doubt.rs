//! Lateness: unsure for a second, in doubt from then on, and sure again if nothing was lost.
//!
//! A missing batch, a lost connection and an unanswered question all mean the same: something may
//! have happened that is unknown here. For a moment that is normal in a network. After it, what is
//! known is in doubt, until the publisher continues right behind the last applied batch: then
//! nothing was lost, and nothing was wrong. While batches are known to be missing, none of them is
//! applied until all are here, if they fit: the first ones say nothing of what the last ones
//! remove.
//!
//! The effect of a doubt on an index is unknown here, except for how long an index surely keeps
//! what is in doubt.

use std::time::Duration;

use headstart_core::Nanos;

use crate::index::DOUBT_TTL;

/// Longest time for which what may be missing is merely late. Publishers answer within
/// milliseconds, vLLM's within 100.
pub const LATE_TIME_MAX: Duration = Duration::from_secs(1);

/// Longest time for which a doubt can be taken back: later the index may have forgotten some of
/// what is in doubt. The half minute between is for updates that wait before they reach it, and
/// for clocks that are not the same.
pub const TRUST_TIME_MAX: Duration = Duration::from_secs(DOUBT_TTL.as_secs() - 30);

/// The wait for a connection, or for the answer to whether anything is missing. It starts over when
/// something is applied or given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAnswer {
    pub(super) since: Nanos,
    /// The next expected batch.
    pub(super) next: u64,
}

/// A doubt that was told. Nothing was applied since: all that is known is in doubt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Doubt {
    /// Something is lost, or may be for all that anybody will ever know.
    Final,
    /// Something was late.
    Late {
        /// When it was told.
        told: Nanos,
        /// Whether the stream was exact until then.
        was_exact: bool,
    },
}

impl Doubt {
    /// Whether the stream was exact before it, if it can be taken back still.
    pub(super) fn was_exact(self, now: Nanos) -> Option<bool> {
        match self {
            Self::Late { told, was_exact } if now < told + TRUST_TIME_MAX => Some(was_exact),
            _ => None,
        }
    }
}
