//! Turns as the classifier will read them: the texts to embed, the row without its embeddings,
//! and the label. No more of a conversation's text is kept than the definition reads.

use super::TrainingError;
use super::embed::Embedder;
use crate::{Dataset, Definition, Label, Situation};

/// Turns of all inputs together. Each takes some 2 KiB for its row and up to 8 KiB for its text.
const SAMPLES_MAX: usize = 1 << 19;

/// Turns on their way to a [`Dataset`].
#[derive(Debug)]
pub(super) struct Samples {
    definition: Definition,
    /// `[labels, parts]`
    texts: Vec<String>,
    /// `[labels, width]`, zeros where the embeddings go.
    rows: Vec<f32>,
    labels: Vec<Label>,
}

impl Samples {
    /// Returns the definition of the rows.
    pub(super) fn definition(&self) -> &Definition {
        &self.definition
    }

    /// None yet; rows as `definition` says.
    pub(super) fn new(definition: Definition) -> Self {
        Self { definition, texts: Vec::new(), rows: Vec::new(), labels: Vec::new() }
    }

    /// Adds one turn.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn push(
        &mut self,
        situation: &Situation,
        label: Label,
    ) -> Result<(), TrainingError> {
        if self.labels.len() >= SAMPLES_MAX {
            return Err(TrainingError::Unsuitable(format!(
                "more than {SAMPLES_MAX} turns, the most that are held in memory; take fewer \
                 conversations of each input (--conversations)"
            )));
        }
        self.texts.extend(self.definition.texts(situation));
        // The embeddings are filled in later, when all texts are known.
        let blank = vec![0.0; self.definition.parts.count() * self.definition.dims];
        self.rows.extend(self.definition.row(&blank, situation));
        self.labels.push(label);
        Ok(())
    }

    /// The labels so far.
    pub(super) fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// The texts so far, `parts` of each turn.
    #[cfg(test)]
    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The rows with the embeddings in their places.
    ///
    /// # Errors
    /// When the encoder gives what is no number.
    pub(super) fn embed(mut self, embedder: &mut Embedder<'_>) -> Result<Dataset, TrainingError> {
        let texts: Vec<&str> = self.texts.iter().map(String::as_str).collect();
        // All texts are embedded first, so that equal ones of different turns are embedded once.
        embedder.learn(&texts)?;
        let (width, dims) = (self.definition.width(), self.definition.dims);
        let parts = self.definition.parts.count();
        let rows = self.rows.chunks_exact_mut(width);
        for (row, texts) in rows.zip(self.texts.chunks_exact(parts)) {
            // Embeddings are the first columns of a row; the rest is filled already.
            for (part, text) in row.chunks_exact_mut(dims).zip(texts) {
                embedder.copy(text, part);
            }
        }
        Ok(Dataset::new(self.definition, self.rows, self.labels)?)
    }
}
