//! The HTTP API as data: operations, headers, and routes that administer an engine.

use headstart_server::api::{
    CACHED_HEADER, IMPORTANCE_HEADER, NORMALIZED_HEADER, REPLICA_HEADER, REQUEST_ID_HEADER,
    SESSION_HEADER, SLO_TTFT_HEADER, openapi_parts,
};
use headstart_server::upstream::RANK_HEADER;
use serde_json::Value;

/// A method and path that the server defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Operation {
    /// The path, with names in braces.
    pub(super) path: String,
    /// The method, in capitals.
    pub(super) method: String,
    /// A sentence for a server with an embedded engine. `None`: it does not serve the path.
    pub(super) embedded: Option<String>,
    /// The same for a gateway in front of engines.
    pub(super) gateway: Option<String>,
}

/// All operations of `/openapi.json`, by path and method.
///
/// # Panics
/// If one of the built-in documents is not JSON; a test reads them.
pub(super) fn operations() -> Vec<Operation> {
    let [common, embedded, gateway] = openapi_parts().map(|part| {
        let document: Value = serde_json::from_str(part).expect("the documents are JSON");
        summaries(&document)
    });
    let with_common = |own: &[(String, String, String)]| [&common[..], own].concat();
    let mut operations: Vec<Operation> = Vec::new();
    let kinds = [with_common(&embedded), with_common(&gateway)];
    for (kind, rows) in kinds.into_iter().enumerate() {
        for (path, method, summary) in rows {
            let same = |known: &Operation| known.path == path && known.method == method;
            let at = operations.iter().position(same).unwrap_or_else(|| {
                operations.push(Operation { path, method, embedded: None, gateway: None });
                operations.len() - 1
            });
            match kind {
                0 => operations[at].embedded = Some(summary),
                _ => operations[at].gateway = Some(summary),
            }
        }
    }
    operations.sort();
    operations
}

/// Path, method and summary of each operation of a document.
fn summaries(document: &Value) -> Vec<(String, String, String)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().into_iter().flatten();
        methods.map(move |(method, operation)| {
            let summary = operation["summary"].as_str().unwrap_or_default();
            (path.clone(), method.to_uppercase(), summary.to_owned())
        })
    });
    operations.collect()
}

/// A header with a meaning of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderReference {
    /// Its name, with a value where one matters.
    pub(super) name: &'static str,
    /// The message that has it.
    pub(super) on: &'static str,
    /// Its meaning.
    pub(super) meaning: &'static str,
}

/// All headers that the server reads or sets, besides those of HTTP itself.
pub(super) const HEADERS: [HeaderReference; 10] = [
    header(SESSION_HEADER, "request", "the conversation's key"),
    header(SLO_TTFT_HEADER, "request", "the longest time to first token, for the strategy `cost`"),
    header(IMPORTANCE_HEADER, "request", "`off`: load stored prefixes in full"),
    header(
        "authorization",
        "request",
        "`Bearer KEY`, a key of `--api-key-file`; `x-api-key: KEY` means the same",
    ),
    header(REQUEST_ID_HEADER, "request", "the client's id, in `/debug/requests`"),
    header(RANK_HEADER, "request to an engine", "the rank, for engines with several"),
    header(REPLICA_HEADER, "answer", "the replica that answered"),
    header(CACHED_HEADER, "answer", "cached prompt tokens"),
    header(NORMALIZED_HEADER, "answer", "the changes of `--normalize`"),
    header(
        IMPORTANCE_HEADER,
        "answer",
        "`loaded=N%`: the share of a stored prefix that was loaded",
    ),
];

const fn header(name: &'static str, on: &'static str, meaning: &'static str) -> HeaderReference {
    HeaderReference { name, on, meaning }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_say_which_kind_of_server_has_them() {
        let operations = operations();
        let find = |method: &str, path: &str| {
            let found = |one: &&Operation| one.method == method && one.path == path;
            let one = operations.iter().find(found).expect("an operation");
            (one.embedded.is_some(), one.gateway.is_some())
        };
        assert_eq!(find("GET", "/health"), (true, true));
        assert_eq!(find("POST", "/v1/chat/completions"), (true, true));
        assert_eq!(find("DELETE", "/v1/responses/{id}"), (true, false));
        assert_eq!(find("POST", "/v1/load_lora_adapter"), (false, true));
        assert!(operations.iter().all(|one| {
            let summaries = [&one.embedded, &one.gateway].into_iter().flatten();
            summaries.count() > 0
        }));
    }
}
