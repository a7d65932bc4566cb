//! The files of a state folder: one user at a time, one secret, and each save whole or not at all.
//!
//! A file is written beside its place, forced to the disk and then renamed, so that whenever the
//! process or the machine dies the old one or the new one is there.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::format::{FileError, SavedIndex};
use super::seal::{Seal, first};
use crate::random_key;

/// Read and written by its owner only.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

/// Permissions of anybody but the owner.
const OTHERS: u32 = 0o077;

/// Largest file that is read: some 20 bytes for each of as many blocks as a dump may have.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Bytes that are read of a secret's file: more than any has.
const SECRET_BYTES_MAX: u64 = 64;

const LOCK: &str = "lock";
const SECRET: &str = "secret";
const INDEX: &str = "index";

/// A folder that no other gateway uses, until this is dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked while it is open; the system unlocks it however the process ends.
    _lock: File,
}

/// Why a state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It cannot be made, read or written.
    #[error("cannot use {path}: {source}; {}", remedy(source))]
    Io {
        /// The folder or a file in it.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Something else is in its place.
    #[error(
        "{path} is {what}, but --state-dir must lead to a folder: name another place, or move away \
         what is there"
    )]
    NotAFolder {
        /// Path of the obstacle: the folder's own, or one above it.
        path: PathBuf,
        /// Kind of the obstacle.
        what: &'static str,
    },
    /// There is no name.
    #[error("--state-dir is empty: name a folder, or leave it out")]
    Unnamed,
    /// Another gateway has it.
    #[error("another gateway uses {0}; give each gateway its own --state-dir")]
    InUse(PathBuf),
}

impl Folder {
    /// Opens a folder, and creates it if it is missing.
    ///
    /// # Errors
    /// When that cannot be done, or another gateway uses it.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        if path.as_os_str().is_empty() {
            return Err(FolderError::Unnamed);
        }
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(PRIVATE_FOLDER);
        let made = builder.create(path);
        // The obstacle itself is a better message than the system's error for the whole path.
        made.map_err(|source| not_a_folder(path).unwrap_or_else(|| io_error(path, source)))?;
        let mut options = OpenOptions::new();
        // Another gateway may hold this file: it must not be emptied before the lock is tried.
        options.create(true).truncate(false).write(true).mode(PRIVATE_FILE);
        let name = path.join(LOCK);
        let lock = options.open(&name);
        let lock = lock.map_err(|source| io_error(&name, source))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(FolderError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(io_error(&name, source)),
        }
    }

    /// The file of the index.
    #[must_use]
    pub fn index_path(&self) -> PathBuf {
        self.path.join(INDEX)
    }

    /// Returns the secret for the index's keys: random at the first call, then read from its file.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn secret(&self) -> Result<u64, FolderError> {
        let path = self.path.join(SECRET);
        match read_secret(&path) {
            Ok(Some(secret)) => return Ok(secret),
            Ok(None) => tracing::warn!(
                path = %path.display(),
                "the index's secret is damaged; a new one replaces it, and the saved index is lost"
            ),
            // Only a missing file means a first start. An unreadable one may hold a secret that is
            // in use.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(FolderError::Io { path, source }),
        }
        let secret = drawn_secret();
        match self.replace(SECRET, |file| writeln!(file, "{secret:016x}")) {
            Ok(_) => Ok(secret),
            Err(source) => Err(FolderError::Io { path, source }),
        }
    }

    /// Saves an index in place of the last one. Returns its bytes.
    ///
    /// # Errors
    /// When it cannot be written; the last one is still there then.
    pub fn write(&self, saved: &SavedIndex, seal: &Seal) -> io::Result<u64> {
        self.replace(INDEX, |file| {
            // All saves use one key, so each needs a nonce of its own.
            let nonce = first(&random_key());
            saved.write(file, seal, nonce)
        })
    }

    /// Reads the saved index, if there is one.
    ///
    /// # Errors
    /// When it is not what was saved, with this seal.
    pub fn read(&self, seal: &Seal) -> Result<Option<SavedIndex>, FileError> {
        let file = match open_regular(&self.index_path()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let size = file.metadata()?.len();
        // The limit comes before the allocation, because a hostile file may have any size.
        if size > FILE_BYTES_MAX {
            return Err(FileError::TooLarge(size));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        // It may grow meanwhile, but not without end.
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        SavedIndex::read(bytes, seal).map(Some)
    }

    /// Puts a new file in the place of an old one, at once. Returns its bytes.
    fn replace(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<u64> {
        let new = self.path.join(format!("{name}.tmp"));
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", new.display()));
        // What a process left that died here has permissions of its own.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(error)),
            _ => {}
        }
        let mut options = OpenOptions::new();
        // Fails on a link that was put in this place, so nothing is written elsewhere.
        options.create_new(true).write(true).mode(PRIVATE_FILE);
        let mut file = options.open(&new).map_err(named)?;
        let placed = write(&mut file).and_then(|()| {
            // Forced to the disk before the rename, or a crash could leave the name with an empty
            // file.
            file.sync_all()?;
            fs::rename(&new, self.path.join(name))?;
            Ok(file.metadata()?.len())
        });
        if placed.is_err() {
            // A partial file is of no use, least of all on a full disk.
            let _ = fs::remove_file(&new);
        }
        let size = placed?;
        // The name lies in the folder, and is forced to the disk with it.
        File::open(&self.path)?.sync_all()?;
        Ok(size)
    }
}

fn io_error(path: &Path, source: io::Error) -> FolderError {
    let path = path.to_owned();
    FolderError::Io { path, source }
}

/// Returns the error if `path` or a part of it exists and is not a folder.
fn not_a_folder(path: &Path) -> Option<FolderError> {
    let ways = path.ancestors().filter(|way| !way.as_os_str().is_empty());
    let (way, kind) = ways
        // Links are seen as such here, because one that leads nowhere has no other metadata.
        .filter_map(|way| Some((way, way.symlink_metadata().ok()?)))
        .find(|(way, _)| !way.is_dir())?;
    let what = match (kind.is_symlink(), way.metadata()) {
        (_, Ok(there)) if there.is_file() => "a file",
        (true, Err(_)) => "a link that leads nowhere",
        _ => "no folder",
    };
    let path = way.to_owned();
    Some(FolderError::NotAFolder { path, what })
}

/// Returns the suggested fix for a fault, as the end of a sentence that names the fault.
pub(super) fn remedy(fault: &io::Error) -> &'static str {
    match fault.kind() {
        io::ErrorKind::PermissionDenied => {
            "let this user write there, or start with another --state-dir"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "its disk can only be read: start with another --state-dir"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on its disk, or start with another --state-dir"
        }
        io::ErrorKind::IsADirectory => {
            "a folder is in a file's place: move it away, or start with another --state-dir"
        }
        io::ErrorKind::NotFound => {
            "was the folder removed? start again, or with another --state-dir"
        }
        _ => "see to its disk, or start with another --state-dir",
    }
}

/// Opens a file to read it. Not a pipe, for which one would wait.
fn open_regular(path: &Path) -> io::Result<File> {
    match fs::metadata(path)? {
        kind if kind.is_file() => File::open(path),
        kind if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::other("it is no regular file")),
    }
}

/// Returns a random secret.
#[must_use]
pub fn drawn_secret() -> u64 {
    u64::from_le_bytes(*random_key().first_chunk().expect("a key has 32 bytes"))
}

/// A secret, if the file holds one.
fn read_secret(path: &Path) -> io::Result<Option<u64>> {
    let file = open_regular(path)?;
    // A warning only: the secret still works, and its mode is the operator's to change.
    if file.metadata()?.permissions().mode() & OTHERS != 0 {
        tracing::warn!(
            path = %path.display(),
            "others than its owner may read the index's secret; make its mode 600"
        );
    }
    let mut text = Vec::new();
    file.take(SECRET_BYTES_MAX).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let digits = text.trim_end();
    let secret = u64::from_str_radix(digits, 16).ok();
    Ok(secret.filter(|_| digits.len() == 16))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder that goes with its test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("headstart-folder-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn check(path: &Path, named: &Path, what: &str) {
        let refused = Folder::open(path).expect_err("it cannot be").to_string();
        let start = format!("{} is {what}, but --state-dir", named.display());
        assert!(refused.starts_with(&start), "{refused}");
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let scratch = Scratch::new("way");
        let [file, link, nowhere] = ["file", "link", "nowhere"].map(|name| scratch.0.join(name));
        fs::write(&file, "in the way").expect("writes");
        symlink(&file, &link).expect("links");
        symlink(scratch.0.join("gone"), &nowhere).expect("links");
        check(&file, &file, "a file");
        check(&file.join("state/here"), &file, "a file");
        check(&link, &link, "a file");
        check(&nowhere, &nowhere, "a link that leads nowhere");
        check(&nowhere.join("state"), &nowhere, "a link that leads nowhere");
        check(Path::new("/dev/null"), Path::new("/dev/null"), "no folder");
        let unnamed = Folder::open(Path::new("")).expect_err("no name");
        assert!(matches!(unnamed, FolderError::Unnamed));
        let deep = scratch.0.join("one/two");
        assert!(Folder::open(&deep).is_ok(), "what is missing is made");
    }

    #[test]
    fn a_folder_in_a_files_place_is_named() {
        for name in [LOCK, SECRET, "secret.tmp"] {
            let scratch = Scratch::new(name);
            let path = scratch.0.join(name);
            fs::create_dir(&path).expect("a folder");
            let refused = Folder::open(&scratch.0).and_then(|folder| folder.secret());
            let refused = refused.expect_err("it is no file").to_string();
            assert!(refused.contains(&path.display().to_string()), "{refused}");
            assert!(refused.contains("move it away"), "{refused}");
        }
        let scratch = Scratch::new(INDEX);
        let folder = Folder::open(&scratch.0).expect("a folder");
        fs::create_dir(folder.index_path()).expect("a folder");
        let refused = folder.read(&Seal::new("m")).expect_err("it is no file");
        assert!(matches!(refused, FileError::Read(_)), "{refused}");
        let nothing = SavedIndex { saved_at: 0.0, runs: Vec::new(), replicas: Vec::new() };
        let refused = folder.write(&nothing, &Seal::new("m"));
        assert!(refused.is_err(), "a file does not replace a folder");
        let new = scratch.0.join("index.tmp");
        assert!(!new.exists(), "and leaves nothing behind");
    }
}
