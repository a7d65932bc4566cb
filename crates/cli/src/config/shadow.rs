//! `--shadow KEY=N,…`.

use crate::exit::usage;
use anyhow::Result;
use headstart_server::shadow::ShadowConfig;

/// Blocks that all replicas of an arm may hold: names of blocks take some 60 bytes each, and
/// there are eleven arms.
const BLOCKS_MAX: usize = 1 << 22;

/// Most replicas of an arm.
const REPLICAS_MAX: usize = 256;

/// Parses a value; omitted keys keep their defaults.
pub(super) fn parse(text: &str) -> Result<ShadowConfig> {
    let mut config = ShadowConfig::default();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let Some((key, value)) = part.split_once('=') else {
            return Err(wrong(part, "expected KEY=N"));
        };
        let Ok(number) = value.trim().parse::<usize>() else {
            return Err(wrong(part, "expected a whole number"));
        };
        // Place and range go together, so no key can be stored with the limits of another.
        let (place, range) = match key.trim() {
            "replicas" => (&mut config.replicas, 1..=REPLICAS_MAX),
            "blocks" => (&mut config.blocks, 1..=BLOCKS_MAX),
            "block-size" => (&mut config.block_size, 1..=4096),
            _ => return Err(wrong(part, "known are replicas, blocks and block-size")),
        };
        if !range.contains(&number) {
            let (from, to) = range.into_inner();
            return Err(wrong(part, &format!("expected {from} to {to}")));
        }
        *place = number;
    }
    // Both factors are bounded above, so the product does not overflow.
    if config.replicas * config.blocks > BLOCKS_MAX {
        let message = format!("{BLOCKS_MAX} blocks at most, on all replicas together");
        return Err(wrong(text, &message));
    }
    Ok(config)
}

fn wrong(part: &str, why: &str) -> anyhow::Error {
    usage(format!("--shadow {part}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_as_by_default() {
        let parsed = parse("").expect("nothing is asked for");
        assert_eq!(parsed, ShadowConfig::default());
        let parsed = parse("replicas=8, blocks=1000").expect("two of three");
        assert_eq!((parsed.replicas, parsed.blocks, parsed.block_size), (8, 1000, 16));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (text, why) in [
            ("replicas", "expected KEY=N"),
            ("replicas=0", "expected 1 to 256"),
            ("blocks=many", "whole number"),
            ("rooms=4", "known are replicas"),
            ("replicas=256,blocks=4000000", "on all replicas"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
