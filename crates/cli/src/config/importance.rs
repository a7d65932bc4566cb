//! `--importance ratio=0.25,…`: how stored prefixes are loaded in part.
//!
//! ```toml
//! importance = "ratio=0.25,check=0.02"
//! ```

use std::collections::HashSet;
use std::str::FromStr;

use headstart_cache::importance::Merge;
use headstart_cache::tiers::LoadWhen;

use super::UsageError;

/// Error of a value: the expected form.
type Wrong = &'static str;

/// Value of `--importance`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ImportanceOption {
    /// Share of a stored prefix's tokens that each probe names.
    pub(crate) ratio: f64,
    /// Query heads that are asked; `None`: chosen by the model's shape.
    pub(crate) probes: Option<Vec<usize>>,
    /// Share of a query's attention to what a probe names that may be left out again.
    pub(crate) spared: f64,
    /// Whether whole chunks are kept, else tokens.
    pub(crate) whole_parts: bool,
    pub(crate) merge: Merge,
    /// Whether everything is loaded where the probes do not agree.
    pub(crate) falls_back: bool,
    /// The shortest stored prefix for which it is done, tokens.
    pub(crate) least_tokens: usize,
    /// Whether loading is weighed against computing.
    pub(crate) load: LoadWhen,
    /// Tokens of a chunk.
    pub(crate) chunk_tokens: usize,
    /// Eviction policy of the parts that stay in memory.
    pub(crate) policy: String,
    /// Seconds between two looks at what should be packed; `None`: never.
    pub(crate) reorder_s: Option<f64>,
    /// Share of the prompts that are recomputed in full.
    pub(crate) check: f64,
    /// The largest divergence that is tolerated, nats.
    pub(crate) most_kl: f64,
}

/// Returns the option unless it is `off` or empty. Neither enables a feature that changes answers.
pub(crate) fn wanted(option: Option<&str>) -> Option<&str> {
    option.filter(|text| !matches!(text.trim(), "" | "off"))
}

impl Default for ImportanceOption {
    fn default() -> Self {
        Self {
            ratio: 0.25,
            probes: None,
            spared: 0.02,
            whole_parts: true,
            merge: Merge::Union,
            falls_back: true,
            least_tokens: 1024,
            load: LoadWhen::Faster,
            chunk_tokens: 64,
            policy: "importance".to_owned(),
            reorder_s: Some(600.0),
            check: 0.01,
            most_kl: 0.1,
        }
    }
}

impl FromStr for ImportanceOption {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let mut option = Self::default();
        let mut known = HashSet::new();
        for setting in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            let set = option.set(key.trim(), value.trim());
            set.map_err(|expected| {
                UsageError(format!("--importance {setting}: expected {expected}"))
            })?;
            if !known.insert(key.trim()) {
                return Err(UsageError(format!(
                    "--importance {setting}: {key} is given twice"
                )));
            }
        }
        Ok(option)
    }
}

impl ImportanceOption {
    fn set(&mut self, key: &str, value: &str) -> Result<(), Wrong> {
        match key {
            "ratio" => self.ratio = number(value, 0.001, 1.0, "a share from 0.001 to 1")?,
            "probes" => self.probes = probes(value)?,
            "spared" => self.spared = number(value, 0.0, 1.0, "a share from 0 to 1")?,
            "keep" => self.whole_parts = chunks_or_tokens(value)?,
            "merge" => self.merge = merge(value)?,
            "fallback" => self.falls_back = on_or_off(value)?,
            "least" => self.least_tokens = count(value, "tokens, 64 or more")?,
            "when" => self.load = load_when(value)?,
            "chunk" => self.chunk_tokens = chunk(value)?,
            "policy" if !value.is_empty() => value.clone_into(&mut self.policy),
            "policy" => return Err("a policy, such as importance, lru or lfu"),
            "reorder" => self.reorder_s = seconds(value)?,
            "check" => self.check = number(value, 0.0, 1.0, "a share from 0 to 1")?,
            "max-kl" => self.most_kl = number(value, 0.0, 1e6, "nats, 0 or more")?,
            _ if key.parse::<usize>().is_ok() => {
                return Err("probes with colons between them, as probes=0:8:16");
            }
            _ => {
                return Err(
                    "off alone, or ratio, probes, spared, keep, merge, fallback, least, when, \
                     chunk, policy, reorder, check, max-kl, each with =VALUE, commas between them",
                );
            }
        }
        Ok(())
    }
}

fn number(value: &str, least: f64, most: f64, expected: Wrong) -> Result<f64, Wrong> {
    let number: f64 = value.parse().map_err(|_| expected)?;
    match (least..=most).contains(&number) {
        true => Ok(number),
        false => Err(expected),
    }
}

fn count(value: &str, expected: Wrong) -> Result<usize, Wrong> {
    let count: usize = value.parse().map_err(|_| expected)?;
    match count >= 64 {
        true => Ok(count),
        false => Err(expected),
    }
}

fn chunk(value: &str) -> Result<usize, Wrong> {
    match value {
        "16" => Ok(16),
        "32" => Ok(32),
        "64" => Ok(64),
        _ => Err("16, 32 or 64 tokens"),
    }
}

fn on_or_off(value: &str) -> Result<bool, Wrong> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off"),
    }
}

fn chunks_or_tokens(value: &str) -> Result<bool, Wrong> {
    match value {
        "chunks" => Ok(true),
        "tokens" => Ok(false),
        _ => Err("chunks or tokens"),
    }
}

/// Parses the rule that merges the token sets of several probes.
pub(crate) fn merge(value: &str) -> Result<Merge, Wrong> {
    match value {
        "union" => Ok(Merge::Union),
        "majority" => Ok(Merge::Majority),
        "sum" => Ok(Merge::Sum),
        _ => Err("union, majority or sum"),
    }
}

fn load_when(value: &str) -> Result<LoadWhen, Wrong> {
    match value {
        "faster" => Ok(LoadWhen::Faster),
        "always" => Ok(LoadWhen::Always),
        _ => Err("faster or always"),
    }
}

fn seconds(value: &str) -> Result<Option<f64>, Wrong> {
    const EXPECTED: Wrong = "seconds, 0.1 to 1000000, or off";
    match value {
        "off" => Ok(None),
        _ => number(value, 0.1, 1e6, EXPECTED).map(Some),
    }
}

fn probes(value: &str) -> Result<Option<Vec<usize>>, Wrong> {
    if value == "auto" {
        return Ok(None);
    }
    let heads: Result<Vec<usize>, _> = value.split(':').map(str::parse).collect();
    heads
        .map(Some)
        .map_err(|_| "auto, or query heads as 0:8:16")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_is_off() {
        for off in ["", " ", "off", " off "] {
            assert_eq!(wanted(Some(off)), None, "{off:?}");
        }
        assert_eq!(
            (wanted(None), wanted(Some("ratio=0.1"))),
            (None, Some("ratio=0.1"))
        );
    }

    #[test]
    fn what_is_not_said_is_as_published() {
        let option: ImportanceOption = "".parse().expect("nothing is fine");
        assert_eq!(option, ImportanceOption::default());
        let option: ImportanceOption =
            "ratio=0.1, probes=0:8:16,spared=0,keep=tokens,merge=majority,fallback=off,least=256,\
             when=always,chunk=16,policy=lru,reorder=2,check=0.5,max-kl=1"
                .parse()
                .expect("all of it is known");
        let expected = ImportanceOption {
            ratio: 0.1,
            probes: Some(vec![0, 8, 16]),
            spared: 0.0,
            whole_parts: false,
            merge: Merge::Majority,
            falls_back: false,
            least_tokens: 256,
            load: LoadWhen::Always,
            chunk_tokens: 16,
            policy: "lru".to_owned(),
            reorder_s: Some(2.0),
            check: 0.5,
            most_kl: 1.0,
        };
        assert_eq!(option, expected);
        let option: ImportanceOption = "reorder=off,probes=auto".parse().expect("known");
        assert_eq!((option.reorder_s, option.probes), (None, None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("ratio=0", "ratio=0: expected a share"),
            ("ratio=NaN", "a share"),
            ("ratio", "a share"),
            ("rate=0.1", "rate=0.1: expected off alone, or ratio, probes"),
            ("probes=0,1", "1: expected probes with colons"),
            ("ratio=0.1,ratio=0.2", "ratio is given twice"),
            ("0.25", "--importance 0.25: expected off alone"),
            ("reorder=1e30", "0.1 to 1000000"),
            ("chunk=48", "16, 32 or 64"),
            ("probes=a", "0:8:16"),
            ("keep=all", "chunks or tokens"),
            ("fallback=yes", "on or off"),
            ("least=1", "64 or more"),
            ("when=never", "faster or always"),
            ("reorder=0", "or off"),
            ("policy=", "a policy"),
        ] {
            let error = text
                .parse::<ImportanceOption>()
                .expect_err(text)
                .to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
