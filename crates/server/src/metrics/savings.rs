//! Metrics of what caches save: where prompt tokens came from, the time that computing them would
//! have taken, and money.

use headstart_core::{EngineModel, Tier};
use headstart_insight::prices::PriceTable;
use prometheus::{CounterVec, IntCounterVec};

use super::MetricFactory;

/// Tiers that tokens come from.
const TIERS: [Tier; 4] = [Tier::Device, Tier::Host, Tier::Disk, Tier::Remote];

/// Cached tokens of a prompt by tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptSources {
    found: [usize; TIERS.len()],
    /// Bytes that were loaded, and bytes of all, where a stored prefix was loaded in part.
    partly: Option<(u64, u64)>,
}

impl PromptSources {
    /// Starts with `tokens` on the device, and none from elsewhere.
    #[must_use]
    pub fn on_device(tokens: usize) -> Self {
        let mut sources = Self::default();
        sources.add(Tier::Device, tokens);
        sources
    }

    /// More of them came from a tier.
    pub fn add(&mut self, from: Tier, tokens: usize) {
        let place = TIERS.iter().position(|&tier| tier == from);
        if let Some(place) = place {
            self.found[place] += tokens;
        }
    }

    /// Notes that only `loaded_bytes` of the prompt's stored `whole_bytes` were loaded.
    pub fn set_partly(&mut self, loaded_bytes: u64, whole_bytes: u64) {
        self.partly = Some((loaded_bytes, whole_bytes));
    }

    /// Per cent of the stored prefix's bytes that were loaded, where not all were wanted.
    #[must_use]
    pub fn loaded_percent(&self) -> Option<u64> {
        let (loaded, whole) = self.partly?;
        // Rounded up, because 0 would say that nothing was loaded.
        Some((loaded * 100).div_ceil(whole.max(1)))
    }

    /// Returns the cached tokens per tier, the device first.
    #[must_use]
    pub fn by_tier(&self) -> [usize; TIERS.len()] {
        self.found
    }

    /// All that were found somewhere.
    #[must_use]
    pub fn found(&self) -> usize {
        self.found.iter().sum()
    }
}

/// Prompt tokens by source, and the time and money that caches save.
pub struct SavingsMetrics {
    pub(super) by_source: IntCounterVec,
    created: IntCounterVec,
    engine_cached: IntCounterVec,
    pub(super) prefill_s: CounterVec,
    pub(super) money: Option<(PriceTable, CounterVec)>,
}

impl SavingsMetrics {
    pub(super) fn new(make: &MetricFactory) -> Self {
        Self {
            by_source: make.counter("headstart_prompt_tokens_by_source_total"),
            created: make.counter("headstart_prompt_tokens_stored_total"),
            engine_cached: make.counter("headstart_upstream_cached_tokens_total"),
            prefill_s: make.float_counter("headstart_saved_prefill_seconds_total"),
            money: None,
        }
    }

    /// From now on what is found is worth money.
    pub(super) fn set_prices(&mut self, make: &MetricFactory, prices: PriceTable) {
        let counter = make.float_counter("headstart_saved_money_total");
        self.money = Some((prices, counter));
    }

    /// Sets the prompt tokens that an upstream has found in a source since it started.
    pub(crate) fn note_engine_cached(&self, labels: &[&str; 2], tokens: u64) {
        let counter = self.engine_cached.with_label_values(labels);
        if tokens < counter.get() {
            // It started again.
            counter.reset();
        }
        counter.inc_by(tokens - counter.get());
    }

    /// Counts a prompt of `tokens` tokens that has its first token. `engine`: the cost of
    /// computing, if known.
    pub fn note(
        &self,
        labels: [&str; 2],
        tokens: usize,
        sources: &PromptSources,
        engine: Option<&EngineModel>,
    ) {
        for (tier, found) in TIERS.iter().zip(sources.found) {
            self.found(labels, tier.name(), found);
        }
        self.computed(labels, tokens.saturating_sub(sources.found()));
        if let Some(engine) = engine {
            let saved_s = engine.prefill_s(0, sources.found(), 0.0);
            self.prefill_s.with_label_values(&labels).inc_by(saved_s);
        }
    }

    /// An upstream said how long a prompt was and how much of it it had found.
    pub fn note_upstream(&self, labels: [&str; 2], tokens: usize, cached: usize) {
        // An engine may count more cached tokens than the prompt has.
        let cached = cached.min(tokens);
        self.found(labels, "upstream", cached);
        self.computed(labels, tokens - cached);
    }

    /// An upstream said how much of a prompt it stored in its cache, if it did.
    pub fn note_created(&self, labels: [&str; 2], created: Option<usize>) {
        if let Some(created) = created {
            let counter = self.created.with_label_values(&labels);
            counter.inc_by(created as u64);
        }
    }

    /// Returns the price table, if one was given.
    #[must_use]
    pub fn prices(&self) -> Option<&PriceTable> {
        self.money.as_ref().map(|(prices, _)| prices)
    }

    fn computed(&self, [model, replica]: [&str; 2], tokens: usize) {
        let counter = self.by_source.with_label_values(&[model, replica, "computed"]);
        counter.inc_by(tokens as u64);
    }

    fn found(&self, [model, replica]: [&str; 2], source: &str, tokens: usize) {
        let counter = self.by_source.with_label_values(&[model, replica, source]);
        counter.inc_by(tokens as u64);
        let Some((prices, money)) = &self.money else {
            return;
        };
        // A counter only grows: where hits are the dearer ones nothing is saved.
        if let Some(price) = prices.of(model) {
            let saved = price.saved(tokens as f64).max(0.0);
            let labels = [model, source, &prices.currency];
            money.with_label_values(&labels).inc_by(saved);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headstart_insight::prices::Price;

    use super::super::Metrics;
    use super::*;

    fn prices() -> PriceTable {
        let price = Price { cache_miss: 3.0, cache_hit: 1.0, output: 9.0 };
        PriceTable {
            currency: "EUR".to_owned(),
            models: BTreeMap::from([("m".to_owned(), price)]),
            others: None,
        }
    }

    /// Returns the value in the metrics line that starts with `line`.
    fn value(text: &str, line: &str) -> Option<f64> {
        let found = text.lines().find_map(|row| row.strip_prefix(line));
        found.map(|value| value.trim().parse().expect("a number"))
    }

    #[test]
    fn tokens_are_counted_by_where_they_came_from() {
        let metrics = Metrics::priced(Some(prices()));
        let mut sources = PromptSources::on_device(64);
        sources.add(Tier::Disk, 128);
        assert_eq!(sources.found(), 192);
        let engine = EngineModel::default_engine();
        metrics.savings.note(["m", "0"], 200, &sources, Some(&engine));
        metrics.savings.note(["n", "0"], 100, &sources, None);
        metrics.savings.note_upstream(["m", "1"], 30, 50);
        let text = metrics.render();
        let tokens = |model: &str, replica: u32, source: &str| {
            let labels =
                format!("model_name=\"{model}\",replica=\"{replica}\",source=\"{source}\"");
            value(&text, &format!("headstart_prompt_tokens_by_source_total{{{labels}}}"))
        };
        assert_eq!(tokens("m", 0, "device"), Some(64.0));
        assert_eq!(tokens("m", 0, "disk"), Some(128.0));
        assert_eq!(tokens("m", 0, "computed"), Some(8.0));
        assert_eq!(tokens("m", 1, "upstream"), Some(30.0), "not more than there were");
        let money = |model: &str, source: &str| {
            let labels = format!("currency=\"EUR\",model_name=\"{model}\",source=\"{source}\"");
            value(&text, &format!("headstart_saved_money_total{{{labels}}}"))
        };
        let saved = money("m", "disk").expect("it has a price");
        assert!((saved - 128.0 * 2e-6).abs() < 1e-12, "{saved}");
        assert_eq!(money("n", "disk"), None, "it has none");
        let line = "headstart_saved_prefill_seconds_total{model_name=\"m\",replica=\"0\"}";
        let saved_s = value(&text, line).expect("it is known");
        assert!((saved_s - engine.prefill_s(0, 192, 0.0)).abs() < 1e-9);
    }

    #[test]
    fn without_prices_there_is_no_money() {
        let metrics = Metrics::new();
        let sources = PromptSources::on_device(64);
        metrics.savings.note(["m", "0"], 200, &sources, None);
        assert!(!metrics.render().contains("money"));
    }
}
