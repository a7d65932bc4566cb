//! Results of the libraries, as tables, sentences, JSON, CSV and HTML pages.
//!
//! | module | renders |
//! |---|---|
//! | [`analyze`] | where the prompt tokens of a log went, and what would avoid it |
//! | [`calibrate`] | a cost model and how well it fits measured times |
//! | [`replay`] | hit rates by eviction policy and capacity |
//! | [`fleet`] | routing strategies, simulated or measured |
//! | [`plan`] | what each size of a lower tier saves |
//! | [`train`] | a trained predictor and its scores |
//!
//! A renderer takes a finished result. It computes shares and sentences, and no result; it knows no
//! command, no option and no file.

pub mod analyze;
pub mod calibrate;
pub mod fleet;
pub mod plan;
pub mod replay;
pub mod train;

use headstart_trace::TraceInfo;

/// Facts about a trace, for the reader of a report.
#[derive(Debug)]
pub struct TraceFacts {
    /// Its file's name, without the folder.
    pub name: String,
    /// Metadata of the trace.
    pub info: TraceInfo,
    /// Inferred fields and errors, one sentence each.
    pub remarks: Vec<String>,
    /// Requests replayed.
    pub requests: usize,
    /// First requests, which count as cold.
    pub cold_requests: u32,
    /// From the first arrival to the last; 0 where the trace has no times.
    pub seconds: f64,
    /// Different blocks.
    pub distinct_blocks: u64,
}
