//! The HTTP API: paths, headers, and routes that administer an engine.

mod definition;

use headstart_server::api::admin_parts;

use self::definition::{HEADERS, Operation, operations};

/// The page of the HTTP API.
pub(super) fn page() -> String {
    let mut page = super::heading("HTTP API");
    page += "A server with an embedded engine answers OpenAI's and Anthropic's APIs by itself. A \
             gateway (`--upstream`) passes them on:\n\n";
    page += &super::row(&["request", "gateway"]);
    page += "|---|---|\n";
    for (request, place) in PLACES {
        page += &super::row(&[request, place]);
    }
    page += "\n## Paths of the server itself\n\n`GET /openapi.json` describes them with their \
             parameters and answers. All other paths get 404 from an embedded server.\n\n";
    page += &super::row(&["path", "embedded server", "gateway"]);
    page += "|---|---|---|\n";
    for operation in operations() {
        page += &operation_row(&operation);
    }
    page += "\n## Headers\n\n";
    page += &super::row(&["header", "on", "meaning"]);
    page += "|---|---|---|\n";
    for header in HEADERS {
        page += &super::row(&[&format!("`{}`", header.name), header.on, header.meaning]);
    }
    page += ADMIN;
    for patterns in admin_parts().collect::<Vec<_>>().chunks(4) {
        page += &patterns.join("  ");
        page.push('\n');
    }
    page + "```\n"
}

/// Requests and the engines that get them.
const PLACES: [(&str, &str); 8] = [
    (
        "`/v1/chat/completions`, `/v1/completions`, `/v1/messages`, `/v1/responses`",
        "to the replica with the longest cached prefix, by load and strategy; the answer, its \
         stream and its usage are the engine's",
    ),
    (
        "`/v1/responses/ID`, `previous_response_id`",
        "to the engine that stored the response, while it is up; if the gateway does not know \
         the response, it asks every engine",
    ),
    (
        "`/v1/models`, `/v1/models/NAME`",
        "answered from the engines' lists, which the gateway reads every five seconds and before \
         it refuses a name",
    ),
    ("`/tokenize`", "answered with the gateway's tokenizer; without one, passed on"),
    (
        "`/v1/load_lora_adapter`, `/v1/unload_lora_adapter` (also without `/v1`)",
        "to every engine once; one combined answer",
    ),
    ("routes that administer an engine", "403 without `--pass-admin-routes`"),
    (
        "any other method and path with a `model` in its JSON body or form",
        "by load, to an engine that serves the model: `/v1/embeddings`, `/v1/rerank`, \
         `/v1/audio/…`, `/v1/messages/count_tokens`",
    ),
    ("any other method and path", "by load, to any engine: `/detokenize`, `/version`"),
];

const ADMIN: &str = "
## Routes that administer an engine

Engines have routes that stop them, empty their caches, profile them, read their memory or replace \
their weights. A gateway answers 403 for these, unless `--pass-admin-routes` is given. With it, \
GET of a route that only reports (`server_info`, `get_…`, `fault_tolerance`, `hicache`, \
`…transfer_engine_info`) goes to one engine, and everything else to all engines. Everything below \
`/v1/` passes.

The gateway recognises a route by a part of its path, in any case and also percent-encoded. The \
list comes from the routers of vLLM 0.32 and SGLang 0.5.23; `…` stands for any letters.

```text
";

fn operation_row(operation: &Operation) -> String {
    let path = format!("`{} {}`", operation.method, operation.path);
    let cell = |summary: &Option<String>| summary.clone().unwrap_or_else(|| "-".to_owned());
    let embedded = cell(&operation.embedded);
    let gateway = if operation.embedded == operation.gateway {
        "the same".to_owned()
    } else {
        cell(&operation.gateway)
    };
    super::row(&[&path, &embedded, &gateway])
}
