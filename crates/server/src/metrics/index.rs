//! Metrics of the router's index: how good it is, how fast, how large, how fresh.

use headstart_prompt::prefix_tokens::PrefixTokensStats;
use headstart_router::IndexStats;
use prometheus::{Histogram, HistogramVec, IntCounterVec};

use super::{MetricFactory, Metrics};

/// Seconds; from a look-up in the processor's cache to one behind a stalled machine.
const MOMENTS: [f64; 13] =
    [1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2e-2, 0.1];

/// Tokens by which a prediction misses: none, up to a usual block, up to a long prompt.
const ERRORS: [f64; 9] = [0.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0];

/// Seconds by which an engine's clock may be ahead of ours without anybody minding: clocks that are
/// kept in step differ by far less.
const AHEAD_MAX_S: f64 = 2.0;

/// Longest lag that is believed, seconds: what is published live is applied at once, or never.
const LAG_MAX_S: f64 = 600.0;

/// Accuracy and latency of the router's index, and the events that fill it.
pub struct IndexMetrics {
    /// Cached tokens that the index predicted, of requests whose engine said what it found.
    pub predicted: IntCounterVec,
    /// Cached tokens that the engine found, of the same requests.
    pub realised: IntCounterVec,
    /// By how many tokens, per request, and in which direction.
    pub error: HistogramVec,
    /// Time of one look-up.
    pub lookup: Histogram,
    /// Time of hashing one prompt.
    pub hash: Histogram,
    /// Time from a prompt's text to its tokens.
    pub tokenize: Histogram,
    /// KV events applied, batches lost, events skipped, clears.
    pub kv_events: IntCounterVec,
    /// From the engine's time stamp of a batch of events to its application.
    pub event_lag: HistogramVec,
    /// Batches of events whose time stamp cannot be right.
    implausible_stamps: IntCounterVec,
    /// Events that were left out, by reason.
    skipped_events: IntCounterVec,
    /// Comparisons of this gateway's prompts with the engine's.
    pub drift_checks: IntCounterVec,
}

impl IndexMetrics {
    pub(super) fn new(make: &MetricFactory) -> Self {
        Self {
            predicted: make.counter("headstart_predicted_cached_tokens_total"),
            realised: make.counter("headstart_realised_cached_tokens_total"),
            error: make.histogram("headstart_cached_tokens_error", &ERRORS),
            lookup: make.plain_histogram("headstart_index_lookup_seconds", &MOMENTS),
            hash: make.plain_histogram("headstart_prompt_hash_seconds", &MOMENTS),
            tokenize: make.plain_histogram("headstart_prompt_tokenize_seconds", &MOMENTS),
            kv_events: make.counter("headstart_kv_events_total"),
            event_lag: make.histogram("headstart_kv_event_lag_seconds", &super::SECONDS),
            implausible_stamps: make.counter("headstart_kv_event_implausible_stamps_total"),
            skipped_events: make.counter("headstart_kv_events_skipped_total"),
            drift_checks: make.counter("headstart_prompt_drift_checks_total"),
        }
    }

    /// Notes what the index predicted for a request and what its engine found.
    pub fn note_cached(&self, replica: &str, predicted: usize, realised: usize) {
        let add = |counter: &IntCounterVec, tokens: usize| {
            counter.with_label_values(&[replica]).inc_by(tokens as u64);
        };
        add(&self.predicted, predicted);
        add(&self.realised, realised);
        let direction = if predicted < realised { "under" } else { "over" };
        self.error
            .with_label_values(&[replica, direction])
            .observe(predicted.abs_diff(realised) as f64);
    }

    /// Notes the time from a live batch's stamp until it was applied, seconds.
    pub fn note_lag(&self, replica: &str, lag_s: f64) {
        let direction = match lag_s {
            ..=LAG_MAX_S if lag_s >= -AHEAD_MAX_S => {
                let lags = self.event_lag.with_label_values(&[replica]);
                // Clocks differ by a little: a stamp that is slightly ahead is no lag.
                return lags.observe(lag_s.max(0.0));
            }
            ..0.0 => "ahead",
            _ => "behind",
        };
        let labels = [replica, direction];
        self.implausible_stamps.with_label_values(&labels).inc();
    }

    /// Counts skipped events of a replica by reason; there are few reasons.
    pub fn note_skipped(&self, replica: &str, reason: &str, events: u64) {
        let labels = [replica, reason];
        self.skipped_events.with_label_values(&labels).inc_by(events);
    }
}

impl Metrics {
    /// Brings what the cache of tokenized prefixes counts up to date, where there is one.
    pub fn set_prompt_tokens(&self, stats: Option<&PrefixTokensStats>) {
        let held_bytes = stats.map_or(0, |stats| stats.held_bytes);
        self.set("headstart_prefix_tokens_bytes", &[], held_bytes as f64);
        if let Some(stats) = stats {
            for (outcome, bytes) in [("known", stats.hit_bytes), ("new", stats.miss_bytes)] {
                self.set("headstart_prompt_bytes_total", &[outcome], bytes as f64);
            }
        }
    }

    /// Brings the sizes of the index, and what it gave up, up to date.
    pub fn set_index(&self, strategy: &str, stats: &IndexStats) {
        self.set("headstart_index_entries", &[strategy], stats.entries as f64);
        self.set("headstart_index_bytes", &[], stats.bytes as f64);
        self.set("headstart_index_doubtful_entries", &[], stats.doubtful as f64);
        self.set("headstart_index_held_blocks", &[], stats.held as f64);
        self.set("headstart_index_orphans_total", &[], stats.orphans as f64);
        self.set("headstart_index_unknown_removals_total", &[], stats.unknown_removals as f64);
        self.set("headstart_index_malformed_events_total", &[], stats.malformed_events as f64);
        self.set("headstart_index_evicted_blocks_total", &[], stats.evicted as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;

    /// Notes these lags; the histogram's sum and count, and the batches ahead and behind.
    fn check(lags: &[f64], expected: (f64, u64, u64, u64)) {
        let metrics = Metrics::new();
        lags.iter().for_each(|&lag| metrics.index.note_lag("0", lag));
        let lag = metrics.index.event_lag.with_label_values(&["0"]);
        let stamps = &metrics.index.implausible_stamps;
        let [ahead, behind] = ["ahead", "behind"];
        let count = |direction| stamps.with_label_values(&["0", direction]).get();
        let seen = (lag.get_sample_sum(), lag.get_sample_count(), count(ahead), count(behind));
        assert_eq!(seen, expected, "{lags:?}");
    }

    #[test]
    fn a_stamp_that_cannot_be_right_is_no_lag() {
        check(&[0.25, 0.5], (0.75, 2, 0, 0));
        check(&[-0.5, -2.0, 600.0], (600.0, 3, 0, 0));
        check(&[-3600.0, 1.0, -2.5], (1.0, 1, 2, 0));
        check(&[3600.0, 601.0, 1.7e9], (0.0, 0, 0, 3));
        check(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY], (0.0, 0, 1, 2));
    }
}
