//! The model's file: read, checked, and looked at again while serving.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use headstart_predict::{ContinuationModel, Encoder, MAX_BYTES, ModelError, Predictor};

use super::LivePredictor;
use crate::exit::usage;

/// Pause between two looks at the file. A change is taken over when two looks in a row find the
/// same, so that a file is not read while it is being written.
const LOOK: Duration = Duration::from_secs(1);

/// Digits of a fingerprint that are shown.
const FINGERPRINT_DIGITS: usize = 16;

/// Numbers the models of this process.
static VERSIONS: AtomicU64 = AtomicU64::new(0);

/// A model in use.
pub(super) struct ActiveModel {
    pub(super) predictor: Predictor,
    /// Of the file's bytes.
    pub(super) fingerprint: String,
    /// Unlike any other's in this process.
    pub(super) version: u64,
}

/// A model file to watch.
pub(super) struct ModelFile {
    path: PathBuf,
    /// As of the last load, or refusal.
    seen: Option<Stamp>,
}

/// Tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    bytes: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { modified: metadata.modified().ok()?, bytes: metadata.len() })
    }
}

impl ModelFile {
    /// The file at `path`, not read yet.
    pub(super) fn new(path: PathBuf) -> Self {
        let seen = Stamp::of(&path);
        Self { path, seen }
    }

    /// Reads the model.
    ///
    /// # Errors
    /// [`UsageError`]: there is no model, or it does not work with this encoder.
    pub(super) fn load(&self, encoder: &Arc<dyn Encoder>) -> Result<ActiveModel> {
        load(&self.path, encoder)
            .map_err(|what| usage(format!("--predictor {}: {what}", self.path.display())))
    }
}

/// Reads a model file. It rejects special files before opening, because a pipe would block, and
/// files larger than any model.
///
/// # Errors
/// A sentence about the file, which it does not name.
pub fn read_model(path: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error| format!("cannot be read: {error}; `headstart train` writes one");
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err("is no file; name the one that `headstart train` wrote".to_owned());
    }
    let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    if length > MAX_BYTES {
        return Err(ModelError::TooLarge(length).to_string());
    }
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::with_capacity(length);
    // One byte more than a model has: a file that has grown since is seen to be too large.
    let most = file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes);
    most.map_err(unreadable)?;
    Ok(bytes)
}

fn load(path: &Path, encoder: &Arc<dyn Encoder>) -> Result<ActiveModel, String> {
    let bytes = read_model(path)?;
    let model = ContinuationModel::from_bytes(&bytes).map_err(|error| error.to_string())?;
    let predictor =
        Predictor::new(Arc::new(model), encoder.clone()).map_err(|error| explain(&error))?;
    let mut fingerprint = blake3::hash(&bytes).to_hex().to_string();
    fingerprint.truncate(FINGERPRINT_DIGITS);
    Ok(ActiveModel { predictor, fingerprint, version: VERSIONS.fetch_add(1, Relaxed) })
}

/// Describes an error, with the option that fixes an encoder mismatch.
fn explain(error: &ModelError) -> String {
    match error {
        ModelError::OtherEncoder { .. } => {
            format!("{error} (--encoder FOLDER opens a transformer; without it the built-in one)")
        }
        other => other.to_string(),
    }
}

/// Takes over what the file becomes, for as long as there is a predictor.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn watch(mut file: ModelFile, predictor: Weak<LivePredictor>) -> Result<()> {
    let mut before = file.seen;
    let watching = move || {
        loop {
            std::thread::sleep(LOOK);
            let Some(predictor) = predictor.upgrade() else {
                return;
            };
            let now = Stamp::of(&file.path);
            let is_settled = now == before;
            before = now;
            if is_settled && now.is_some() && now != file.seen {
                file.seen = now;
                take_over(&file.path, &predictor);
            }
        }
    };
    std::thread::Builder::new()
        .name("model-watcher".to_owned())
        .spawn(watching)
        .context("cannot start the thread that watches the model file")?;
    Ok(())
}

fn take_over(path: &Path, predictor: &LivePredictor) {
    let file = path.display();
    match load(path, &predictor.encoder) {
        Ok(loaded) => {
            tracing::info!(%file, fingerprint = loaded.fingerprint, "a new model is in use");
            predictor.swap(loaded);
        }
        Err(what) => {
            tracing::warn!(%file, "the new model file was refused, the old model stays: {what}");
            predictor.note_refused();
        }
    }
}
