//! A log's lines as requests of a trace, tokenized by a function of the caller's.
//!
//! Only full blocks are named, as engines cache only those: the route keys of `core` over the
//! tokens, so that equal prefixes share ids across requests. Requests to other models, or with
//! another salt, share none. Lengths are those of the tokens, not the log's: they go with the
//! blocks.
//!
//! A request without a time comes a millisecond after the one before it. Sessions are the log's
//! where its first line names one, and are inferred otherwise. The type says in which shape a
//! request came ([`TYPES`]); the turn is the number of a chat's user messages.

use std::rc::Rc;
use std::time::Duration;

use headstart_core::block::Namespace;
use headstart_core::{
    BlockRuns, Nanos, RouteHasher, RouteIdentity, SessionId, TokenId, TraceRequest, fnv1a,
};

use super::super::BLOCKS_MAX;
use super::super::conversation::{Text, Tokenize};
use super::super::line_format::{LineFormat, OpenTrace, ParsedLine, info};
use super::{LoggedRequest, PromptPart, parse};
use crate::TraceInfo;
use crate::info::Provenance::{Absent, Given};

/// Tokens per block where the caller does not say: an engine's usual size.
pub const BLOCK_TOKENS: u32 = 16;

/// The types of requests: messages alone, messages with tools, a prompt as text.
pub const TYPES: [&str; 3] = ["chat", "tools", "text"];

/// Makes requests of a trace out of logged ones and their tokens.
pub struct Chains {
    hasher: RouteHasher,
}

impl Chains {
    /// Blocks of `block_tokens` tokens, at least one.
    #[must_use]
    pub fn new(block_tokens: u32) -> Self {
        let identity = RouteIdentity { model: "", block_size: block_tokens.max(1) };
        Self { hasher: RouteHasher::new(&identity) }
    }

    /// `logged` with its blocks, arriving when the log says, or at 0; `info` learns its type.
    ///
    /// # Errors
    /// When it has more than [`BLOCKS_MAX`] blocks.
    pub fn request(
        &self,
        logged: &LoggedRequest,
        tokens: &[TokenId],
        info: &mut TraceInfo,
    ) -> Result<TraceRequest, String> {
        // The hasher is for all models; a model sets prompts apart as an adapter does.
        let namespace =
            Namespace { adapter: logged.model.as_deref(), salt: logged.cache_salt.as_deref() };
        Ok(TraceRequest {
            arrival: logged.arrival.unwrap_or_default(),
            blocks: self.blocks(namespace, tokens)?,
            input_tokens: Some(u32::try_from(tokens.len()).unwrap_or(u32::MAX)),
            output_tokens: logged.output_tokens,
            session: logged.session.as_deref().map(session),
            turn: logged.prompt.user_turns(),
            request_type: info.type_index(type_name(&logged.prompt)),
            finish: logged.finish,
            tool: logged.tool,
            p_continue: None,
        })
    }

    /// The blocks of a prompt of `namespace`, where the model is the adapter.
    ///
    /// # Errors
    /// When it has more than [`BLOCKS_MAX`] blocks.
    pub fn blocks(
        &self,
        namespace: Namespace<'_>,
        tokens: &[TokenId],
    ) -> Result<BlockRuns, String> {
        // Before hashing, which would allocate the whole chain.
        if tokens.len() / self.hasher.block_size() > BLOCKS_MAX {
            return Err(format!("more than {BLOCKS_MAX} blocks in one request"));
        }
        let keys = self.hasher.chain(namespace, tokens);
        // Without the lowest bit, so that there is a number behind every id.
        Ok(keys.into_iter().map(|key| key.0 >> 1).collect())
    }
}

struct RequestLogFormat<'a> {
    tokenize: Rc<Tokenize<'a>>,
    chains: Chains,
    /// The first request's time, from which a trace counts.
    start: Option<Nanos>,
    last_arrival: Nanos,
}

pub(in crate::format) fn open<'a>(
    first: Option<&str>,
    tokenize: Option<Rc<Tokenize<'a>>>,
    block_tokens: Option<u32>,
) -> Result<OpenTrace<'a>, String> {
    let block_tokens = block_tokens.unwrap_or(BLOCK_TOKENS).max(1);
    let log = RequestLogFormat {
        tokenize: tokenize.ok_or("request logs are text; pass a tokenizing function")?,
        chains: Chains::new(block_tokens),
        start: None,
        last_arrival: Nanos(0),
    };
    // A bad first line is reported when its turn comes.
    let first = first.and_then(|line| parse(line).ok());
    let has_session = first.as_ref().is_some_and(|first| first.session.is_some());
    let has_turns = first.is_some_and(|first| matches!(first.prompt, PromptPart::Chat { .. }));
    let given = |is_given: bool| if is_given { Given } else { Absent };
    let provenance = [given(has_session), given(has_turns), Given];
    Ok((Box::new(log), info(block_tokens, provenance)))
}

impl<'a> LineFormat<'a> for RequestLogFormat<'a> {
    fn read(&mut self, line: &str, info: &mut TraceInfo) -> Result<ParsedLine<'a>, String> {
        let logged = parse(line)?;
        let tokens = (self.tokenize)(Text::Logged(&logged.prompt))?;
        let mut request = self.chains.request(&logged, &tokens, info)?;
        // The log's time counts from 1970, a trace's from its first request.
        request.arrival = self.arrival(logged.arrival);
        Ok(ParsedLine::Request(request))
    }
}

impl RequestLogFormat<'_> {
    /// From the start of the trace. What came before its first line came with it.
    fn arrival(&mut self, at: Option<Nanos>) -> Nanos {
        let arrival = match at {
            Some(at) => Nanos(at.0.saturating_sub(self.start.get_or_insert(at).0)),
            None => self.last_arrival + Duration::from_millis(1),
        };
        // A line that comes late must not pull back the lines without a time after it.
        self.last_arrival = self.last_arrival.max(arrival);
        arrival
    }
}

fn type_name(prompt: &PromptPart) -> &'static str {
    match prompt {
        PromptPart::Chat { tools: None, .. } => TYPES[0],
        PromptPart::Chat { tools: Some(_), .. } => TYPES[1],
        PromptPart::Text(_) | PromptPart::Tokens(_) => TYPES[2],
    }
}

/// A session's number from its name: FNV-1a, so that nothing has to be remembered. Among a
/// million sessions two are one with a chance of 1 in 37 million.
fn session(name: &str) -> SessionId {
    SessionId(fnv1a(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Options, Provenance, Reader, TraceError};

    /// A token per word of the prompt's JSON or text; none for a text that says so.
    fn words<'a>() -> Rc<Tokenize<'a>> {
        Rc::new(|text| {
            let Text::Logged(prompt) = text else {
                return Err("a log has prompts only".to_owned());
            };
            let text = match prompt {
                PromptPart::Text(text) if text == "unspeakable" => {
                    return Err("no token for it".to_owned());
                }
                PromptPart::Text(text) => text.clone(),
                PromptPart::Tokens(ids) => return Ok(ids.clone()),
                PromptPart::Chat { messages, tools } => format!("{messages} {tools:?}"),
            };
            let token = |word: &str| session(word).0 as u32;
            Ok(text.split_whitespace().map(token).collect())
        })
    }

    fn options<'a>() -> Options<'a> {
        Options { block_tokens: Some(2), tokenize: Some(words()), ..Options::default() }
    }

    fn read(text: &str) -> Result<(Vec<TraceRequest>, TraceInfo), TraceError> {
        let mut reader = Reader::with_options("t", text.as_bytes(), options())?;
        assert_eq!(reader.format(), Format::Requests);
        let requests = reader.by_ref().collect::<Result<_, _>>()?;
        Ok((requests, reader.info().clone()))
    }

    #[test]
    fn a_prompt_is_a_chain_that_equal_prefixes_share() {
        let text = r#"{"prompt": "a b c d e", "session_id": "s", "timestamp": 1700000000}
{"prompt": "a b c x", "session_id": "t", "timestamp": 1700000002.5, "usage": {"output_tokens": 3}}
{"prompt": "a b c d", "session_id": "s"}
{"prompt": "a b c d", "model": "m"}
{"prompt": "a b c d", "model": "m", "cache_salt": "x"}
"#;
        let (requests, info) = read(text).expect("good");
        let ids: Vec<Vec<u64>> = requests.iter().map(|r| r.blocks.iter().collect()).collect();
        assert_eq!((ids[0].len(), requests[0].input_tokens), (2, Some(5)));
        assert_eq!(ids[1][0], ids[0][0]);
        assert_ne!(ids[1][1], ids[0][1]);
        assert_eq!(ids[2], ids[0]);
        assert!(ids[3][0] != ids[0][0] && ids[4][0] != ids[3][0]);
        let arrivals: Vec<_> = requests.iter().map(|r| r.arrival.0 / 1_000_000).collect();
        assert_eq!(arrivals, [0, 2500, 2501, 2502, 2503]);
        assert_eq!(requests[0].session, requests[2].session);
        assert_ne!(requests[0].session, requests[1].session);
        assert_eq!((requests[3].session, requests[1].output_tokens), (None, Some(3)));
        assert_eq!(info.sessions, Provenance::Given);
        assert_eq!(info.turns, Provenance::Inferred);
    }

    #[test]
    fn shapes_are_types_and_user_messages_turns() {
        let user = r#"{"role": "user", "content": "x"}"#;
        let text = format!(
            "{{\"model\": \"m\", \"messages\": [{user}]}}\n\
             {{\"model\": \"m\", \"messages\": [{user}, {user}], \"tools\": [{{}}]}}\n\
             {{\"prompt\": \"x\"}}\n"
        );
        let (requests, info) = read(&text).expect("good");
        let named = |r: &TraceRequest| (info.types[usize::from(r.request_type)].clone(), r.turn);
        let named: Vec<_> = requests.iter().map(named).collect();
        let expected = [("chat", 1), ("tools", 2), ("text", 0)];
        assert_eq!(named, expected.map(|(name, turn)| (name.to_owned(), turn)));
        assert_eq!(info.sessions, Provenance::Inferred);
        assert_eq!(info.turns, Provenance::Given);
    }

    #[test]
    fn what_cannot_be_tokenized_is_a_bad_line() {
        let text = "{\"prompt\": \"a\"}\n{\"prompt\": \"unspeakable\"}";
        let error = read(text).expect_err("no token").to_string();
        assert!(error.contains("t, line 2: no token"), "{error}");
        let without = Reader::new("t", text.as_bytes()).err().expect("no function");
        assert!(without.to_string().contains("tokenizing function"), "{without}");
    }
}
