//! Report of `analyze`, as text, JSON or HTML page.

mod characterization;
mod json;
mod page;
mod text;

pub use json::json;
pub use page::page;
pub use text::{Sections, text};

/// Later differences of a prompt are behind its first one.
const HIDDEN: &str = "Fix these, then analyze again: a mistake behind another one of the same \
                      prompt shows only then.";
