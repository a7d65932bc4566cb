//! Conversations as turns to learn from.
//!
//! Each user message is a turn. Its outcome is whether another one follows, where the record can
//! say so honestly: not before `labels_from`, and not for the last one of a record that was cut
//! ([`Conversation::labels`]). Everything before it is history, also where its own outcome is
//! not known.

use headstart_core::Progress;
use headstart_core::figures::counted;
use headstart_trace::format::conversation::{self, Conversation, Role, Turn, USER_TURNS_MAX};

use super::TrainingError;
use super::input::TrainingFile;
use super::samples::Samples;
use crate::situations::{Situations, num_prompts};
use crate::{ConversationOutcome, Label};

/// Reads up to `limit` conversations; `number` tells them from those of other files. Remarks.
///
/// # Errors
/// When the file cannot be read, or a line is no conversation.
pub(super) fn read(
    source: &TrainingFile,
    number: u64,
    limit: Option<usize>,
    samples: &mut Samples,
    progress: &dyn Progress,
) -> Result<Vec<String>, TrainingError> {
    let raw = source.open(progress)?;
    let conversations = conversation::read(source.name(), raw, limit)?;
    let (mut num_late, mut num_withheld) = (0, 0);
    for conversation in conversations {
        // Such a record counts its turns from its first message.
        num_late += u64::from(conversation.first_turn.is_none());
        num_withheld += u64::from(conversation.turns.iter().any(is_withheld));
        push(&conversation, number, samples)?;
    }
    let mut remarks = Vec::new();
    if num_late > 0 {
        let records = counted(num_late, "record");
        remarks.push(format!(
            "{records} without a word on how many turns came before: counted from the first there"
        ));
    }
    if num_withheld > 0 {
        let records = counted(num_withheld, "record");
        remarks.push(format!("{records} with prompts of which only the length is known"));
    }
    Ok(remarks)
}

fn is_withheld(turn: &Turn) -> bool {
    turn.role == Role::User && turn.withheld_chars.is_some()
}

/// Adds the turns of one conversation.
fn push(
    conversation: &Conversation,
    file: u64,
    samples: &mut Samples,
) -> Result<(), TrainingError> {
    let (id, group) = ids(conversation, file);
    let mut situations = Situations::of(conversation, num_prompts(samples.definition()));
    let labels = conversation.labels().into_iter().enumerate();
    for (index, label) in labels.take(USER_TURNS_MAX) {
        let Some(situation) = situations.next_prompt() else {
            break;
        };
        let outcome = match label {
            Some(true) => ConversationOutcome::Continued,
            Some(false) => ConversationOutcome::Ended,
            None => ConversationOutcome::Unknown,
        };
        let label = Label {
            outcome,
            turn: situation.turn,
            conversation: id,
            group,
            truth: conversation.truth.get(index).copied(),
        };
        samples.push(situation, label)?;
    }
    Ok(())
}

/// Numbers for conversation and group. Equal ids are one conversation within a file only; equal
/// groups, and equal first prompts where there are none, are one everywhere.
fn ids(conversation: &Conversation, file: u64) -> (u64, u64) {
    // Ids are unique in a file only, so the file's number is part of it.
    let id = number_of(&[b"conversation", &file.to_le_bytes(), conversation.id.as_bytes()]);
    let first = conversation.turns.iter().find(|turn| turn.role == Role::User);
    // A withheld prompt has no text by which equal ones could be found.
    let first = first.filter(|turn| turn.withheld_chars.is_none());
    let group = match (&conversation.group, first) {
        (Some(group), _) => number_of(&[b"group", group.as_bytes()]),
        (None, Some(first)) => number_of(&[b"prompt", first.text.trim().as_bytes()]),
        (None, None) => id,
    };
    (id, group)
}

/// A number that stands for `parts`.
pub(super) fn number_of(parts: &[&[u8]]) -> u64 {
    let mut hash = blake3::Hasher::new();
    for part in parts {
        // The length separates the parts: two pairs of parts never give the same bytes.
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    let (first, _) = hash.as_bytes().split_first_chunk().expect("32 bytes");
    u64::from_le_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Definition, Encoder, Parts};

    /// No values: rows are the turn and the behaviour.
    struct Nothing;

    impl Encoder for Nothing {
        fn identity(&self) -> &str {
            "nothing"
        }

        fn dims(&self) -> usize {
            0
        }

        fn encode(&self, _: &[&str]) -> Vec<f32> {
            Vec::new()
        }
    }

    fn samples(lines: &str) -> Samples {
        let mut definition = Definition::new(&Nothing);
        definition.text.answers = true;
        definition.parts = Parts::Joined;
        let mut samples = Samples::new(definition);
        let conversations = conversation::read("t", lines.as_bytes(), None).expect("good lines");
        for conversation in conversations {
            push(&conversation, 0, &mut samples).expect("few");
        }
        samples
    }

    /// `expected`: turn and outcome of each, as `1+ 2- 3?`.
    fn check(line: &str, expected: &str) {
        let samples = samples(line);
        let told = samples.labels().iter().map(|label| {
            let sign = match label.outcome {
                ConversationOutcome::Continued => '+',
                ConversationOutcome::Ended => '-',
                ConversationOutcome::Unknown => '?',
            };
            format!("{}{sign}", label.turn)
        });
        assert_eq!(told.collect::<Vec<_>>().join(" "), expected, "{line}");
    }

    #[test]
    fn each_user_message_is_a_turn_with_an_outcome_where_it_is_known() {
        let turns = r#""turns": [{"role": "system", "text": "s"}, {"role": "user", "text": "a"},
            {"role": "assistant", "text": "b"}, {"role": "user", "text": "c"}]}"#;
        let turns = turns.replace('\n', "");
        check(&format!("{{{turns}"), "1+ 2-");
        check(&format!("{{\"truncated\": true, {turns}"), "1+ 2?");
        check(&format!("{{\"labels_from\": 2, {turns}"), "1? 2-");
        check(&format!("{{\"first_turn\": 3, {turns}"), "4+ 5-");
        check(&format!("{{\"first_turn\": null, {turns}"), "1+ 2-");
    }

    #[test]
    fn answers_stand_beside_their_prompts_whatever_is_missing() {
        let turn = |(role, text): (&str, &str)| format!(r#"{{"role":"{role}","text":"{text}"}}"#);
        let turns = [
            ("assistant", "greeting"),
            ("user", "one"),
            ("user", "two"),
            ("assistant", "x"),
            ("assistant", "y"),
            ("user", "three"),
        ];
        let turns = turns.map(turn).join(",");
        let samples = samples(&format!("{{\"turns\": [{turns}]}}"));
        let expected = "one\nThe answer is: \nThe next user query is: two\nThe answer is: y\n\
            The next user query is: three";
        assert_eq!(samples.texts().last().map(String::as_str), Some(expected));
    }

    #[test]
    fn equal_first_prompts_and_equal_groups_are_one_group() {
        let record = |head: &str, text: &str| {
            format!("{{{head}\"turns\": [{{\"role\": \"user\", \"text\": \"{text}\"}}]}}\n")
        };
        let same = |a: (&str, &str), b: (&str, &str)| {
            let samples = samples(&(record(a.0, a.1) + &record(b.0, b.1)));
            let [a, b] = samples.labels() else {
                panic!("two turns");
            };
            (a.conversation == b.conversation, a.group == b.group)
        };
        assert_eq!(same(("", "hi"), ("", " hi ")), (false, true));
        assert_eq!(same(("", "hi"), ("", "ho")), (false, false));
        let (one, two) = ("\"group\": \"g\", ", "\"group\": \"h\", ");
        assert_eq!(same((one, "hi"), (one, "ho")), (false, true));
        assert_eq!(same((one, "hi"), (two, "hi")), (false, false));
        let id = "\"id\": 7, ";
        assert_eq!(same((id, "hi"), (id, "ho")), (true, false));
    }
}
