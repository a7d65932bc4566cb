//! The files of a disk tier: one folder, one process, segments of equal length.
//!
//! ```text
//! lock          held while the tier is open
//! segment-00007 a segment
//! purged        tenants whose records must not be read any more, and up to which segment; a
//!               checksum at its end, because a line that is lost would bring them back
//! budget        the budget of the last process that opened it, bytes
//! notes-0       which prompts a replica used last (`tiered/notes`)
//! quarantine    where damaged records lie, one a line, and pages and files of unknown contents
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use headstart_core::{BlockHash, TenantTag};
use rustix::fs::{FallocateFlags, OFlags};

use super::holder::FileNumber;
use super::layout::SEQUENCES;
use super::space::SegmentId;
use crate::checksum;
use crate::record::{PAGE, Wrong};

/// Read and written by its owner only.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

pub(crate) const LOCK: &str = "lock";
const PURGED: &str = "purged";
const QUARANTINE: &str = "quarantine";
const SEGMENT: &str = "segment-";
const NOTES: &str = "notes-";

/// Kind of the checksum of the list of purged tenants.
const PURGED_SUM: u64 = u64::from_le_bytes(*b"HDST-PRG");

/// Prefix of that checksum.
const SUM: &str = "sum ";

/// Longest list of damaged records that is kept, bytes; a disk that fails fills it quickly.
const QUARANTINE_BYTES: u64 = 256 << 10;

/// Why a disk tier cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file cannot be made, read or written.
    #[error("cannot use {path}: {source}; {}", remedy(source))]
    Io {
        /// The file or folder.
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
    /// The folder has never held records.
    #[error(
        "{path} holds no context cache: name the folder that `serve --context-cache` was given"
    )]
    NoCache {
        /// The folder.
        path: PathBuf,
    },
    /// The budget does not hold the fewest segments that work, or the fewest as long as those that
    /// the folder has.
    #[error(
        "a disk tier needs at least {least} bytes with segments as long as these, and {budget} \
         were given: raise its budget; where its folder has longer segments from before, deleting \
         them or naming another folder helps as well"
    )]
    TooSmall {
        /// The given budget, bytes.
        budget: u64,
        /// The least budget that works, bytes.
        least: u64,
    },
    /// Segments cannot be so long.
    #[error("segments of {given} bytes are not possible: ask for {least} to {most} bytes")]
    SegmentBytes {
        /// The given length, bytes.
        given: u64,
        /// The shortest, bytes.
        least: u64,
        /// The longest, bytes.
        most: u64,
    },
}

/// For what cannot be done with a file.
pub(super) fn io_at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.into();
    move |source| DiskError::Io { path, source }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "give this user the right to, or name another folder",
        io::ErrorKind::ReadOnlyFilesystem => "name a folder on a disk that can be written",
        io::ErrorKind::StorageFull => "make room on that disk, or lower the budget",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "something that is no folder is in its place: name another"
        }
        io::ErrorKind::InvalidData => "delete the folder's segments and then this file",
        _ => "name another folder, or look after that disk",
    }
}

/// The folder, locked.
#[derive(Debug)]
pub(super) struct DiskFolder {
    path: PathBuf,
    lock: File,
}

impl DiskFolder {
    /// Creates the folder if it does not exist, and locks it.
    pub(super) fn open(path: &Path) -> Result<Self, DiskError> {
        create(path).map_err(io_at(path))?;
        let lock_path = path.join(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(PRIVATE_FILE);
        let lock = options.open(&lock_path).map_err(io_at(&lock_path))?;
        // The lock is not waited for: a second server fails at once. The
        // system frees the lock of a killed process.
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DiskError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(io_at(&lock_path)(source)),
        }
        Ok(Self { path: path.to_owned(), lock })
    }

    /// Opens an existing folder without its lock, for readers that tolerate concurrent changes.
    pub(super) fn look(path: &Path) -> Result<Self, DiskError> {
        let lock_path = path.join(LOCK);
        match File::open(&lock_path) {
            Ok(lock) => Ok(Self { path: path.to_owned(), lock }),
            // Every tier creates its lock file, so a folder without one never held records.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(DiskError::NoCache { path: path.to_owned() })
            }
            Err(error) => Err(io_at(&lock_path)(error)),
        }
    }

    /// The device and the number of the lock's file.
    pub(super) fn lock_file(&self) -> io::Result<FileNumber> {
        let lock = self.lock.metadata()?;
        Ok(FileNumber { device: lock.dev(), number: lock.ino() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
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
            // A folder that was deleted and created again has the same
            // path but another lock file.
            (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
            _ => false,
        }
    }

    pub(super) fn segment_path(&self, id: SegmentId) -> PathBuf {
        self.path.join(segment_name(id))
    }

    /// Lists the files with names of segments. It looks at no others and opens none.
    pub(super) fn segments(&self) -> io::Result<FolderListing> {
        let mut files = FolderListing::default();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(SEGMENT));
            let number = number.and_then(|number| u32::from_str(number).ok());
            // Only the exact spelling counts, or `segment-7` and
            // `segment-00007` would be one segment.
            let Some(id) = number.map(SegmentId).filter(|&id| name == *segment_name(id)) else {
                continue;
            };
            if entry.file_type()?.is_file() {
                files.segments.insert(id, entry.metadata()?.len());
            } else {
                files.others.insert(id);
            }
        }
        Ok(files)
    }

    /// The file of a segment, of exactly `bytes` bytes of which the disk has all.
    pub(super) fn open_segment(&self, id: SegmentId, bytes: u64) -> io::Result<File> {
        let path = self.segment_path(id);
        // Asked before the file is opened, which creates it.
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(PRIVATE_FILE);
        let file = open_direct(&options, &path)?;
        // A crash between creation and allocation leaves a file that is too short.
        let is_cut = file.metadata()?.len() != bytes;
        if is_cut {
            file.set_len(bytes)?;
        }
        if is_new || is_cut {
            let room = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes);
            match room {
                // Not every file system can promise room; writes then find out.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) if is_new => {
                    // `open_next` relies on this: it then counts the segment as
                    // one without a file.
                    let _ = fs::remove_file(&path);
                    return Err(error.into());
                }
                Err(error) => return Err(error.into()),
            }
            // The entry of a new file is durable only once its folder is synced.
            File::open(&self.path)?.sync_all()?;
        }
        Ok(file)
    }

    /// The file of a segment, to read pages past the page cache where the file system can.
    pub(super) fn read_segment(&self, id: SegmentId) -> io::Result<File> {
        open_direct(OpenOptions::new().read(true), &self.segment_path(id))
    }

    /// Forgets which records are damaged, and which were used last: there are none any more.
    pub(super) fn forget_lists(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_list = name == QUARANTINE || name.starts_with(NOTES);
            if is_list && entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    pub(super) fn remove_segment(&self, id: SegmentId) -> io::Result<()> {
        fs::remove_file(self.segment_path(id))
    }

    /// Takes note of a damaged record.
    pub(super) fn quarantine(
        &self,
        sequence: u64,
        page: u32,
        name: BlockHash,
        wrong: Wrong,
    ) -> io::Result<()> {
        self.note(&format!("{sequence} {page} {name:?} {wrong}"))
    }

    /// Notes pages that held records of which no table is left.
    pub(super) fn quarantine_pages(&self, sequence: u64, pages: Range<u32>) -> io::Result<()> {
        let Range { start, end } = pages;
        self.note(&format!("{sequence} {start} - to page {end}: no table is left"))
    }

    /// Notes a file of unknown contents.
    pub(super) fn quarantine_segment(&self, id: SegmentId) -> io::Result<()> {
        let name = segment_name(id);
        let what = "neither its first nor its last page says what it held";
        self.note(&format!("- - {name} {what}"))
    }

    /// Adds a line to the list of damage. If that fails a server continues: the record is no longer
    /// in the index either way.
    fn note(&self, line: &str) -> io::Result<()> {
        let path = self.path.join(QUARANTINE);
        // A full list starts again. Records that it named are verified when they are read.
        let is_long = fs::metadata(&path).is_ok_and(|file| file.len() > QUARANTINE_BYTES);
        let mut options = OpenOptions::new();
        options.create(true).mode(PRIVATE_FILE);
        if is_long {
            options.write(true).truncate(true)
        } else {
            options.append(true)
        };
        options.open(path)?.write_all(format!("{line}\n").as_bytes())
    }

    /// Sequence number and page of every record known to be damaged. Lines that are damaged
    /// themselves do not count: what they named is verified when it is read.
    pub(super) fn quarantined(&self) -> Result<Vec<(u64, u32)>, DiskError> {
        let path = self.path.join(QUARANTINE);
        let list = read_list(&path).map_err(io_at(&path))?.unwrap_or_default();
        // Lossy, so that one damaged byte does not make the other lines unreadable.
        let list = String::from_utf8_lossy(&list);
        let place = |line: &str| {
            let (sequence, rest) = line.split_once(' ')?;
            let (page, _) = rest.split_once(' ')?;
            Some((sequence.parse().ok()?, page.parse().ok()?))
        };
        let places = list.lines().filter_map(place);
        // A damaged number near 2^64 would leave no higher one for new segments.
        Ok(places.filter(|&(number, _)| number < SEQUENCES).collect())
    }

    /// Bars the records of `tenant` in segments up to `sequence` from being read, also after a
    /// crash. Entries for segments before `oldest`, which are gone, are dropped. A list that cannot
    /// be read is not replaced: that would bring back purged records.
    pub(super) fn note_purge(
        &self,
        tenant: TenantTag,
        sequence: u64,
        oldest: u64,
    ) -> io::Result<()> {
        let mut purged = self.purged().map_err(io::Error::other)?;
        purged.retain(|_, upto| *upto >= oldest);
        let upto = purged.entry(tenant).or_default();
        *upto = sequence.max(*upto);
        let list = purged_list(&purged);
        let path = self.path.join(PURGED);
        // Synced, or a crash could leave the new name without contents.
        replace(&path, list.as_bytes(), File::sync_all)?;
        // Without this, a crash could undo the rename after the purge was reported as done.
        File::open(&self.path)?.sync_all()
    }

    /// Up to which sequence number the records of which tenants are gone.
    pub(super) fn purged(&self) -> Result<BTreeMap<TenantTag, u64>, DiskError> {
        let path = self.path.join(PURGED);
        let Some(list) = read_list(&path).map_err(io_at(&path))? else {
            return Ok(BTreeMap::new());
        };
        let damaged = || {
            let text = "the list of tenants whose records must not be read is damaged";
            io_at(&path)(io::Error::new(io::ErrorKind::InvalidData, text))
        };
        purged_of(&list).ok_or_else(damaged)
    }
}

/// Files with names of segments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FolderListing {
    /// Regular files, with their lengths.
    pub(super) segments: BTreeMap<SegmentId, u64>,
    /// Anything else with such a name: it is not ours, and stays.
    pub(super) others: BTreeSet<SegmentId>,
}

/// The name of a segment's file.
pub(super) fn segment_name(id: SegmentId) -> String {
    format!("{SEGMENT}{:05}", id.0)
}

/// Creates a folder if it does not exist, so that it survives a loss of power.
fn create(path: &Path) -> io::Result<()> {
    // Listed before they exist: the parent of each new folder has to be synced as well.
    let missing = path.ancestors().take_while(|above| !above.exists());
    // The last ancestor of a relative path is the empty path.
    let missing = missing.filter(|above| !above.as_os_str().is_empty());
    let missing: Vec<&Path> = missing.collect();
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(PRIVATE_FOLDER);
    builder.create(path)?;
    for made in missing {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty());
        File::open(above.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// Replaces a list: it is written beside and renamed, so that it is there whole, old or new. `sync`
/// comes before the renaming.
pub(crate) fn replace(
    path: &Path,
    contents: &[u8],
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
    let mut file = options.open(&beside)?;
    file.write_all(contents)?;
    sync(&file)?;
    fs::rename(beside, path)
}

/// Reads a whole list; `None` if it does not exist.
pub(super) fn read_list(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        // Reading from a pipe would wait.
        Ok(file) if !file.is_file() => {
            let text = "it is not a regular file";
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
        Ok(_) => fs::read(path).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text of a list of purged tenants: one a line, and a checksum of all of them.
fn purged_list(purged: &BTreeMap<TenantTag, u64>) -> String {
    let lines =
        purged.iter().map(|(TenantTag(tenant), sequence)| format!("{tenant:016x} {sequence}\n"));
    let lines: String = lines.collect();
    let sum = checksum::of_fields(PURGED_SUM, lines.as_bytes());
    format!("{lines}{SUM}{sum:016x}\n")
}

/// Parses a list of purged tenants, if it is whole.
fn purged_of(list: &[u8]) -> Option<BTreeMap<TenantTag, u64>> {
    let list = str::from_utf8(list).ok()?;
    let (lines, _) = list.rsplit_once(SUM)?;
    let purge = |line: &str| {
        let (tenant, sequence) = line.split_once(' ')?;
        let tenant = u64::from_str_radix(tenant, 16).ok()?;
        let sequence = sequence.parse().ok().filter(|&number| number < SEQUENCES)?;
        Some((TenantTag(tenant), sequence))
    };
    let purged = lines.lines().map(purge).collect::<Option<_>>()?;
    // Also the checksum, and that nothing is written in another way.
    (purged_list(&purged) == list).then_some(purged)
}

/// Whether `path` may be opened again as what it was: it exists with a lock of ours, or would be
/// made on the file system on which it was. Where a mount is gone, what lies below it is not it.
pub(super) fn is_back(path: &Path, device: Option<u64>) -> bool {
    // The nearest ancestor that exists tells on which file system the folder would be.
    let above = path.ancestors().find_map(|above| fs::metadata(above).ok());
    path.join(LOCK).exists() || (device.is_some() && above.map(|above| above.dev()) == device)
}

/// Past the page cache where the file system can, through it elsewhere.
fn open_direct(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let direct = OFlags::DIRECT.bits() as i32;
    match options.clone().custom_flags(direct).open(path) {
        // File systems without direct I/O refuse the flag with EINVAL.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => options.open(path),
        opened => opened,
    }
}

/// Destroys pages of a file.
pub(super) fn destroy(file: &File, page: u32, pages: u32) -> io::Result<()> {
    // A hole returns the blocks to the file system, and later reads of it give zeros.
    if !punch_hole(file, page, pages)? {
        // A mapping, because direct I/O needs page-aligned memory.
        let zeros = memmap2::MmapMut::map_anon(pages as usize * PAGE)?;
        file.write_all_at(&zeros, u64::from(page) * PAGE as u64)?;
    }
    Ok(())
}

/// Gives pages of a file back to its file system. Whether that is possible there.
pub(super) fn punch_hole(file: &File, page: u32, pages: u32) -> io::Result<bool> {
    let (offset, bytes) = (u64::from(page) * PAGE as u64, u64::from(pages) * PAGE as u64);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, hole, offset, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_user() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = DiskFolder::open(place.path()).expect("it is free");
        let error = DiskFolder::open(place.path()).expect_err("it is in use");
        assert!(matches!(error, DiskError::InUse { .. }), "{error}");
        drop(folder);
        DiskFolder::open(place.path()).expect("it is free again");
    }

    #[test]
    fn a_folder_that_was_replaced_is_noticed() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("cache");
        let folder = DiskFolder::open(&path).expect("it is free");
        assert!(folder.is_there());
        fs::rename(&path, place.path().join("away")).expect("it can be moved");
        assert!(!folder.is_there());
        let _other = DiskFolder::open(&path).expect("another one");
        assert!(!folder.is_there(), "this is not ours");
    }

    #[test]
    fn segments_have_their_length_and_notes_are_read_back() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = DiskFolder::open(place.path()).expect("it is free");
        folder.open_segment(SegmentId(3), 1 << 20).expect("room");
        fs::write(place.path().join("segment-x"), "no").expect("a file");
        fs::write(place.path().join("segment-+7"), "no").expect("a file");
        fs::write(place.path().join("segment-7"), "no").expect("a file");
        fs::create_dir(place.path().join("segment-00009")).expect("a folder");
        let files = folder.segments().expect("a list");
        let ours = BTreeMap::from([(SegmentId(3), 1 << 20)]);
        let others = BTreeSet::from([SegmentId(9)]);
        assert_eq!((files.segments, files.others), (ours, others));
        let name = BlockHash::from_u64(1);
        let noted = folder.quarantine(7, 5, name, Wrong::Header);
        noted.expect("noted");
        let noted = folder.quarantine(8, 6, name, Wrong::Part(1));
        noted.expect("noted");
        let quarantined = folder.quarantined().expect("a list");
        assert_eq!(quarantined, [(7, 5), (8, 6)]);
        folder.note_purge(TenantTag(9), 4, 0).expect("noted");
        folder.note_purge(TenantTag(1), 5, 0).expect("noted");
        let purged = BTreeMap::from([(TenantTag(1), 5), (TenantTag(9), 4)]);
        assert_eq!(folder.purged().expect("a list"), purged);
        folder.note_purge(TenantTag(2), 9, 5).expect("noted");
        let purged = BTreeMap::from([(TenantTag(1), 5), (TenantTag(2), 9)]);
        assert_eq!(folder.purged().expect("a list"), purged, "what is gone need not be noted");
    }

    #[test]
    fn a_list_of_purges_that_is_not_whole_is_no_list() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = DiskFolder::open(place.path()).expect("it is free");
        assert_eq!(folder.purged().expect("none yet"), BTreeMap::new());
        folder.note_purge(TenantTag(9), 4, 0).expect("noted");
        folder.note_purge(TenantTag(1), 5, 0).expect("noted");
        let path = place.path().join(PURGED);
        let whole = fs::read(&path).expect("it is there");
        for at in 0..whole.len() {
            let mut wrong = whole.clone();
            wrong[at] ^= 1 << (at % 8);
            for list in [&wrong[..], &whole[..at]] {
                fs::write(&path, list).expect("written");
                let error = folder.purged().expect_err("it is damaged");
                assert!(error.to_string().contains("delete"), "{error}");
                let noted = folder.note_purge(TenantTag(2), 9, 0);
                noted.expect_err("it would bring others back");
                assert_eq!(fs::read(&path).expect("it is there"), list);
            }
        }
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("made");
        folder.purged().expect_err("it is no file");
    }

    #[test]
    fn folders_are_made_with_those_above_them() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("one/two");
        drop(DiskFolder::open(&path).expect("it is made"));
        DiskFolder::open(&path).expect("it is there");
    }
}
