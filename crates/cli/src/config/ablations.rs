//! Options that switch a part of a policy off. Only studies need them: they work in a build with
//! the feature `ablations`.

/// Such options of `gdsf`, `hazard`, `lpc` and `wa`.
const OF_POLICIES: [&str; 18] = [
    "admit-all",
    "exponential",
    "literal-max",
    "no-blocks",
    "no-decay",
    "no-finish",
    "no-gap",
    "no-ghosts",
    "no-guard",
    "no-life",
    "no-lineage",
    "no-mean-gap",
    "no-new-blocks",
    "no-offset",
    "no-output",
    "no-turn",
    "no-type",
    "one-class",
];

/// Returns a policy with its options as given.
///
/// # Errors
/// When one of the options is not in this build.
pub fn policy(spec: &str) -> Result<String, String> {
    let mut options = spec.split(':');
    // The guard of `hazard` is for its users to switch off.
    let is_hazard = options.next() == Some("hazard");
    let is_ablation =
        |option: &&str| OF_POLICIES.contains(option) && !(is_hazard && *option == "no-guard");
    match options.find(is_ablation) {
        // The option is known but would be ignored, so it is refused by name.
        Some(option) if !cfg!(feature = "ablations") => Err(format!(
            "`{option}` switches a part of the policy off, for studies; leave it out, or build \
             with `--features ablations`"
        )),
        _ => Ok(spec.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_whole_unless_a_build_has_ablations() {
        for spec in ["wa", "wa:life=5", "lpc:interval=15", "no-guard", "hazard:no-guard:charge=9"] {
            assert_eq!(policy(spec).as_deref(), Ok(spec));
        }
        for spec in ["wa:life=5:no-guard", "lpc:no-decay", "hazard:no-finish"] {
            assert_eq!(policy(spec).is_ok(), cfg!(feature = "ablations"), "{spec}");
        }
    }
}
