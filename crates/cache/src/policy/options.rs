//! The text that names a policy and its options: `name[:key=value][:flag]…`.
//!
//! A policy reads its options by name. One that nothing has read is one that it does not have, and
//! the error lists those that it has.
//!
//! Source: ours, no policy.

use super::{NAMES, OFFLINE_NAMES};

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
    /// The policy's name.
    pub(crate) name: &'a str,
    rest: Vec<&'a str>,
    /// Syntax of each option that the policy has.
    asked: Vec<String>,
}

impl<'a> SpecOptions<'a> {
    pub(crate) fn new(spec: &'a str) -> Self {
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

    /// # Errors
    /// When an option is left: the policy does not have it.
    pub(crate) fn finish(self) -> Result<(), PolicyError> {
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
