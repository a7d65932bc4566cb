//! Conversations as text: one JSON object a line, in any of three shapes.
//!
//! | turns are in | each turn is | known from |
//! |---|---|---|
//! | `turns` | `{"role", "text"}` | the samples that this project works with |
//! | `messages` | `{"role", "content"}` | OpenAI's chat API |
//! | `conversations` | `{"from", "value"}` | ShareGPT |
//!
//! `from` says `human` and `gpt` where the others say `user` and `assistant`; every name is
//! accepted in every shape. Only text is read (no images, no tools).
//!
//! Records may hold labels, for predictors that learn whether conversations continue. Playing and
//! replaying ignore them. All are optional, and other fields are ignored:
//!
//! | field of a record | says | default |
//! |---|---|---|
//! | `group` | text or number; records with equal ones belong on one side of a split | none |
//! | `truncated` | the record was cut: whether its last turn was followed is unknown | false |
//! | `first_turn` | user turns before the record's first one; `null` where unknown | 0 |
//! | `labels_from` | first user turn of the record, from 1, whose continuation is honest | 1 |
//! | `truth` | per user turn the true probability that another follows | none |
//!
//! `labels_from` is for corpora chosen by length: where only conversations of two turns or more
//! were kept, that the first turn is followed tells nothing. A turn may have `chars`, the number
//! of characters of a text that is withheld, and `at`, when it was sent: seconds from any point
//! that is the same for the whole record.
//!
//! Conversations are handed over as recorded: they may begin with the assistant, and two turns
//! may have the same role. Only those without any user turn are passed over, because they ask
//! for nothing. No model is known here: [`read`] hands over texts, and where a
//! [`Reader`](crate::Reader) makes requests of them, the caller passes the tokenizing function.

mod record;
mod requests;
mod writing;

use std::io::Read;

use headstart_core::{Nanos, Probability};
use serde::{Deserialize, Serialize};

use record::parse;
pub(super) use requests::open;
pub use requests::{BLOCK_TOKENS, Text, Tokenize, USER_TURNS_MAX};
pub use writing::write;

use crate::{TraceError, source::Lines};

/// A conversation between a user and an assistant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The file's own id; `#n` for the n-th record of the file (from 1) where it gives none.
    pub id: String,
    /// The turns in order, at least one of them by the user.
    pub turns: Vec<Turn>,
    /// Records of an equal group belong on one side of a split. Without a group, a hash of the
    /// first prompt serves.
    pub group: Option<String>,
    /// The record was cut: whether its last user turn was followed is unknown.
    pub is_truncated: bool,
    /// User turns before the record's first one; `None` where that is unknown.
    pub first_turn: Option<u32>,
    /// The first user turn of the record, from 1, whose label is honest.
    pub labels_from: u32,
    /// True probability that another user turn follows, per user turn; empty where unknown.
    pub truth: Vec<Probability>,
}

impl Default for Conversation {
    fn default() -> Self {
        Self {
            id: String::new(),
            turns: Vec::new(),
            group: None,
            is_truncated: false,
            first_turn: Some(0),
            labels_from: 1,
            truth: Vec::new(),
        }
    }
}

impl Conversation {
    /// Per user turn whether another user turn follows in the record; `None` where the record
    /// cannot say so honestly: before `labels_from`, and at the end of a record that was cut.
    #[must_use]
    pub fn labels(&self) -> Vec<Option<bool>> {
        let is_user = |turn: &&Turn| turn.role == Role::User;
        let count = self.turns.iter().filter(is_user).count();
        let label = |number: usize| {
            let is_last = number == count;
            // The last turn of a cut record may have been followed by one that is not here.
            let is_known = number >= self.labels_from as usize && !(is_last && self.is_truncated);
            is_known.then_some(!is_last)
        };
        (1..=count).map(label).collect()
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The role of the speaker.
    pub role: Role,
    /// The text of the message; may be empty, and always is where it is withheld.
    pub text: String,
    /// Characters of a text that is withheld; `None` where the text is here.
    pub withheld_chars: Option<u32>,
    /// When it was sent, from a point that is the same for the whole conversation.
    pub at: Option<Nanos>,
}

impl Turn {
    /// A message of which nothing but its text is known.
    #[must_use]
    pub fn new(role: Role, text: String) -> Self {
        Self { role, text, withheld_chars: None, at: None }
    }

    /// Length of the text in characters, whether it is here or withheld.
    #[must_use]
    pub fn chars(&self) -> u32 {
        let here = || u32::try_from(self.text.chars().count()).unwrap_or(u32::MAX);
        self.withheld_chars.unwrap_or_else(here)
    }
}

/// The role of a speaker, serialized as in OpenAI's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions to the assistant.
    #[serde(alias = "developer")]
    System,
    /// The one who asks.
    #[serde(alias = "human")]
    User,
    /// The model.
    #[serde(
        alias = "gpt",
        alias = "chatgpt",
        alias = "bing",
        alias = "bard",
        alias = "model",
        alias = "bot",
        alias = "ai",
        alias = "function_call"
    )]
    Assistant,
    /// A tool that the assistant called.
    #[serde(alias = "function", alias = "observation", alias = "function_response")]
    Tool,
}

/// Reads up to `limit` conversations that have a user turn from `raw` (plain, gzip or zstd), in
/// file order; `name` appears in errors. Lines behind the last one wanted are not looked at.
///
/// # Errors
/// [`TraceError`] for the first line that is no conversation, or when `raw` cannot be read.
pub fn read(
    name: impl Into<String>,
    raw: impl Read,
    limit: Option<usize>,
) -> Result<Vec<Conversation>, TraceError> {
    // `take` stops before the read, so no line beyond the last one wanted can be an error.
    each(&mut Lines::new(name, raw)?).take(limit.unwrap_or(usize::MAX)).collect()
}

/// The conversations that `lines` hold and that ask for something, one by one.
///
/// # Errors
/// [`TraceError`] for each line that is no conversation, and when the input cannot be read.
pub fn each<'l, 'a>(
    lines: &'l mut Lines<'a>,
) -> impl Iterator<Item = Result<Conversation, TraceError>> + use<'l, 'a> {
    let mut record = 0;
    let conversations = std::iter::from_fn(move || {
        record += 1;
        lines.next_with(|line| parse(line, record))
    });
    conversations
        .filter(|conversation| conversation.as_ref().is_ok_and(asks) || conversation.is_err())
}

fn asks(conversation: &Conversation) -> bool {
    conversation.turns.iter().any(|turn| turn.role == Role::User)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected`: each conversation as `id role:text …`, or a part of the error.
    fn check(text: &str, limit: Option<usize>, expected: Result<&[&str], &str>) {
        let show = |conversation: Conversation| {
            let turns = conversation.turns.iter();
            turns.fold(conversation.id, |shown, turn| {
                let role = serde_json::to_value(turn.role).expect("a role is a word");
                format!("{shown} {}:{}", role.as_str().expect("a word"), turn.text)
            })
        };
        match (read("t.jsonl", text.as_bytes(), limit), expected) {
            (Ok(got), Ok(expected)) => {
                assert_eq!(got.into_iter().map(show).collect::<Vec<_>>(), expected);
            }
            (Err(error), Err(part)) => {
                let error = error.to_string();
                assert!(error.contains(part) && error.contains("t.jsonl"), "{error} lacks {part}");
            }
            (got, expected) => panic!("{got:?} against {expected:?}"),
        }
    }

    #[test]
    fn all_three_shapes_are_read() {
        let turns = r#"{"id": "a", "turns": [
            {"role": "assistant", "text": "0", "lang": "en"}, {"role": "user", "text": "1"}]}"#;
        let messages = r#"{"id": 7, "messages": [
            {"role": "system", "content": "s"}, {"role": "user", "content": "1"}]}"#;
        let sharegpt = r#"{"conversations": [
            {"from": "human", "value": "1"}, {"from": "gpt", "value": "2"}]}"#;
        let lines = [turns, messages, "", sharegpt].map(|record| record.replace('\n', ""));
        check(r#"{"id": {"x": [1]}, "turns": []}"#, None, Ok(&[]));
        check(
            &lines.join("\n"),
            None,
            Ok(&["a assistant:0 user:1", "7 system:s user:1", "#3 user:1 assistant:2"]),
        );
    }

    #[test]
    fn only_conversations_that_ask_count_towards_the_limit() {
        let text = r#"{"turns": [{"role": "assistant", "text": "x"}]}
{"turns": []}
{"turns": [{"role": "user", "text": "x"}]}
not looked at"#;
        check(text, Some(1), Ok(&["#3 user:x"]));
        check(text, Some(0), Ok(&[]));
        check(text, None, Err("line 4: not a conversation"));
    }

    #[test]
    fn a_bad_line_says_where_and_why() {
        check(r#"{"id": "a"}"#, None, Err("missing field `turns`"));
        check(
            "{\"turns\": []}\n{\"turns\": [{\"role\": \"robot\", \"text\": \"\"}]}",
            None,
            Err("line 2: not a conversation (unknown variant `robot`"),
        );
        check(
            r#"{"messages": [{"role": "user", "content": {"type": "text"}}]}"#,
            None,
            Err("neither a text nor a list of parts"),
        );
    }
}
