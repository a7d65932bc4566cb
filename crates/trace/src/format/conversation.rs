//! Conversations as text: one JSON object a line, in any of three shapes.
//!
//! | turns are in | each turn is | known from |
//! |---|---|---|
//! | `turns` | `{"role", "text"}` | the samples that this project works with |
//! | `messages` | `{"role", "content"}` | OpenAI's chat API |
//! | `conversations` | `{"from", "value"}` | ShareGPT |
//!
//! `from` says `human` and `gpt` where the others say `user` and `assistant`; every name is
//! accepted in every shape. Other fields are ignored; only text is read (no images, no tools).
//!
//! Conversations are handed over as recorded: they may begin with the assistant, and two turns
//! may have the same role. Only those without any user turn are passed over, because they ask
//! for nothing. No model is known here: [`read`] hands over texts, and where a
//! [`Reader`](crate::Reader) makes requests of them, the caller passes the tokenizing function.

mod requests;

use std::fmt;
use std::io::Read;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

pub(super) use requests::open;
pub use requests::{BLOCK_TOKENS, Text, Tokenize, USER_TURNS_MAX};

use crate::{TraceError, source::Lines};

/// What was said between a user and an assistant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The file's own id; `#n` for the n-th record of the file (from 1) where it gives none.
    pub id: String,
    /// The turns in order, at least one of them by the user.
    pub turns: Vec<Turn>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Turn {
    /// Who speaks.
    #[serde(alias = "from")]
    pub role: Role,
    /// What is said; may be empty.
    #[serde(alias = "content", alias = "value")]
    pub text: String,
}

/// Who speaks. Serialized as OpenAI's API names it.
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
    #[serde(alias = "gpt", alias = "chatgpt", alias = "bing", alias = "bard")]
    Assistant,
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
    let mut lines = Lines::new(name, raw)?;
    let mut conversations = Vec::new();
    let mut record = 0;
    while limit.is_none_or(|limit| conversations.len() < limit) {
        record += 1;
        match lines.next_with(|line| parse(line, record)) {
            None => break,
            Some(conversation) => conversations.extend(Some(conversation?).filter(asks)),
        }
    }
    Ok(conversations)
}

#[derive(Deserialize)]
struct Record {
    #[serde(default)]
    id: Id,
    #[serde(alias = "messages", alias = "conversations")]
    turns: Vec<Turn>,
}

/// An id that is a text or a number; anything else is read and forgotten.
#[derive(Default)]
struct Id(Option<String>);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdVisitor)
    }
}

struct IdVisitor;

impl<'de> Visitor<'de> for IdVisitor {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id")
    }

    fn visit_str<E>(self, id: &str) -> Result<Id, E> {
        Ok(Id(Some(id.to_owned())))
    }

    fn visit_u64<E>(self, id: u64) -> Result<Id, E> {
        Ok(Id(Some(id.to_string())))
    }

    fn visit_i64<E>(self, id: i64) -> Result<Id, E> {
        Ok(Id(Some(id.to_string())))
    }

    fn visit_f64<E>(self, id: f64) -> Result<Id, E> {
        Ok(Id(Some(id.to_string())))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Id, E> {
        Ok(Id(None))
    }

    fn visit_unit<E>(self) -> Result<Id, E> {
        Ok(Id(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Id, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Id(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Id, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Id(None))
    }
}

fn parse(line: &str, record: usize) -> Result<Conversation, String> {
    let parsed: Record = serde_json::from_str(line).map_err(|error| {
        format!(
            "not a conversation ({error}); expected an object with one of `turns`, `messages` \
             and `conversations`"
        )
    })?;
    Ok(Conversation {
        id: parsed.id.0.unwrap_or_else(|| format!("#{record}")),
        turns: parsed.turns,
    })
}

fn asks(conversation: &Conversation) -> bool {
    conversation
        .turns
        .iter()
        .any(|turn| turn.role == Role::User)
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
                assert!(
                    error.contains(part) && error.contains("t.jsonl"),
                    "{error} lacks {part}"
                );
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
            Ok(&[
                "a assistant:0 user:1",
                "7 system:s user:1",
                "#3 user:1 assistant:2",
            ]),
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
            r#"{"messages": [{"role": "user", "content": [{"type": "text"}]}]}"#,
            None,
            Err("expected a string"),
        );
    }
}
