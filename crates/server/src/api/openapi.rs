//! `GET /openapi.json`: what the server itself defines, as OpenAPI 3.1.
//!
//! The document is written by hand, in three parts: what both kinds of server have, and what only
//! one of them has. The names of the models are those of the moment.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::gateway::{Fleet, HttpGateway};
use crate::openai::ApiError;

const COMMON: &str = include_str!("openapi/common.json");
const EMBEDDED: &str = include_str!("openapi/embedded.json");
const UPSTREAMS: &str = include_str!("openapi/upstreams.json");

/// The parts: of both kinds of server, of embedded engines, and of a gateway.
#[must_use]
pub fn parts() -> [&'static str; 3] {
    [COMMON, EMBEDDED, UPSTREAMS]
}

/// The document.
pub(super) async fn document(
    State(gateway): State<Arc<HttpGateway>>,
) -> Result<Json<Value>, ApiError> {
    let own = match gateway.fleet {
        Fleet::Embedded(_) => EMBEDDED,
        Fleet::Upstreams(_) => UPSTREAMS,
    };
    let document = build(own, &gateway.models(), gateway.api_key.is_some());
    document
        .map(Json)
        .map_err(|error| ApiError::internal(format!("the document cannot be built: {error}")))
}

fn build(own: &str, models: &[String], needs_key: bool) -> serde_json::Result<Value> {
    let mut document: Value = serde_json::from_str(COMMON)?;
    let mut own: Value = serde_json::from_str(own)?;
    add(&mut document["paths"], own["paths"].take());
    let components = &mut document["components"];
    add(&mut components["schemas"], own["schemas"].take());
    add(&mut components["responses"], own["responses"].take());
    // An empty list would allow no name at all.
    if !models.is_empty() {
        components["schemas"]["ModelName"]["enum"] = json!(models);
    }
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    if needs_key {
        document["security"] = json!([{"bearer": []}, {"api_key": []}]);
    }
    Ok(document)
}

fn add(all: &mut Value, more: Value) {
    if let (Value::Object(all), Value::Object(more)) = (all, more) {
        all.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn references(value: &Value, found: &mut HashSet<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(target)) = fields.get("$ref") {
                    found.insert(target.clone());
                }
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_of_both_documents_leads_somewhere() {
        for own in [EMBEDDED, UPSTREAMS] {
            let models = ["m".to_owned()];
            let document = build(own, &models, true).expect("JSON");
            let mut found = HashSet::new();
            references(&document, &mut found);
            assert!(found.len() > 5);
            for target in found {
                let pointer = target.strip_prefix('#').expect("inside");
                assert!(document.pointer(pointer).is_some(), "{target}");
            }
            let names = &document["components"]["schemas"]["ModelName"]["enum"];
            assert_eq!(names, &json!(["m"]));
            assert_eq!(document["openapi"], "3.1.0");
            let mut ids = HashSet::new();
            let paths = document["paths"].as_object().expect("paths");
            let operations = paths.values().flat_map(|path| path.as_object().expect("methods"));
            for (method, operation) in operations {
                let id = operation["operationId"].as_str().expect("an id");
                assert!(ids.insert(id.to_owned()), "{method} {id} is there twice");
                assert!(operation["responses"].is_object(), "{id}");
            }
        }
    }
}
