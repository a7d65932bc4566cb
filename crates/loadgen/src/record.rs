//! A run without its text: who asked when, how much, and what was found.
//!
//! ```text
//! {"record":"headstart-chat","version":1,"run":"lru","answers":"generated","conversations":2}
//! {"conversation":0,"start_s":0.1,"shared":null,"turns":[{"think_s":0.0,"prompt_tokens":61,…},…]}
//! {"conversation":1,"start_s":0.9,"shared":{"conversation":0,"tokens":33},"turns":[…]}
//! ```
//!
//! Enough for a simulator to repeat the run in virtual time: when conversations begin, how long
//! users think, and how many tokens come and go. It holds counts and times, never text and
//! nothing made of it, save how much of a first prompt is the same as of one before it.
//!
//! What is shared is estimated: the server counts tokens, only bytes can be compared here.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Bound;

use headstart_core::Probability;
use headstart_trace::format::conversation::Conversation;
use serde::Serialize;

use crate::Answers;
use crate::observed::{ChatObservations, TurnSample};
use crate::script::exchanges;

/// The first field of a record's first line.
const KIND: &str = "headstart-chat";

/// Of the format above.
const VERSION: u32 = 1;

/// Record of one run, conversation by conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRecord {
    header: ChatRecordHeader,
    conversations: Vec<ConversationRecord>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ChatRecordHeader {
    record: &'static str,
    version: u32,
    run: String,
    answers: &'static str,
    conversations: usize,
}

/// A conversation of which at least one request was answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConversationRecord {
    /// Its number among those given, from 0.
    pub conversation: usize,
    /// When its first request was sent, seconds from the start of the run.
    pub start_s: f64,
    /// Head that its first prompt shares with an earlier one.
    pub shared: Option<SharedHead>,
    /// Its answered requests, in order.
    pub turns: Vec<TurnRecord>,
}

/// The longest common head of a first prompt with the first prompt of an earlier conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SharedHead {
    /// The earlier conversation.
    pub conversation: usize,
    /// The head's length, tokens, estimated by its share of the text.
    pub tokens: u32,
}

/// One answered request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnRecord {
    /// From the end of the last answer to this request, seconds; 0 for the first.
    pub think_s: f64,
    /// The whole prompt, tokens.
    pub prompt_tokens: u32,
    /// Of these, neither in the prompt before nor in its answer. With recorded answers, which
    /// take the place of the server's, not exact.
    pub new_tokens: u32,
    /// The answer, tokens.
    pub answer_tokens: u32,
    /// Predicted probability that another request follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Prompt tokens that the server found in its cache.
    pub cached_tokens: u32,
    /// When it was sent, seconds from the start of the run.
    pub sent_s: f64,
    /// Time to first token, seconds.
    pub ttft_s: f64,
    /// Time to the last event, seconds.
    pub e2e_s: f64,
}

impl ChatRecord {
    /// The record of `observed`, named `run`. `predicted` maps a conversation's number and a turn
    /// (from 1) to the predicted probability of another request, if there was a prediction.
    #[must_use]
    pub fn of(
        run: &str,
        conversations: &[Conversation],
        answers: Answers,
        observed: &ChatObservations,
        predicted: impl Fn(usize, usize) -> Option<Probability>,
    ) -> Self {
        let mut by_conversation: BTreeMap<usize, Vec<&TurnSample>> = BTreeMap::new();
        // Samples are in order of their answers, so those of all conversations are mixed.
        for sample in &observed.samples {
            let samples = by_conversation.entry(sample.conversation).or_default();
            samples.push(sample);
        }
        let heads = FirstPrompts::of(conversations);
        let records = by_conversation.into_iter().map(|(number, mut samples)| {
            samples.sort_by_key(|sample| sample.turn);
            ConversationRecord {
                conversation: number,
                // A conversation has an entry only if it has a sample, so index 0 exists.
                start_s: samples[0].sent.as_secs_f64(),
                shared: heads.shared(number, samples[0].prompt_tokens),
                turns: turns(&samples, |turn| predicted(number, turn)),
            }
        });
        let conversations: Vec<_> = records.collect();
        let header = ChatRecordHeader {
            record: KIND,
            version: VERSION,
            run: run.to_owned(),
            answers: match answers {
                Answers::Generated => "generated",
                Answers::Recorded => "recorded",
            },
            conversations: conversations.len(),
        };
        Self { header, conversations }
    }

    /// The conversations, in order of their numbers.
    #[must_use]
    pub fn conversations(&self) -> &[ConversationRecord] {
        &self.conversations
    }

    /// Writes it as JSON lines, the header first.
    ///
    /// # Errors
    /// When `out` cannot be written to.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut out, &self.header)?;
        out.write_all(b"\n")?;
        for conversation in &self.conversations {
            serde_json::to_writer(&mut out, conversation)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }
}

fn turns(
    samples: &[&TurnSample],
    predicted: impl Fn(usize) -> Option<Probability>,
) -> Vec<TurnRecord> {
    let mut known = 0;
    let record = |sample: &&TurnSample| {
        // A recorded answer can be shorter than the generated one that `known` counts.
        let new_tokens = sample.prompt_tokens.saturating_sub(known);
        // Both counts are the server's, and their sum may be more than the type holds.
        known = sample.prompt_tokens.saturating_add(sample.output_tokens);
        TurnRecord {
            think_s: sample.think.as_secs_f64(),
            prompt_tokens: sample.prompt_tokens,
            new_tokens,
            answer_tokens: sample.output_tokens,
            p: predicted(sample.turn).map(Probability::value),
            cached_tokens: sample.cached_tokens,
            sent_s: sample.sent.as_secs_f64(),
            ttft_s: sample.ttft.as_secs_f64(),
            e2e_s: sample.e2e.as_secs_f64(),
        }
    };
    samples.iter().map(record).collect()
}

/// The texts of all first prompts, and what each shares with one before it.
struct FirstPrompts {
    /// Per conversation: the prompt's bytes, and the earlier conversation with the common bytes.
    of: Vec<(usize, Option<(usize, usize)>)>,
}

impl FirstPrompts {
    fn of(conversations: &[Conversation]) -> Self {
        let mut earlier: BTreeMap<String, usize> = BTreeMap::new();
        let head = |(number, conversation)| {
            let text = first_prompt(conversation);
            // In order of their bytes, the one with the longest common head stands next to it.
            let mut below = earlier.range::<str, _>((Bound::Unbounded, Bound::Included(&*text)));
            let above = earlier.range::<str, _>((Bound::Included(&*text), Bound::Unbounded));
            let neighbours = below.next_back().into_iter().chain(above.take(1));
            let shared = neighbours
                .map(|(other, &other_number)| (common_bytes(&text, other), other_number))
                // Among equal heads the earliest conversation wins.
                .max_by_key(|&(bytes, other_number)| (bytes, std::cmp::Reverse(other_number)));
            let bytes = text.len();
            // A repeated text keeps its first conversation, so later ones refer to the earliest.
            earlier.entry(text).or_insert(number);
            (bytes, shared.map(|(bytes, number)| (number, bytes)))
        };
        Self { of: conversations.iter().enumerate().map(head).collect() }
    }

    fn shared(&self, number: usize, prompt_tokens: u32) -> Option<SharedHead> {
        let (bytes, shared) = *self.of.get(number)?;
        let (conversation, common) = shared?;
        // The server's count includes its template; the bytes give only the share.
        let tokens = f64::from(prompt_tokens) * common as f64 / bytes.max(1) as f64;
        let tokens = (tokens as u32).min(prompt_tokens);
        (tokens > 0).then_some(SharedHead { conversation, tokens })
    }
}

/// All that the first request says, roles apart.
fn first_prompt(conversation: &Conversation) -> String {
    let first = exchanges(conversation).into_iter().next();
    let added = first.map(|exchange| exchange.added).unwrap_or_default();
    let texts: Vec<String> =
        // The role is compared too: the same words from system and user make different prompts.
        added.into_iter().map(|turn| format!("{:?} {}", turn.role, turn.text)).collect();
    texts.join("\n")
}

fn common_bytes(a: &str, b: &str) -> usize {
    let pairs = a.bytes().zip(b.bytes());
    pairs.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headstart_trace::format::conversation::{Role, Turn};

    use super::*;

    fn conversation(prompts: &[&str]) -> Conversation {
        let said = |text: &&str| Turn::new(Role::User, (*text).to_owned());
        let answered = |user: Turn| {
            let role = Role::Assistant;
            let text = "recorded secret".to_owned();
            [user, Turn::new(role, text)]
        };
        Conversation {
            id: "secret-id".to_owned(),
            turns: prompts.iter().map(said).flat_map(answered).collect(),
            ..Conversation::default()
        }
    }

    fn sample(conversation: usize, turn: usize, prompt_tokens: u32) -> TurnSample {
        TurnSample {
            conversation,
            turn,
            think: Duration::from_millis(if turn > 1 { 1500 } else { 0 }),
            sent: Duration::from_millis(250 * turn as u64),
            prompt_tokens,
            cached_tokens: 16,
            output_tokens: 10,
            ttft: Duration::from_millis(125),
            e2e: Duration::from_millis(500),
            replica: Some("r0".to_owned()),
        }
    }

    fn text(conversations: &[Conversation], samples: Vec<TurnSample>) -> String {
        let observed = ChatObservations { samples, ..ChatObservations::default() };
        let predicted = |number, turn| {
            let p = Probability::new(0.5).filter(|_| turn == 1);
            p.filter(|_| number == 0)
        };
        let answers = Answers::Generated;
        let record = ChatRecord::of("lru", conversations, answers, &observed, predicted);
        let mut bytes = Vec::new();
        record.write(&mut bytes).expect("memory takes all");
        String::from_utf8(bytes).expect("JSON is text")
    }

    #[test]
    fn the_format_is_this() {
        let conversations = [conversation(&["one", "two"])];
        let got = text(&conversations, vec![sample(0, 2, 45), sample(0, 1, 20)]);
        let lines = [
            concat!(
                r#"{"record":"headstart-chat","version":1,"run":"lru","#,
                r#""answers":"generated","conversations":1}"#,
            ),
            concat!(
                r#"{"conversation":0,"start_s":0.25,"shared":null,"turns":["#,
                r#"{"think_s":0.0,"prompt_tokens":20,"new_tokens":20,"answer_tokens":10,"p":0.5,"#,
                r#""cached_tokens":16,"sent_s":0.25,"ttft_s":0.125,"e2e_s":0.5},"#,
                r#"{"think_s":1.5,"prompt_tokens":45,"new_tokens":15,"answer_tokens":10,"#,
                r#""cached_tokens":16,"sent_s":0.5,"ttft_s":0.125,"e2e_s":0.5}]}"#,
            ),
        ];
        let expected = lines.map(|line| format!("{line}\n")).concat();
        assert_eq!(got, expected);
    }

    #[test]
    fn counts_that_cannot_be_do_not_overflow() {
        let samples = [sample(0, 1, u32::MAX), sample(0, 2, u32::MAX)];
        let turns = turns(&samples.each_ref(), |_| None);
        assert_eq!([turns[0].new_tokens, turns[1].new_tokens], [u32::MAX, 0]);
    }

    #[test]
    fn no_text_gets_in() {
        let conversations = [
            conversation(&["my secret is 4711", "and my number 0815"]),
            conversation(&["my secret is another", "and that is all"]),
        ];
        let samples = vec![sample(0, 1, 20), sample(1, 1, 20), sample(1, 2, 45)];
        let got = text(&conversations, samples);
        for said in ["4711", "0815", "another", "my number", "recorded"] {
            assert!(!got.contains(said), "{got}");
        }
        assert!(!got.contains("secret"), "{got}");
    }

    /// Of prompts that are said to have 100 tokens each: with whom each shares how many.
    fn check_shared(prompts: &[&str], expected: &[Option<(usize, u32)>]) {
        let conversations: Vec<_> = prompts.iter().map(|text| conversation(&[text])).collect();
        let heads = FirstPrompts::of(&conversations);
        let shared = (0..prompts.len()).map(|number| heads.shared(number, 100));
        let got: Vec<_> =
            shared.map(|shared| shared.map(|head| (head.conversation, head.tokens))).collect();
        assert_eq!(got, expected, "{prompts:?}");
    }

    #[test]
    fn a_head_is_shared_with_the_earlier_prompt_that_has_most_of_it() {
        // The role counts as five bytes.
        check_shared(&["aaaaa", "aaaaa"], &[None, Some((0, 100))]);
        check_shared(&["aaaaa", "aaaab"], &[None, Some((0, 90))]);
        check_shared(
            &["abcde", "zzzzz", "abczz", "abcdz"],
            &[None, Some((0, 50)), Some((0, 80)), Some((0, 90))],
        );
        check_shared(&["", ""], &[None, Some((0, 100))]);
    }
}
