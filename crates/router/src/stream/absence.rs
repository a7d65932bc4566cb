//! An absence that was told as a doubt, until it is known whether anything was lost by it.
//!
//! A publisher that has the last applied batch still, and everything since, lost nothing while
//! nobody listened. It does not know what the doubt did to anybody's picture: only for how long
//! that surely keeps what is in doubt.

use std::time::Duration;

use headstart_core::Nanos;

use crate::index::DOUBT_TTL;

/// Longest time for which a doubt can be taken back: later the index may have forgotten some of
/// what is in doubt. The half minute between is for updates that wait before they reach it, and
/// for clocks that are not the same.
pub const TRUST_TIME_MAX: Duration = Duration::from_secs(DOUBT_TTL.as_secs() - 30);

/// The only doubt since the stream was exact; nothing was applied since it was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Absence {
    /// When it was told.
    pub(super) doubted: Nanos,
    /// Whether the stream was exact until then.
    pub(super) was_exact: bool,
}

impl Absence {
    /// Whether it is too late to take the doubt back.
    pub(super) fn is_over(&self, now: Nanos) -> bool {
        now >= self.doubted + TRUST_TIME_MAX
    }
}
