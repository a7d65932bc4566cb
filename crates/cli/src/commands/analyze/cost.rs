//! What prompt tokens cost, in seconds and in money.

use anyhow::Result;
use headstart_core::EngineModel;
use headstart_core::cost::Work;
use headstart_insight::Split;
use headstart_server::prices::PriceTable;

use crate::config::{UsageError, cost_model, prices};
use crate::report::analyze::Amount;

/// How seconds and money are reckoned.
pub(crate) struct Cost {
    seconds: Seconds,
    money: Money,
}

/// Where seconds come from.
enum Seconds {
    /// An engine's cost model, and what it is called.
    Engine(Box<EngineModel>, String),
}

enum Money {
    Unknown,
    /// Of an hour of a replica.
    Hour(f64),
    Table(PriceTable),
}

impl Cost {
    /// As the command line says.
    ///
    /// # Errors
    /// When a file cannot be read, or an hour cannot cost that.
    pub(crate) fn of(
        engine: Option<&std::path::Path>,
        gpu_hour: Option<f64>,
        price_table: Option<&str>,
    ) -> Result<Self> {
        let seconds = match engine {
            Some(path) => {
                let engine = cost_model::read(path)?.engine;
                Seconds::Engine(
                    Box::new(engine),
                    format!("the cost model {}", path.display()),
                )
            }
            None => Seconds::Engine(
                Box::new(EngineModel::default_engine()),
                "a data-sheet model of Llama 3.1 8B on one H100; --cost-model FILE for yours"
                    .to_owned(),
            ),
        };
        let money = match (gpu_hour, price_table) {
            (Some(hour), _) if !(0.0..=1e6).contains(&hour) => {
                let message = format!("--gpu-hour {hour}: expected what an hour costs, 0 or more");
                return Err(UsageError(message).into());
            }
            (Some(hour), _) => Money::Hour(hour),
            (None, Some(table)) => Money::Table(prices::read(table)?),
            (None, None) => Money::Unknown,
        };
        Ok(Self { seconds, money })
    }

    /// The engine whose memory and speed are reckoned with.
    pub(crate) fn engine(&self) -> &EngineModel {
        let Seconds::Engine(engine, _) = &self.seconds;
        engine
    }

    /// Where seconds come from, for the reader.
    pub(crate) fn seconds_from(&self) -> &str {
        let Seconds::Engine(_, name) = &self.seconds;
        name
    }

    /// In what money is.
    pub(crate) fn currency(&self) -> Option<&str> {
        match &self.money {
            Money::Unknown => None,
            Money::Hour(_) => Some("$"),
            Money::Table(table) => Some(&table.currency),
        }
    }

    /// What each token of a request costs whose tokens landed as `split` says: of computed ones
    /// what they took, of served ones what they saved. In the mean over either kind, because
    /// tokens of a prompt are computed together.
    pub(crate) fn per_token(&self, split: &Split, model: Option<&str>) -> PerToken {
        let total = split.total() as usize;
        let served: u64 = split
            .iter()
            .filter(|it| it.0.is_served())
            .map(|it| u64::from(it.1))
            .sum();
        let served = served as usize;
        let computed_s = self.prefill_s(served, total - served);
        let saved_s = (self.prefill_s(0, total) - computed_s).max(0.0);
        let each = |seconds: f64, tokens: usize| seconds / tokens.max(1) as f64;
        let seconds = [each(computed_s, total - served), each(saved_s, served)];
        let money = match &self.money {
            Money::Unknown => None,
            Money::Hour(hour) => Some(seconds.map(|seconds| seconds / 3600.0 * hour)),
            Money::Table(table) => table
                .of(model.unwrap_or_default())
                .map(|price| [price.paid(1.0, 0.0, 0.0), price.saved(1.0)]),
        };
        PerToken { seconds, money }
    }

    fn prefill_s(&self, before: usize, new: usize) -> f64 {
        let Seconds::Engine(engine, _) = &self.seconds;
        engine.prefill_s(before, new, engine.base_s(Work::default()))
    }
}

/// Of a computed token, then of a served one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerToken {
    seconds: [f64; 2],
    money: Option<[f64; 2]>,
}

impl PerToken {
    /// So many tokens, served or computed.
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

    fn split(served: u32, computed: u32) -> Split {
        let mut split = Split::default();
        split.put(Bucket::Device, served);
        split.put(Bucket::NeverSeen, computed);
        split
    }

    #[test]
    fn what_is_computed_and_what_is_saved_are_the_whole_prompt() {
        let cost = Cost::of(None, Some(3.6), None).expect("valid");
        let whole = cost.per_token(&split(0, 4000), None).amount(4000, false);
        let both = cost.per_token(&split(3000, 1000), None);
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
        let cost = Cost::of(None, None, Some("builtin")).expect("valid");
        let per = cost.per_token(&split(1, 1), Some("any"));
        assert_eq!(per.amount(1_000_000, false).money, Some(1.0));
        let saved = per.amount(1_000_000, true).money.expect("priced");
        assert!((saved - 0.9).abs() < 1e-9);
        assert_eq!(cost.currency(), Some("units"));
        let none = Cost::of(None, None, None).expect("valid");
        assert_eq!(
            none.per_token(&split(1, 1), None).amount(1, true).money,
            None
        );
        assert!(Cost::of(None, Some(-1.0), None).is_err());
    }
}
