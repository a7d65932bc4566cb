//! Vectors of texts that were embedded before, kept on disk between trainings.
//!
//! Keyed by a hash of the text, and never holding any: who has the file can tell whether it has
//! seen a text that they have already, and nothing else. One file is of one encoder. All numbers
//! are little-endian:
//!
//! ```text
//! "HSEMBED1" │ dims u32 │ length u32, identity │ entries u64 │ entry … │ BLAKE3 of all before
//!                                                             └ key 16 bytes, dims × f32
//! ```
//!
//! Used entries are written first, so that a full file forgets what was not asked for.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use headstart_core::UsageError;

use super::TrainingError;

const MAGIC: &[u8; 8] = b"HSEMBED1";

/// Largest file that is read or written: some 700,000 texts of 384 values.
const FILE_BYTES_MAX: u64 = 1 << 30;

const KEY_BYTES: usize = 16;
const SUM_BYTES: usize = blake3::OUT_LEN;

/// The first half of a text's BLAKE3.
type TextDigest = [u8; KEY_BYTES];

/// The vectors of one encoder.
#[derive(Debug)]
pub(super) struct Embeddings {
    identity: String,
    dims: usize,
    index: HashMap<TextDigest, usize>,
    /// In the order of arrival; those of this run, and of them those that were asked for.
    entries: Vec<EmbeddingEntry>,
    /// `[entries, dims]`
    values: Vec<f32>,
    bytes_max: u64,
}

/// Key of a stored vector.
#[derive(Clone, Copy, Debug)]
struct EmbeddingEntry {
    key: TextDigest,
    is_used: bool,
}

/// State of an existing file of embeddings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EmbeddingFileState {
    /// The file does not exist.
    New,
    /// The file holds this number of vectors.
    Known(usize),
    /// The file is damaged: all texts are embedded again, and the file is replaced.
    Damaged(&'static str),
}

impl Embeddings {
    /// Knows nothing yet.
    pub(super) fn new(identity: &str, dims: usize) -> Self {
        Self {
            identity: identity.to_owned(),
            dims,
            index: HashMap::new(),
            entries: Vec::new(),
            values: Vec::new(),
            bytes_max: FILE_BYTES_MAX,
        }
    }

    /// Reads what `path` holds of the encoder `identity`. A damaged file costs time, no more; so
    /// does any other where not `is_named` by the user, but ours by its name.
    ///
    /// # Errors
    /// A usage error where the file is another encoder's or no such file at all, which must not
    /// be overwritten; and when it cannot be read.
    pub(super) fn open(
        path: &Path,
        identity: &str,
        dims: usize,
        is_named: bool,
    ) -> Result<(Self, EmbeddingFileState), TrainingError> {
        let mut known = Self::new(identity, dims);
        let cannot_read =
            || TrainingError::file(format!("cannot read the embeddings {}", path.display()));
        match fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok((known, EmbeddingFileState::New));
            }
            Err(error) => return Err(cannot_read()(error)),
            // The file is read into memory as a whole, so its size is checked first.
            Ok(file) if file.len() > FILE_BYTES_MAX => {
                let message = format!(
                    "--embeddings {}: larger than 1 GiB, the most that is written; name another \
                     file",
                    path.display()
                );
                return Err(UsageError(message).into());
            }
            Ok(_) => {}
        }
        let bytes = fs::read(path).map_err(cannot_read())?;
        let refuse = |reason: String| {
            let message = format!("--embeddings {}: {reason}; name another file", path.display());
            TrainingError::from(UsageError(message))
        };
        // The default name is ours, so a file of another kind there is a damaged one.
        if !bytes.starts_with(MAGIC) && !is_named {
            return Ok((known, EmbeddingFileState::Damaged("it is no file of embeddings")));
        }
        // A file that the user named by mistake must not be overwritten.
        if !bytes.starts_with(MAGIC) {
            return Err(refuse("is no file of embeddings".to_owned()));
        }
        match known.fill(&bytes) {
            Ok(()) => {
                let count = known.entries.len();
                Ok((known, EmbeddingFileState::Known(count)))
            }
            Err(Unfit::Damaged(what)) => {
                // Entries that were read before the damage are dropped: the checksum covers the
                // whole file.
                Ok((Self::new(identity, dims), EmbeddingFileState::Damaged(what)))
            }
            Err(Unfit::Foreign(whose)) => {
                Err(refuse(format!("holds the vectors of encoder {whose}, not {identity}")))
            }
        }
    }

    /// Takes over the entries of a file.
    fn fill(&mut self, bytes: &[u8]) -> Result<(), Unfit> {
        const SHORT: Unfit = Unfit::Damaged("it is cut off");
        let body = bytes.len().checked_sub(SUM_BYTES).ok_or(SHORT)?;
        let (body, sum) = bytes.split_at(body);
        // The checksum comes first: lengths of a damaged file could lead anywhere.
        if blake3::hash(body).as_bytes() != sum {
            return Err(Unfit::Damaged("its checksum does not fit"));
        }
        let mut rest = body.get(MAGIC.len()..).ok_or(SHORT)?;
        let dims = u32::from_le_bytes(take(&mut rest).ok_or(SHORT)?);
        let length = u32::from_le_bytes(take(&mut rest).ok_or(SHORT)?);
        let (identity, after) = rest.split_at_checked(length as usize).ok_or(SHORT)?;
        rest = after;
        // Vectors of another encoder mean nothing to this model.
        if identity != self.identity.as_bytes() || dims as usize != self.dims {
            return Err(Unfit::Foreign(String::from_utf8_lossy(identity).into_owned()));
        }
        let count = u64::from_le_bytes(take(&mut rest).ok_or(SHORT)?);
        let width = KEY_BYTES + 4 * self.dims;
        // The product saturates, so a huge count fails instead of wrapping.
        if rest.len() as u64 != count.saturating_mul(width as u64) {
            return Err(Unfit::Damaged("its length does not fit"));
        }
        for entry in rest.chunks_exact(width) {
            let (key, vector) = entry.split_at(KEY_BYTES);
            let vector = vector
                .chunks_exact(4)
                .map(|value| f32::from_le_bytes(value.try_into().expect("chunks of four")));
            let key = key.try_into().expect("a key");
            // A text with two vectors cannot come from this program.
            if self.index.insert(key, self.entries.len()).is_some() {
                return Err(Unfit::Damaged("it names a text twice"));
            }
            self.entries.push(EmbeddingEntry { key, is_used: false });
            self.values.extend(vector);
        }
        // A single NaN would spoil all rows that use it.
        if self.values.iter().any(|value| !value.is_finite()) {
            return Err(Unfit::Damaged("it holds values that are no numbers"));
        }
        Ok(())
    }

    /// Number of vectors known.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.len()
    }

    /// The vector of `text`, where it is known, and marked as used.
    pub(super) fn find(&mut self, text: &str) -> Option<&[f32]> {
        let &at = self.index.get(&key(text))?;
        self.entries[at].is_used = true;
        Some(&self.values[at * self.dims..][..self.dims])
    }

    /// Learns the vector of `text`.
    ///
    /// # Panics
    /// When the vector has another length than the encoder's.
    pub(super) fn insert(&mut self, text: &str, vector: &[f32]) {
        assert_eq!(vector.len(), self.dims, "a vector of the encoder's length");
        let key = key(text);
        // A text that is known keeps its first vector.
        if let std::collections::hash_map::Entry::Vacant(free) = self.index.entry(key) {
            free.insert(self.entries.len());
            self.entries.push(EmbeddingEntry { key, is_used: true });
            self.values.extend_from_slice(vector);
        }
    }

    /// Writes the contents of the file. What would make it too large is left out, what was not used
    /// first.
    ///
    /// # Errors
    /// When `file` cannot be written.
    pub(super) fn write(&self, file: &mut dyn Write) -> io::Result<()> {
        let mut sum = blake3::Hasher::new();
        self.write_entries(&mut sum)?;
        let mut out = BufWriter::new(file);
        self.write_entries(&mut out)?;
        out.write_all(sum.finalize().as_bytes())?;
        out.flush()
    }

    fn write_entries(&self, out: &mut impl Write) -> io::Result<()> {
        let width = (KEY_BYTES + 4 * self.dims) as u64;
        let head = MAGIC.len() + 16 + self.identity.len() + SUM_BYTES;
        // Head and checksum take their share of the limit.
        let room = self.bytes_max.saturating_sub(head as u64) / width;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let (mut used, mut unused) = (Vec::new(), Vec::new());
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.is_used { &mut used } else { &mut unused }.push(at);
        }
        // Unused vectors come last, so they are the ones that a full file drops.
        used.append(&mut unused);
        used.truncate(room);
        out.write_all(MAGIC)?;
        out.write_all(&(self.dims as u32).to_le_bytes())?;
        out.write_all(&(self.identity.len() as u32).to_le_bytes())?;
        out.write_all(self.identity.as_bytes())?;
        out.write_all(&(used.len() as u64).to_le_bytes())?;
        for at in used {
            out.write_all(&self.entries[at].key)?;
            for value in &self.values[at * self.dims..][..self.dims] {
                out.write_all(&value.to_le_bytes())?;
            }
        }
        Ok(())
    }
}

/// Returns the default file for the vectors of encoder `identity`, beside the model. The name
/// depends on the encoder, so that encoders do not overwrite each other's files.
pub(super) fn beside(model: &Path, identity: &str) -> PathBuf {
    let whose = blake3::hash(identity.as_bytes()).to_hex();
    model.with_extension(format!("{}.embeddings", &whose[..8]))
}

enum Unfit {
    Damaged(&'static str),
    Foreign(String),
}

fn key(text: &str) -> TextDigest {
    let hash = blake3::hash(text.as_bytes());
    // Half of the hash: collisions of 128 bits do not happen.
    std::array::from_fn(|index| hash.as_bytes()[index])
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("headstart-embeddings-{}-{name}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn save(&self, known: &Embeddings) {
            let mut bytes = Vec::new();
            known.write(&mut bytes).expect("memory");
            fs::write(&self.0, bytes).expect("saves");
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn filled() -> Embeddings {
        let mut known = Embeddings::new("toy", 2);
        for (text, vector) in [("one", [1.0, 0.5]), ("two", [0.0, -2.0])] {
            known.insert(text, &vector);
        }
        known
    }

    #[test]
    fn what_was_saved_is_known_again_and_holds_no_text() {
        let file = Scratch::new("again");
        let mut known = filled();
        known.insert("UNMISTAKABLE", &[9.0, 9.0]);
        file.save(&known);
        let bytes = fs::read(&file.0).expect("reads");
        assert!(!bytes.windows(5).any(|part| part == b"UNMIS"));
        let (mut known, opened) = Embeddings::open(&file.0, "toy", 2, true).expect("opens");
        assert_eq!(opened, EmbeddingFileState::Known(3));
        assert_eq!(known.find("two"), Some(&[0.0, -2.0][..]));
        assert_eq!(known.find("three"), None);
    }

    #[test]
    fn a_flipped_or_missing_byte_is_noticed_wherever_it_is() {
        let file = Scratch::new("flipped");
        file.save(&filled());
        let good = fs::read(&file.0).expect("reads");
        let check = |bytes: &[u8], at: usize| {
            fs::write(&file.0, bytes).expect("writes");
            match Embeddings::open(&file.0, "toy", 2, true) {
                Ok((known, EmbeddingFileState::Damaged(_))) => assert_eq!(known.len(), 0),
                Ok((_, opened)) => panic!("byte {at}: {opened:?}"),
                // The magic differs, so the file counts as another program's.
                Err(error) => assert!(at < MAGIC.len(), "byte {at}: {error}"),
            }
        };
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            check(&bad, at);
            check(&good[..at], at);
        }
    }

    #[test]
    fn the_vectors_of_another_encoder_are_refused_and_kept() {
        let file = Scratch::new("foreign");
        file.save(&filled());
        for (identity, dims) in [("other", 2), ("toy", 3)] {
            let error = Embeddings::open(&file.0, identity, dims, true).expect_err("refused");
            assert!(error.to_string().contains("encoder toy"), "{error}");
        }
        fs::write(&file.0, "a letter").expect("writes");
        let error = Embeddings::open(&file.0, "toy", 2, true).expect_err("refused");
        assert!(error.to_string().contains("no file of embeddings"), "{error}");
        let (_, opened) = Embeddings::open(&file.0, "toy", 2, false).expect("ours, embedded anew");
        assert_eq!(opened, EmbeddingFileState::Damaged("it is no file of embeddings"));
    }

    #[test]
    fn a_full_file_forgets_what_was_not_asked_for() {
        let file = Scratch::new("full");
        file.save(&filled());
        let (mut known, _) = Embeddings::open(&file.0, "toy", 2, true).expect("opens");
        assert!(known.find("two").is_some());
        // Room for one entry and a half.
        known.bytes_max = (8 + 16 + 3 + SUM_BYTES + 24 + 12) as u64;
        file.save(&known);
        let (mut known, opened) = Embeddings::open(&file.0, "toy", 2, true).expect("opens");
        assert_eq!(opened, EmbeddingFileState::Known(1));
        assert!(known.find("two").is_some());
    }

    #[test]
    fn each_encoder_has_a_file_of_its_own() {
        let of = |identity| beside(Path::new("a/model.hsp"), identity);
        assert_ne!(of("one"), of("two"));
        let name = of("one").display().to_string();
        assert!(name.starts_with("a/model.") && name.ends_with(".embeddings"), "{name}");
    }
}
