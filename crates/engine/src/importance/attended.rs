//! The stored tokens that a layer attends to.

use headstart_selective::Selection;

/// Stored tokens that a layer attends to, counted from the first token of the first unit.
pub(super) struct AttendedTokens {
    /// Tokens that the probes select.
    pub(super) selection: Selection,
    /// Tokens attended to: the selected ones or those of whole parts.
    pub(super) kept: Vec<u32>,
    /// Share by which it gets less attention than what the probes name.
    pub(super) missed: f64,
}

impl AttendedTokens {
    /// Chooses all of `num_tokens` tokens behind `skip`.
    pub(super) fn everything(skip: usize, num_tokens: usize) -> Self {
        Self::named(Selection::everything(num_tokens).behind(skip))
    }

    /// Exactly the tokens that the probes select.
    pub(super) fn named(selection: Selection) -> Self {
        Self { kept: selection.tokens.clone(), selection, missed: 0.0 }
    }
}
