//! Conversations as lines that [`super::read`] gives back as they were.

use std::io::{self, Write};

use serde::Serialize;

use super::{Conversation, Role, Turn};

/// Writes `conversation` as one line, in the shape with `turns`. Fields at their default are left
/// out.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write(out: &mut (impl Write + ?Sized), conversation: &Conversation) -> io::Result<()> {
    let Conversation { id, turns, group, is_truncated, first_turn, labels_from, truth } =
        conversation;
    let line = WrittenConversation {
        id,
        group: group.as_deref(),
        first_turn: (*first_turn != Some(0)).then_some(*first_turn),
        labels_from: (*labels_from != 1).then_some(*labels_from),
        turns: turns.iter().map(WrittenTurn::new).collect(),
        truncated: is_truncated.then_some(true),
        // As short as it is exact: a probability is kept in 32 bits.
        truth: truth.iter().map(|p| p.value() as f32).collect(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct WrittenConversation<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    /// The inner one is `null` where the number is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_turn: Option<Option<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels_from: Option<u32>,
    turns: Vec<WrittenTurn<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    truth: Vec<f32>,
}

#[derive(Serialize)]
struct WrittenTurn<'a> {
    role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chars: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<f64>,
}

impl<'a> WrittenTurn<'a> {
    fn new(turn: &'a Turn) -> Self {
        Self {
            role: turn.role,
            // A reader drops `chars` beside a text, so a withheld one must be absent.
            text: turn.withheld_chars.is_none().then_some(&*turn.text),
            chars: turn.withheld_chars,
            at: turn.at.map(|at| at.0 as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::{Nanos, Probability};

    use super::super::read;
    use super::*;

    fn check(conversation: Conversation, expected: &str) {
        let mut line = Vec::new();
        write(&mut line, &conversation).expect("memory takes it");
        assert_eq!(str::from_utf8(&line), Ok(&*format!("{expected}\n")));
        let back = read("t", &line[..], None).expect("our own");
        assert_eq!(back, [conversation]);
    }

    #[test]
    fn a_written_line_is_read_back_as_it_was() {
        let turn = Turn::new(Role::User, "a \"b\"\n".to_owned());
        let plain = Conversation {
            id: "p1".to_owned(),
            turns: vec![turn.clone()],
            ..Conversation::default()
        };
        let said = r#"{"role":"user","text":"a \"b\"\n"}"#;
        check(plain, &format!(r#"{{"id":"p1","turns":[{said}]}}"#));
        let timed = Turn { at: Some(Nanos(2_250_000_000)), ..turn };
        let withheld =
            Turn { withheld_chars: Some(5), ..Turn::new(Role::Assistant, String::new()) };
        let all = Conversation {
            id: String::new(),
            turns: vec![timed, withheld],
            group: Some("g".to_owned()),
            is_truncated: true,
            first_turn: None,
            labels_from: 2,
            truth: vec![Probability::new(0.1).expect("a number")],
        };
        let expected = concat!(
            r#"{"id":"","group":"g","first_turn":null,"labels_from":2,"#,
            r#""turns":[{"role":"user","text":"a \"b\"\n","at":2.25},"#,
            r#"{"role":"assistant","chars":5}],"truncated":true,"truth":[0.1]}"#,
        );
        check(all, expected);
    }
}
