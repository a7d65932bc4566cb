//! The budget that a folder was last opened with. Only reports read it: a folder without it works.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::folder::{PRIVATE_FILE, read_list};

const FILE: &str = "budget";

/// Notes the budget of `folder`, bytes.
pub(super) fn note(folder: &Path, bytes: u64) -> io::Result<()> {
    let path = folder.join(FILE);
    // Renamed into place, so that a report never reads half a number.
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
    options.open(&beside)?.write_all(format!("{bytes}\n").as_bytes())?;
    fs::rename(beside, path)
}

/// Returns the noted budget of `folder`, bytes.
pub(super) fn noted(folder: &Path) -> Option<u64> {
    let text = read_list(&folder.join(FILE)).ok()??;
    String::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
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
