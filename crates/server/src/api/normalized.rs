//! Requests rewritten before anything else is done with them, where the operator asked for it:
//! what is counted, routed, explained and sent on is what the normalizers left.

use std::panic::{AssertUnwindSafe, catch_unwind};

use axum::response::Response;
use bytes::Bytes;
use headstart_prompt::Normalizers;
use http::HeaderValue;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::own_headers::NORMALIZED_HEADER;
use crate::gateway::HttpGateway;

/// Longest body that is rewritten where it is read, bytes: below a millisecond.
const SHORT_BYTES: usize = 16 << 10;

/// The fields of a request that normalizers work on.
const FIELDS: [&str; 3] = ["messages", "tools", "prompt"];

/// Returns the body to process further, and the normalizers that changed it. An unreadable body
/// stays as it is: its next reader reports the error.
pub(super) async fn normalized(gateway: &HttpGateway, body: Bytes) -> (Bytes, Normalizers) {
    let chosen = gateway.normalizers;
    if chosen.is_empty() {
        return (body, chosen);
    }
    // `Bytes` share their memory. This copy is the answer if the rewrite fails.
    let again = body.clone();
    let rewritten = if body.len() <= SHORT_BYTES {
        // A defect of a normalizer must cost the prefix and not the request.
        catch_unwind(AssertUnwindSafe(|| rewrite(&body, chosen))).ok()
    } else {
        // The pool catches a panic as well: it comes back as a join error.
        let rewrite = move || rewrite(&body, chosen);
        tokio::task::spawn_blocking(rewrite).await.ok()
    };
    rewritten.flatten().unwrap_or((again, Normalizers::default()))
}

/// Says in an answer's head what was changed of its request, and counts it unless it was refused.
pub(super) fn say(gateway: &HttpGateway, mut response: Response, changed: Normalizers) -> Response {
    if response.status().is_success() {
        let counter = &gateway.metrics.requests.normalized;
        for one in changed.iter() {
            counter.with_label_values(&[one.cause()]).inc();
        }
    }
    if !changed.is_empty()
        && let Ok(value) = HeaderValue::from_str(&changed.to_string())
    {
        response.headers_mut().insert(NORMALIZED_HEADER, value);
    }
    response
}

/// Nothing where nothing changes. Fields of other names stay byte for byte.
fn rewrite(body: &[u8], chosen: Normalizers) -> Option<(Bytes, Normalizers)> {
    let mut fields: OrderedFields = serde_json::from_slice(body).ok()?;
    let mut request = Map::new();
    for (name, raw) in &fields.0 {
        if FIELDS.contains(&name.as_str()) {
            let value: Value = serde_json::from_str(raw.get()).ok()?;
            // Parsers differ in which of two equal fields counts, so such a body stays as it is.
            if request.insert(name.clone(), value).is_some() {
                return None;
            }
        }
    }
    let mut request = Value::Object(request);
    let changed = chosen.apply(&mut request);
    if changed.is_empty() {
        return None;
    }
    for (name, raw) in &mut fields.0 {
        if let Some(value) = request.get(name.as_str()) {
            *raw = to_raw_value(value).ok()?;
        }
    }
    let body = serde_json::to_vec(&fields).ok()?;
    Some((Bytes::from(body), changed))
}

/// An object's fields in their order, unread.
struct OrderedFields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for OrderedFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = OrderedFields;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedFields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(OrderedFields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

impl Serialize for OrderedFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, raw) in &self.0 {
            map.serialize_entry(name, raw)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: Option<(&str, &str)>) {
        let got = rewrite(body.as_bytes(), Normalizers::all());
        let got = got.map(|(body, changed)| {
            let body = String::from_utf8(body.to_vec()).expect("text");
            (body, changed.to_string())
        });
        let got = got.as_ref().map(|(body, changed)| (&body[..], &changed[..]));
        assert_eq!(got, expected);
    }

    #[test]
    fn only_what_changes_is_written_anew() {
        let from = r#"{"seed": 1e400, "tools": [{"name":"b"},{"name":"a"}], "x": {"b": 1, "a":2}}"#;
        let to = r#"{"seed":1e400,"tools":[{"name":"a"},{"name":"b"}],"x":{"b": 1, "a":2}}"#;
        check(from, Some((to, "tools")));
        check(r#"{"messages": [{"role": "user", "content": "Hi"}]}"#, None);
    }

    #[test]
    fn what_cannot_be_read_goes_on_as_it_came() {
        check("{", None);
        check("[1]", None);
        check("", None);
        check(r#"{"tools":[{"name":"b"},{"name":"a"}],"tools":[]}"#, None);
    }
}
