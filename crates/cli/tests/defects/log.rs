//! Requests and the log that they stand in.

use std::collections::HashMap;

use serde_json::{Value, json};

/// One request as a client sent it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Id of the request in the log.
    pub(crate) id: String,
    /// When it was sent, in seconds since 1970.
    pub(crate) at_s: u64,
    pub(crate) user: String,
    /// Index of its conversation, and its index in that conversation, both from 0.
    pub(crate) conversation: usize,
    pub(crate) turn: usize,
    /// The body that the client posted.
    pub(crate) body: Value,
    /// The change that a defect made to it.
    pub(crate) mark: Option<Mark>,
}

/// A change that a defect made to one request, distinct from its changes to others.
#[derive(Clone, Debug)]
pub(crate) enum Mark {
    /// This text, where others have another one.
    Text(String),
    /// These texts one behind the other, where others have other ones or another order.
    Order(Vec<String>),
    /// Per message a text that only some requests have there.
    Block(Vec<Option<String>>),
}

/// Requests by the time of sending.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) requests: Vec<Request>,
    pub(crate) form: Form,
}

/// Format of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The request body, with an id, a time and the user beside it.
    Bodies,
    /// The body alone: a request is known by its line.
    Bare,
    /// Lines of OpenAI's batch interface.
    Batch,
    /// As LiteLLM logs calls.
    LiteLlm,
}

/// Monday, 3 March 2025, 09:00 UTC.
pub(crate) const MONDAY_NINE_S: u64 = 1_740_992_400;

impl Log {
    /// Puts requests in order of time and names them in that order.
    pub(crate) fn new(mut requests: Vec<Request>) -> Self {
        requests.sort_by_key(|request| (request.at_s, request.conversation, request.turn));
        for (index, request) in requests.iter_mut().enumerate() {
            request.id = format!("req-{:04}", index + 1);
        }
        Self { requests, form: Form::Bodies }
    }

    pub(crate) fn written_as(mut self, form: Form) -> Self {
        self.form = form;
        if form == Form::Bare {
            for (index, request) in self.requests.iter_mut().enumerate() {
                request.id = (index + 1).to_string();
            }
        }
        self
    }

    /// All of it, a line per request.
    pub(crate) fn lines(&self) -> String {
        let lines = self.requests.iter().map(|request| {
            let line = line(request, self.form);
            format!("{line}\n")
        });
        lines.collect()
    }

    /// The marks by the requests' names.
    pub(crate) fn marks(&self) -> HashMap<&str, &Mark> {
        let marked = self.requests.iter();
        let marked = marked.filter_map(|request| Some((&*request.id, request.mark.as_ref()?)));
        marked.collect()
    }
}

fn line(request: &Request, form: Form) -> Value {
    let Request { id, at_s, user, body, .. } = request;
    match form {
        Form::Bare => body.clone(),
        Form::Batch => json!({
            "custom_id": id,
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": body,
        }),
        Form::Bodies => {
            let mut line = json!({"id": id, "timestamp": at_s, "user": user});
            extend(&mut line, body);
            line
        }
        Form::LiteLlm => {
            let mut line = json!({
                "id": id,
                "call_type": "acompletion",
                "startTime": rfc3339(*at_s),
                "completionStartTime": rfc3339(at_s + 1),
                "endTime": rfc3339(at_s + 4),
                "user": user,
                "cache_hit": "None",
                "spend": 0.0031,
            });
            extend(&mut line, body);
            line
        }
    }
}

fn extend(line: &mut Value, body: &Value) {
    let line = line.as_object_mut().expect("an object");
    for (key, value) in body.as_object().expect("an object") {
        line.insert(key.clone(), value.clone());
    }
}

impl Request {
    /// The system prompt, to be changed.
    pub(crate) fn system(&mut self) -> &mut String {
        text_of(&mut self.messages()[0])
    }

    pub(crate) fn messages(&mut self) -> &mut Vec<Value> {
        self.body["messages"].as_array_mut().expect("messages")
    }

    pub(crate) fn tools(&mut self) -> &mut Vec<Value> {
        self.body["tools"].as_array_mut().expect("tools")
    }

    /// Everything that a model is shown, one behind the other.
    pub(crate) fn shown(&self) -> String {
        if let Some(prompt) = self.body["prompt"].as_str() {
            return prompt.to_owned();
        }
        let mut shown = self.body["tools"].to_string();
        for message in self.body["messages"].as_array().expect("messages") {
            for key in ["role", "reasoning_content", "content"] {
                shown.push_str(message[key].as_str().unwrap_or_default());
                shown.push('\n');
            }
            shown.push_str(&message["tool_calls"].to_string());
        }
        shown
    }
}

/// A message's text, to be changed.
pub(crate) fn text_of(message: &mut Value) -> &mut String {
    match &mut message["content"] {
        Value::String(text) => text,
        other => panic!("a message with text: {other}"),
    }
}

/// Year, month, day, and the day of the week from Monday = 0.
pub(crate) fn date(at_s: u64) -> (u64, usize, u64, usize) {
    let days = at_s / 86_400;
    let weekday = (days + 3) % 7;
    let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    // 1 January 2025; tests stay in that year.
    let mut left = days - 20_089;
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (2025, month + 1, left + 1, weekday as usize)
}

/// Hour, minute, second.
pub(crate) fn time(at_s: u64) -> (u64, u64, u64) {
    let seconds = at_s % 86_400;
    (seconds / 3600, seconds / 60 % 60, seconds % 60)
}

pub(crate) fn rfc3339(at_s: u64) -> String {
    let ((year, month, day, _), (hour, minute, second)) = (date(at_s), time(at_s));
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
