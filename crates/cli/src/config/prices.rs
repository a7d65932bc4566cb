//! A price table in a file: what `--price-table` names.
//!
//! ```toml
//! currency = "EUR"
//!
//! [models.toy]
//! cache_miss = 0.30      # of a million prompt tokens that are computed
//! cache_hit = 0.03       # of a million that are found
//! output = 0.60          # of a million generated tokens
//!
//! [models."*"]           # any other model
//! cache_miss = 1.0
//! cache_hit = 0.1
//! output = 2.0
//! ```
//!
//! `builtin` is a table of relative prices, not anybody's: see [`BUILTIN`].

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result};
use headstart_insight::prices::{Price, PriceTable};
use serde::Deserialize;

use super::toml_error;
use crate::exit::usage;

/// Name of the built-in table.
const BUILTIN_NAME: &str = "builtin";

/// Relative prices, for users without their own. A unit is the cost of a million computed prompt
/// tokens; found ones cost a tenth, generated ones four times as much.
const BUILTIN: &str = "currency = \"units\"\n\
    [models.\"*\"]\ncache_miss = 1.0\ncache_hit = 0.1\noutput = 4.0\n";

/// Explains the prices of the built-in table, if `name` is that table.
pub(crate) fn explained(name: Option<&str>) -> Option<&'static str> {
    (name == Some(BUILTIN_NAME)).then_some(
        "1 unit is the price of a million computed prompt tokens; a cached one costs a tenth, a \
         generated one four times as much",
    )
}

/// Any other model.
const OTHERS: &str = "*";

/// Allowed prices per million tokens.
const PRICES: RangeInclusive<f64> = 0.0..=1e9;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceFile {
    currency: String,
    models: BTreeMap<String, ModelPrices>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelPrices {
    cache_miss: f64,
    cache_hit: f64,
    output: f64,
}

/// Reads the table that an option names.
///
/// # Errors
/// When the file does not exist or is not a valid price table.
pub(crate) fn read(name: &str) -> Result<PriceTable> {
    let text = match name {
        BUILTIN_NAME => BUILTIN.to_owned(),
        file => std::fs::read_to_string(Path::new(file))
            .with_context(|| format!("cannot read the price table {file} (--price-table)"))?,
    };
    let wrong = |error| usage(format!("price table {name}: {error}"));
    parse(&text).map_err(wrong)
}

fn parse(text: &str) -> Result<PriceTable, String> {
    let PriceFile { currency, models } = toml::from_str(text)
        .map_err(|error| toml_error::explained(text, &error, "see --price-table"))?;
    // Reports print the currency as it is, and a control character could change a terminal.
    if currency.is_empty() || currency.chars().any(char::is_control) {
        return Err("currency: expected a name such as EUR".to_owned());
    }
    if models.is_empty() {
        return Err("no model has a price: give [models.NAME], or [models.\"*\"]".to_owned());
    }
    let mut table = PriceTable { currency, models: BTreeMap::new(), others: None };
    for (model, row) in models {
        let prices =
            [("cache_miss", row.cache_miss), ("cache_hit", row.cache_hit), ("output", row.output)];
        for (name, price) in prices {
            // The range excludes infinities and NaN, which would turn every sum into one.
            if !PRICES.contains(&price) {
                return Err(format!(
                    "{model}: {name} {price}: expected what a million tokens cost, 0 or more"
                ));
            }
        }
        let price =
            Price { cache_miss: row.cache_miss, cache_hit: row.cache_hit, output: row.output };
        match model.as_str() {
            OTHERS => table.others = Some(price),
            _ => drop(table.models.insert(model, price)),
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "currency = \"EUR\"\n[models.toy]\ncache_miss = 0.3\ncache_hit = 0.03\n\
        output = 0.6\n[models.\"*\"]\ncache_miss = 1\ncache_hit = 0.1\noutput = 2\n";

    #[test]
    fn a_file_is_a_table() {
        let table = parse(EXAMPLE).expect("valid");
        let toy = table.of("toy").expect("it is named");
        assert_eq!((toy.cache_miss, toy.cache_hit, toy.output), (0.3, 0.03, 0.6));
        let other = table.of("other").expect("all have one");
        assert_eq!(other.cache_miss, 1.0);
        let wrong = |from: &str, to: &str| parse(&EXAMPLE.replace(from, to)).expect_err("wrong");
        assert!(wrong("0.03", "-1").contains("toy: cache_hit"));
        assert!(wrong("0.6", "nan").contains("output"));
        assert!(wrong("cache_miss = 0.3\n", "").contains("cache_miss"));
        assert!(wrong("EUR", "").contains("currency"));
        assert!(wrong("output = 0.6", "outputs = 0.6").contains("outputs"));
        assert!(parse("currency = \"EUR\"\n[models]\n").expect_err("none").contains("[models."));
    }

    #[test]
    fn the_built_in_table_is_relative() {
        let table = read(BUILTIN_NAME).expect("valid");
        assert_eq!(table.currency, "units");
        assert!(table.of("any").is_some());
    }
}
