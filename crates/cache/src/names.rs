//! Policies by name, with options: `name[:key=value][:flag]…`.

use std::sync::Arc;

use crate::future::Future;
use crate::policy::{NAMES, OFFLINE, OFFLINE_NAMES, ONLINE, Policy};

/// The cache that a policy is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its slots.
    pub capacity: usize,
    /// Tokens per block; options in tokens are divided by it.
    pub block_tokens: u32,
}

impl Setting {
    /// `tokens` in blocks.
    pub(crate) fn blocks(&self, tokens: f64) -> f64 {
        tokens / f64::from(self.block_tokens.max(1))
    }
}

/// A policy that cannot be made; says what would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// An unknown name.
    Unknown {
        /// The name.
        name: String,
    },
    /// A policy that reads the future, requested without one.
    NeedsFuture {
        /// The name.
        name: String,
    },
    /// An option that the policy does not have, or a value that it cannot take.
    BadOption {
        /// The name.
        name: String,
        /// The option as written.
        option: String,
        /// The options that the policy takes.
        known: String,
    },
}

impl std::fmt::Display for PolicyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown { name } => {
                let (online, bounds) = (NAMES.join(", "), OFFLINE_NAMES.join(", "));
                write!(f, "unknown policy `{name}`; known: {online}; in replay also {bounds}")
            }
            Self::NeedsFuture { name } => write!(
                f,
                "policy `{name}` reads the future and works in replay only; one that serves: {}",
                NAMES.join(", ")
            ),
            Self::BadOption { name, option, known } => {
                write!(f, "policy `{name}` does not take `{option}`; it takes {known}")
            }
        }
    }
}

impl std::error::Error for PolicyError {}

/// Makes an online policy by its published name: a row of `ONLINE`, with its options.
///
/// The memory that a policy itself needs is no option of the policy: see [`split_charge`].
///
/// # Errors
/// [`PolicyError`], when the name or an option is not known.
pub fn by_name(spec: &str, setting: Setting) -> Result<Box<dyn Policy>, PolicyError> {
    let mut options = SpecOptions::new(spec);
    let Some(found) = ONLINE.iter().find(|entry| entry.name == options.name) else {
        let name = options.name.to_owned();
        // The name of a bound is known, so the error says why it cannot serve.
        return Err(if OFFLINE_NAMES.contains(&&*name) {
            PolicyError::NeedsFuture { name }
        } else {
            PolicyError::Unknown { name }
        });
    };
    let policy = (found.make)(setting, &mut options)?;
    // `make` has read its options: one that is left is one that the policy does not have.
    options.finish()?;
    Ok(policy)
}

/// Makes any policy, offline bounds included, for the trace that `future` was made of.
///
/// # Errors
/// [`PolicyError`], when the name or an option is not known.
pub fn offline(
    spec: &str,
    setting: Setting,
    future: &Arc<Future>,
) -> Result<Box<dyn Policy>, PolicyError> {
    let options = SpecOptions::new(spec);
    let Some(found) = OFFLINE.iter().find(|entry| entry.name == options.name) else {
        return by_name(spec, setting);
    };
    let policy = (found.make)(setting.capacity, future.clone());
    options.finish()?;
    Ok(policy)
}

/// Whether the policy that `spec` names reads predictions, and is LRU where there are none.
#[must_use]
pub fn reads_predictions(spec: &str) -> bool {
    let name = SpecOptions::new(spec).name;
    ONLINE.iter().any(|entry| entry.name == name && entry.reads_predictions)
}

/// Takes the charge out of a specification: `lpc:charge=16000` is `lpc` on a cache that is 16,000
/// tokens smaller, because what predicts for it takes their memory. Any policy may be charged.
///
/// Returns the specification without it, and the charge in whole blocks of `block_tokens` tokens,
/// rounded up; 0 blocks without a charge. The caller subtracts them from the capacity, of which
/// nothing may be left.
///
/// # Errors
/// [`PolicyError::BadOption`] when the charge is no number from 0 up.
pub fn split_charge(spec: &str, block_tokens: u32) -> Result<(String, usize), PolicyError> {
    let mut options = SpecOptions::new(spec);
    let is_fine = |tokens: f64| tokens >= 0.0 && tokens.is_finite();
    let tokens = options.number("charge", 0.0, is_fine)?;
    let blocks = (tokens / f64::from(block_tokens.max(1))).ceil() as usize;
    // The other options are the policy's, which reads them from the rest.
    let rest = [&[options.name], &options.rest[..]].concat();
    Ok((rest.join(":"), blocks))
}

/// Options of a specification that have not been read yet.
pub(crate) struct SpecOptions<'a> {
    name: &'a str,
    rest: Vec<&'a str>,
    /// Syntax of each option that the policy has.
    asked: Vec<String>,
}

impl<'a> SpecOptions<'a> {
    fn new(spec: &'a str) -> Self {
        let mut parts = spec.split(':');
        Self { name: parts.next().unwrap_or_default(), rest: parts.collect(), asked: Vec::new() }
    }

    /// The value of `key`, a number that `is_fine`.
    pub(crate) fn number(
        &mut self,
        key: &'static str,
        default: f64,
        is_fine: impl Fn(f64) -> bool,
    ) -> Result<f64, PolicyError> {
        // The option is noted even if it is absent: an error lists all that the policy reads.
        self.asked.push(format!("`{key}=NUMBER`"));
        let is_key = |part: &&str| part.split_once('=').is_some_and(|(name, _)| name == key);
        let Some(index) = self.rest.iter().position(is_key) else {
            return Ok(default);
        };
        let part = self.rest[index];
        let value = part.split_once('=').and_then(|(_, text)| text.parse().ok());
        match value.filter(|&value| is_fine(value)) {
            Some(value) => {
                self.rest.remove(index);
                Ok(value)
            }
            None => Err(self.bad(part)),
        }
    }

    /// Whether the word `key` is there.
    pub(crate) fn flag(&mut self, key: &'static str) -> bool {
        self.asked.push(format!("`{key}`"));
        let index = self.rest.iter().position(|&part| part == key);
        index.map(|index| self.rest.remove(index)).is_some()
    }

    pub(crate) fn positive(&mut self, key: &'static str, default: f64) -> Result<f64, PolicyError> {
        self.number(key, default, |value| value > 0.0 && value.is_finite())
    }

    pub(crate) fn whole(&mut self, key: &'static str, default: u64) -> Result<u64, PolicyError> {
        // Below 2^53, up to which an `f64` holds every whole number exactly.
        let is_whole = |value: f64| (0.0..9e15).contains(&value) && value.fract() == 0.0;
        Ok(self.number(key, default as f64, is_whole)? as u64)
    }

    pub(crate) fn share(&mut self, key: &'static str, default: f64) -> Result<f64, PolicyError> {
        self.number(key, default, |value| (0.0..=1.0).contains(&value))
    }

    fn finish(self) -> Result<(), PolicyError> {
        match self.rest.first() {
            Some(option) => Err(self.bad(option)),
            None => Ok(()),
        }
    }

    fn bad(&self, option: &str) -> PolicyError {
        PolicyError::BadOption {
            name: self.name.to_owned(),
            option: option.to_owned(),
            known: if self.asked.is_empty() {
                "no options".to_owned()
            } else {
                self.asked.join(", ")
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting = Setting { capacity: 4, block_tokens: 16 };

    #[test]
    fn every_name_makes_a_policy() {
        for name in NAMES {
            assert!(by_name(name, SETTING).is_ok(), "{name}");
        }
        for name in NAMES.iter().chain(OFFLINE_NAMES) {
            assert!(offline(name, SETTING, &Arc::default()).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |spec, part: &str| {
            let error = by_name(spec, SETTING).err().expect(spec).to_string();
            assert!(error.contains(part), "{error}");
        };
        check("mru", "unknown policy `mru`; known: lru, fifo");
        check("belady", "works in replay only");
        check("lru:life=5", "`lru` does not take `life=5`; it takes no options");
        check("gdsf:depth=-1", "it takes `depth=NUMBER`");
        check("s3fifo:small=2", "does not take `small=2`");
        check("s3fifo:samll=0.2", "it takes `small=NUMBER`, `ghost=NUMBER`");
        assert!(by_name("s3fifo:ghost=0.5:small=0.2", SETTING).is_ok());
        check("lpc:interval=0", "does not take `interval=0`; it takes `interval=NUMBER`");
        check("lpc:charge=5", "does not take `charge=5`");
        assert!(by_name("lpc:interval=30:no-decay:literal-max", SETTING).is_ok());
    }

    #[test]
    fn who_reads_predictions_is_told_by_the_name() {
        assert!(reads_predictions("lpc") && reads_predictions("lpc:no-decay:charge=5"));
        assert!(!reads_predictions("lru") && !reads_predictions("wa:lpc"));
    }

    #[test]
    fn a_charge_is_taken_out_and_told_in_blocks() {
        let check = |spec, expected: Option<(&str, usize)>| {
            let split = split_charge(spec, 16).ok();
            let split = split.as_ref().map(|(spec, blocks)| (spec.as_str(), *blocks));
            assert_eq!(split, expected, "{spec}");
        };
        check("lpc", Some(("lpc", 0)));
        check("lpc:charge=16000", Some(("lpc", 1_000)));
        check("lpc:charge=17:no-decay", Some(("lpc:no-decay", 2)));
        check("s3fifo:small=0.2:charge=0:ghost=1", Some(("s3fifo:small=0.2:ghost=1", 0)));
        check("lpc:charge=-1", None);
        check("lpc:charge=much", None);
        check("lpc:charge=inf", None);
    }
}
