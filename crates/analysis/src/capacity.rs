//! Capacities as people write them: `6000`, `6k`, `160Ktok`, `1%`, `40GiB`.

use std::str::FromStr;

use headstart_core::UsageError;
use headstart_core::figures::{counted, thousands};

use crate::cost::PromptCostModel;
use crate::kv_bytes::KvBytes;
use crate::memory::Bounds;
use crate::traffic::LoggedTraffic;

/// Default number of sizes to replay.
const GRID_SIZES: usize = 12;

/// The smallest of them, as a share of the distinct blocks; the largest is all of them.
const GRID_SMALLEST: f64 = 0.001;

/// Words for an error.
const FORMS: &str = "6000 or 6k (blocks), 160Ktok (tokens), 1% (of the trace's distinct blocks), \
                     40GiB or 16GB (with --model)";

/// A size of a cache, as asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CapacitySpec {
    /// Blocks.
    Blocks(f64),
    /// Tokens.
    Tokens(f64),
    /// Share of the distinct blocks, per cent.
    Percent(f64),
    /// Bytes of keys and values.
    Bytes(f64),
}

/// Parameters for the conversion of a capacity into blocks.
#[derive(Clone, Copy, Debug)]
pub struct Scale<'a> {
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Distinct blocks of the trace.
    pub distinct_blocks: u64,
    /// Size of a token's keys and values, if it is known.
    pub kv: Option<&'a KvBytes>,
}

impl FromStr for CapacitySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no capacity; write {FORMS}");
        let is_digit = |letter: char| letter.is_ascii_digit() || letter == '.';
        // The unit begins at the first character that is no part of the number.
        let end = text.find(|letter| !is_digit(letter)).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        // An empty number fails here, so a unit alone is no capacity.
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let capacity =
            of_unit(number, &unit.trim_start().to_ascii_lowercase()).ok_or_else(wrong)?;
        // A negative number cannot come this far: its sign is no digit.
        if number > 0.0 {
            Ok(capacity)
        } else {
            Err(format!("`{text}`: a cache holds at least one block"))
        }
    }
}

fn of_unit(number: f64, unit: &str) -> Option<CapacitySpec> {
    if unit == "%" {
        return (number <= 100.0).then_some(CapacitySpec::Percent(number));
    }
    if let Some(prefix) = unit.strip_suffix("tok") {
        return Some(CapacitySpec::Tokens(number * factor(prefix)?));
    }
    // `ib` ends in `b` as well, so powers of 1024 are tried first.
    if let Some(prefix) = unit.strip_suffix("ib") {
        return Some(CapacitySpec::Bytes(number * binary(prefix)?));
    }
    match unit.strip_suffix('b') {
        // A plain `b` could be blocks as well as bytes.
        Some("") => None,
        Some(prefix) => Some(CapacitySpec::Bytes(number * factor(prefix)?)),
        None => Some(CapacitySpec::Blocks(number * factor(unit)?)),
    }
}

fn factor(prefix: &str) -> Option<f64> {
    Some(match prefix {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        _ => return None,
    })
}

fn binary(prefix: &str) -> Option<f64> {
    let power = ["k", "m", "g", "t"].iter().position(|&known| known == prefix)?;
    Some(1024_f64.powi(power as i32 + 1))
}

impl CapacitySpec {
    /// Whether a model has to say how large a block is.
    pub fn needs_model(self) -> bool {
        matches!(self, Self::Bytes(_))
    }

    /// Converts to whole blocks, rounded down (a share: to the nearest). `Err` for less than a
    /// block, or for bytes without a model.
    pub fn blocks(self, scale: &Scale<'_>) -> Result<u64, String> {
        let block_tokens = f64::from(scale.block_tokens.max(1));
        let (blocks, block) = match self {
            Self::Blocks(blocks) => (blocks.floor(), "1 block".to_owned()),
            Self::Tokens(tokens) => {
                let blocks = (tokens / block_tokens).floor();
                (blocks, counted(u64::from(scale.block_tokens), "token"))
            }
            Self::Percent(percent) => {
                let blocks = (percent / 100.0 * scale.distinct_blocks as f64).round();
                // A small share of a small trace would round to no block.
                (blocks.max(1.0), String::new())
            }
            Self::Bytes(bytes) => {
                let kv = scale.kv.ok_or("bytes need --model FOLDER or config.json")?;
                let block_bytes = kv.per_token as f64 * block_tokens;
                let blocks = (bytes / block_bytes).floor();
                (blocks, format!("{block_bytes} bytes of keys and values"))
            }
        };
        if blocks >= 1.0 {
            Ok(blocks as u64)
        } else {
            Err(format!("the cache holds no block; one takes {block}"))
        }
    }
}

/// Capacity of one replica, in blocks of a log's traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaCapacity {
    /// Blocks, at least one.
    pub blocks: u64,
    /// Source of the number, for the reader.
    pub from: String,
}

impl ReplicaCapacity {
    /// The KV memory of the engine that `cost` models.
    pub fn of_engine(traffic: &LoggedTraffic, cost: &PromptCostModel) -> Self {
        let counts = &traffic.counts;
        let tokens = cost.engine().kv_tokens as f64;
        // The engine's memory holds tokens of its own tokenizer; the blocks here hold other ones.
        let blocks = tokens * counts.factor() / f64::from(traffic.info.block_tokens.max(1));
        let logged = if counts.differ() {
            format!(": {} of the log's tokens", thousands(tokens as u64))
        } else {
            String::new()
        };
        let from = if cost.is_data_sheet() {
            format!("what Llama 3.1 8B leaves on an H100{logged}; --capacity for yours")
        } else {
            format!("as the cost model says{logged}")
        };
        Self { blocks: (blocks as u64).max(1), from }
    }

    /// The capacity that `text` names, such as `40GiB`; `kv` is needed for bytes.
    ///
    /// # Errors
    /// When `text` is no capacity, or less than a block.
    pub fn asked(
        text: &str,
        traffic: &LoggedTraffic,
        kv: Option<&KvBytes>,
    ) -> Result<Self, UsageError> {
        let capacity = text.parse::<CapacitySpec>();
        let capacity = capacity.map_err(|error| UsageError(format!("--capacity: {error}")))?;
        let pieces = Bounds::default().limits.pieces;
        let scale = Scale {
            block_tokens: traffic.info.block_tokens,
            distinct_blocks: match capacity {
                // Counting the distinct blocks is a pass over the trace, so only a share pays for
                // it.
                CapacitySpec::Percent(_) => traffic.distinct_blocks(pieces),
                _ => 0,
            },
            kv,
        };
        let blocks = capacity.blocks(&scale);
        let blocks = blocks.map_err(|error| UsageError(format!("--capacity {text}: {error}")))?;
        // Tokens and bytes are those of the log's model.
        let blocks = match capacity {
            CapacitySpec::Tokens(_) | CapacitySpec::Bytes(_) => {
                (blocks as f64 * traffic.counts.factor()) as u64
            }
            CapacitySpec::Blocks(_) | CapacitySpec::Percent(_) => blocks,
        };
        Ok(Self { blocks: blocks.max(1), from: format!("--capacity {text}") })
    }
}

/// Sizes spread evenly over the logarithm, from a thousandth of the distinct blocks to all of
/// them, cut to two digits.
pub fn grid(distinct_blocks: u64) -> Vec<u64> {
    // The logarithm of zero blocks is not finite.
    let all = distinct_blocks.max(1) as f64;
    let smallest = (GRID_SMALLEST * all).max(1.0);
    let step = (all / smallest).powf(1.0 / (GRID_SIZES - 1) as f64);
    let sizes = (0..GRID_SIZES - 1).map(|index| smallest * step.powi(index as i32));
    let mut grid: Vec<u64> = sizes.map(two_digits).collect();
    // The last size is exact: cut to two digits it may be smaller than the trace.
    grid.push(distinct_blocks.max(1));
    // Small traces give the same size several times.
    grid.dedup();
    grid
}

fn two_digits(value: f64) -> u64 {
    // Below ten the unit stays 1: sizes are whole blocks.
    let unit = 10_f64.powf((value.log10().floor() - 1.0).max(0.0));
    ((value / unit).floor() * unit) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv() -> KvBytes {
        KvBytes { per_token: 1024, shape: String::new() }
    }

    fn check(text: &str, expected: Result<u64, &str>) {
        let kv = kv();
        let scale = Scale { block_tokens: 512, distinct_blocks: 20_000, kv: Some(&kv) };
        let got = text.parse().and_then(|capacity: CapacitySpec| capacity.blocks(&scale));
        match (&got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(*got, expected, "{text}"),
            (Err(got), Err(part)) => assert!(got.contains(part), "{text}: {got}"),
            (got, expected) => panic!("{text}: {got:?} against {expected:?}"),
        }
    }

    #[test]
    fn units_are_what_they_say() {
        check("6000", Ok(6_000));
        check("6k", Ok(6_000));
        check("1.5K", Ok(1_500));
        check("160Ktok", Ok(312));
        check("1024 tok", Ok(2));
        check("1%", Ok(200));
        check("0.001%", Ok(1));
        check("100%", Ok(20_000));
        check("1GiB", Ok(2_048));
        check("1GB", Ok(1_907));
        check("512kib", Ok(1));
        check("99999999999999999999", Ok(u64::MAX));
    }

    #[test]
    fn what_is_no_capacity_is_refused() {
        check("", Err("write 6000 or 6k"));
        check("many", Err("`many` is no capacity"));
        check("-5", Err("no capacity"));
        check("1.2.3", Err("no capacity"));
        check("5 b", Err("no capacity"));
        check("5xb", Err("no capacity"));
        check("5 blocks", Err("no capacity"));
        check("101%", Err("no capacity"));
        check("0", Err("at least one block"));
        check("0%", Err("at least one block"));
        check("0.5", Err("holds no block; one takes 1 block"));
        check("511tok", Err("one takes 512 tokens"));
        check("511kib", Err("one takes 524288 bytes"));
        let scale = Scale { block_tokens: 512, distinct_blocks: 1, kv: None };
        let error = CapacitySpec::Bytes(1e9).blocks(&scale).expect_err("no model");
        assert!(error.contains("--model"), "{error}");
    }

    #[test]
    fn the_grid_goes_from_a_thousandth_to_everything() {
        let grid_of_many = grid(182_790);
        assert_eq!(grid_of_many.len(), GRID_SIZES);
        assert_eq!((grid_of_many[0], grid_of_many[11]), (180, 182_790));
        for distinct in [0, 1, 2, 7, 100, 5_000, u64::MAX] {
            let grid = grid(distinct);
            assert!(grid.windows(2).all(|pair| pair[0] < pair[1]), "{grid:?}");
            assert!(grid[0] >= 1 && grid.last() == Some(&distinct.max(1)));
        }
    }
}
