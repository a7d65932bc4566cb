//! One line of a conversation file, and what must hold for it.

use std::fmt;

use headstart_core::Probability;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::line_format::nanos;
use super::{Conversation, Role, Turn};

/// The conversation in `line`, the `record`-th of its file.
///
/// # Errors
/// What is wrong with it, and what was expected.
pub(super) fn parse(line: &str, record: usize) -> Result<Conversation, String> {
    let parsed: RecordedConversation = serde_json::from_str(line).map_err(|error| {
        format!(
            "not a conversation ({error}); expected an object with one of `turns`, `messages` \
             and `conversations`"
        )
    })?;
    let turns = parsed.turns.into_iter().enumerate();
    let turns = turns.map(|(index, turn)| turn.check(index + 1));
    let turns = turns.collect::<Result<Vec<Turn>, String>>()?;
    let group = group(parsed.group)?;
    let truth = truth(parsed.truth.unwrap_or_default(), &turns)?;
    Ok(Conversation {
        id: parsed.id.0.unwrap_or_else(|| format!("#{record}")),
        turns,
        group,
        is_truncated: parsed.truncated.unwrap_or(false),
        first_turn: parsed.first_turn,
        labels_from: parsed.labels_from.unwrap_or(1),
        truth,
    })
}

/// A text or a number; an empty text says as little as none.
fn group(given: Option<Value>) -> Result<Option<String>, String> {
    match given {
        None => Ok(None),
        Some(Value::String(name)) => Ok(Some(name).filter(|name| !name.is_empty())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(_) => Err("`group` is neither a text nor a number; expected one of them".to_owned()),
    }
}

/// Probabilities, one per user turn, or none at all.
fn truth(truth: Vec<f64>, turns: &[Turn]) -> Result<Vec<Probability>, String> {
    let asked = turns.iter().filter(|turn| turn.role == Role::User).count();
    if !truth.is_empty() && truth.len() != asked {
        let given = truth.len();
        return Err(format!(
            "`truth` has {given} numbers and the conversation {asked} user turns; expected one each"
        ));
    }
    let probability = |p: f64| {
        let in_range = (0.0..=1.0).contains(&p).then(|| Probability::new(p)).flatten();
        in_range.ok_or_else(|| format!("`truth` holds {p}; expected probabilities, 0 to 1"))
    };
    truth.into_iter().map(probability).collect()
}

#[derive(Deserialize)]
struct RecordedConversation {
    #[serde(default, alias = "session_id")]
    id: Id,
    #[serde(alias = "messages", alias = "conversations")]
    turns: Vec<RecordedTurn>,
    group: Option<Value>,
    truncated: Option<bool>,
    /// 0 where it is absent; `null` is unknown.
    #[serde(default = "none_before")]
    first_turn: Option<u32>,
    labels_from: Option<u32>,
    truth: Option<Vec<f64>>,
}

fn user() -> Role {
    Role::User
}

/// A text, or the texts of its parts; a part without a text is its JSON.
fn text_of_parts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    struct TextPart {
        text: String,
    }

    let text_of = |part: &&RawValue| match serde_json::from_str::<TextPart>(part.get()) {
        Ok(part) => part.text,
        Err(_) => serde_json::from_str(part.get()).unwrap_or_else(|_| part.get().to_owned()),
    };
    // Not parsed further at once: a list takes many times its memory as values.
    let Some(raw) = Option::<Box<RawValue>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    if let Ok(text) = serde_json::from_str(raw.get()) {
        return Ok(Some(text));
    }
    let parts = serde_json::from_str::<Vec<&RawValue>>(raw.get())
        .map_err(|_| serde::de::Error::custom("the text is neither a text nor a list of parts"))?;
    Ok(Some(parts.iter().map(text_of).collect::<Vec<_>>().join("\n")))
}

fn none_before() -> Option<u32> {
    Some(0)
}

#[derive(Deserialize)]
struct RecordedTurn {
    /// AIPerf's turns are all the user's, and say nothing.
    #[serde(alias = "from", default = "user")]
    role: Role,
    #[serde(alias = "content", alias = "value", default, deserialize_with = "text_of_parts")]
    text: Option<String>,
    tool_calls: Option<Box<RawValue>>,
    chars: Option<u32>,
    at: Option<f64>,
}

impl RecordedTurn {
    /// As a turn, the `number`-th of its record.
    fn check(self, number: usize) -> Result<Turn, String> {
        // The calls are a part of what the model wrote.
        let calls = self.tool_calls.map(|calls| calls.get().to_owned());
        let calls = calls.filter(|calls| calls.starts_with('['));
        let text = match (self.text, calls) {
            (Some(text), Some(calls)) => Some(format!("{text}\n{calls}")),
            (text, calls) => text.or(calls),
        };
        if text.is_none() && self.chars.is_none() {
            return Err(format!(
                "not a conversation (turn {number}: missing field `text`); expected `text`, \
                 `content` or `value`, or `chars` where the text is withheld"
            ));
        }
        let at = self.at.map(|seconds| nanos("at", seconds, 1e9));
        Ok(Turn {
            role: self.role,
            // A length beside its text says nothing new.
            withheld_chars: self.chars.filter(|_| text.is_none()),
            text: text.unwrap_or_default(),
            at: at.transpose()?,
        })
    }
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
        // Read to its end, or the parser would stop within the line.
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Id(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Id, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Id(None))
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::Nanos;

    use super::*;

    const USER: &str = r#""turns": [{"role": "user", "text": "x"}]"#;

    fn check_bad(line: &str, part: &str) {
        let error = parse(line, 1).expect_err(line);
        assert!(error.contains(part), "{error} lacks {part}");
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        let expected = Conversation {
            id: "#4".to_owned(),
            turns: vec![Turn::new(Role::User, "x".to_owned())],
            ..Conversation::default()
        };
        assert_eq!(parse(&format!("{{{USER}}}"), 4), Ok(expected.clone()));
        let nulls = r#""group": null, "truncated": null, "labels_from": null, "truth": null"#;
        assert_eq!(parse(&format!("{{{USER}, {nulls}}}"), 4), Ok(expected.clone()));
        assert_eq!(parse(&format!("{{{USER}, \"group\": \"\"}}"), 4), Ok(expected));
    }

    #[test]
    fn what_is_said_is_kept() {
        let line = r#"{"id": 1, "group": 7, "truncated": true, "first_turn": 2, "labels_from": 3,
            "truth": [0.25], "turns": [{"role": "user", "text": "é", "chars": 9, "at": 1.5},
            {"role": "assistant", "chars": 12}]}"#;
        let got = parse(line, 1).expect("good");
        assert_eq!((got.group.as_deref(), got.is_truncated), (Some("7"), true));
        assert_eq!((got.first_turn, got.labels_from), (Some(2), 3));
        assert_eq!(got.truth, [Probability::new(0.25).expect("a number")]);
        assert_eq!(got.turns[0].at, Some(Nanos(1_500_000_000)));
        assert_eq!([got.turns[0].chars(), got.turns[1].chars()], [1, 12]);
        assert_eq!(got.turns[1].withheld_chars, Some(12));
        let unknown = parse(&format!("{{{USER}, \"first_turn\": null}}"), 1).expect("good");
        assert_eq!(unknown.first_turn, None);
    }

    #[test]
    fn parts_calls_and_turns_without_a_role_are_read() {
        let turns = |line: &str| {
            let turns = parse(line, 1).expect("good").turns;
            turns.into_iter().map(|turn| (turn.role, turn.text)).collect::<Vec<_>>()
        };
        let text = |role, text: &str| (role, text.to_owned());
        let openai = r#"{"messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]},
            {"role": "tool", "content": "2"}]}"#;
        let expected = [
            text(Role::User, "a\n{\"type\": \"image\"}"),
            text(Role::Assistant, "[{\"id\": \"1\"}]"),
            text(Role::Tool, "2"),
        ];
        assert_eq!(turns(openai), expected);
        let aiperf = r#"{"session_id": "s", "turns": [{"text": "a", "delay": 0}, {"text": "b"}]}"#;
        assert_eq!(turns(aiperf), [text(Role::User, "a"), text(Role::User, "b")]);
        let sharegpt = r#"{"conversations": [{"from": "model", "value": "x"}]}"#;
        assert_eq!(turns(sharegpt), [text(Role::Assistant, "x")]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        check_bad(&format!("{{{USER}, \"truth\": [0.5, 0.5]}}"), "has 2 numbers");
        check_bad(&format!("{{{USER}, \"truth\": [1.5]}}"), "holds 1.5");
        check_bad(&format!("{{{USER}, \"first_turn\": -1}}"), "invalid value");
        check_bad(&format!("{{{USER}, \"group\": [1]}}"), "`group` is neither");
        let turn = |turn: &str| format!("{{\"turns\": [{turn}]}}");
        check_bad(&turn(r#"{"role": "user"}"#), "turn 1: missing field `text`");
        check_bad(&turn(r#"{"role": "user", "text": "x", "at": -1}"#), "`at` is -1");
    }
}
