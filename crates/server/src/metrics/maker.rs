//! Makes metrics, registers them, and lists them with their help.

use std::sync::Mutex;

use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{
    CounterVec, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry,
};

use super::SECONDS;

/// Makes metrics and registers them.
#[derive(Default)]
pub(super) struct MetricFactory {
    registry: Registry,
    entries: Mutex<Vec<MetricEntry>>,
}

/// Name, kind, help text and labels of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricEntry {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its help text.
    pub help: String,
    /// Names of its labels.
    pub labels: Vec<String>,
}

impl MetricFactory {
    /// All metrics that have samples.
    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// All metrics that were made, by name.
    pub(super) fn entries(&self) -> Vec<MetricEntry> {
        let mut entries = self.entries.lock().expect("no lock is held in a panic").clone();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries
    }

    pub(super) fn counter(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        let metric = IntCounterVec::new(Opts::new(name, help), labels);
        self.register(metric.expect("the names are valid"))
    }

    pub(super) fn float_counter(&self, name: &str, help: &str, labels: &[&str]) -> CounterVec {
        let metric = CounterVec::new(Opts::new(name, help), labels);
        self.register(metric.expect("the names are valid"))
    }

    pub(super) fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        let metric = IntGaugeVec::new(Opts::new(name, help), labels);
        self.register(metric.expect("the names are valid"))
    }

    pub(super) fn ratio(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        let metric = GaugeVec::new(Opts::new(name, help), labels);
        self.register(metric.expect("the names are valid"))
    }

    pub(super) fn histogram(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        self.histogram_of(name, help, labels, &SECONDS)
    }

    pub(super) fn histogram_of(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(HistogramVec::new(options, labels).expect("the names are valid"))
    }

    pub(super) fn plain<M>(&self, metric: prometheus::Result<M>) -> M
    where
        M: Collector + Clone + 'static,
    {
        self.register(metric.expect("the names are valid"))
    }

    pub(super) fn plain_counter(&self, name: &str, help: &str) -> IntCounter {
        self.plain(IntCounter::with_opts(Opts::new(name, help)))
    }

    pub(super) fn plain_gauge(&self, name: &str, help: &str) -> IntGauge {
        self.plain(IntGauge::with_opts(Opts::new(name, help)))
    }

    /// A gauge without labels that is absent until it is set.
    pub(super) fn maybe_gauge(&self, name: &str, help: &str) -> GaugeVec {
        self.plain(GaugeVec::new(Opts::new(name, help), &[]))
    }

    pub(super) fn plain_histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.plain(Histogram::with_opts(options))
    }

    fn register<M: Collector + Clone + 'static>(&self, metric: M) -> M {
        let registered = self.registry.register(Box::new(metric.clone()));
        registered.expect("the names differ");
        self.note(&metric);
        metric
    }

    fn note(&self, metric: &impl Collector) {
        let kind = match metric.collect().first().map(MetricFamily::get_field_type) {
            Some(MetricType::COUNTER) => "counter",
            Some(MetricType::HISTOGRAM) => "histogram",
            _ => "gauge",
        };
        let entries = metric.desc().into_iter().map(|desc| MetricEntry {
            name: desc.fq_name.clone(),
            kind,
            help: desc.help.clone(),
            labels: desc.variable_labels.clone(),
        });
        let mut noted = self.entries.lock().expect("no lock is held in a panic");
        noted.extend(entries);
    }
}
