//! Inputs of a prediction.

/// A conversation at the moment when a user's prompt has arrived and its answer has not begun.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// The user's prompts, oldest first, the current one last; at least one. Those that no
    /// model's window reaches may be left out.
    pub prompts: Vec<String>,
    /// Answers so far, the latest last: one behind each prompt but the current one, where they
    /// are known. Read only by models whose definition includes answers.
    pub answers: Vec<String>,
    /// Number of the current prompt among the user messages, from 1.
    pub turn: u16,
    /// Length of the latest answer, characters, where there is one and it is known.
    pub answer_chars: Option<u32>,
    /// Seconds between the latest answer's end and the current prompt, where known.
    pub gap_s: Option<f32>,
}
