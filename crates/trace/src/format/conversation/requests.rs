//! A conversation as the requests that it makes, tokenized by a function of the caller's.
//!
//! Each user turn is a request whose prompt is everything said up to it, recorded answers
//! included, as a chat client sends it:
//!
//! ```text
//! turns     system  user  assistant  user  assistant
//! request 1 ├───────────┤ └ answer ┘
//! request 2 ├──────────────────────────┤ └ answer ┘
//! ```
//!
//! Only full blocks are named, as engines cache only those: the route keys of `core` over the
//! tokens, so equal prefixes share ids across conversations. Conversation files have no times:
//! in file order each request comes a millisecond after the one before; where session starts
//! are drawn, the gaps between the turns are drawn as well.

use std::rc::Rc;
use std::time::Duration;

use headstart_core::block::Namespace;
use headstart_core::{Nanos, Rng, SessionId, TokenId, TraceRequest};

use super::super::line_format::{LineFormat, OpenTrace, ParsedLine, info};
use super::super::request_log::{Chains, PromptPart};
use super::{Conversation, Role, Turn, asks, parse};
use crate::TraceInfo;
use crate::info::Provenance::{Absent, Given};
use crate::schedule::{Arrivals, RecordedSession};

/// Tokens per block where the caller does not say: an engine's usual size.
pub const BLOCK_TOKENS: u32 = 16;

/// Requests of one conversation: each tokenizes its whole history again.
pub const USER_TURNS_MAX: usize = 4096;

/// Text to tokens, or why not.
pub type Tokenize<'a> = dyn Fn(Text<'_>) -> Result<Vec<TokenId>, String> + 'a;

/// Text to tokenize.
#[derive(Clone, Copy, Debug)]
pub enum Text<'t> {
    /// A prompt that asks for the answer to these turns, the last of which is a user's: by the
    /// model's chat template, if it has one.
    Prompt(&'t [Turn]),
    /// An answer, whose tokens are only counted.
    Answer(&'t str),
    /// The prompt of a logged request, see [`request_log`](super::super::request_log).
    Logged(&'t PromptPart),
}

struct ConversationFormat<'a> {
    tokenize: Rc<Tokenize<'a>>,
    chains: Rc<Chains>,
    /// Mean gap in seconds and seed, where gaps are drawn.
    gaps: Option<(f64, u64)>,
    num_lines: u64,
}

pub(in crate::format) fn open<'a>(
    tokenize: Option<Rc<Tokenize<'a>>>,
    block_tokens: Option<u32>,
    arrivals: Arrivals,
    turn_gap: Duration,
) -> Result<OpenTrace<'a>, String> {
    let block_tokens = block_tokens.unwrap_or(BLOCK_TOKENS).max(1);
    let conversations = ConversationFormat {
        tokenize: tokenize.ok_or("conversations are text; pass a tokenizing function")?,
        chains: Rc::new(Chains::new(block_tokens)),
        gaps: match arrivals {
            Arrivals::FileOrder => None,
            Arrivals::Poisson { seed, .. } => Some((turn_gap.as_secs_f64(), seed)),
        },
        num_lines: 0,
    };
    let info = info(block_tokens, [Given, Given, Absent]);
    Ok((Box::new(conversations), info))
}

impl<'a> LineFormat<'a> for ConversationFormat<'a> {
    fn read(&mut self, line: &str, _: &mut TraceInfo) -> Result<ParsedLine<'a>, String> {
        let number = self.num_lines;
        self.num_lines += 1;
        // From 1, as the names of records without an id say.
        let conversation = parse(line, self.num_lines as usize)?;
        if !asks(&conversation) {
            return Ok(ParsedLine::Nothing);
        }
        let is_user = |turn: &&Turn| turn.role == Role::User;
        let user_turns = conversation.turns.iter().filter(is_user).count();
        // Every request tokenizes the whole history again, so the cost grows with the square.
        if user_turns > USER_TURNS_MAX {
            return Err(format!(
                "a conversation of {user_turns} user turns; the limit is {USER_TURNS_MAX}"
            ));
        }
        let withheld = |turn: &Turn| turn.withheld_chars.is_some();
        if let Some(index) = conversation.turns.iter().position(withheld) {
            return Err(format!(
                "the text of turn {} is withheld (it has `chars` only), and prompts are made of \
                 texts; give it as `text`",
                index + 1
            ));
        }
        let text = conversation.turns.iter().map(|turn| turn.text.len());
        // The schedule limits the memory of conversations under way, and each is held to its end.
        let bytes = text.sum::<usize>() + size_of::<Turn>() * conversation.turns.len();
        let talk = Talk {
            conversation,
            tokenize: Rc::clone(&self.tokenize),
            chains: Rc::clone(&self.chains),
            gaps: self
                .gaps
                // Number 0 would leave the seed as it is, and the schedule draws the starts from
                // that one.
                .map(|(mean, seed)| (mean, Rng::new(seed ^ (number + 1).rotate_left(32)))),
            session: SessionId(number),
            said: 0,
            turn: 0,
            arrival: Nanos(0),
        };
        Ok(ParsedLine::Session(RecordedSession { requests: Box::new(talk), bytes }))
    }
}

/// A conversation under way; one prompt is in memory at a time.
struct Talk<'a> {
    conversation: Conversation,
    tokenize: Rc<Tokenize<'a>>,
    chains: Rc<Chains>,
    gaps: Option<(f64, Rng)>,
    session: SessionId,
    /// Turns already in a prompt.
    said: usize,
    turn: u16,
    arrival: Nanos,
}

impl Iterator for Talk<'_> {
    type Item = Result<TraceRequest, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let turns = &self.conversation.turns;
        let is_user = |turn: &Turn| turn.role == Role::User;
        self.said += turns[self.said..].iter().position(is_user)? + 1;
        self.turn = self.turn.saturating_add(1);
        let gap = match &mut self.gaps {
            None => Duration::from_millis(1),
            Some(_) if self.turn == 1 => Duration::ZERO,
            Some((mean, rng)) => {
                // `1 - u` is never 0, so the logarithm is finite.
                let gap = -*mean * (1.0 - rng.next_f64()).ln();
                // The mean is the caller's. A gap that no `Duration` holds becomes the longest one.
                Duration::try_from_secs_f64(gap).unwrap_or(Duration::MAX)
            }
        };
        self.arrival = self.arrival + gap;
        Some(self.request())
    }
}

impl Talk<'_> {
    fn request(&self) -> Result<TraceRequest, String> {
        let (prompt, rest) = self.conversation.turns.split_at(self.said);
        let tokens = (self.tokenize)(Text::Prompt(prompt))?;
        // A user may speak twice in a row; then the first request has no recorded answer.
        let answer = rest.first().filter(|turn| turn.role == Role::Assistant);
        let answer = answer.map(|turn| (self.tokenize)(Text::Answer(&turn.text)));
        Ok(TraceRequest {
            arrival: self.arrival,
            blocks: self.chains.blocks(Namespace::default(), &tokens)?,
            input_tokens: Some(count(&tokens)),
            output_tokens: answer.transpose()?.map(|tokens| count(&tokens)),
            session: Some(self.session),
            turn: self.turn,
            request_type: 0,
            ..TraceRequest::default()
        })
    }
}

fn count(tokens: &[TokenId]) -> u32 {
    u32::try_from(tokens.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Options, Reader};

    /// A token per word; turns joined as `role text`.
    fn words<'a>() -> Rc<Tokenize<'a>> {
        Rc::new(|text| {
            let text = match text {
                Text::Answer("unspeakable") => return Err("no token for it".to_owned()),
                Text::Answer(answer) => answer.to_owned(),
                Text::Logged(_) => return Err("no log is read here".to_owned()),
                Text::Prompt(turns) => {
                    turns.iter().map(|turn| format!("{:?} {} ", turn.role, turn.text)).collect()
                }
            };
            let token =
                |word: &str| word.bytes().fold(7u32, |t, b| t.wrapping_mul(31) ^ u32::from(b));
            Ok(text.split_whitespace().map(token).collect())
        })
    }

    fn read(text: &str, arrivals: Arrivals) -> Result<Vec<TraceRequest>, crate::TraceError> {
        let options = Options {
            format: Some(Format::Conversation),
            block_tokens: Some(2),
            tokenize: Some(words()),
            arrivals,
            ..Options::default()
        };
        Reader::with_options("t", text.as_bytes(), options)?.collect()
    }

    const TWO: &str = concat!(
        r#"{"turns": [{"role": "system", "text": "be good"}, {"role": "user", "text": "a b"},"#,
        r#" {"role": "assistant", "text": "c d e"}, {"role": "user", "text": "f"}]}"#,
        "\n",
        r#"{"turns": [{"role": "assistant", "text": "nobody asked"}]}"#,
        "\n",
        r#"{"turns": [{"role": "system", "text": "be good"}, {"role": "user", "text": "z"}]}"#,
    );

    #[test]
    fn each_user_turn_is_a_request_with_its_history() {
        let requests = read(TWO, Arrivals::FileOrder).expect("good");
        let shown: Vec<_> = requests
            .iter()
            .map(|r| {
                let session = r.session.expect("given").0;
                (session, r.turn, r.input_tokens, r.output_tokens, r.arrival.0)
            })
            .collect();
        let ms = 1_000_000;
        let expected = [
            (0, 1, Some(6), Some(3), ms),
            (0, 2, Some(12), None, 2 * ms),
            (2, 1, Some(5), None, 3 * ms),
        ];
        assert_eq!(shown, expected);
        // Full blocks only, and those of equal prefixes are the same in any conversation.
        let ids: Vec<Vec<u64>> = requests.iter().map(|r| r.blocks.iter().collect()).collect();
        assert_eq!([ids[0].len(), ids[1].len(), ids[2].len()], [3, 6, 2]);
        assert_eq!(ids[0], ids[1][..3]);
        assert_eq!(ids[2], ids[0][..2]);
        assert_ne!(ids[0][2], ids[1][3]);
    }

    #[test]
    fn drawn_gaps_stand_between_the_turns() {
        let turn = r#"{"role": "user", "text": "x"}"#;
        let text = format!("{{\"turns\": [{}]}}", vec![turn; 401].join(","));
        let drawn = |seed| Arrivals::Poisson { mean_gap: Duration::from_secs(1), seed };
        let requests = read(&text, drawn(3)).expect("good");
        let mean_s = requests[400].arrival.0 as f64 / 1e9 / 400.0;
        assert_eq!(requests[0].arrival, Nanos(0));
        assert!((85.0..115.0).contains(&mean_s), "100 by default: {mean_s}");
        assert_eq!(requests, read(&text, drawn(3)).expect("good"));
        assert_ne!(requests, read(&text, drawn(4)).expect("good"));
    }

    #[test]
    fn what_cannot_be_tokenized_is_a_bad_line() {
        let text = TWO.replace("c d e", "unspeakable");
        let error = read(&text, Arrivals::FileOrder).expect_err("no token");
        assert!(error.to_string().contains("line 1: no token"), "{error}");
        let text = TWO.replace(r#""text": "c d e""#, r#""chars": 5"#);
        let error = read(&text, Arrivals::FileOrder).expect_err("no text");
        assert!(error.to_string().contains("the text of turn 3 is withheld"), "{error}");
        let turn = r#"{"role": "user", "text": "x"}"#;
        let text = format!("{{\"turns\": [{}]}}", vec![turn; USER_TURNS_MAX + 1].join(","));
        let error = read(&text, Arrivals::FileOrder).expect_err("too long");
        assert!(error.to_string().contains("the limit is 4096"), "{error}");
    }
}
