//! Routing of paths that are not Headstart's own: to one engine, to all of them, or to none.
//!
//! Engines serve routes that stop them, empty their caches, read their memory or replace their
//! weights beside those that answer prompts, on the same port. Sources: the routers of vLLM 0.32
//! and SGLang 0.5.23. Everything below `/v1/` passes: engines keep such routes elsewhere.

use std::sync::LazyLock;

use http::{Method, StatusCode, Uri};

use crate::openai::ApiError;

/// Longest path with its query that is passed on, bytes.
const PATH_BYTES: usize = 16 << 10;

/// Times that a path may be encoded over itself: engines and the proxies before them decode it once
/// each. Each time costs a pass over the path.
const ENCODINGS: usize = 4;

/// Parts of paths that administer an engine, one a line; any text may stand for `…`.
const ADMIN_PARTS: &str = include_str!("admin_parts.txt");

/// The end of parts that show where an engine's memory is.
const MEMORY_INFO: &str = "transfer_engine_info";

/// Routes that change what all engines serve.
const FOR_ALL: [&str; 4] = [
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/load_lora_adapter",
    "/unload_lora_adapter",
];

/// Destination of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestDestination {
    /// One engine, by its load.
    One,
    /// The engine that holds this response.
    Holder(String),
    /// Every engine.
    All,
}

/// Returns the destination of a request whose path is not Headstart's own.
///
/// # Errors
/// 403 for what administers an engine, unless that is allowed; 400 and 414 for paths that cannot
/// be passed on.
pub(super) fn place(
    method: &Method,
    target: &str,
    allows_admin: bool,
) -> Result<RequestDestination, ApiError> {
    check_length(target)?;
    let path = target.split('?').next().unwrap_or_default();
    // Engines decode a path before they route it, so an encoded name must not pass the list.
    let plain = decoded(path)?;
    let mut parts = plain.split(['/', '\\']).filter(|part| !part.is_empty());
    // `/v1/../sleep` begins with `v1` and is an administrative path.
    let is_climbing = |part: &str| part == "." || part == "..";
    if !plain.starts_with('/') || parts.clone().any(is_climbing) {
        let message = "the path must begin with / and have no parts . or ..";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "invalid_path", message));
    }
    let is_open = parts.clone().next() == Some("v1");
    let is_admin = !is_open && parts.clone().any(is_admin);
    if is_admin && !allows_admin {
        let message = format!(
            "{plain} administers an engine and is not passed on; start the gateway with \
             --pass-admin-routes, or ask the engine itself"
        );
        return Err(ApiError::new(StatusCode::FORBIDDEN, "admin_route", message));
    }
    // SGLang empties its cache on GET as well as on POST.
    let is_read = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    // One engine can report for itself, such as `get_server_info`. Any other act is for all
    // engines.
    let is_act = is_admin && !parts.clone().any(is_report);
    if is_act || (!is_read && (is_admin || is_for_all(&plain))) {
        return Ok(RequestDestination::All);
    }
    let stored = (parts.next(), parts.next(), parts.next());
    Ok(match stored {
        (Some("v1"), Some("responses"), Some(id)) => RequestDestination::Holder(id.to_owned()),
        _ => RequestDestination::One,
    })
}

/// The path and the query of a request.
pub(super) fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or(uri.path(), |target| target.as_str())
}

/// Refuses paths too long to be put behind an engine's address.
///
/// # Errors
/// 414 for these.
pub(super) fn check_length(target: &str) -> Result<(), ApiError> {
    if target.len() <= PATH_BYTES {
        return Ok(());
    }
    let message = format!("the path is longer than {PATH_BYTES} bytes");
    Err(ApiError::new(StatusCode::URI_TOO_LONG, "path_too_long", message))
}

/// The parts of paths that administer an engine, in order; any text may stand for `…`.
pub fn admin_parts() -> impl Iterator<Item = &'static str> {
    ADMIN_PARTS.lines()
}

fn is_admin(part: &str) -> bool {
    /// Beginning and end of each pattern, or all of it. A path may have thousands of parts.
    static PATTERNS: LazyLock<Vec<(&str, Option<&str>)>> = LazyLock::new(|| {
        let halves = admin_parts().map(|pattern| match pattern.split_once('…') {
            Some((begin, end)) => (begin, Some(end)),
            None => (pattern, None),
        });
        halves.collect()
    });
    let part = part.to_ascii_lowercase();
    PATTERNS.iter().any(|&(begin, end)| match end {
        Some(end) => part.starts_with(begin) && part.ends_with(end),
        None => part == begin,
    })
}

/// Whether a part of an administrative path may only report, on GET.
fn is_report(part: &str) -> bool {
    let part = part.to_ascii_lowercase();
    let both = ["server_info", "fault_tolerance", "hicache"];
    part.starts_with("get_") || part.ends_with(MEMORY_INFO) || both.contains(&part.as_str())
}

/// Whether a path changes what all engines serve; `/adapters` is SageMaker's name for adapters.
fn is_for_all(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    FOR_ALL.contains(&path) || path == "/adapters" || path.starts_with("/adapters/")
}

/// The path as engines read it: with `%61` as `a`, until nothing changes.
///
/// # Errors
/// 400 for a path that is encoded too many times: whether it is administrative is not known.
fn decoded(path: &str) -> Result<String, ApiError> {
    let mut bytes = path.as_bytes().to_vec();
    // The last pass only shows that nothing changes any more.
    for _ in 0..=ENCODINGS {
        let next = decoded_once(&bytes);
        if next == bytes {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        bytes = next;
    }
    let message = format!("the path is percent-encoded more than {ENCODINGS} times over itself");
    Err(ApiError::new(StatusCode::BAD_REQUEST, "invalid_path", message))
}

fn decoded_once(bytes: &[u8]) -> Vec<u8> {
    let digit = |at: usize| bytes.get(at).and_then(|byte| (*byte as char).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(target: &str, allows_admin: bool) -> Result<RequestDestination, u16> {
        place(&Method::POST, target, allows_admin).map_err(|error| error.status.as_u16())
    }

    #[test]
    fn what_answers_prompts_passes_and_what_administers_does_not() {
        for target in [
            "/v1/embeddings",
            "/v1/anything/at/all?x=sleep",
            "/v1/models/sleep",
            "/rerank",
            "/v2/rerank",
            "/detokenize",
            "/pooling?a=b",
            "/version",
            "/generate",
            "/inference/v1/generate",
            "/is_sleeping",
            "/is_paused",
            "/load",
            "/sleepy",
        ] {
            assert_eq!(status(target, false), Ok(RequestDestination::One), "{target}");
        }
        for target in [
            "/sleep",
            "/sleep?level=1",
            "/sleep/",
            "//sleep",
            "/%73leep",
            "/%2573leep",
            "/SLEEP",
            "/prefix/sleep",
            "/prefix%2fsleep",
            "/x\\sleep",
            "/wake_up",
            "/reset_prefix_cache",
            "/reset_mm_cache",
            "/reset_encoder_cache",
            "/start_profile",
            "/collective_rpc",
            "/pause",
            "/resume",
            "/scale_elastic_ep",
            "/update_weights_from_disk",
            "/init_weight_transfer_engine",
            "/flush_cache",
            "/abort_request",
            "/inference/v1/abort_requests",
            "/server_info",
            "/get_server_info",
            "/dumper/start",
            "/hicache/storage-backend/clear",
            "/fault_tolerance/apply",
            "/get_remote_instance_transfer_engine_info",
            "/load_lora_adapter_from_tensors",
        ] {
            assert_eq!(status(target, false), Err(403), "{target}");
            assert_eq!(status(target, true), Ok(RequestDestination::All), "{target}");
        }
        for target in ["/v1/../sleep", "/v1/%2e%2e/sleep", "/./x", "*", ""] {
            assert_eq!(status(target, true), Err(400), "{target}");
        }
        let long = format!("/{}", "x".repeat(PATH_BYTES));
        assert_eq!(status(&long, true), Err(414));
    }

    #[test]
    fn a_path_is_decoded_a_few_times_and_refused_beyond_them() {
        let nested = |times: usize| format!("/%{}73leep", "25".repeat(times - 1));
        for times in 1..=ENCODINGS {
            assert_eq!(status(&nested(times), false), Err(403), "{times}");
            assert_eq!(status(&nested(times), true), Ok(RequestDestination::All), "{times}");
        }
        // Refused also below `/v1/`, which may turn out to be `/v1/../sleep`, and where
        // administrative paths are allowed: the number of engines to ask is not known. The last one
        // is about as deep as a path can be.
        for times in [ENCODINGS + 1, PATH_BYTES / 2 - 10] {
            for allows_admin in [false, true] {
                assert_eq!(status(&nested(times), allows_admin), Err(400), "{times}");
                let open = format!("/v1{}", nested(times));
                assert_eq!(status(&open, allows_admin), Err(400), "{times}");
            }
        }
        // Many names that are encoded once take one pass.
        let wide = format!("/{}", "%61".repeat(5000));
        assert_eq!(status(&wide, false), Ok(RequestDestination::One));
    }

    #[test]
    fn reading_goes_to_one_engine_and_stored_responses_have_a_holder() {
        let get = |target| place(&Method::GET, target, true);
        for target in ["/server_info", "/get_weights_by_name", "/fault_tolerance/status"] {
            assert_eq!(get(target), Ok(RequestDestination::One), "{target}");
        }
        assert_eq!(get("/flush_cache"), Ok(RequestDestination::All));
        assert_eq!(get("/v1/load_lora_adapter"), Ok(RequestDestination::One));
        let holder = Ok(RequestDestination::Holder("resp_1".to_owned()));
        assert_eq!(get("/v1/responses/resp_1"), holder);
        assert_eq!(place(&Method::POST, "/v1/responses/resp_1/cancel?x=1", false), holder);
        assert_eq!(get("/v1/responses"), Ok(RequestDestination::One));
        for target in ["/v1/load_lora_adapter", "/unload_lora_adapter", "/adapters/a"] {
            assert_eq!(status(target, false), Ok(RequestDestination::All), "{target}");
        }
    }
}
