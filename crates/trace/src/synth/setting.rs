//! The run, as far as a stream of it has to know.

use std::time::Duration;

use headstart_core::Nanos;

use crate::TraceInfo;

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
