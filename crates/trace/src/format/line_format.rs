//! Interface of a format while one trace is read, and what its implementations share.

use headstart_core::{Nanos, TraceRequest};

use crate::schedule::RecordedSession;
use crate::{Provenance, TraceInfo};

/// The contents of a line.
pub(crate) enum ParsedLine<'a> {
    /// A header, or something else that makes no request.
    Nothing,
    /// A session that repeats another one and was left out.
    Duplicate,
    /// One request; its arrival is from the start of the trace.
    Request(TraceRequest),
    /// Several requests; their arrivals are from the start of the session.
    Session(RecordedSession<'a>),
}

/// A format while one trace is read.
pub(crate) trait LineFormat<'a> {
    /// Parses `line`, and adds the type names in it to `info`.
    ///
    /// # Errors
    /// The error in the line, and the expected input.
    fn read(&mut self, line: &str, info: &mut TraceInfo) -> Result<ParsedLine<'a>, String>;
}

/// A format ready to read, and what is known of the trace before its first request.
pub(crate) type OpenTrace<'a> = (Box<dyn LineFormat<'a> + 'a>, TraceInfo);

/// The facts of a trace whose sessions, turns and types have the provenance given.
pub(crate) fn info(block_tokens: u32, [sessions, turns, types]: [Provenance; 3]) -> TraceInfo {
    TraceInfo { sessions, turns, types_from: types, ..TraceInfo::new(block_tokens) }
}

/// The time `value`, in units of `unit_ns` nanoseconds, of a `field`.
pub(crate) fn nanos(field: &str, value: f64, unit_ns: f64) -> Result<Nanos, String> {
    let nanos = (value * unit_ns).round();
    // A NaN lies in no range. The bound is the largest round number below 2^64.
    if (0.0..1.8e19).contains(&nanos) {
        return Ok(Nanos(nanos as u64));
    }
    Err(format!("`{field}` is {value}; expected a time from 0 that fits 64 bits in nanoseconds"))
}
