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
use crate::prompt_tokens::random_key;

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
    #[error("cannot use {path}: {source}; make it writable, or give another --state-dir")]
    Io {
        /// The folder or a file in it.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another gateway has it.
    #[error("another gateway uses {0}: give each one a --state-dir of its own")]
    InUse(PathBuf),
    /// There is nothing to keep.
    #[error(
        "--state-dir keeps what is known of --upstream engines; what embedded replicas hold ends \
         with the process"
    )]
    Embedded,
}

impl Folder {
    /// Opens a folder, and makes it where there is none.
    ///
    /// # Errors
    /// When that cannot be done, or another gateway uses it.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let io_error = |source| FolderError::Io {
            path: path.to_owned(),
            source,
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(PRIVATE_FOLDER);
        builder.create(path).map_err(io_error)?;
        let mut options = OpenOptions::new();
        options
            .create(true)
            .truncate(false)
            .write(true)
            .mode(PRIVATE_FILE);
        let lock = options.open(path.join(LOCK)).map_err(io_error)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(FolderError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(io_error(source)),
        }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the index's keys are made with: drawn at the first call ever, the same from then on.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn secret(&self) -> Result<u64, FolderError> {
        let path = self.path.join(SECRET);
        match read_secret(&path) {
            Ok(Some(secret)) => return Ok(secret),
            Ok(None) => tracing::warn!(
                path = %path.display(),
                "the index's secret is damaged and drawn anew; what was saved with it is lost"
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(FolderError::Io { path, source }),
        }
        let secret = drawn_secret();
        let written = self.replace(SECRET, |mut file| {
            writeln!(file, "{secret:016x}")?;
            Ok(file)
        });
        match written {
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
            let nonce = first(&random_key());
            let mut file = file;
            saved.write(&mut file, seal, nonce)?;
            Ok(file)
        })
    }

    /// What was saved last, if anything was.
    ///
    /// # Errors
    /// When it is not what was saved, with this seal.
    pub fn read(&self, seal: &Seal) -> Result<Option<SavedIndex>, FileError> {
        let file = match File::open(self.path.join(INDEX)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let size = file.metadata()?.len();
        if size > FILE_BYTES_MAX {
            return Err(FileError::TooLarge(size));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        // It may grow meanwhile, but not without end.
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        SavedIndex::read(bytes, seal).map(Some)
    }

    /// Puts a new file in the place of an old one, at once. Returns its bytes.
    fn replace(&self, name: &str, write: impl FnOnce(File) -> io::Result<File>) -> io::Result<u64> {
        let path = self.path.join(name);
        let new = self.path.join(format!("{name}.tmp"));
        // What a process left that died here has permissions of its own.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(PRIVATE_FILE);
        let file = write(options.open(&new)?)?;
        file.sync_all()?;
        let size = file.metadata()?.len();
        fs::rename(&new, &path)?;
        // The name lies in the folder, and is forced to the disk with it.
        File::open(&self.path)?.sync_all()?;
        Ok(size)
    }
}

/// A secret that nobody knows.
#[must_use]
pub fn drawn_secret() -> u64 {
    u64::from_le_bytes(*random_key().first_chunk().expect("a key has 32 bytes"))
}

/// A secret, if the file holds one.
fn read_secret(path: &Path) -> io::Result<Option<u64>> {
    let file = File::open(path)?;
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
