//! Cost of prompt tokens, in seconds and in money.

use std::time::Duration;

use headstart_core::cost::Work;
use headstart_core::figures::counted;
use headstart_core::{EngineModel, UsageError};
use headstart_insight::BucketTokens;
use headstart_insight::prefill::{self, Prefill, PrefillSample};
use headstart_insight::prices::PriceTable;

use crate::results::Amount;
use crate::traffic::{LoggedPrompt, LoggedTraffic};

/// Model of the cost in seconds and in money.
pub struct PromptCostModel {
    engine: EngineModel,
    is_data_sheet: bool,
    seconds: PrefillTimeSource,
    money: Money,
}

/// The engine whose cost model predicts times.
#[derive(Clone, Debug, Default)]
pub enum EngineSource {
    /// Llama 3.1 8B on one H100, by the data sheet.
    #[default]
    DataSheet,
    /// An engine of your own.
    CostModel {
        /// Step costs and KV memory.
        model: EngineModel,
        /// Name of the cost model for the reader, such as its path.
        name: String,
    },
}

/// Fewest times to the first token that a fit is believed of.
const SAMPLES_MIN: u64 = 30;

/// A fit that misses half of its samples by more, relative to them, explains nothing.
const ERROR_MAX: f64 = 0.5;

/// Source of the times.
#[derive(Clone)]
enum PrefillTimeSource {
    /// The engine's cost model, and what it is called.
    Engine(String),
    /// A model fitted to the log's own times to the first token.
    Fitted(prefill::PrefillModel, String),
}

/// Prices, by which time and tokens become money.
#[derive(Clone, Debug, Default)]
pub enum Money {
    /// There are no prices.
    #[default]
    Unknown,
    /// Price of one replica per hour, dollars; made by [`Money::per_hour`].
    Hour(f64),
    /// Prices of tokens.
    Table {
        /// The prices.
        table: PriceTable,
        /// Meaning of the money, if the currency does not say it.
        meaning: Option<&'static str>,
    },
}

impl Money {
    /// A price of one replica per hour.
    ///
    /// # Errors
    /// When an hour cannot cost that.
    pub fn per_hour(dollars: f64) -> Result<Self, UsageError> {
        if (0.0..=1e6).contains(&dollars) {
            Ok(Self::Hour(dollars))
        } else {
            Err(UsageError(format!("--gpu-hour {dollars}: expected dollars from 0 to 1000000")))
        }
    }
}

impl PromptCostModel {
    /// Takes times from an engine's cost model, and money from prices.
    #[must_use]
    pub fn new(engine: EngineSource, money: Money) -> Self {
        let is_data_sheet = matches!(engine, EngineSource::DataSheet);
        let (engine, name) = match engine {
            EngineSource::CostModel { model, name } => (model, format!("the cost model {name}")),
            EngineSource::DataSheet => (
                EngineModel::default_engine(),
                "a data-sheet model of Llama 3.1 8B on one H100; --cost-model FILE for yours"
                    .to_owned(),
            ),
        };
        Self { engine, is_data_sheet, seconds: PrefillTimeSource::Engine(name), money }
    }

    /// The same with seconds fitted to the log's own times to the first token, where it has enough
    /// of them and a model of computing explains them; else with why they were not used.
    pub(crate) fn fitted(&self, traffic: &LoggedTraffic, splits: &[BucketTokens]) -> Self {
        let mut prefill = Prefill::default();
        let mut unpaired = 0;
        for (said, split) in traffic.said.iter().zip(splits) {
            // What an imagined fleet would have found says nothing about a real time.
            let (Some(ttft), Some(_)) = (said.ttft, said.cached) else {
                unpaired += u64::from(said.ttft.is_some());
                continue;
            };
            // The model's coefficients are per token of the log, as the prices are.
            let scale = scale(said, split, traffic.counts.factor());
            let [cached, uncached] = found_and_not(split).map(|tokens| tokens as f64 * scale);
            prefill.add(PrefillSample {
                cached: cached.round() as u32,
                uncached: uncached.round() as u32,
                seconds: ttft.as_secs_f64(),
            });
        }
        // A poor fit never replaces the engine's model silently: the name says why it was dropped.
        let seconds = match (judged(&prefill, unpaired), &self.seconds) {
            (Ok(fitted), _) => PrefillTimeSource::Fitted(
                fitted.model,
                format!(
                    "fitted to {} of the log's own times to the first token, half of them within \
                     {:.0} %",
                    (fitted.used_share * fitted.samples as f64).round(),
                    fitted.median_relative_error * 100.0
                ),
            ),
            (Err(Some(why)), PrefillTimeSource::Engine(name)) => {
                PrefillTimeSource::Engine(format!("{name}; {why}"))
            }
            // A log without times needs no excuse.
            (Err(_), seconds) => seconds.clone(),
        };
        Self { seconds, money: self.money.clone(), ..*self }
    }

    /// Returns the engine model that memory and speed are computed from.
    pub fn engine(&self) -> &EngineModel {
        &self.engine
    }

    /// Whether the engine is the default one, and not the user's.
    pub(crate) fn is_data_sheet(&self) -> bool {
        self.is_data_sheet
    }

    /// Predicts the prefill time of a prompt in an otherwise idle engine, by its cost model.
    pub(crate) fn computing(&self, found: u32, computed: u32) -> Duration {
        let base_s = self.engine.base_s(Work::default());
        let prefill_s = self.engine.prefill_s(found as usize, computed as usize, base_s);
        // Times that are not finite or too long count as no time instead of ending the analysis.
        Duration::try_from_secs_f64(prefill_s).unwrap_or_default()
    }

    /// Explains the money, if its currency does not.
    pub fn money_from(&self) -> Option<&'static str> {
        match &self.money {
            Money::Table { meaning, .. } => *meaning,
            Money::Unknown | Money::Hour(_) => None,
        }
    }

    /// Returns the name of the source of the times, for the reader.
    pub fn seconds_from(&self) -> &str {
        match &self.seconds {
            PrefillTimeSource::Engine(name) | PrefillTimeSource::Fitted(_, name) => name,
        }
    }

    /// Returns the currency of the money, if there are prices.
    pub fn currency(&self) -> Option<&str> {
        match &self.money {
            Money::Unknown => None,
            Money::Hour(_) => Some("$"),
            Money::Table { table, .. } => Some(&table.currency),
        }
    }

    /// Returns the cost per token of a request: time spent per computed token, time saved per
    /// cached token. Both are averages, because tokens of a prompt are computed together. `scale`
    /// is the number of tokens for time and prices per token counted here.
    pub(crate) fn per_token(
        &self,
        split: &BucketTokens,
        model: Option<&str>,
        scale: f64,
    ) -> PerToken {
        let [served, computed] = found_and_not(split);
        let scaled = |tokens: usize| (tokens as f64 * scale).round() as usize;
        // The computed tokens also attend to the served ones, so their time depends on both counts.
        let computed_s = self.prefill_s(scaled(served), scaled(computed));
        // A fit may predict less for the whole prompt than for its end; a saving is never negative.
        let saved_s = (self.prefill_s(0, scaled(served + computed)) - computed_s).max(0.0);
        let each = |seconds: f64, tokens: usize| seconds / tokens.max(1) as f64;
        let seconds = [each(computed_s, computed), each(saved_s, served)];
        let money = match &self.money {
            Money::Unknown => None,
            Money::Hour(hour) => Some(seconds.map(|seconds| seconds / 3600.0 * hour)),
            Money::Table { table, .. } => table
                .of(model.unwrap_or_default())
                // The second price is of a token that a cache served: the difference to a computed
                // one.
                .map(|price| [price.paid(1.0, 0.0, 0.0), price.saved(1.0)])
                .map(|prices| prices.map(|price| price * scale)),
        };
        PerToken { seconds, money }
    }

    fn prefill_s(&self, before: usize, new: usize) -> f64 {
        match &self.seconds {
            PrefillTimeSource::Fitted(model, _) => {
                // The fixed time is no cost of a token: it is spent on a prompt of any length.
                (model.seconds(before as u32, new as u32) - model.fixed).max(0.0)
            }
            PrefillTimeSource::Engine(_) => {
                let base_s = self.engine.base_s(Work::default());
                self.engine.prefill_s(before, new, base_s)
            }
        }
    }
}

/// Tokens that were found, and the others.
fn found_and_not(split: &BucketTokens) -> [usize; 2] {
    // A hit in any tier counts as served, not only one on the device.
    let served = split.iter().filter(|(bucket, _)| bucket.is_served());
    let served: u64 = served.map(|(_, tokens)| u64::from(tokens)).sum();
    [served as usize, (split.total() - served) as usize]
}

/// Returns the log's tokens per token counted here, for one request. Without a count of its own, it
/// is the inverse of `factor`.
pub(crate) fn scale(said: &LoggedPrompt, split: &BucketTokens, factor: f64) -> f64 {
    match said.counted {
        Some(logged) => f64::from(logged) / split.total().max(1) as f64,
        None => 1.0 / factor,
    }
}

/// Returns the fit, or else the reason for having none, `None` if the log has no times. `unpaired`
/// counts times of requests whose log does not say what was cached.
fn judged(prefill: &Prefill, unpaired: u64) -> Result<prefill::PrefillFit, Option<String>> {
    let samples = prefill.samples();
    // The log has times that are not used, so the report says why.
    if samples == 0 && unpaired > 0 {
        return Err(Some(
            "the log's own times to the first token are not used, because it does not say what \
             was cached"
                .to_owned(),
        ));
    }
    // A few samples fit any three coefficients.
    let fitted = prefill.fit().filter(|fit| fit.samples >= SAMPLES_MIN);
    let Some(fitted) = fitted else {
        let few = || {
            let all = counted(samples, "time");
            format!("the log's own {all} to the first token are too few to fit to")
        };
        return Err((samples > 0).then(few));
    };
    // A proxy's constant time fits well and says nothing about tokens.
    if !fitted.grows() {
        return Err(Some(
            "not fitted to the log's own times to the first token, which do not grow with the \
             tokens that were computed"
                .to_owned(),
        ));
    }
    if fitted.median_relative_error <= ERROR_MAX {
        Ok(fitted)
    } else {
        Err(Some(format!(
            "not fitted to the log's own times to the first token: a model of computing misses \
             half of them by more than {:.0} %",
            ERROR_MAX * 100.0
        )))
    }
}

/// Of a computed token, then of a served one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerToken {
    seconds: [f64; 2],
    money: Option<[f64; 2]>,
}

impl PerToken {
    /// Whether prices are known.
    pub(crate) fn is_priced(&self) -> bool {
        self.money.is_some()
    }

    /// Returns the amount for `tokens`, either served or computed.
    pub(crate) fn amount(&self, tokens: u64, is_served: bool) -> Amount {
        // Index 0 is the computed token, index 1 the served one.
        let kind = usize::from(is_served);
        Amount {
            tokens,
            seconds: self.seconds[kind] * tokens as f64,
            money: self.money.map(|money| money[kind] * tokens as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headstart_insight::Bucket;
    use headstart_insight::prices::Price;

    use super::*;

    fn by_the_hour(dollars: f64) -> PromptCostModel {
        let money = Money::per_hour(dollars).expect("valid");
        PromptCostModel::new(EngineSource::DataSheet, money)
    }

    /// Relative prices of all models.
    fn by_tokens() -> PromptCostModel {
        let price = Price { cache_miss: 1.0, cache_hit: 0.1, output: 4.0 };
        let table = PriceTable {
            currency: "units".to_owned(),
            models: BTreeMap::new(),
            others: Some(price),
        };
        let meaning = Some("1 unit is the price of a million computed prompt tokens");
        PromptCostModel::new(EngineSource::DataSheet, Money::Table { table, meaning })
    }

    fn split(served: u32, computed: u32) -> BucketTokens {
        let mut split = BucketTokens::default();
        split.put(Bucket::Device, served);
        split.put(Bucket::NeverSeen, computed);
        split
    }

    #[test]
    fn what_is_computed_and_what_is_saved_are_the_whole_prompt() {
        let cost = by_the_hour(3.6);
        let whole = cost.per_token(&split(0, 4000), None, 1.0).amount(4000, false);
        let both = cost.per_token(&split(3000, 1000), None, 1.0);
        let (saved, computed) = (both.amount(3000, true), both.amount(1000, false));
        assert!((saved.seconds + computed.seconds - whole.seconds).abs() < 1e-9);
        let money = whole.money.expect("an hour has a price");
        assert!((money - whole.seconds / 1000.0).abs() < 1e-9, "3.60 an hour: a tenth of a cent");
    }

    #[test]
    fn a_table_prices_tokens_whatever_time_they_take() {
        let cost = by_tokens();
        let per = cost.per_token(&split(1, 1), Some("any"), 1.0);
        assert_eq!(per.amount(1_000_000, false).money, Some(1.0));
        let saved = per.amount(1_000_000, true).money.expect("priced");
        assert!((saved - 0.9).abs() < 1e-9);
        assert_eq!(cost.currency(), Some("units"));
        assert!(cost.money_from().is_some());
        let none = PromptCostModel::new(EngineSource::DataSheet, Money::Unknown);
        assert_eq!(none.per_token(&split(1, 1), None, 1.0).amount(1, true).money, None);
        assert!(Money::per_hour(-1.0).is_err());
    }

    /// A log that counts fewer tokens pays for fewer.
    #[test]
    fn tokens_cost_what_the_logs_tokens_cost() {
        let hour = by_the_hour(3.6);
        let here = hour.per_token(&split(0, 4000), None, 0.4).amount(4000, false);
        let logged = hour.per_token(&split(0, 1600), None, 1.0).amount(1600, false);
        assert!((here.seconds - logged.seconds).abs() < 1e-9);
        assert_eq!(here.money.is_some(), logged.money.is_some());
        let table = by_tokens();
        let per = table.per_token(&split(1, 1), Some("any"), 0.4);
        let money = per.amount(1_000_000, false).money.expect("priced");
        assert!((money - 0.4).abs() < 1e-9, "{money}");
    }

    fn times(seconds: impl Fn(u32) -> f64, requests: u32) -> Prefill {
        let mut prefill = Prefill::default();
        for number in 1..=requests {
            prefill.add(PrefillSample {
                cached: 0,
                uncached: number * 100,
                seconds: seconds(number * 100),
            });
        }
        prefill
    }

    fn check_refused(prefill: &Prefill, unpaired: u64, reason: &str) {
        let why = judged(prefill, unpaired).expect_err("refused");
        let why = why.unwrap_or_default();
        assert!(why.contains(reason), "{why}");
        assert_eq!(why.is_empty(), reason.is_empty(), "{why}");
    }

    #[test]
    fn times_that_say_nothing_of_tokens_are_not_fitted_and_why_is_said() {
        let growing = times(|tokens| 0.01 + f64::from(tokens) / 1e4, 60);
        assert!(judged(&growing, 0).is_ok());
        check_refused(&times(|_| 0.5, 60), 0, "do not grow");
        check_refused(&times(|_| 0.5, 5), 0, "5 times to the first token are too few");
        check_refused(&Prefill::default(), 40, "does not say what was cached");
        check_refused(&Prefill::default(), 0, "");
    }
}
