//! Conversations as a client plays them: read from a file, cut into exchanges.
//!
//! ```text
//! recorded   A0  S  U1  A1  U2  U3  A3  A4
//! exchanges      ╰─ [S U1 → A1] ─ [U2+U3 → A3+A4]
//! ```
//!
//! Chat templates demand that user and assistant take turns. So an answer to nothing (a
//! conversation that was cut at its head) is left out, and two turns in a row by the same
//! speaker become one. System turns stay where they are.

use std::fs::File;
use std::path::Path;

use headstart_trace::format::conversation::{self, Conversation, Role, Turn};

use crate::LoadgenError;

/// Between two turns that became one.
const TURN_BREAK: &str = "\n\n";

/// Reads up to `limit` conversations from `path` (JSONL, plain or zstd), see
/// [`conversation::read`].
///
/// # Errors
/// [`LoadgenError::Open`] or [`LoadgenError::Conversations`].
pub fn read_conversations(
    path: &Path,
    limit: Option<usize>,
) -> Result<Vec<Conversation>, LoadgenError> {
    let file =
        File::open(path).map_err(|source| LoadgenError::Open { path: path.to_owned(), source })?;
    Ok(conversation::read(path.display().to_string(), file, limit)?)
}

/// One request of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Turns that the request adds to the history: a user turn, rarely with system turns around it.
    pub added: Vec<Turn>,
    /// The recorded answer; `None` where the record ends with the user.
    pub recorded: Option<String>,
}

/// The requests that `conversation` makes, in order.
#[must_use]
pub fn exchanges(conversation: &Conversation) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut added: Vec<Turn> = Vec::new();
    for turn in &conversation.turns {
        match turn.role {
            Role::System | Role::Tool => added.push(turn.clone()),
            Role::User => match added.last_mut() {
                Some(last) if last.role == Role::User => append(&mut last.text, &turn.text),
                _ => added.push(turn.clone()),
            },
            // A system turn alone asks for nothing, so it waits for the next user turn.
            Role::Assistant if asks(&added) => exchanges.push(Exchange {
                added: std::mem::take(&mut added),
                recorded: Some(turn.text.clone()),
            }),
            Role::Assistant => {
                // A system turn in between separates two answers. The second one has no place and
                // is dropped.
                let answer = exchanges.last_mut().filter(|_| added.is_empty());
                if let Some(answer) = answer.and_then(|last| last.recorded.as_mut()) {
                    append(answer, &turn.text);
                }
            }
        }
    }
    // System turns at the end make no request of their own.
    if asks(&added) {
        let recorded = None;
        exchanges.push(Exchange { added, recorded });
    }
    exchanges
}

fn asks(added: &[Turn]) -> bool {
    added.iter().any(|turn| turn.role == Role::User)
}

fn append(text: &mut String, more: &str) {
    text.push_str(TURN_BREAK);
    text.push_str(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `recorded` and `expected` in the notation of the module's drawing, merged turns as
    /// `U2+U3`.
    fn check(recorded: &str, expected: &[&str]) {
        let turns = recorded.split_whitespace().map(|text| {
            let role = match text.as_bytes()[0] {
                b'S' => Role::System,
                b'U' => Role::User,
                _ => Role::Assistant,
            };
            Turn::new(role, text.to_owned())
        });
        let conversation =
            Conversation { id: "c".into(), turns: turns.collect(), ..Conversation::default() };
        let got: Vec<String> = exchanges(&conversation)
            .iter()
            .map(|exchange| {
                let added: Vec<&str> = exchange.added.iter().map(|turn| &*turn.text).collect();
                let recorded = exchange.recorded.as_deref().unwrap_or("?");
                format!("{} → {recorded}", added.join(" ")).replace(TURN_BREAK, "+")
            })
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn user_and_assistant_take_turns() {
        check("U1 A1 U2 A2", &["U1 → A1", "U2 → A2"]);
        check("A0 S U1 A1 U2 U3 A3 A4", &["S U1 → A1", "U2+U3 → A3+A4"]);
        check("S A0 U1", &["S U1 → ?"]);
        check("U1 S U2 A2", &["U1 S U2 → A2"]);
        check("U1 A1 S A2 U2", &["U1 → A1", "S U2 → ?"]);
        check("A0 S", &[]);
    }
}
