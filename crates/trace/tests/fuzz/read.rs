//! One trace, read to its end, whatever it holds.

use std::io::Read;
use std::rc::Rc;
use std::time::Duration;

use headstart_core::Rng;
use headstart_trace::format::conversation::{Text, Tokenize};
use headstart_trace::format::request_log::PromptPart;
use headstart_trace::{Arrivals, Format, Options, Reader};

/// Options of a reader; random, so that all options meet all damage.
#[derive(Clone, Debug)]
pub(crate) struct Choices {
    pub(crate) format: Option<Format>,
    pub(crate) skip_bad: bool,
    pub(crate) draws: bool,
    pub(crate) infer: bool,
    pub(crate) drop_duplicates: bool,
}

impl Choices {
    /// Draws options for `format`: half of the time it is named, else the first line tells.
    pub(crate) fn new(rng: &mut Rng, format: Format) -> Self {
        let mut coin = || rng.next_u64() & 1 == 0;
        Self {
            format: coin().then_some(format),
            skip_bad: coin(),
            draws: coin() && format.has_sessions_without_start(),
            infer: coin(),
            drop_duplicates: coin(),
        }
    }

    /// The first line tells the format, and nothing bad is expected.
    pub(crate) fn strict() -> Self {
        Self { format: None, skip_bad: false, draws: false, infer: false, drop_duplicates: true }
    }
}

/// Counts of one reading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) requests: usize,
    pub(crate) errors: usize,
}

/// A token per byte, or none for a text that holds a `?`.
fn tokenize() -> Rc<Tokenize<'static>> {
    Rc::new(|text| {
        let bytes: Vec<u8> = match text {
            Text::Answer(text) => text.bytes().collect(),
            Text::Logged(PromptPart::Text(text)) => text.bytes().collect(),
            Text::Logged(PromptPart::Tokens(ids)) => return Ok(ids.clone()),
            Text::Logged(PromptPart::Chat { messages, .. }) => messages.to_string().into_bytes(),
            Text::Prompt(turns) => turns.iter().flat_map(|turn| turn.text.bytes()).collect(),
        };
        if bytes.contains(&b'?') {
            return Err("no token for `?`".to_owned());
        }
        Ok(bytes.into_iter().map(u32::from).collect())
    })
}

/// Reads `raw`, holding one request at a time.
pub(crate) fn all(raw: impl Read, choices: &Choices) -> Outcome {
    let mut outcome = Outcome::default();
    let options = Options {
        format: choices.format,
        skip_bad: choices.skip_bad,
        arrivals: if choices.draws {
            Arrivals::Poisson { mean_gap: Duration::from_secs(5), seed: 1 }
        } else {
            Arrivals::FileOrder
        },
        drop_duplicates: choices.drop_duplicates,
        infer: choices.infer,
        tokenize: Some(tokenize()),
        ..Options::default()
    };
    let Ok(reader) = Reader::with_options("t", raw, options) else {
        outcome.errors = 1;
        return outcome;
    };
    let mut last = None;
    for request in reader {
        match request {
            Ok(request) => {
                assert!(last <= Some(request.arrival), "time never goes back");
                last = Some(request.arrival);
                outcome.requests += 1;
            }
            Err(_) => outcome.errors += 1,
        }
    }
    outcome
}
