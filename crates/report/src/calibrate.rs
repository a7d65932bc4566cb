//! Report of a calibration: the cost model as a file, and how well it fits the measured times.

use std::fmt::Write as _;

use headstart_core::EngineModel;
use headstart_sim::calibrate::{EngineFit, TimedWork, WorkTiming};
use headstart_terminal::aligned;
use serde_json::{Value, json};

/// Contents of a cost model file.
#[derive(Debug)]
pub struct CostModelFile {
    /// Origin of the model, in sentences.
    pub told: Vec<String>,
    /// Costs and limits of the engine.
    pub engine: EngineModel,
    /// Most sequences that run at once.
    pub max_sequences: usize,
    /// Latency of a request outside the engine, seconds.
    pub latency_s: f64,
}

impl CostModelFile {
    /// The file that `serve --cost-model` reads.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for line in &self.told {
            let _ = writeln!(text, "# {line}");
        }
        for (name, value) in self.seconds() {
            // Five digits: timings are less precise than that.
            let _ = writeln!(text, "{name} = {value:.4e}");
        }
        for (name, value) in self.counts() {
            let _ = writeln!(text, "{name} = {value}");
        }
        text
    }

    fn seconds(&self) -> [(&'static str, f64); 8] {
        let cost = &self.engine.cost;
        [
            ("overhead_s", cost.overhead_s),
            ("weights_s", cost.weights_s),
            ("token_s", cost.token_s),
            ("pair_s", cost.pair_s),
            ("kv_token_s", cost.kv_token_s),
            ("sequence_s", cost.sequence_s),
            ("load_token_s", self.engine.load_token_s),
            ("latency_s", self.latency_s),
        ]
    }

    fn counts(&self) -> [(&'static str, usize); 3] {
        [
            ("max_batched_tokens", self.engine.max_batched_tokens),
            ("max_sequences", self.max_sequences),
            ("kv_tokens", self.engine.kv_tokens),
        ]
    }
}

/// A fit, its timings and its errors.
#[derive(Debug)]
pub struct CalibrationReport {
    fit: EngineFit,
    timings: Vec<WorkTiming>,
    /// Mean and largest relative error of what was fitted.
    errors: (f64, f64),
    /// Mean and largest relative error where each half of the shapes predicts the other.
    held_out: (f64, f64),
}

impl CalibrationReport {
    /// A fit of these timings.
    #[must_use]
    pub fn new(fit: EngineFit, timings: &[WorkTiming]) -> Self {
        Self {
            fit,
            timings: timings.to_vec(),
            errors: fit.errors(timings),
            held_out: held_out(timings, fit.max_batched_tokens),
        }
    }

    /// For the head of the file.
    #[must_use]
    pub fn in_short(&self) -> Vec<String> {
        let percent = |(mean, worst): (f64, f64)| {
            format!("{:.1} % on average, {:.1} % at worst", mean * 100.0, worst * 100.0)
        };
        vec![
            format!("measured: {} shapes", self.timings.len()),
            format!("error of the fit: {}", percent(self.errors)),
            format!("error of shapes held out: {}", percent(self.held_out)),
        ]
    }

    /// Returns a table of measured and predicted times of all shapes.
    #[must_use]
    pub fn table(&self) -> String {
        let head = ["shape", "measured, ms", "predicted, ms", "ratio"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.timings.iter().map(|timing| {
            let predicted = self.fit.seconds(timing.shape);
            vec![
                told(timing.shape),
                format!("{:.2}", timing.seconds * 1e3),
                format!("{:.2}", predicted * 1e3),
                format!("{:.2}", predicted / timing.seconds),
            ]
        }));
        aligned(&rows)
    }
}

fn told(shape: TimedWork) -> String {
    match shape {
        TimedWork::Prefill { before: 0, new } => format!("prompt of {new}"),
        TimedWork::Prefill { before, new } => format!("prompt of {new} behind {before} cached"),
        TimedWork::Decode { sequences, context } => format!("token of {sequences} × {context}"),
    }
}

/// Returns the mean and the largest error where each half of the shapes predicts the other.
fn held_out(timings: &[WorkTiming], max_batched_tokens: usize) -> (f64, f64) {
    let half = |odd: usize| -> Vec<WorkTiming> {
        let all = timings.iter().enumerate();
        // Every other shape, so that both halves span all sizes.
        all.filter(|(at, _)| at % 2 == odd).map(|(_, timing)| *timing).collect()
    };
    let halves = [half(0), half(1)];
    // A single shape cannot predict another one.
    if halves.iter().any(Vec::is_empty) {
        return (0.0, 0.0);
    }
    let errors =
        |by: usize, of: usize| EngineFit::of(&halves[by], max_batched_tokens).errors(&halves[of]);
    let (one, other) = (errors(0, 1), errors(1, 0));
    // The worst of both directions, because an average would hide a bad one.
    ((one.0 + other.0) / 2.0, one.1.max(other.1))
}

/// The cost model, and how well it explains what was timed where anything was.
#[must_use]
pub fn json(written: &CostModelFile, report: Option<&CalibrationReport>) -> Value {
    let errors = |(mean, worst): (f64, f64)| json!({"mean": mean, "worst": worst});
    let mut all = json!({});
    written.seconds().iter().for_each(|(name, seconds)| all[name] = json!(seconds));
    written.counts().iter().for_each(|(name, count)| all[name] = json!(count));
    all["measured_shapes"] = json!(report.map_or(0, |report| report.timings.len()));
    all["error"] = json!(report.map(|report| errors(report.errors)));
    all["held_out_error"] = json!(report.map(|report| errors(report.held_out)));
    all
}
