//! The files of a disk tier: one folder, one process, segments of equal length.
//!
//! ```text
//! lock          held while the tier is open
//! segment-00007 a segment
//! purged        tenants whose records must not be read any more, and up to which segment
//! quarantine    where damaged records lie, one a line
//! ```

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use headstart_core::{BlockHash, TenantTag};
use rustix::fs::{FallocateFlags, OFlags};

use super::space::SegmentId;
use crate::record::{PAGE, Wrong};

/// Read and written by its owner only.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

const LOCK: &str = "lock";
const PURGED: &str = "purged";
const QUARANTINE: &str = "quarantine";
const SEGMENT: &str = "segment-";

/// Longest list of damaged records that is kept, bytes; a disk that fails fills it quickly.
const QUARANTINE_BYTES: u64 = 256 << 10;

/// Why a disk tier cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file cannot be made, read or written.
    #[error("cannot use {path}: {source}; {}", remedy(source))]
    Io {
        /// Which.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{path} is used by another process: give each its own folder, or stop the other one")]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The budget does not hold the fewest segments that work.
    #[error("a disk tier needs at least {least} bytes, and {budget} were given: raise its budget")]
    TooSmall {
        /// What was given, bytes.
        budget: u64,
        /// What is needed, bytes.
        least: u64,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "give this user the right to, or name another folder",
        io::ErrorKind::ReadOnlyFilesystem => "name a folder on a disk that can be written",
        io::ErrorKind::StorageFull => "make room on that disk, or lower the budget",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "something that is no folder is in its place: name another"
        }
        _ => "name another folder, or look after that disk",
    }
}

/// The folder, locked.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    lock: File,
}

impl Folder {
    /// Makes the folder where there is none, and locks it.
    pub(super) fn open(path: &Path) -> Result<Self, DiskError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| DiskError::Io { path, source }
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(PRIVATE_FOLDER);
        builder.create(path).map_err(io(path))?;
        let lock_path = path.join(LOCK);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .mode(PRIVATE_FILE);
        let lock = options.open(&lock_path).map_err(io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DiskError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io(&lock_path)(source)),
        }
        Ok(Self {
            path: path.to_owned(),
            lock,
        })
    }

    /// The file system that it is on.
    pub(super) fn device(&self) -> Option<u64> {
        self.lock.metadata().ok().map(|lock| lock.dev())
    }

    /// Whether the folder that was opened is still the one in its place.
    pub(super) fn is_there(&self) -> bool {
        let ours = self.lock.metadata();
        let theirs = fs::metadata(self.path.join(LOCK));
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
            _ => false,
        }
    }

    pub(super) fn segment_path(&self, id: SegmentId) -> PathBuf {
        self.path.join(format!("{SEGMENT}{:05}", id.0))
    }

    /// The segments whose files exist, with their lengths.
    pub(super) fn segments(&self) -> io::Result<BTreeMap<u32, u64>> {
        let mut segments = BTreeMap::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(SEGMENT));
            if let Some(number) = number.and_then(|number| u32::from_str(number).ok()) {
                segments.insert(number, entry.metadata()?.len());
            }
        }
        Ok(segments)
    }

    /// The file of a segment, of exactly `bytes` bytes of which the disk has all.
    pub(super) fn open_segment(&self, id: SegmentId, bytes: u64) -> io::Result<File> {
        let path = self.segment_path(id);
        let is_new = !path.exists();
        let file = open_direct(&path)?;
        if file.metadata()?.len() != bytes {
            file.set_len(bytes)?;
        }
        if is_new {
            let room = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes);
            match room {
                // Not every file system can promise room; writes then find out.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) => {
                    let _ = fs::remove_file(&path);
                    return Err(error.into());
                }
            }
            File::open(&self.path)?.sync_all()?;
        }
        Ok(file)
    }

    pub(super) fn remove_segment(&self, number: u32) -> io::Result<()> {
        fs::remove_file(self.segment_path(SegmentId(number)))
    }

    /// Takes note of a damaged record. Best effort: it is not in the index any more either way.
    pub(super) fn quarantine(&self, sequence: u64, page: u32, name: BlockHash, wrong: Wrong) {
        let path = self.path.join(QUARANTINE);
        let is_long = fs::metadata(&path).is_ok_and(|file| file.len() > QUARANTINE_BYTES);
        let mut options = OpenOptions::new();
        options.create(true).mode(PRIVATE_FILE);
        match is_long {
            true => options.write(true).truncate(true),
            false => options.append(true),
        };
        let note = format!("{sequence} {page} {name:?} {wrong}\n");
        let _ = options
            .open(path)
            .and_then(|mut file| file.write_all(note.as_bytes()));
    }

    /// Sequence number and page of every record known to be damaged.
    pub(super) fn quarantined(&self) -> Vec<(u64, u32)> {
        let list = fs::read_to_string(self.path.join(QUARANTINE)).unwrap_or_default();
        let place = |line: &str| {
            let (sequence, rest) = line.split_once(' ')?;
            let (page, _) = rest.split_once(' ')?;
            Some((sequence.parse().ok()?, page.parse().ok()?))
        };
        list.lines().filter_map(place).collect()
    }

    /// From now on no record of `tenant` in a segment up to `sequence` is read, also after a crash.
    /// What was noted for segments before `oldest`, which are gone, is dropped.
    pub(super) fn note_purge(
        &self,
        tenant: TenantTag,
        sequence: u64,
        oldest: u64,
    ) -> io::Result<()> {
        let mut purged = self.purged();
        purged.retain(|_, upto| *upto >= oldest);
        purged.insert(tenant, sequence);
        let lines = purged
            .iter()
            .map(|(TenantTag(tenant), sequence)| format!("{tenant:016x} {sequence}\n"));
        let path = self.path.join(PURGED);
        let beside = path.with_extension("new");
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(PRIVATE_FILE);
        let mut file = options.open(&beside)?;
        file.write_all(lines.collect::<String>().as_bytes())?;
        file.sync_all()?;
        fs::rename(beside, path)?;
        File::open(&self.path)?.sync_all()
    }

    /// Up to which sequence number the records of which tenants are gone.
    pub(super) fn purged(&self) -> BTreeMap<TenantTag, u64> {
        let list = fs::read_to_string(self.path.join(PURGED)).unwrap_or_default();
        let purge = |line: &str| {
            let (tenant, sequence) = line.split_once(' ')?;
            let tenant = u64::from_str_radix(tenant, 16).ok()?;
            Some((TenantTag(tenant), sequence.parse().ok()?))
        };
        list.lines().filter_map(purge).collect()
    }
}

/// Whether `path` may be opened again as what it was: it exists with a lock of ours, or would be
/// made on the file system on which it was. Where a mount is gone, what lies below it is not it.
pub(super) fn is_back(path: &Path, device: Option<u64>) -> bool {
    let above = path.ancestors().find_map(|above| fs::metadata(above).ok());
    path.join(LOCK).exists() || (device.is_some() && above.map(|above| above.dev()) == device)
}

/// Past the page cache where the file system can, through it elsewhere.
fn open_direct(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .mode(PRIVATE_FILE);
    let direct = OFlags::DIRECT.bits() as i32;
    match options.clone().custom_flags(direct).open(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => options.open(path),
        opened => opened,
    }
}

/// Destroys pages of a file.
pub(super) fn destroy(file: &File, page: u32, pages: u32) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let (offset, bytes) = (
        u64::from(page) * PAGE as u64,
        u64::from(pages) * PAGE as u64,
    );
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, hole, offset, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let zeros = memmap2::MmapMut::map_anon(bytes as usize)?;
            file.write_all_at(&zeros, offset)
        }
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_user() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(place.path()).expect("it is free");
        let error = Folder::open(place.path()).expect_err("it is in use");
        assert!(matches!(error, DiskError::InUse { .. }), "{error}");
        drop(folder);
        Folder::open(place.path()).expect("it is free again");
    }

    #[test]
    fn a_folder_that_was_replaced_is_noticed() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("cache");
        let folder = Folder::open(&path).expect("it is free");
        assert!(folder.is_there());
        fs::rename(&path, place.path().join("away")).expect("it can be moved");
        assert!(!folder.is_there());
        let _other = Folder::open(&path).expect("another one");
        assert!(!folder.is_there(), "this is not ours");
    }

    #[test]
    fn segments_have_their_length_and_notes_are_read_back() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(place.path()).expect("it is free");
        folder.open_segment(SegmentId(3), 1 << 20).expect("room");
        fs::write(place.path().join("segment-x"), "no").expect("a file");
        let segments = folder.segments().expect("a list");
        assert_eq!(segments, BTreeMap::from([(3, 1 << 20)]));
        let name = BlockHash::from_u64(1);
        folder.quarantine(7, 5, name, Wrong::Header);
        folder.quarantine(8, 6, name, Wrong::Part(1));
        assert_eq!(folder.quarantined(), [(7, 5), (8, 6)]);
        folder.note_purge(TenantTag(9), 4, 0).expect("noted");
        folder.note_purge(TenantTag(1), 5, 0).expect("noted");
        let purged = BTreeMap::from([(TenantTag(1), 5), (TenantTag(9), 4)]);
        assert_eq!(folder.purged(), purged);
        folder.note_purge(TenantTag(2), 9, 5).expect("noted");
        let purged = BTreeMap::from([(TenantTag(1), 5), (TenantTag(2), 9)]);
        assert_eq!(folder.purged(), purged, "what is gone need not be noted");
    }
}
