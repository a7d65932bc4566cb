//! Cost of prompt tokens, in seconds and in money.

use std::time::Duration;

use anyhow::Result;
use headstart_core::EngineModel;
use headstart_core::cost::Work;
use headstart_insight::BucketTokens;
use headstart_insight::prefill::{self, Prefill, PrefillSample};
use headstart_server::prices::PriceTable;

use super::traffic::{LoggedPrompt, LoggedTraffic};
use crate::config::{UsageError, cost_model, prices};
use crate::input::counted;
use crate::report::analyze::Amount;

/// Model of the cost in seconds and in money.
pub(crate) struct PromptCostModel {
    engine: EngineModel,
    seconds: PrefillTimeSource,
    money: Money,
    /// Meaning of the money, if it is not obvious.
    money_from: Option<&'static str>,
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

#[derive(Clone)]
enum Money {
    Unknown,
    /// Of an hour of a replica.
    Hour(f64),
    Table(PriceTable),
}

impl PromptCostModel {
    /// As the command line says.
    ///
    /// # Errors
    /// When a file cannot be read, or an hour cannot cost that.
    pub(crate) fn of(
        engine: Option<&std::path::Path>,
        gpu_hour: Option<f64>,
        price_table: Option<&str>,
    ) -> Result<Self> {
        let (engine, name) = match engine {
            Some(path) => (
                cost_model::read(path)?.engine,
                format!("the cost model {}", path.display()),
            ),
            None => (
                EngineModel::default_engine(),
                "a data-sheet model of Llama 3.1 8B on one H100; --cost-model FILE for yours"
                    .to_owned(),
            ),
        };
        let money = match (gpu_hour, price_table) {
            (Some(hour), _) if !(0.0..=1e6).contains(&hour) => {
                let message = format!("--gpu-hour {hour}: expected dollars from 0 to 1000000");
                return Err(UsageError(message).into());
            }
            (Some(hour), _) => Money::Hour(hour),
            (None, Some(table)) => Money::Table(prices::read(table)?),
            (None, None) => Money::Unknown,
        };
        Ok(Self {
            engine,
            seconds: PrefillTimeSource::Engine(name),
            money,
            money_from: prices::explained(price_table),
        })
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
            let scale = scale(said, split, traffic.counts.factor());
            let [cached, uncached] = found_and_not(split).map(|tokens| tokens as f64 * scale);
            prefill.add(PrefillSample {
                cached: cached.round() as u32,
                uncached: uncached.round() as u32,
                seconds: ttft.as_secs_f64(),
            });
        }
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
            (Err(_), seconds) => seconds.clone(),
        };
        Self {
            engine: self.engine,
            seconds,
            money: self.money.clone(),
            money_from: self.money_from,
        }
    }

    /// Returns the engine model that memory and speed are computed from.
    pub(crate) fn engine(&self) -> &EngineModel {
        &self.engine
    }

    /// Predicts the prefill time of a prompt in an otherwise idle engine, by its cost model.
    pub(crate) fn computing(&self, found: u32, computed: u32) -> Duration {
        let base_s = self.engine.base_s(Work::default());
        let prefill_s = self
            .engine
            .prefill_s(found as usize, computed as usize, base_s);
        Duration::try_from_secs_f64(prefill_s).unwrap_or_default()
    }

    /// Explains the money, if its currency does not.
    pub(crate) fn money_from(&self) -> Option<&'static str> {
        self.money_from
    }

    /// Returns the name of the source of the times, for the reader.
    pub(crate) fn seconds_from(&self) -> &str {
        match &self.seconds {
            PrefillTimeSource::Engine(name) | PrefillTimeSource::Fitted(_, name) => name,
        }
    }

    /// In what money is.
    pub(crate) fn currency(&self) -> Option<&str> {
        match &self.money {
            Money::Unknown => None,
            Money::Hour(_) => Some("$"),
            Money::Table(table) => Some(&table.currency),
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
        let computed_s = self.prefill_s(scaled(served), scaled(computed));
        let saved_s = (self.prefill_s(0, scaled(served + computed)) - computed_s).max(0.0);
        let each = |seconds: f64, tokens: usize| seconds / tokens.max(1) as f64;
        let seconds = [each(computed_s, computed), each(saved_s, served)];
        let money = match &self.money {
            Money::Unknown => None,
            Money::Hour(hour) => Some(seconds.map(|seconds| seconds / 3600.0 * hour)),
            Money::Table(table) => table
                .of(model.unwrap_or_default())
                .map(|price| [price.paid(1.0, 0.0, 0.0), price.saved(1.0)])
                .map(|prices| prices.map(|price| price * scale)),
        };
        PerToken { seconds, money }
    }

    fn prefill_s(&self, before: usize, new: usize) -> f64 {
        match &self.seconds {
            PrefillTimeSource::Fitted(model, _) => {
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
    if samples == 0 && unpaired > 0 {
        return Err(Some(
            "the log's own times to the first token are not used, because it does not say what \
             was cached"
                .to_owned(),
        ));
    }
    let fitted = prefill.fit().filter(|it| it.samples >= SAMPLES_MIN);
    let Some(fitted) = fitted else {
        let few = || {
            let all = counted(samples, "time");
            format!("the log's own {all} to the first token are too few to fit to")
        };
        return Err((samples > 0).then(few));
    };
    if !fitted.grows() {
        return Err(Some(
            "not fitted to the log's own times to the first token, which do not grow with the \
             tokens that were computed"
                .to_owned(),
        ));
    }
    match fitted.median_relative_error <= ERROR_MAX {
        true => Ok(fitted),
        false => Err(Some(format!(
            "not fitted to the log's own times to the first token: a model of computing misses \
             half of them by more than {:.0} %",
            ERROR_MAX * 100.0
        ))),
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
    use headstart_insight::Bucket;

    use super::*;

    fn split(served: u32, computed: u32) -> BucketTokens {
        let mut split = BucketTokens::default();
        split.put(Bucket::Device, served);
        split.put(Bucket::NeverSeen, computed);
        split
    }

    #[test]
    fn what_is_computed_and_what_is_saved_are_the_whole_prompt() {
        let cost = PromptCostModel::of(None, Some(3.6), None).expect("valid");
        let whole = cost
            .per_token(&split(0, 4000), None, 1.0)
            .amount(4000, false);
        let both = cost.per_token(&split(3000, 1000), None, 1.0);
        let (saved, computed) = (both.amount(3000, true), both.amount(1000, false));
        assert!((saved.seconds + computed.seconds - whole.seconds).abs() < 1e-9);
        let money = whole.money.expect("an hour has a price");
        assert!(
            (money - whole.seconds / 1000.0).abs() < 1e-9,
            "3.60 an hour: a tenth of a cent"
        );
    }

    #[test]
    fn a_table_prices_tokens_whatever_time_they_take() {
        let cost = PromptCostModel::of(None, None, Some("builtin")).expect("valid");
        let per = cost.per_token(&split(1, 1), Some("any"), 1.0);
        assert_eq!(per.amount(1_000_000, false).money, Some(1.0));
        let saved = per.amount(1_000_000, true).money.expect("priced");
        assert!((saved - 0.9).abs() < 1e-9);
        assert_eq!(cost.currency(), Some("units"));
        let none = PromptCostModel::of(None, None, None).expect("valid");
        assert_eq!(
            none.per_token(&split(1, 1), None, 1.0)
                .amount(1, true)
                .money,
            None
        );
        assert!(PromptCostModel::of(None, Some(-1.0), None).is_err());
    }

    /// A log that counts fewer tokens pays for fewer.
    #[test]
    fn tokens_cost_what_the_logs_tokens_cost() {
        let hour = PromptCostModel::of(None, Some(3.6), None).expect("valid");
        let here = hour
            .per_token(&split(0, 4000), None, 0.4)
            .amount(4000, false);
        let logged = hour
            .per_token(&split(0, 1600), None, 1.0)
            .amount(1600, false);
        assert!((here.seconds - logged.seconds).abs() < 1e-9);
        assert_eq!(here.money.is_some(), logged.money.is_some());
        let table = PromptCostModel::of(None, None, Some("builtin")).expect("valid");
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
        check_refused(
            &times(|_| 0.5, 5),
            0,
            "5 times to the first token are too few",
        );
        check_refused(&Prefill::default(), 40, "does not say what was cached");
        check_refused(&Prefill::default(), 0, "");
    }
}
