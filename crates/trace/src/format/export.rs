//! Records of other tools as lines of a [request log](crate::format::request_log).
//!
//! A tool writes a request in a shape of its own: within a page of results, a span, a container's
//! log line, a transcript. `Export` makes one line of each request in it, in the shape of a
//! request log, and passes over the records without one. A shape that the parser of request logs
//! reads by itself needs nothing here.
//!
//! | tool | file |
//! |---|---|
//! | Docker, Kubernetes, journals, log collectors | `container` |
//! | vLLM's and SGLang's logs | `engine_log` |
//! | browsers and proxies (HAR), pages of APIs, AIPerf's inputs | `page` |
//! | OpenTelemetry and OpenInference spans | `span`, `attributes`, `genai` |
//! | transcripts of coding agents | `transcript` |
//! | Gemini's and Bedrock's bodies | `provider` |
//! | LiteLLM's rows, access logs: a body within a text | `nested` |

mod attributes;
mod container;
mod engine_log;
mod genai;
mod nested;
mod page;
mod provider;
mod python;
mod span;
#[cfg(test)]
mod tests;
mod transcript;

use std::borrow::Cow;

use serde_json::Value;

use crate::format::request_log::is_request;
use crate::format::{Format, sniff};
use container::Container;
use engine_log::EngineLog;
use transcript::Transcript;

/// Tools whose files are read, what of each, and where a tool is made to log prompts.
pub const TOOLS: &[[&str; 3]] = &[
    [
        "LiteLLM",
        "callback logs; rows of spend logs, also with the body as text in `proxy_server_request` \
         and counts in `metadata.usage_object`",
        "`store_prompts_in_spend_logs: true`",
    ],
    [
        "Langfuse",
        "exports and pages of `/api/public/observations`: observations of the type GENERATION, \
         `usageDetails`",
        "",
    ],
    ["LangSmith", "runs with `run_type` llm, LangChain's serialized messages", ""],
    ["Helicone", "`request_body`, `response_body`", ""],
    [
        "OpenTelemetry",
        "OTLP as JSON, or spans one by one: `gen_ai.input.messages` with \
         `gen_ai.system_instructions`, `gen_ai.prompt.N.…`",
        "`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true`",
    ],
    ["OpenInference (Phoenix)", "`input.value`, or `llm.input_messages.N.…`, `llm.tools.N.…`", ""],
    [
        "vLLM's log",
        "prompts or token ids of `Received request` and `Request … details`",
        "`--enable-log-requests` and `VLLM_LOGGING_LEVEL=DEBUG`",
    ],
    [
        "SGLang's log",
        "requests that finished, with their cached tokens, as text or JSON",
        "`--log-requests --log-requests-level 3`",
    ],
    ["Claude Code", "session files: one request for each answer, without the system prompt", ""],
    ["Codex", "session files: one request for each answer", ""],
    ["Gemini", "`contents`, `systemInstruction`, `usageMetadata`", ""],
    ["Bedrock", "Converse bodies, model invocation logs", "model invocation logging"],
    ["HAR", "POSTs of browsers and proxies, with the counts of streamed answers", ""],
    ["nginx, Envoy and others", "access logs with the body as JSON in a text", ""],
    [
        "Docker, Kubernetes, collectors",
        "lines within `log`, `message`, `textPayload`, `jsonPayload`; the kubelet's files; lines \
         with a prefix",
        "",
    ],
    ["AIPerf", "`inputs.json`, traces with `text_input`, turns without roles", ""],
];

/// Reads the records of one file. The first record decides about its shape.
#[derive(Default)]
pub(crate) struct Export {
    container: Option<Container>,
    shape: Option<RecordShape>,
}

/// The shape of the records, within a container's lines if there are some.
enum RecordShape {
    /// One of our formats, which are read as they stand.
    Lines,
    /// Text with a request in some of its lines.
    Text(EngineLog),
    /// JSON of a tool that needs no more than its own record.
    Records(ReadRecord),
    Transcript(Box<Transcript>),
}

/// Makes requests of a tool's record.
type ReadRecord = fn(&Value) -> Vec<Value>;

/// The lines of a record.
pub(crate) enum RecordLines<'a> {
    /// The record is a line as it stands.
    Same,
    /// Other lines in its place; there may be no request in it.
    Others(Vec<Cow<'a, str>>),
}

impl Export {
    /// Whether the file's records are lines as they stand.
    pub(crate) fn is_plain(&self) -> bool {
        self.container.is_none() && matches!(self.shape, Some(RecordShape::Lines))
    }

    /// The lines of the next record.
    pub(crate) fn lines<'a>(&mut self, record: &'a str) -> RecordLines<'a> {
        if self.shape.is_none() && self.container.is_none() {
            // What tells by its fields alone is not parsed here.
            let is_ours = |format| match format {
                Format::Requests => false,
                // Bedrock's bodies name no `model`.
                Format::Conversation => !provider::MARKS.iter().any(|mark| record.contains(mark)),
                _ => true,
            };
            if sniff(record).is_ok_and(is_ours) {
                self.shape = Some(RecordShape::Lines);
                return RecordLines::Same;
            }
            self.container = Container::of_first(record);
        }
        let Some(container) = &mut self.container else {
            return self.unwrapped(record);
        };
        let Some(line) = container.line(record) else {
            return RecordLines::Others(Vec::new());
        };
        match self.unwrapped(&line) {
            RecordLines::Same => RecordLines::Others(vec![line]),
            RecordLines::Others(lines) => {
                let lines = lines.into_iter().map(|line| Cow::Owned(line.into_owned()));
                RecordLines::Others(lines.collect())
            }
        }
    }

    fn unwrapped<'a>(&mut self, record: &'a str) -> RecordLines<'a> {
        let is_json = record.starts_with('{');
        if self.shape.is_none() {
            // A container's program may say anything before its first request.
            let is_text = self.container.is_some() && !is_json;
            let text = || RecordShape::Text(EngineLog::default());
            self.shape = Some(if is_text { text() } else { RecordShape::of_first(record) });
        }
        match &mut self.shape {
            None | Some(RecordShape::Lines) => RecordLines::Same,
            Some(RecordShape::Text(log)) => {
                let found = if is_json { Some(record.into()) } else { log.line(record) };
                RecordLines::Others(found.map_or_else(Vec::new, |line| asking(&line)))
            }
            Some(RecordShape::Records(read)) => match serde_json::from_str(record) {
                Ok(value) => made(read(&value)),
                // The parser of request logs says what is wrong with it.
                Err(_) => RecordLines::Same,
            },
            Some(RecordShape::Transcript(transcript)) => match serde_json::from_str(record) {
                Ok(value) => made(transcript.requests(&value)),
                Err(_) => RecordLines::Same,
            },
        }
    }
}

/// The requests in a line of JSON that a program logged; it logs other things, too.
fn asking(line: &str) -> Vec<Cow<'static, str>> {
    let lines = match RecordShape::of_first(line) {
        RecordShape::Records(read) => {
            serde_json::from_str(line).map_or_else(|_| Vec::new(), |value| read(&value))
        }
        _ => return Vec::from_iter(is_request(line).then(|| line.to_owned().into())),
    };
    let lines = lines.into_iter().map(|request| request.to_string());
    lines.filter(|line| is_request(line)).map(Cow::Owned).collect()
}

fn made(requests: Vec<Value>) -> RecordLines<'static> {
    let lines = requests.into_iter().map(|request| Cow::Owned(request.to_string()));
    RecordLines::Others(lines.collect())
}

impl RecordShape {
    fn of_first(record: &str) -> Self {
        if !record.starts_with('{') {
            return if engine_log::is_log_line(record) {
                Self::Text(EngineLog::default())
            } else {
                Self::Lines
            };
        }
        let Ok(value) = serde_json::from_str::<Value>(record) else {
            return Self::Lines;
        };
        type IsShape = fn(&Value) -> bool;
        let known: [(IsShape, ReadRecord); 9] = [
            (page::is_har, page::har),
            (page::is_page, page::items),
            (page::is_text_trace, page::text_trace),
            (span::is_batch, span::batch),
            (span::is_span, span::requests),
            (engine_log::is_record, engine_log::record),
            (provider::is_body, provider::requests),
            (page::is_observation, page::observation),
            (nested::is_nested, nested::request),
        ];
        if let Some((_, read)) = known.into_iter().find(|(is_it, _)| is_it(&value)) {
            return Self::Records(read);
        }
        if let Some(transcript) = Transcript::of_first(&value) {
            return Self::Transcript(Box::new(transcript));
        }
        Self::Lines
    }
}
