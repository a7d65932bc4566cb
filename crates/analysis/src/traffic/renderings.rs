//! The tokenizer and template of texts, made when the first text comes: traces have none.

use std::cell::OnceCell;
use std::path::Path;

use headstart_core::UsageError;

use crate::rendering::Rendering;

/// A rendering that may not be there yet.
#[derive(Default)]
pub struct Renderings(OnceCell<Rendering>);

impl Renderings {
    /// By the model in `folder`, which is read now; the built-in toy's is made when it is needed.
    ///
    /// # Errors
    /// A usage error when the folder holds no tokenizer that can be read.
    pub fn of(folder: Option<&Path>) -> Result<Self, UsageError> {
        let renderings = Self::default();
        if folder.is_some() {
            // The cell was made above and is empty, so the value is always set.
            let _ = renderings.0.set(Rendering::of(folder)?);
        }
        Ok(renderings)
    }

    /// The rendering.
    ///
    /// # Errors
    /// When the toy's cannot be made.
    pub(crate) fn get(&self) -> Result<&Rendering, UsageError> {
        if let Some(made) = self.0.get() {
            return Ok(made);
        }
        // The toy is built before the cell is set, because a closure cannot return its error.
        let toy = Rendering::of(None)?;
        Ok(self.0.get_or_init(|| toy))
    }

    /// The rendering, if a text came.
    pub fn used(&self) -> Option<&Rendering> {
        self.0.get()
    }
}
