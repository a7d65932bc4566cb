//! Texts to vectors, each text once, and none that the cache knows.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use headstart_core::Progress;

use super::embeddings::Embeddings;
use super::{TrainingError, TrainingHost};
use crate::Encoder;

/// Texts per call of the encoder: enough that it can sort them by length.
const BATCH: usize = 128;

/// Time between saves: the most work that an interrupted training loses.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// An encoder with a memory.
pub(super) struct Embedder<'e> {
    encoder: &'e dyn Encoder,
    known: Embeddings,
    /// File in which `known` is stored.
    file: Option<PathBuf>,
    host: &'e dyn TrainingHost,
    progress: &'e dyn Progress,
    /// Counts of the work so far.
    pub(super) done: EmbeddingWork,
}

/// Counts of embedding work done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EmbeddingWork {
    /// Different texts asked for.
    pub(super) texts: usize,
    /// Texts whose embedding was known.
    pub(super) known: usize,
    /// Seconds for the others.
    pub(super) seconds: f64,
}

impl<'e> Embedder<'e> {
    /// Knows nothing, and keeps nothing in a file; counts texts on `progress`.
    pub(super) fn new(
        encoder: &'e dyn Encoder,
        host: &'e dyn TrainingHost,
        progress: &'e dyn Progress,
    ) -> Self {
        let known = Embeddings::new(encoder.identity(), encoder.dims());
        Self { encoder, known, file: None, host, progress, done: EmbeddingWork::default() }
    }

    /// Remembers `known`, and what it learns in `file`.
    pub(super) fn with_file(self, file: PathBuf, known: Embeddings) -> Self {
        Self { known, file: Some(file), ..self }
    }

    /// Embeds what is not known of `texts`, the longest first: so that texts of one batch are
    /// about as long as each other, and the time that is left is not underestimated.
    ///
    /// # Errors
    /// When the encoder gives what is no number, or the file cannot be written.
    pub(super) fn learn(&mut self, texts: &[&str]) -> Result<(), TrainingError> {
        // Each text is embedded once, however many turns share it.
        let mut seen = HashSet::new();
        let distinct = texts.iter().copied().filter(|text| seen.insert(*text));
        let mut new = Vec::new();
        for text in distinct {
            self.done.texts += 1;
            match self.known.find(text) {
                Some(_) => self.done.known += 1,
                None => new.push(text),
            }
        }
        new.sort_by_key(|text| std::cmp::Reverse(text.len()));
        self.progress.inc_length(new.len() as u64);
        let begin = self.host.now();
        let mut saved = begin;
        for batch in new.chunks(BATCH) {
            self.learn_batch(batch)?;
            self.progress.inc(batch.len() as u64);
            // A training that is interrupted loses a minute of work at most.
            if self.host.now().since(saved) > SAVE_EVERY {
                self.save()?;
                saved = self.host.now();
            }
        }
        self.done.seconds += self.host.now().since(begin).as_secs_f64();
        if new.is_empty() { Ok(()) } else { self.save() }
    }

    fn learn_batch(&mut self, batch: &[&str]) -> Result<(), TrainingError> {
        let (dims, vectors) = (self.encoder.dims(), self.encoder.encode(batch));
        // An encoder of a wrong model may return fewer values or none.
        let is_whole = vectors.len() == batch.len() * dims;
        if !is_whole || vectors.iter().any(|value| !value.is_finite()) {
            return Err(TrainingError::Unsuitable(format!(
                "encoder {} returns values that are not numbers; use another --encoder",
                self.encoder.identity()
            )));
        }
        for (text, vector) in batch.iter().zip(vectors.chunks_exact(dims)) {
            self.known.insert(text, vector);
        }
        Ok(())
    }

    fn save(&self) -> Result<(), TrainingError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let written = self.host.replace(file, &mut |out| self.known.write(out));
        written.map_err(TrainingError::file(format!("cannot write {}", file.display())))
    }

    /// Writes the vector of `text`, which was learnt, into `place`.
    ///
    /// # Panics
    /// When it was not.
    pub(super) fn copy(&mut self, text: &str, place: &mut [f32]) {
        let vector = self.known.find(text);
        place.copy_from_slice(vector.expect("every text was learnt"));
    }
}
