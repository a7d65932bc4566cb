//! Request logs: one request a line, as JSON, with its prompt as text.
//!
//! | shape | its prompt is in |
//! |---|---|
//! | an OpenAI body | `messages` (with `tools`), `prompt`, or `input` (with `instructions`) |
//! | an Anthropic body | `messages`, behind `system` |
//! | a line of OpenAI's batch files | the same, in `body` |
//! | a LiteLLM log | `messages`, or the same in `proxy_server_request.body` |
//! | a proxy's log | the same, in `request` |
//! | Helicone, Langfuse, LangSmith | the same, in `request_body`, `input` or `inputs` |
//! | a prompt that was rendered already | `prompt` or `input`, a text |
//! | one that was tokenized already | `prompt` or `prompt_token_ids`, token ids |
//!
//! Images, sound and files within messages count as their short names (see `opaque`), some 30
//! tokens each, whatever a model makes of them: the same one has the same name.
//!
//! What else is read, where it is there, beside the prompt or around the body: see [`fields_read`].
//!
//! Times are texts as in RFC 3339, or numbers since 1970 whose unit (seconds to nanoseconds)
//! their size tells. LiteLLM's `completionStartTime` less its `startTime` is a TTFT, except where
//! it is the answer's end, as in answers that were not streamed.
//!
//! A line differs from a [conversation](super::conversation), which is a whole dialogue and makes
//! a request for each user turn, by what only requests have: a file whose first line has
//! `messages` *and* one of `model`, `usage`, `request_id`, `startTime`, `ttft_ms` is a request
//! log, as is one with `prompt` or one of the names of bodies. `messages` alone, and `turns` or
//! `conversations` whatever else there is, are a conversation. Naming the format overrules this.

mod fields;
mod line;
mod marks;
mod names;
mod opaque;
mod requests;
mod usage;

use std::io::Read;
use std::time::Duration;

use headstart_core::shown::one_line;
use headstart_core::{FinishKind, Nanos, TokenId, ToolClass};
use serde_json::{Value, json};

use super::conversation::{Conversation, Role, Turn};
use crate::TraceError;
use crate::source::Lines;
pub(crate) use line::has_time;
use line::parse;
pub use marks::CacheMarks;
pub(crate) use names::BODIES;
pub use names::fields_read;
pub(super) use requests::open;
pub use requests::{BLOCK_TOKENS, Chains, TYPES};

/// Longest line that is read as a request, bytes: a prompt of a million tokens in JSON, twice.
/// Parsed it takes the like again; a line made to be costly, [`MEMORY_FACTOR`] times as much.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// Memory for a line at most, in bytes per byte of it: two bytes (`1,`) are a JSON value of 72,
/// and there are three times as many while a list grows.
pub const MEMORY_FACTOR: usize = 110;

/// One request of a log. Only the prompt is always known.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedRequest {
    /// The log's own id of it.
    pub id: Option<String>,
    /// Its line, from 1.
    pub line: usize,
    /// When it was sent, since 1970 (or since whatever the log counts from).
    pub arrival: Option<Nanos>,
    /// The model that was asked.
    pub model: Option<String>,
    /// The salt of the tenant's cache (vLLM's `cache_salt`).
    pub cache_salt: Option<String>,
    /// The user that sent it.
    pub user: Option<String>,
    /// The conversation or the agent's run.
    pub session: Option<String>,
    /// Its messages, text or token ids.
    pub prompt: PromptPart,
    /// Prompt tokens as the server counted them.
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens that its cache served.
    pub cached_tokens: Option<u32>,
    /// Tokens of the answer.
    pub output_tokens: Option<u32>,
    /// The end of the answer.
    pub finish: FinishKind,
    /// The tools that the answer calls.
    pub tool: ToolClass,
    /// Time from sending to the first token.
    pub ttft: Option<Duration>,
    /// Settings that may decide which cache serves it, each with a hash of its value.
    pub settings: Vec<(&'static str, u64)>,
}

/// The prompt of a request before tokenization.
#[derive(Clone, Debug, PartialEq)]
pub enum PromptPart {
    /// Messages, to be rendered by a chat template.
    Chat {
        /// An array of objects with `role`, `content` and what else was sent.
        messages: Value,
        /// The tools that the model may call: an array, as it was sent.
        tools: Option<Value>,
    },
    /// A text that is tokenized as it stands.
    Text(String),
    /// Ids of a prompt that is tokenized already: comparable where the tokenizer is the same.
    Tokens(Vec<TokenId>),
}

impl LoggedRequest {
    /// By what it is called: its id, or the number of its line.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.id {
            // An id comes from a client, and is shown in terminals.
            Some(id) => one_line(id),
            None => self.line.to_string(),
        }
    }
}

impl PromptPart {
    /// Counts the messages with the role `user`; 0 for a text or token ids.
    #[must_use]
    pub fn user_turns(&self) -> u16 {
        let Self::Chat { messages, .. } = self else {
            return 0;
        };
        let messages = messages.as_array().map_or(&[][..], Vec::as_slice);
        // A message that is no object gives null here, not a panic.
        let count = messages.iter().filter(|m| m["role"] == "user").count();
        u16::try_from(count).unwrap_or(u16::MAX)
    }
}

/// The requests of a conversation, one for each user turn, as its client sent them: everything
/// said up to it. Named `id.turn`, in the session of the conversation's id.
pub fn of_conversation(
    conversation: &Conversation,
    line: usize,
) -> impl Iterator<Item = LoggedRequest> + '_ {
    let turns = &conversation.turns;
    let is_user = |index: &usize| turns[*index].role == Role::User;
    let users = (0..turns.len()).filter(is_user);
    users.enumerate().map(move |(number, index)| {
        let said = turns[..=index].iter();
        let message = |turn: &Turn| json!({"role": turn.role, "content": turn.text});
        LoggedRequest {
            id: Some(format!("{}.{}", conversation.id, number + 1)),
            line,
            arrival: turns[index].at,
            model: None,
            cache_salt: None,
            user: None,
            session: Some(conversation.id.clone()),
            prompt: PromptPart::Chat { messages: said.map(message).collect(), tools: None },
            prompt_tokens: None,
            cached_tokens: None,
            output_tokens: None,
            finish: FinishKind::Unknown,
            tool: ToolClass::default(),
            ttft: None,
            settings: Vec::new(),
        }
    })
}

/// Whether `line` is a request.
pub(crate) fn is_request(line: &str) -> bool {
    parse(line).is_ok()
}

/// Options for reading a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Bad lines are counted and left out, instead of being errors.
    pub skip_bad: bool,
}

/// The requests of a log in file order; one line is in memory at a time.
pub struct Requests<'a> {
    lines: Lines<'a>,
    options: LogOptions,
    skipped: u64,
    unread_times: u64,
}

/// Reads the log `raw` (plain, gzip or zstd); `name` appears in errors.
///
/// # Errors
/// [`TraceError::Read`] when the input cannot be read at all. Later errors come with the requests:
/// [`TraceError::BadLine`] for a line that is no request, unless bad lines are skipped.
pub fn read<'a>(
    name: impl Into<String>,
    raw: impl Read + 'a,
    options: LogOptions,
) -> Result<Requests<'a>, TraceError> {
    Ok(Requests::from_lines(Lines::new(name, raw)?, options))
}

impl<'a> Requests<'a> {
    /// The requests that `lines` hold, none of which was taken yet.
    #[must_use]
    pub fn from_lines(lines: Lines<'a>, options: LogOptions) -> Self {
        Self { lines, options, skipped: 0, unread_times: 0 }
    }

    /// Bad lines left out so far.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Records of another tool so far that hold no request.
    #[must_use]
    pub fn passed_over(&self) -> u64 {
        self.lines.passed_over()
    }

    /// Requests so far that have a field for their time, in which no time could be read.
    #[must_use]
    pub fn unread_times(&self) -> u64 {
        self.unread_times
    }
}

impl Iterator for Requests<'_> {
    type Item = Result<LoggedRequest, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut is_unread = false;
            let mut request = self.lines.next_with(|line| {
                let request = parse(line)?;
                // This parses the line again, but only if it gave no time.
                is_unread = request.arrival.is_none() && has_time(line);
                Ok(request)
            })?;
            if let Ok(request) = &mut request {
                request.line = self.lines.line();
                self.unread_times += u64::from(is_unread);
            }
            match request {
                // A read error is never skipped, because it ends the input.
                Err(TraceError::BadLine { .. }) if self.options.skip_bad => self.skipped += 1,
                other => return Some(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "{\"prompt\": \"a\"}\n\n{\"model\": \"m\"}\n{\"id\": 7, \"input\": \"b\"}\n";

    fn names(skip_bad: bool) -> (Vec<Result<String, String>>, u64) {
        let options = LogOptions { skip_bad };
        let mut requests = read("log.jsonl", LOG.as_bytes(), options).expect("readable");
        let shown = requests.by_ref().map(|request| match request {
            Ok(request) => Ok(request.name()),
            Err(error) => Err(error.to_string()),
        });
        (shown.collect(), requests.skipped())
    }

    #[test]
    fn requests_are_named_by_their_id_or_line() {
        let (names, skipped) = names(true);
        assert_eq!(names, [Ok("1".to_owned()), Ok("7".to_owned())]);
        assert_eq!(skipped, 1);
    }

    #[test]
    fn what_a_terminal_would_obey_in_a_name_is_shown_by_its_number() {
        let log = "{\"id\": \"pay \u{202e}100\\u001b[2J\", \"prompt\": \"a\"}\n";
        let mut requests =
            read("log.jsonl", log.as_bytes(), LogOptions::default()).expect("readable");
        let request = requests.next().expect("one").expect("good");
        assert_eq!(request.name(), "pay \\u{202e}100\\u{1b}[2J");
    }

    #[test]
    fn a_bad_line_names_file_line_and_reason_and_the_next_is_read() {
        let (names, skipped) = names(false);
        let error = names[1].as_ref().expect_err("no prompt");
        assert!(error.starts_with("log.jsonl, line 3: no prompt"), "{error}");
        assert_eq!((names.len(), skipped), (3, 0));
        assert_eq!(names[2], Ok("7".to_owned()));
    }

    #[test]
    fn times_that_cannot_be_read_are_counted() {
        let log = "{\"prompt\": \"a\", \"timestamp\": \"yesterday\"}\n\
                   {\"prompt\": \"a\"}\n{\"prompt\": \"a\", \"created\": 1760000000}\n\
                   {\"prompt\": \"a\", \"time\": -3}\n";
        let mut requests =
            read("log.jsonl", log.as_bytes(), LogOptions::default()).expect("readable");
        let has_time = |request: Result<LoggedRequest, _>| request.expect("good").arrival.is_some();
        let dated: Vec<_> = requests.by_ref().map(has_time).collect();
        assert_eq!(dated, [false, false, true, false]);
        assert_eq!(requests.unread_times(), 2);
    }

    #[test]
    fn user_turns_are_the_users_messages() {
        let parse = |line| parse(line).expect("good").prompt.user_turns();
        let turns = r#"{"messages": [{"role": "system"}, {"role": "user"}, {"role": "user"}]}"#;
        assert_eq!(parse(turns), 2);
        assert_eq!(parse(r#"{"prompt": "user"}"#), 0);
    }

    #[test]
    fn a_conversation_asks_once_for_each_user_turn() {
        let said = [("user", Role::User), ("ok", Role::Assistant), ("more", Role::User)];
        let turns = said.map(|(text, role)| Turn::new(role, text.to_owned()));
        let conversation =
            Conversation { id: "c".to_owned(), turns: turns.to_vec(), ..Conversation::default() };
        let requests: Vec<_> = of_conversation(&conversation, 9).collect();
        let names: Vec<_> = requests.iter().map(LoggedRequest::name).collect();
        assert_eq!(names, ["c.1", "c.2"]);
        let PromptPart::Chat { messages, .. } = &requests[1].prompt else {
            panic!("a conversation is a chat");
        };
        assert_eq!(messages[1], json!({"role": "assistant", "content": "ok"}));
        assert_eq!((requests[1].prompt.user_turns(), requests[1].line), (2, 9));
    }
}
