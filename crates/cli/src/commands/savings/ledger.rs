//! Savings per model, from a server's counters.

use std::collections::BTreeMap;

use headstart_core::figures::money;
use headstart_insight::prices::PriceTable;
use serde_json::{Value, json};

use crate::exposition::{MetricSample, samples};
use crate::server::one_line;

/// Sources of tokens, in report order.
const SOURCES: [&str; 6] = ["device", "host", "disk", "remote", "upstream", "computed"];

/// The last of these is no saving.
const COMPUTED: &str = "computed";

/// Begins the names that only Headstart's servers have.
const OURS: &str = "headstart_";

/// Counters of a server.
#[derive(Debug, Default)]
pub(super) struct ServerLedger {
    models: BTreeMap<String, ModelCounters>,
}

/// Counters of one model.
#[derive(Debug, Default)]
struct ModelCounters {
    by_source: BTreeMap<String, f64>,
    generated: f64,
    prefill_s: Option<f64>,
    /// Savings that the server counted, by currency.
    money: BTreeMap<String, f64>,
}

/// Money by a table.
struct Bill {
    currency: String,
    saved: f64,
    paid: f64,
    without: f64,
}

impl ServerLedger {
    /// Reads metrics. `None` where they are not those of a Headstart server.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut ledger = Self::default();
        let mut is_ours = false;
        for sample in samples(text) {
            // Headstart uses vLLM's names as well, so only its own names tell that it answers.
            is_ours |= sample.name.starts_with(OURS);
            ledger.add(&sample);
        }
        is_ours.then_some(ledger)
    }

    fn add(&mut self, sample: &MetricSample<'_>) {
        let wanted = [
            "headstart_prompt_tokens_by_source_total",
            "headstart_saved_prefill_seconds_total",
            "headstart_saved_money_total",
            "vllm:generation_tokens_total",
        ];
        // Most lines are of other metrics, so they create no model here.
        if !wanted.contains(&sample.name) {
            return;
        }
        let model = self.models.entry(sample.label("model_name").to_owned()).or_default();
        match sample.name {
            "headstart_prompt_tokens_by_source_total" => {
                let source = sample.label("source").to_owned();
                // Replicas and sources have a line each, so values are added.
                *model.by_source.entry(source).or_default() += sample.value;
            }
            "headstart_saved_prefill_seconds_total" => {
                // An absent metric stays `None`: no saving was measured, which is not zero.
                *model.prefill_s.get_or_insert(0.0) += sample.value;
            }
            "headstart_saved_money_total" => {
                let currency = sample.label("currency").to_owned();
                *model.money.entry(currency).or_default() += sample.value;
            }
            _ => model.generated += sample.value,
        }
    }

    pub(super) fn json(&self, prices: Option<&PriceTable>) -> Value {
        let models = self.models.iter().map(|(name, model)| {
            let bill = model.bill(name, prices);
            json!({
                "model": name,
                "prompt_tokens": model.prompt(),
                "prompt_tokens_by_source": model.by_source,
                "generation_tokens": model.generated,
                "saved_prefill_s": model.prefill_s,
                "saved_money_by_the_server": model.money,
                "by_the_price_table": bill.map(|bill| json!({
                    "currency": bill.currency,
                    "saved": bill.saved,
                    "paid": bill.paid,
                    "paid_without_caches": bill.without,
                })),
            })
        });
        json!({"models": models.collect::<Vec<_>>()})
    }

    pub(super) fn text(&self, prices: Option<&PriceTable>) -> String {
        let models = self.models.iter();
        let texts: Vec<String> = models
            // A model without prompts has no shares.
            .filter(|(_, model)| model.prompt() > 0.0)
            .map(|(name, model)| model.text(name, prices))
            .collect();
        if texts.is_empty() { "no prompt was answered yet".to_owned() } else { texts.join("\n\n") }
    }
}

impl ModelCounters {
    fn prompt(&self) -> f64 {
        self.by_source.values().sum()
    }

    fn found(&self) -> f64 {
        self.prompt() - self.from(COMPUTED)
    }

    fn from(&self, source: &str) -> f64 {
        self.by_source.get(source).copied().unwrap_or(0.0)
    }

    fn bill(&self, name: &str, prices: Option<&PriceTable>) -> Option<Bill> {
        let table = prices?;
        let price = table.of(name)?;
        let (found, generated) = (self.found(), self.generated);
        Some(Bill {
            currency: table.currency.clone(),
            // A hit may cost more than a computed token; then the saving is negative.
            saved: price.saved(found),
            paid: price.paid(self.from(COMPUTED), found, generated),
            without: price.paid(self.prompt(), 0.0, generated),
        })
    }

    fn text(&self, name: &str, prices: Option<&PriceTable>) -> String {
        let prompt = self.prompt();
        let mut lines = vec![
            format!("model {}", one_line(name)),
            line("prompt tokens", &format!("{prompt:>14.0}")),
        ];
        for source in SOURCES {
            let tokens = self.from(source);
            // The row of computed tokens is shown even if it is zero.
            if tokens > 0.0 || source == COMPUTED {
                let share = tokens / prompt * 100.0;
                lines
                    .push(line(&format!("  {source}"), &format!("{tokens:>14.0}  {share:>5.1} %")));
            }
        }
        if let Some(seconds) = self.prefill_s {
            lines.push(line("prefill saved", &format!("{seconds:>14.3}  s")));
        }
        lines.extend(self.money(name, prices));
        lines.join("\n")
    }

    fn money(&self, name: &str, prices: Option<&PriceTable>) -> Vec<String> {
        // The table of the command line wins over the server's own count.
        if let Some(bill) = self.bill(name, prices) {
            let Bill { currency, saved, paid, without } = bill;
            let sum = |amount| money(&one_line(&currency), amount);
            return vec![
                line("money saved", &format!("{:>14}", sum(saved))),
                line("  paid", &format!("{:>14}  instead of {}", sum(paid), sum(without))),
            ];
        }
        if prices.is_some() {
            return vec![line("money saved", "  the price table has no price for this model")];
        }
        let counted = self.money.iter();
        let told = |(currency, saved): (&String, &f64)| {
            let saved = money(&one_line(currency), *saved);
            line("money saved", &format!("{saved:>14}"))
        };
        counted.map(told).collect()
    }
}

fn line(name: &str, text: &str) -> String {
    format!("{name:<14}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_insight::prices::Price;

    const METRICS: &str = "\
headstart_index_bytes 7
headstart_prompt_tokens_by_source_total{model_name=\"m\",replica=\"0\",source=\"device\"} 100
headstart_prompt_tokens_by_source_total{model_name=\"m\",replica=\"1\",source=\"device\"} 200
headstart_prompt_tokens_by_source_total{model_name=\"m\",replica=\"1\",source=\"disk\"} 300
headstart_prompt_tokens_by_source_total{model_name=\"m\",replica=\"1\",source=\"computed\"} 400
headstart_saved_prefill_seconds_total{model_name=\"m\",replica=\"1\"} 1.5
headstart_saved_money_total{currency=\"EUR\",model_name=\"m\",source=\"disk\"} 0.25
vllm:generation_tokens_total{model_name=\"m\",replica=\"1\"} 50
";

    fn table(model: &str) -> PriceTable {
        let price = Price { cache_miss: 2_000.0, cache_hit: 1_000.0, output: 10_000.0 };
        PriceTable {
            currency: "USD".to_owned(),
            models: BTreeMap::from([(model.to_owned(), price)]),
            others: None,
        }
    }

    #[test]
    fn counters_become_sums_and_money() {
        let ledger = ServerLedger::read(METRICS).expect("it is ours");
        let told = ledger.json(Some(&table("m")));
        let model = &told["models"][0];
        assert_eq!(model["prompt_tokens"], 1_000.0);
        assert_eq!(model["prompt_tokens_by_source"]["device"], 300.0);
        assert_eq!(model["saved_prefill_s"], 1.5);
        assert_eq!(model["saved_money_by_the_server"]["EUR"], 0.25);
        let bill = &model["by_the_price_table"];
        let near = |value: &Value, right: f64| {
            let value = value.as_f64().expect("a number");
            assert!((value - right).abs() < 1e-9, "{value} is not {right}");
        };
        near(&bill["saved"], 0.6);
        near(&bill["paid"], 0.8 + 0.6 + 0.5);
        near(&bill["paid_without_caches"], 2.0 + 0.5);
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let ledger = ServerLedger::read(METRICS).expect("it is ours");
        let text = ledger.text(None);
        assert!(text.contains("EUR 0.25"), "{text}");
        assert!(text.contains("30.0 %") && !text.contains("remote"), "{text}");
        let text = ledger.text(Some(&table("n")));
        assert!(text.contains("no price for this model"), "{text}");
        assert!(ServerLedger::read("vllm:num_requests_running 1\n").is_none());
        let idle = ServerLedger::read("headstart_index_bytes 7\n").expect("it is ours");
        assert_eq!(idle.text(None), "no prompt was answered yet");
    }
}
