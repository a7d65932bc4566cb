//! Metrics of predictions; registered only with a predictor.

use prometheus::{Counter, GaugeVec, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{MetricFactory, Metrics, raise, raise_one};
use crate::prediction::PredictorStatus;

/// Seconds; from the built-in encoder's tenth of a millisecond to a queue of half a minute.
const LATENCY: [f64; 12] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 30.0];

/// Seconds of silence, up to the usual horizon.
const GAPS: [f64; 10] = [1.0, 3.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 900.0];

/// Probabilities.
const TENTHS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// Outcomes, latency and accuracy of predictions.
#[derive(Clone, Debug)]
pub struct PredictionMetrics {
    /// Chat requests by how their prediction ended.
    pub predictions: IntCounterVec,
    /// From the question to the model's answer.
    pub latency: Histogram,
    /// Probabilities that the model predicted.
    pub probability: Histogram,
    queue: IntGauge,
    /// Turns and their outcomes.
    pub turns: TurnMetrics,
    /// State of the predictor.
    pub predictor: PredictorMetrics,
}

/// Turns, their outcomes, and the gaps between them.
#[derive(Clone, Debug)]
pub struct TurnMetrics {
    /// Turns by their outcome.
    pub outcomes: IntCounterVec,
    /// Outcomes that the predictor was not told.
    pub outcomes_lost: IntCounter,
    /// Between the end of an answer and the conversation's next request.
    pub gap: Histogram,
    tracked: IntGauge,
    forgotten: IntCounter,
}

/// State, load and calibration of the predictor.
#[derive(Clone, Debug)]
pub struct PredictorMetrics {
    /// Work of the predictor's thread, seconds.
    pub busy: Counter,
    /// Calls that panicked.
    pub panics: IntCounter,
    fallback: IntGauge,
    /// Without labels; a vector, because there is no series where nothing is known.
    calibration_error: GaugeVec,
    /// Likewise.
    excess_log_loss: GaugeVec,
    model: IntGaugeVec,
    model_files: IntCounterVec,
    log_records: IntCounter,
}

impl Metrics {
    /// Adds the metrics of predictions; once.
    #[must_use]
    pub fn with_predictions(&self) -> PredictionMetrics {
        PredictionMetrics::new(&self.make)
    }
}

impl PredictionMetrics {
    fn new(make: &MetricFactory) -> Self {
        Self {
            predictions: make.counter("headstart_predictions_total"),
            latency: make.plain_histogram("headstart_prediction_seconds", &LATENCY),
            probability: make.plain_histogram("headstart_prediction_probability", &TENTHS),
            queue: make.plain_gauge("headstart_prediction_queue"),
            turns: TurnMetrics::new(make),
            predictor: PredictorMetrics::new(make),
        }
    }

    /// Brings the counts that are kept elsewhere up to date: numbers that reached their request in
    /// time, and those that did not.
    pub fn raise_ends(&self, in_time: u64, late: u64) {
        raise_one(&self.predictions, &["model"], in_time);
        raise_one(&self.predictions, &["late"], late);
    }

    /// Sets the sizes: questions waiting, turns tracked, turns forgotten so far.
    pub fn set_sizes(&self, waiting: usize, tracked: usize, forgotten: u64) {
        self.queue.set(waiting as i64);
        self.turns.tracked.set(tracked as i64);
        raise(&self.turns.forgotten, forgotten);
    }
}

impl TurnMetrics {
    fn new(make: &MetricFactory) -> Self {
        Self {
            outcomes: make.counter("headstart_turns_total"),
            outcomes_lost: make.plain_counter("headstart_turn_outcomes_lost_total"),
            gap: make.plain_histogram("headstart_turn_gap_seconds", &GAPS),
            tracked: make.plain_gauge("headstart_turns_tracked"),
            forgotten: make.plain_counter("headstart_turns_forgotten_total"),
        }
    }
}

impl PredictorMetrics {
    fn new(make: &MetricFactory) -> Self {
        Self {
            busy: make.plain_float_counter("headstart_predictor_busy_seconds_total"),
            panics: make.plain_counter("headstart_predictor_panics_total"),
            fallback: make.plain_gauge("headstart_predictor_fallback"),
            calibration_error: make.ratio("headstart_predictor_calibration_error"),
            excess_log_loss: make.ratio("headstart_predictor_excess_log_loss"),
            model: make.gauge("headstart_predictor_model_info"),
            model_files: make.counter("headstart_predictor_model_files_total"),
            log_records: make.plain_counter("headstart_prediction_log_records_total"),
        }
    }

    /// Sets what the predictor says of itself.
    pub fn set_status(&self, status: &PredictorStatus) {
        self.fallback.set(i64::from(status.is_fallback));
        let known = status.calibration;
        set_or_remove(&self.calibration_error, known.map(|calibration| calibration.error));
        set_or_remove(&self.excess_log_loss, known.map(|calibration| calibration.excess_log_loss));
        // The model is a label: the series of the one before must go.
        self.model.reset();
        if let Some(fingerprint) = &status.model {
            self.model.with_label_values(&[fingerprint]).set(1);
        }
        raise_one(&self.model_files, &["loaded"], status.swaps);
        raise_one(&self.model_files, &["refused"], status.refused);
        raise(&self.log_records, status.log_records);
    }
}

/// A figure that is not known has no series: a 0 would say that all is well, and an old value that
/// it is still so.
fn set_or_remove(gauge: &GaugeVec, figure: Option<f64>) {
    match figure {
        Some(figure) => gauge.with_label_values::<&str>(&[]).set(figure),
        None => gauge.reset(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::RecentCalibration;

    #[test]
    fn what_is_not_known_of_a_model_has_no_series() {
        let metrics = Metrics::new();
        let predictor = metrics.with_predictions().predictor;
        let check = |calibration: Option<RecentCalibration>, expected: [Option<&str>; 2]| {
            predictor.set_status(&PredictorStatus { calibration, ..PredictorStatus::default() });
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
