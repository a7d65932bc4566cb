//! Token prices set by the operator, to express cache savings as money.
//!
//! Nothing here knows any vendor's prices: without a table there is no money in the metrics.

use std::collections::BTreeMap;

/// Tokens that a price is for.
const PER: f64 = 1e6;

/// Prices of a model's tokens, each for a million of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Prompt tokens that are computed.
    pub cache_miss: f64,
    /// Prompt tokens that are found.
    pub cache_hit: f64,
    /// Generated tokens.
    pub output: f64,
}

impl Price {
    /// Returns the money saved by `found` cached prompt tokens; negative where a hit costs more.
    #[must_use]
    pub fn saved(&self, found: f64) -> f64 {
        found * (self.cache_miss - self.cache_hit) / PER
    }

    /// Returns the total price of computed, found and generated tokens.
    #[must_use]
    pub fn paid(&self, computed: f64, found: f64, generated: f64) -> f64 {
        (computed * self.cache_miss + found * self.cache_hit + generated * self.output) / PER
    }
}

/// Prices of models.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PriceTable {
    /// Currency of the prices: a label, never converted.
    pub currency: String,
    /// By the model's name in the API.
    pub models: BTreeMap<String, Price>,
    /// Of models that are not named, if they have one.
    pub others: Option<Price>,
}

impl PriceTable {
    /// The price of a model's tokens.
    #[must_use]
    pub fn of(&self, model: &str) -> Option<Price> {
        self.models.get(model).copied().or(self.others)
    }

    /// Returns the money lost by computing these tokens of each model instead of finding them. A
    /// model whose hits cost more than misses adds 0. `None` if a model with tokens has no price,
    /// because a part must not look like the whole.
    pub fn lost<'a>(&self, tokens: impl IntoIterator<Item = (&'a str, u64)>) -> Option<f64> {
        let counted = tokens.into_iter().filter(|&(_, tokens)| tokens > 0);
        let costs = counted.map(|(model, tokens)| {
            let price = self.of(model)?;
            Some(price.saved(tokens as f64).max(0.0))
        });
        costs.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_saves_the_difference() {
        let price = Price { cache_miss: 0.5, cache_hit: 0.1, output: 2.0 };
        let close = |one: f64, other: f64| (one - other).abs() < 1e-12;
        assert!(close(price.saved(1e6), 0.4));
        let (with, without) = (price.paid(1e6, 3e6, 1e6), price.paid(4e6, 0.0, 1e6));
        assert!(close(without - with, price.saved(3e6)));
        let table = PriceTable {
            currency: "EUR".to_owned(),
            models: BTreeMap::from([("a".to_owned(), price)]),
            others: None,
        };
        assert_eq!((table.of("a"), table.of("b")), (Some(price), None));
        let lost = table.lost([("a", 2_000_000), ("b", 0)]).expect("priced");
        assert!(close(lost, 0.8), "{lost}");
        assert_eq!(table.lost([("a", 2_000_000), ("b", 1)]), None);
        assert_eq!(table.lost([]), Some(0.0));
    }
}
