//! Metrics of predictions; registered only with a predictor.

use prometheus::{Counter, Histogram, IntCounter, IntCounterVec};

use super::{MetricFactory, Metrics};
use crate::prediction::PredictorStatus;

/// Seconds; from the built-in encoder's tenth of a millisecond to a queue of half a minute.
const LATENCY: [f64; 12] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 30.0];

/// Seconds of silence, up to the usual horizon.
const GAPS: [f64; 10] = [1.0, 3.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 900.0];

/// Probabilities.
const TENTHS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// Outcomes and latency of predictions.
#[derive(Clone, Debug)]
pub struct PredictionMetrics {
    /// Chat requests by how their prediction ended.
    pub predictions: IntCounterVec,
    /// From the question to the model's answer.
    pub latency: Histogram,
    /// Probabilities that the model predicted.
    pub probability: Histogram,
    /// Turns by their outcome.
    pub outcomes: IntCounterVec,
    /// Outcomes that the predictor was not told.
    pub outcomes_lost: IntCounter,
    /// Between the end of an answer and the conversation's next request.
    pub gap: Histogram,
    /// Work of the predictor's thread, seconds.
    pub busy: Counter,
    /// Calls of the predictor that panicked.
    pub panics: IntCounter,
}

impl PredictionMetrics {
    fn new(make: &MetricFactory) -> Self {
        Self {
            predictions: make.counter("headstart_predictions_total"),
            latency: make.plain_histogram("headstart_prediction_seconds", &LATENCY),
            probability: make.plain_histogram("headstart_prediction_probability", &TENTHS),
            outcomes: make.counter("headstart_turns_total"),
            outcomes_lost: make.plain_counter("headstart_turn_outcomes_lost_total"),
            gap: make.plain_histogram("headstart_turn_gap_seconds", &GAPS),
            busy: make.plain_float_counter("headstart_predictor_busy_seconds_total"),
            panics: make.plain_counter("headstart_predictor_panics_total"),
        }
    }

    /// Brings the counts that are kept elsewhere up to date: numbers that reached their request in
    /// time, and those that did not.
    pub fn raise_ends(&self, in_time: u64, late: u64) {
        for (outcome, count) in [("model", in_time), ("late", late)] {
            let counter = self.predictions.with_label_values(&[outcome]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }
}

impl Metrics {
    /// Adds the metrics of predictions; once.
    #[must_use]
    pub fn with_predictions(&self) -> PredictionMetrics {
        PredictionMetrics::new(&self.make)
    }

    /// Sets the sizes: questions waiting, turns tracked, turns forgotten so far.
    pub fn set_prediction_sizes(&self, waiting: usize, tracked: usize, forgotten: u64) {
        self.set("headstart_prediction_queue", &[], waiting as f64);
        self.set("headstart_turns_tracked", &[], tracked as f64);
        self.set("headstart_turns_forgotten_total", &[], forgotten as f64);
    }

    /// Sets what the predictor says of itself.
    pub fn set_predictor(&self, status: &PredictorStatus) {
        self.set("headstart_predictor_fallback", &[], f64::from(u8::from(status.is_fallback)));
        let known = status.calibration;
        for (name, figure) in [
            ("headstart_predictor_calibration_error", known.map(|known| known.error)),
            ("headstart_predictor_excess_log_loss", known.map(|known| known.excess_log_loss)),
        ] {
            match figure {
                Some(figure) => self.set(name, &[], figure),
                // A 0 would say that all is well, and an old value that it is still so.
                None => self.make.forget(name),
            }
        }
        // The model is a label: the series of the one before must go.
        self.make.forget("headstart_predictor_model_info");
        if let Some(fingerprint) = &status.model {
            self.set("headstart_predictor_model_info", &[fingerprint], 1.0);
        }
        for (outcome, files) in [("loaded", status.swaps), ("refused", status.refused)] {
            self.set("headstart_predictor_model_files_total", &[outcome], files as f64);
        }
        self.set("headstart_prediction_log_records_total", &[], status.log_records as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::RecentCalibration;

    #[test]
    fn what_is_not_known_of_a_model_has_no_series() {
        let metrics = Metrics::new();
        let check = |calibration: Option<RecentCalibration>, expected: [Option<&str>; 2]| {
            metrics.set_predictor(&PredictorStatus { calibration, ..PredictorStatus::default() });
            let text = metrics.render();
            let value = |name: &str| {
                let mut lines = text.lines();
                lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            };
            let names = ["calibration_error", "excess_log_loss"];
            let told = names.map(|name| value(&format!("headstart_predictor_{name}")));
            assert_eq!(told, expected, "{calibration:?}");
        };
        let known = RecentCalibration { error: 0.25, excess_log_loss: -0.5 };
        check(None, [None; 2]);
        check(Some(known), [Some("0.25"), Some("-0.5")]);
        // A hot swap: nothing is known of the new model.
        check(None, [None; 2]);
    }
}
