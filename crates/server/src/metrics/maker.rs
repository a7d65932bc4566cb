//! Makes metrics from the rows of their table, and registers them.

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, CounterVec, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter,
    IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// Kind, name, labels and help text of every metric, one a line.
const TABLE: &str = include_str!("table.txt");

/// Makes metrics and registers them.
#[derive(Default)]
pub(super) struct MetricFactory {
    registry: Registry,
}

/// Name, kind, help text and labels of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricEntry {
    /// Its name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: Vec<&'static str>,
}

impl MetricEntry {
    /// The entries of the table, by name.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let rows = TABLE.lines().filter(|row| !row.starts_with('#'));
        rows.map(|row| Self::read(row).expect("a row is KIND NAME{LABEL,…} HELP"))
    }

    fn read(row: &'static str) -> Option<Self> {
        let (kind, rest) = row.split_once(' ')?;
        let (name, rest) = rest.split_once('{')?;
        let (labels, help) = rest.split_once("} ")?;
        let labels = labels.split_terminator(',').collect();
        Some(Self { name, kind, help, labels })
    }

    fn of(kind: &str, name: &str) -> Self {
        let found = Self::all().find(|entry| entry.kind == kind && entry.name == name);
        found.unwrap_or_else(|| panic!("{kind} {name} has no row"))
    }

    /// The entry of a metric without labels.
    fn plain(kind: &str, name: &str) -> Self {
        let entry = Self::of(kind, name);
        assert!(entry.labels.is_empty(), "{name} is made without labels");
        entry
    }

    fn options(&self) -> Opts {
        Opts::new(self.name, self.help)
    }

    fn histogram_options(&self, buckets: &[f64]) -> HistogramOpts {
        HistogramOpts::new(self.name, self.help).buckets(buckets.to_vec())
    }
}

impl MetricFactory {
    /// All metrics that have samples.
    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    pub(super) fn counter(&self, name: &str) -> IntCounterVec {
        let entry = MetricEntry::of("counter", name);
        self.register(IntCounterVec::new(entry.options(), &entry.labels))
    }

    pub(super) fn float_counter(&self, name: &str) -> CounterVec {
        let entry = MetricEntry::of("counter", name);
        self.register(CounterVec::new(entry.options(), &entry.labels))
    }

    pub(super) fn gauge(&self, name: &str) -> IntGaugeVec {
        let entry = MetricEntry::of("gauge", name);
        self.register(IntGaugeVec::new(entry.options(), &entry.labels))
    }

    /// A gauge of fractions. Without labels it is absent until it is set.
    pub(super) fn ratio(&self, name: &str) -> GaugeVec {
        let entry = MetricEntry::of("gauge", name);
        self.register(GaugeVec::new(entry.options(), &entry.labels))
    }

    pub(super) fn histogram(&self, name: &str, buckets: &[f64]) -> HistogramVec {
        let entry = MetricEntry::of("histogram", name);
        self.register(HistogramVec::new(entry.histogram_options(buckets), &entry.labels))
    }

    pub(super) fn plain_counter(&self, name: &str) -> IntCounter {
        self.register(IntCounter::with_opts(MetricEntry::plain("counter", name).options()))
    }

    pub(super) fn plain_float_counter(&self, name: &str) -> Counter {
        self.register(Counter::with_opts(MetricEntry::plain("counter", name).options()))
    }

    pub(super) fn plain_gauge(&self, name: &str) -> IntGauge {
        self.register(IntGauge::with_opts(MetricEntry::plain("gauge", name).options()))
    }

    pub(super) fn plain_histogram(&self, name: &str, buckets: &[f64]) -> Histogram {
        let options = MetricEntry::plain("histogram", name).histogram_options(buckets);
        self.register(Histogram::with_opts(options))
    }

    fn register<M: Collector + Clone + 'static>(&self, metric: prometheus::Result<M>) -> M {
        let metric = metric.expect("the names are valid");
        let registered = self.registry.register(Box::new(metric.clone()));
        registered.expect("the names differ");
        metric
    }
}

#[cfg(test)]
mod tests {
    use headstart_insight::prices::PriceTable;

    use super::super::Metrics;
    use super::*;

    #[test]
    fn each_row_is_a_metric() {
        let metrics = Metrics::priced(Some(PriceTable::default()));
        drop(metrics.with_insight());
        drop(metrics.with_predictions());
        metrics.with_shared_index();
        metrics.with_shadow();
        for entry in MetricEntry::all() {
            let again = IntGaugeVec::new(entry.options(), &entry.labels).expect("valid");
            let registered = metrics.make.registry.register(Box::new(again));
            assert!(registered.is_err(), "{} is made nowhere", entry.name);
        }
    }

    #[test]
    fn rows_stand_in_the_order_of_their_names() {
        assert!(MetricEntry::all().is_sorted_by_key(|entry| entry.name));
    }
}
