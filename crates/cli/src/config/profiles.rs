//! Own ways to choose a replica: `[profiles.NAME]` in `headstart.toml`.
//!
//! ```toml
//! [profiles.sticky]
//! index = "events"                # or "approximate"; default events
//! prefer = ["unsaturated"]        # default none
//! weights = { prefix = 5, queue = 1, kv-free = 1 }
//! picker = "best"                 # default best
//! ```

use std::collections::BTreeMap;

use anyhow::Result;
use headstart_core::UsageError;
use headstart_router::Profile;
use headstart_router::profile::{IndexKind, PickerKind, ScorerKind};
use serde::Deserialize;

/// Largest weight: more would drown all others in rounding.
const WEIGHT_MAX: f64 = 1e6;

/// A profile as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ProfileTable {
    index: Option<String>,
    prefer: Vec<String>,
    weights: BTreeMap<String, f64>,
    picker: Option<String>,
}

/// The profiles that `tables` describe.
///
/// # Errors
/// When a part is unknown, or a weight is no positive number.
pub(super) fn profiles(
    tables: BTreeMap<String, ProfileTable>,
) -> Result<BTreeMap<String, Profile>, UsageError> {
    let named = tables.into_iter().map(|(name, table)| {
        let profile = table.profile(&name);
        let profile = profile.map_err(|error| UsageError(format!("[profiles.{name}]: {error}")))?;
        Ok((name, profile))
    });
    named.collect()
}

impl ProfileTable {
    fn profile(self, name: &str) -> Result<Profile, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let index: Option<IndexKind> =
            self.index.map(|index| index.parse()).transpose().map_err(|error| text(&error))?;
        let picker: Option<PickerKind> =
            self.picker.map(|picker| picker.parse()).transpose().map_err(|error| text(&error))?;
        let preferences = self.prefer.iter().map(|preference| preference.parse());
        let scorers = self.weights.into_iter().map(|(scorer, weight)| {
            // The comparison fails for NaN as well.
            if !(weight > 0.0 && weight <= WEIGHT_MAX) {
                return Err(format!(
                    "weight {weight} of {scorer}: expected more than 0, at most {WEIGHT_MAX}"
                ));
            }
            let kind: ScorerKind = scorer.parse().map_err(|error| text(&error))?;
            Ok((kind, weight))
        });
        Ok(Profile {
            name: name.to_owned(),
            index: index.unwrap_or(IndexKind::Events),
            preferences: preferences.collect::<Result<_, _>>().map_err(|error| text(&error))?,
            scorers: scorers.collect::<Result<_, _>>()?,
            picker: picker.unwrap_or(PickerKind::Best),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<BTreeMap<String, Profile>, UsageError> {
        profiles(toml::from_str(text).expect("TOML"))
    }

    #[test]
    fn a_profile_is_put_together_from_parts() {
        let text = "[mine]\nweights = { prefix = 5, kv-free = 0.5 }\nprefer = [\"unsaturated\"]\n";
        let found = parsed(text).expect("a profile");
        let mine = &found["mine"];
        assert_eq!(mine.scorers.len(), 2);
        assert_eq!((mine.index, mine.picker), (IndexKind::Events, PickerKind::Best));
        assert_eq!(mine.preferences.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_profile() {
        for (text, expected) in [
            ("[mine]\nweights = { prefixes = 5 }\n", "prefixes"),
            ("[mine]\nweights = { prefix = -1 }\n", "weight -1"),
            ("[mine]\npicker = \"worst\"\n", "worst"),
            ("[mine]\nindex = \"none\"\n", "none"),
            ("[mine]\nprefer = [\"idle\"]\n", "idle"),
        ] {
            let error = parsed(text).expect_err("must be refused").to_string();
            assert!(error.contains("[profiles.mine]") && error.contains(expected), "{error}");
        }
    }
}
