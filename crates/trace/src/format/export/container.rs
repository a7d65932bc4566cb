//! Log lines within the records of containers and log collectors.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::format::request_log::has_time;

/// Fields of a collector's record with the program's own line.
const LINES: [&str; 6] = ["log", "message", "msg", "line", "textPayload", "@message"];

/// Fields that only records of collectors have.
const OF_A_COLLECTOR: [&str; 6] =
    ["stream", "kubernetes", "container_name", "logStream", "insertId", "docker"];

/// Fields of the record's time.
const TIMES: [&str; 5] = ["time", "timestamp", "@timestamp", "ts", "ingestionTime"];

/// Longest line that is put together of parts, bytes: as long as the longest line that is read.
const JOINED_MAX: usize = 64 << 20;

/// The lines of a container's program. Docker and the kubelet split long lines at 16 KiB: the parts
/// become one line again.
pub(super) struct Container {
    kind: Kind,
    /// The parts of a line that has not ended.
    joined: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// JSON with the line in a field.
    Json,
    /// A kubelet's file: time, stream, `F` or `P` (a part), line.
    Kubelet,
}

impl Container {
    pub(super) fn of_first(record: &str) -> Option<Self> {
        let kind = if kubelet_parts(record).is_some() {
            Kind::Kubelet
        } else {
            let value: Value = serde_json::from_str(record).ok()?;
            let fields = value.as_object()?;
            let is_collector = OF_A_COLLECTOR.iter().any(|name| fields.contains_key(*name));
            let is_json = |text: &str| text.trim_start().starts_with('{');
            let has_line = match line_of(&value)? {
                Line::Text(text) => is_collector || is_json(text),
                Line::Object(_) => true,
            };
            // A dialogue's record may have a `message`, too.
            let asks = ["messages", "prompt", "body", "request"];
            if !has_line || asks.iter().any(|name| fields.contains_key(*name)) {
                return None;
            }
            Kind::Json
        };
        Some(Self { kind, joined: String::new() })
    }

    /// The program's line, once its last part is there.
    pub(super) fn line<'a>(&mut self, record: &'a str) -> Option<Cow<'a, str>> {
        match self.kind {
            Kind::Kubelet => {
                let Some((time, is_part, text)) = kubelet_parts(record) else {
                    return Some(record.into());
                };
                self.join(text, is_part)?;
                Some(with_time(&std::mem::take(&mut self.joined), Some(&json!(time))).into())
            }
            Kind::Json => {
                let value: Value = serde_json::from_str(record).ok()?;
                let time = TIMES.iter().find_map(|name| value.get(name));
                match line_of(&value)? {
                    Line::Object(object) => Some(with_time(&object.to_string(), time).into()),
                    Line::Text(text) => {
                        // Docker's own records end with the line's end, except for parts.
                        let is_docker = value.get("log").is_some() && value.get("time").is_some();
                        self.join(text.trim_end(), is_docker && !text.ends_with('\n'))?;
                        Some(with_time(&std::mem::take(&mut self.joined), time).into())
                    }
                }
            }
        }
    }

    /// Adds to the line; `None` if more is to come.
    fn join(&mut self, text: &str, is_part: bool) -> Option<()> {
        if self.joined.len() + text.len() > JOINED_MAX {
            self.joined.clear();
        }
        self.joined.push_str(text);
        (!is_part).then_some(())
    }
}

enum Line<'a> {
    Text(&'a str),
    Object(&'a Value),
}

fn line_of(value: &Value) -> Option<Line<'_>> {
    if let Some(object) = value.get("jsonPayload").filter(|payload| payload.is_object()) {
        return Some(Line::Object(object));
    }
    LINES.iter().find_map(|name| Some(Line::Text(value.get(name)?.as_str()?)))
}

/// The time, whether the line continues in the next record, and the text of a kubelet's record.
fn kubelet_parts(record: &str) -> Option<(&str, bool, &str)> {
    let mut parts = record.splitn(4, ' ');
    let (time, stream, tag, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_kubelet = matches!(stream, "stdout" | "stderr") && matches!(tag, "F" | "P");
    is_kubelet.then_some((time, tag == "P", text))
}

/// A line with the record's time, if it is JSON that names none.
pub(super) fn with_time(line: &str, time: Option<&Value>) -> String {
    let inner = line.trim_start().strip_prefix('{').filter(|_| !has_time(line));
    match (inner, time) {
        (Some(inner), Some(time)) if !inner.trim_start().starts_with('}') => {
            format!("{{\"timestamp\":{time},{inner}")
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(records: &[&str]) -> Vec<String> {
        let mut container = Container::of_first(records[0]).expect("a container's");
        records.iter().filter_map(|record| container.line(record).map(Cow::into_owned)).collect()
    }

    #[test]
    fn parts_of_a_line_become_one() {
        let docker = [
            r#"{"log":"{\"prompt\": ","stream":"stdout","time":"T1"}"#,
            r#"{"log":"\"x\"}\n","stream":"stdout","time":"T2"}"#,
            r#"{"log":"up\n","stream":"stderr","time":"T3"}"#,
        ];
        assert_eq!(lines(&docker), [r#"{"timestamp":"T2","prompt":"x"}"#, "up"]);
        let kubelet = ["T1 stdout P {\"prompt\": ", "T2 stdout F \"x\"}", "T3 stderr F up"];
        assert_eq!(lines(&kubelet), [r#"{"timestamp":"T2","prompt": "x"}"#, "up"]);
    }

    #[test]
    fn collectors_records_hold_the_programs_line() {
        for record in [
            r#"{"message": "{\"prompt\": \"x\"}", "@timestamp": "T"}"#,
            r#"{"jsonPayload": {"prompt": "x"}, "timestamp": "T"}"#,
            r#"{"line": "{\"prompt\": \"x\"}", "ts": "T"}"#,
        ] {
            let [line] = &lines(&[record])[..] else { panic!("one line of {record}") };
            assert_eq!(line.replace(": ", ":"), r#"{"timestamp":"T","prompt":"x"}"#);
        }
        for other in [
            r#"{"message": {"role": "user"}}"#,
            r#"{"message": "hello", "prompt": "x"}"#,
            r#"{"messages": []}"#,
            "{",
            "INFO x",
        ] {
            assert!(Container::of_first(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_line_keeps_its_own_time() {
        let own = r#"{"created": 7, "prompt": "x"}"#;
        assert_eq!(with_time(own, Some(&json!("T"))), own);
        assert_eq!(with_time("{}", Some(&json!("T"))), "{}");
        assert_eq!(with_time("up", Some(&json!("T"))), "up");
    }
}
