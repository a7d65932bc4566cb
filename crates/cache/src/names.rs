//! Policies by name: the row of a specification's name makes the policy, with its options.

use std::sync::Arc;

use crate::future::Future;
use crate::policy::options::{PolicyError, Setting, SpecOptions};
use crate::policy::{OFFLINE, OFFLINE_NAMES, ONLINE, Policy};

/// Makes an online policy by its published name: a row of `ONLINE`, with its options.
///
/// The memory that a policy itself needs is no option of the policy: see
/// [`split_charge`](crate::policy::split_charge).
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

/// Whether the policy that `spec` names learns from the ends of answers: then a lower tier that it
/// rules is best written when a request ends.
#[must_use]
pub fn learns_ends(spec: &str) -> bool {
    let name = SpecOptions::new(spec).name;
    ONLINE.iter().any(|entry| entry.name == name && entry.learns_ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::NAMES;

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
        assert!(learns_ends("hazard:no-guard") && !learns_ends("lru"));
    }
}
