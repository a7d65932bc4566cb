//! Makes metrics from the rows of their table, and registers them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, CounterVec, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter,
    IntCounterVec, Opts, Registry,
};

use crate::lock::lock;

/// Kind, name, labels and help text of every metric, one a line.
const TABLE: &str = include_str!("table.txt");

/// Makes metrics and registers them.
#[derive(Default)]
pub(super) struct MetricFactory {
    registry: Registry,
    /// By name, the metrics whose figures are kept elsewhere and copied before each scrape.
    copied: Mutex<BTreeMap<&'static str, CopiedMetric>>,
}

enum CopiedMetric {
    Counter(CounterVec),
    Gauge(GaugeVec),
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

    /// Sets a gauge, or brings a counter up to a count. The metric is made when it is first set.
    pub(super) fn set(&self, name: &'static str, labels: &[&str], figure: f64) {
        match lock(&self.copied).entry(name).or_insert_with(|| self.copied(name)) {
            CopiedMetric::Gauge(gauge) => gauge.with_label_values(labels).set(figure),
            CopiedMetric::Counter(counter) => {
                let counter = counter.with_label_values(labels);
                // A count that started again at 0 leaves the counter where it is: a counter never
                // falls.
                counter.inc_by((figure - counter.get()).max(0.0));
            }
        }
    }

    /// Drops all series of a metric that `set` made.
    pub(super) fn forget(&self, name: &str) {
        match lock(&self.copied).get(name) {
            Some(CopiedMetric::Gauge(gauge)) => gauge.reset(),
            Some(CopiedMetric::Counter(counter)) => counter.reset(),
            None => {}
        }
    }

    fn copied(&self, name: &str) -> CopiedMetric {
        let is_gauge = MetricEntry::all().any(|entry| entry.kind == "gauge" && entry.name == name);
        if is_gauge {
            let entry = MetricEntry::of("gauge", name);
            CopiedMetric::Gauge(self.register(GaugeVec::new(entry.options(), &entry.labels)))
        } else {
            CopiedMetric::Counter(self.float_counter(name))
        }
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
    use std::path::Path;

    use super::*;

    /// The names of our own metrics that the module spells.
    fn spelled() -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = std::fs::read_dir(folder.join("metrics")).expect("the module");
        let files = files.map(|file| file.expect("an entry").path());
        let sources = files.chain([folder.join("metrics.rs")]);
        let sources = sources.filter(|path| path.extension().is_some_and(|kind| kind == "rs"));
        let sources = sources.map(|path| {
            let source = std::fs::read_to_string(path).expect("a source");
            // A name that only tests spell is made nowhere.
            source.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
        });
        let source: String = sources.collect();
        let literals = source.split('"').filter(|text| {
            let is_name = |byte: u8| b"abcdefghijklmnopqrstuvwxyz0123456789_:".contains(&byte);
            text.bytes().all(is_name) && !text.ends_with('_')
        });
        literals.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn each_row_is_a_metric_and_each_metric_has_a_row() {
        let spelled = spelled();
        for entry in MetricEntry::all() {
            assert!(
                spelled.iter().any(|name| name == entry.name),
                "{} is made nowhere",
                entry.name
            );
        }
        for name in spelled.iter().filter(|name| name.starts_with("headstart_")) {
            assert!(MetricEntry::all().any(|entry| entry.name == name), "{name} has no row");
        }
    }

    #[test]
    fn rows_stand_in_the_order_of_their_names() {
        assert!(MetricEntry::all().is_sorted_by_key(|entry| entry.name));
    }
}
