//! The list of the prompts that were used last, in a file beside a disk tier.
//!
//! ```text
//! "HSnotes1"  count: u32 LE  names: 16 bytes each  checksum of all that: u64 LE
//! ```
//!
//! A hint: what cannot be read is no list, and what cannot be written is left as it was. It holds
//! names of units (keyed digests) and no text.

use std::fs;
use std::io;
use std::path::Path;

use headstart_core::BlockHash;

use crate::checksum;
use crate::disk::replace;

const MAGIC: &[u8; 8] = b"HSnotes1";

/// Most names; a longer list is not ours.
const MOST: usize = 16 << 10;

/// Bytes of a name.
const NAME: usize = 16;

/// Replaces the list in `path`.
pub(super) fn write(path: &Path, tails: &[BlockHash]) -> io::Result<()> {
    let tails = &tails[tails.len().saturating_sub(MOST)..];
    let mut bytes = MAGIC.to_vec();
    bytes.extend((tails.len() as u32).to_le_bytes());
    bytes.extend(tails.iter().flat_map(|tail| tail.0));
    let sum = checksum::of_fields(0, &bytes);
    bytes.extend(sum.to_le_bytes());
    // Not synced: after a loss of power the list may be damaged, which reads as an empty one.
    replace(path, &bytes, |_| Ok(()))
}

/// Reads the list in `path`; empty if it is missing or damaged.
pub(super) fn read(path: &Path) -> Vec<BlockHash> {
    let longest = (MAGIC.len() + 4 + MOST * NAME + 8) as u64;
    match fs::metadata(path) {
        // Reading from a pipe would wait, and from some devices never end.
        Ok(file) if file.is_file() && file.len() <= longest => {}
        _ => return Vec::new(),
    }
    let bytes = fs::read(path).unwrap_or_default();
    parse(&bytes).unwrap_or_default()
}

fn parse(bytes: &[u8]) -> Option<Vec<BlockHash>> {
    let (fields, sum) = bytes.split_last_chunk::<8>()?;
    if checksum::of_fields(0, fields) != u64::from_le_bytes(*sum) {
        return None;
    }
    let (count, names) = fields.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
    let (names, rest) = names.as_chunks::<NAME>();
    let is_whole = rest.is_empty() && names.len() == u32::from_le_bytes(*count) as usize;
    is_whole.then(|| names.iter().copied().map(BlockHash).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_and_a_damaged_one_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes");
        assert_eq!(read(&path), []);
        let tails: Vec<BlockHash> = (0..9).map(BlockHash::from_u64).collect();
        write(&path, &tails).expect("writes");
        assert_eq!(read(&path), tails);
        let whole = fs::read(&path).expect("a file");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert_eq!(parse(&bytes), None, "byte {at}");
            assert_eq!(parse(&whole[..at]), None, "{at} bytes");
        }
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        assert_eq!(read(&path), [], "it has no end");
    }
}
