//! Sums over the counters, for displays that show a server without scraping it.

use std::collections::BTreeMap;

use headstart_core::stats::HitCount;
use prometheus::core::Collector;
use prometheus::proto::Metric;

use super::Metrics;

/// Sources of cached prompt tokens, as the metrics name them: the tiers, nearest first, and an
/// upstream's own cache.
pub const FOUND_IN: [&str; 5] = ["device", "host", "disk", "remote", "upstream"];

/// Counters, added up over models and replicas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Requests sent to a replica; one that went elsewhere after a failure counts again.
    pub requests: u64,
    /// Errors given to clients, by status.
    pub errors: BTreeMap<u16, u64>,
    /// Prompt tokens found, by [`FOUND_IN`].
    pub found: [u64; FOUND_IN.len()],
    /// Prompt tokens computed.
    pub computed: u64,
    /// Generated tokens.
    pub generated: u64,
    /// Seconds of computing that were saved.
    pub prefill_s: f64,
    /// Money that was saved, by currency.
    pub money: BTreeMap<String, f64>,
    /// Prompt tokens by replica: all, and those found.
    pub by_replica: BTreeMap<String, HitCount>,
    /// Times to the first token: seconds, and requests that took at most so long.
    pub first_tokens: Vec<(f64, u64)>,
    /// Cached tokens as the index predicted them, as engines say, and by how many the two
    /// differed, request by request.
    pub foretold: [u64; 3],
}

impl Totals {
    /// Prompt tokens that were found.
    #[must_use]
    pub fn cached_tokens(&self) -> u64 {
        self.found.iter().sum()
    }

    /// All prompt tokens whose fate is known.
    #[must_use]
    pub fn prompt_tokens(&self) -> u64 {
        self.cached_tokens() + self.computed
    }
}

impl Metrics {
    /// Adds up the counters, at a cost by their number: for once a second, not for each request.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            requests: sum(&self.requests.routed) as u64,
            generated: sum(&self.requests.generation_tokens) as u64,
            prefill_s: sum(&self.savings.prefill_s),
            first_tokens: buckets(&self.requests.ttft),
            foretold: [
                sum(&self.index.predicted) as u64,
                sum(&self.index.realised) as u64,
                // A request's error is one observation, in tokens, so the histogram's sum is the
                // total.
                histogram_sum(&self.index.error) as u64,
            ],
            ..Totals::default()
        };
        each(&self.requests.errors, |metric| {
            if let Ok(status) = label(metric, "status").parse() {
                let count = metric.get_counter().get_value() as u64;
                *totals.errors.entry(status).or_default() += count;
            }
        });
        each(&self.savings.by_source, |metric| {
            let tokens = metric.get_counter().get_value() as u64;
            let source = label(metric, "source");
            let place = FOUND_IN.iter().position(|name| *name == source);
            let replica = totals.by_replica.entry(label(metric, "replica").to_owned());
            let hits = replica.or_default();
            hits.lookups += tokens;
            match place {
                Some(place) => {
                    totals.found[place] += tokens;
                    hits.hits += tokens;
                }
                None => totals.computed += tokens,
            }
        });
        if let Some((_, money)) = &self.savings.money {
            each(money, |metric| {
                let currency = label(metric, "currency").to_owned();
                *totals.money.entry(currency).or_default() += metric.get_counter().get_value();
            });
        }
        totals
    }
}

fn each(collector: &impl Collector, mut visit: impl FnMut(&Metric)) {
    for family in collector.collect() {
        family.get_metric().iter().for_each(&mut visit);
    }
}

fn sum(counters: &impl Collector) -> f64 {
    let mut sum = 0.0;
    each(counters, |metric| sum += metric.get_counter().get_value());
    sum
}

fn histogram_sum(histograms: &impl Collector) -> f64 {
    let mut sum = 0.0;
    each(histograms, |metric| {
        sum += metric.get_histogram().get_sample_sum();
    });
    sum
}

/// Upper bounds with the observations up to there, all labels together.
fn buckets(histograms: &impl Collector) -> Vec<(f64, u64)> {
    let mut sums: Vec<(f64, u64)> = Vec::new();
    each(histograms, |metric| {
        for (place, bucket) in metric.get_histogram().get_bucket().iter().enumerate() {
            if sums.len() == place {
                sums.push((bucket.upper_bound(), 0));
            }
            sums[place].1 += bucket.cumulative_count();
        }
    });
    sums
}

fn label<'a>(metric: &'a Metric, name: &str) -> &'a str {
    let found = metric.get_label().iter().find(|pair| pair.name() == name);
    found.map_or("", |pair| pair.value())
}

#[cfg(test)]
mod tests {
    use headstart_core::Tier;

    use super::super::PromptSources;
    use super::*;

    #[test]
    fn counters_add_up_over_models_and_replicas() {
        let metrics = Metrics::new();
        let mut sources = PromptSources::on_device(64);
        sources.add(Tier::Disk, 128);
        metrics.savings.note(["m", "0"], 200, &sources, None);
        metrics.savings.note(["n", "0"], 100, &sources, None);
        metrics.savings.note_upstream(["m", "1"], 30, 10);
        metrics.requests.routed.with_label_values(&["precise", "0"]).inc_by(3);
        for (status, count) in [("503", 2), ("429", 1)] {
            let errors = &metrics.requests.errors;
            errors.with_label_values(&[status]).inc_by(count);
        }
        metrics.requests.ttft.with_label_values(&["m", "0"]).observe(0.03);
        metrics.requests.ttft.with_label_values(&["m", "1"]).observe(7.0);
        let totals = metrics.totals();
        assert_eq!(totals.requests, 3);
        assert_eq!(totals.errors, [(429, 1), (503, 2)].into());
        assert_eq!(totals.found, [128, 0, 256, 0, 10]);
        assert_eq!((totals.computed, totals.prompt_tokens()), (28, 422));
        let replica = &totals.by_replica["0"];
        assert_eq!((replica.lookups, replica.hits), (392, 384));
        let up_to = |seconds: f64| {
            let found = totals.first_tokens.iter().find(|(bound, _)| *bound == seconds);
            found.expect("a bucket").1
        };
        assert_eq!((up_to(0.02), up_to(0.04), up_to(10.0)), (0, 1, 2));
        assert!(totals.money.is_empty() && totals.prefill_s == 0.0);
    }
}
