//! Report of a training, as table, JSON or HTML page.
//!
//! The figures are the test part's unless they say otherwise. What they mean is said in
//! sentences ([`words()`]), which claim nothing that the intervals do not show.

mod page;
mod table;
#[cfg(test)]
mod testing;
mod words;

use headstart_predict::training::{OfSeed, TrainReport};
use serde::Serialize;

pub use page::page;
pub use table::table;
pub use words::words;

/// A report as JSON: all of it, and what it means in words.
#[derive(Serialize)]
struct ReportWithWords<'r> {
    #[serde(flatten)]
    report: &'r TrainReport,
    words: Vec<String>,
}

/// One line of JSON.
pub fn json(report: &TrainReport) -> String {
    let words = words(report);
    serde_json::to_string(&ReportWithWords { report, words }).expect("a report is JSON")
}

/// Mean and standard deviation of a figure over the seeds.
fn spread(seeds: &[OfSeed], figure: impl Fn(&OfSeed) -> f64) -> (f64, f64) {
    let count = seeds.len() as f64;
    let mean = seeds.iter().map(&figure).sum::<f64>() / count;
    let squares = seeds.iter().map(|seed| (figure(seed) - mean).powi(2));
    (mean, (squares.sum::<f64>() / (count - 1.0)).sqrt())
}
