//! The budget that a folder was last opened with. Only reports read it: a folder without it works.

use std::io;
use std::path::Path;

use super::folder::{read_list, replace};

const FILE: &str = "budget";

/// Notes the budget of `folder`, bytes.
pub(super) fn note(folder: &Path, bytes: u64) -> io::Result<()> {
    // A report never reads half a number.
    replace(&folder.join(FILE), format!("{bytes}\n").as_bytes(), |_| Ok(()))
}

/// Returns the noted budget of `folder`, bytes.
pub(super) fn noted(folder: &Path) -> Option<u64> {
    let text = read_list(&folder.join(FILE)).ok()??;
    String::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_last_budget_is_read_back() {
        let place = tempfile::tempdir().expect("a folder");
        assert_eq!(noted(place.path()), None);
        for bytes in [1 << 30, 7] {
            note(place.path(), bytes).expect("noted");
            assert_eq!(noted(place.path()), Some(bytes));
        }
        fs::write(place.path().join(FILE), "many").expect("written");
        assert_eq!(noted(place.path()), None, "damaged");
    }
}
