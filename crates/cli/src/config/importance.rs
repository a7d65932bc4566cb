//! `--importance ratio=0.25,…`: how stored prefixes are loaded in part.
//!
//! ```toml
//! importance = "ratio=0.25,check=0.02"
//! ```
//!
//! The feature `ablations` adds settings that only tests and studies change: `when`, `fallback`,
//! `reorder` and `max-kl`.

use std::collections::HashSet;
use std::str::FromStr;

use headstart_cache::tiers::LoadWhen;
use headstart_core::UsageError;

/// Error of a value: the expected form.
type ExpectedForm = &'static str;

/// Value of `--importance`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ImportanceOption {
    /// Share of a stored prefix's tokens that each probe names.
    pub(crate) ratio: f64,
    /// The shortest stored prefix for which it is done, tokens.
    pub(crate) least_tokens: usize,
    /// Share of the prompts that are recomputed in full.
    pub(crate) check: f64,
    /// Whether everything is loaded where the probes do not agree.
    pub(crate) falls_back: bool,
    /// Whether loading is weighed against computing.
    pub(crate) load: LoadWhen,
    /// Seconds between two looks at what should be packed; `None`: never.
    pub(crate) reorder_s: Option<f64>,
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
            least_tokens: 1024,
            check: 0.01,
            falls_back: true,
            load: LoadWhen::Faster,
            reorder_s: Some(600.0),
            most_kl: 0.1,
        }
    }
}

impl FromStr for ImportanceOption {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let mut option = Self::default();
        let mut known = HashSet::new();
        for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            // A setting without `=` reaches `set` with an empty value, which reports its expected
            // form.
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            let set = option.set(key.trim(), value.trim());
            set.map_err(|expected| {
                UsageError(format!("--importance {setting}: expected {expected}"))
            })?;
            // Two values of one key contradict each other, and the last one would win silently.
            if !known.insert(key.trim()) {
                return Err(UsageError(format!("--importance {setting}: {key} is given twice")));
            }
        }
        Ok(option)
    }
}

impl ImportanceOption {
    fn set(&mut self, key: &str, value: &str) -> Result<(), ExpectedForm> {
        match key {
            "ratio" => self.ratio = number(value, 0.001, 1.0, "a share from 0.001 to 1")?,
            "least" => self.least_tokens = count(value, "tokens, 64 or more")?,
            "check" => self.check = number(value, 0.0, 1.0, "a share from 0 to 1")?,
            // The build decides whether the remaining keys exist.
            _ => return self.set_ablation(key, value),
        }
        Ok(())
    }

    #[cfg(not(feature = "ablations"))]
    fn set_ablation(&mut self, _key: &str, _value: &str) -> Result<(), ExpectedForm> {
        Err(SETTINGS)
    }

    #[cfg(feature = "ablations")]
    fn set_ablation(&mut self, key: &str, value: &str) -> Result<(), ExpectedForm> {
        match (key, value) {
            ("fallback", "on") => self.falls_back = true,
            ("fallback", "off") => self.falls_back = false,
            ("when", "faster") => self.load = LoadWhen::Faster,
            ("when", "always") => self.load = LoadWhen::Always,
            ("reorder", "off") => self.reorder_s = None,
            ("reorder", _) => self.reorder_s = Some(number(value, 0.1, 1e6, "seconds, or off")?),
            ("max-kl", _) => self.most_kl = number(value, 0.0, 1e6, "nats, 0 or more")?,
            _ => return Err(SETTINGS),
        }
        Ok(())
    }
}

const SETTINGS: ExpectedForm =
    "off alone, or ratio, least, check, each with =VALUE, commas between them";

fn number(value: &str, least: f64, most: f64, expected: ExpectedForm) -> Result<f64, ExpectedForm> {
    let number: f64 = value.parse().map_err(|_| expected)?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(expected) }
}

fn count(value: &str, expected: ExpectedForm) -> Result<usize, ExpectedForm> {
    let count: usize = value.parse().map_err(|_| expected)?;
    if count >= 64 { Ok(count) } else { Err(expected) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_is_off() {
        for off in ["", " ", "off", " off "] {
            assert_eq!(wanted(Some(off)), None, "{off:?}");
        }
        assert_eq!((wanted(None), wanted(Some("ratio=0.1"))), (None, Some("ratio=0.1")));
    }

    #[test]
    fn settings_that_are_absent_have_their_defaults() {
        let option: ImportanceOption = "".parse().expect("nothing is fine");
        assert_eq!(option, ImportanceOption::default());
        let option: ImportanceOption = "ratio=0.1, least=256,check=0.5".parse().expect("known");
        let expected = ImportanceOption {
            ratio: 0.1,
            least_tokens: 256,
            check: 0.5,
            ..ImportanceOption::default()
        };
        assert_eq!(option, expected);
    }

    #[cfg(feature = "ablations")]
    #[test]
    fn studies_have_more_settings() {
        let option: ImportanceOption =
            "when=always,fallback=off,reorder=off,max-kl=0".parse().expect("known");
        let expected = ImportanceOption {
            falls_back: false,
            load: LoadWhen::Always,
            reorder_s: None,
            most_kl: 0.0,
            ..ImportanceOption::default()
        };
        assert_eq!(option, expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("ratio=0", "ratio=0: expected a share"),
            ("ratio=NaN", "a share"),
            ("ratio", "a share"),
            ("rate=0.1", "rate=0.1: expected off alone, or ratio, least"),
            ("keep=tokens", "keep=tokens: expected off alone, or ratio"),
            ("ratio=0.1,ratio=0.2", "ratio is given twice"),
            ("0.25", "--importance 0.25: expected off alone"),
            ("least=1", "64 or more"),
            ("check=2", "a share from 0 to 1"),
        ] {
            let error = text.parse::<ImportanceOption>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
