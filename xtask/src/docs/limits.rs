//! The page of limits: what each is for, and its value in the source.

use std::path::Path;

use anyhow::{Context, Result};

/// The page's name.
pub(super) const FILE: &str = "limits.md";

/// One limit: the constant's file and name, and what it limits.
struct Limit(&'static str, &'static str, &'static str);

/// Limits that a user can reach, by area.
static AREAS: [(&str, &[Limit]); 5] = [
    (
        "Requests",
        &[
            Limit("server/src/openai/request.rs", "STOPS", "stop strings of a chat request"),
            Limit("server/src/openai/request.rs", "STOP_BYTES", "one stop string"),
            Limit("server/src/openai/request.rs", "KEY_BYTES", "`cache_salt` and session keys"),
            Limit(
                "server/src/responses/store.rs",
                "MAX_RESPONSES",
                "stored responses (`/v1/responses`)",
            ),
            Limit("server/src/responses/store.rs", "MAX_BYTES", "text of stored responses"),
            Limit("server/src/responses/store.rs", "KEPT", "lifetime of a stored response"),
            Limit(
                "server/src/text_tokens.rs",
                "TEXT_BYTES",
                "text of a request that is compared if its tokens are unknown",
            ),
            Limit(
                "server/src/api/proxied.rs",
                "HOPS",
                "gateways that a request may pass; more are a loop",
            ),
        ],
    ),
    (
        "Upstream engines",
        &[
            Limit("server/src/upstream.rs", "CONNECT_TIMEOUT", "connecting to an engine"),
            Limit("server/src/upstream.rs", "HEALTH_TIMEOUT", "one health check"),
            Limit(
                "server/src/upstream.rs",
                "MISSED_CHECKS",
                "health checks in a row without an answer until an engine counts as down",
            ),
            Limit(
                "server/src/upstream.rs",
                "MODELS_AGE",
                "age at which the list of models is read again",
            ),
            Limit("server/src/upstream.rs", "MODELS_BYTES", "list of models"),
            Limit("server/src/upstream.rs", "METRICS_BYTES", "page of metrics that is read"),
            Limit("server/src/upstream.rs", "IDLE_CONNECTIONS", "idle connections per engine"),
            Limit(
                "server/src/gateway.rs",
                "REFUSALS",
                "engines that may refuse a request before the client gets the refusal",
            ),
            Limit(
                "server/src/gateway.rs",
                "DEATHS",
                "engines that may die with a request before the client gets an error",
            ),
            Limit("server/src/gateway/proxied.rs", "WHOLE_BYTES", "answer that is not streamed"),
            Limit(
                "server/src/gateway/holders.rs",
                "ENGINES_MAX",
                "engines asked for a stored response",
            ),
            Limit(
                "server/src/gateway/pins.rs",
                "PINS",
                "stored responses whose engine is remembered",
            ),
        ],
    ),
    (
        "KV events and the index",
        &[
            Limit("kv-events/src/codec.rs", "PAYLOAD_BYTES_MAX", "one batch of events"),
            Limit(
                "router/src/stream/held.rs",
                "HELD_BATCHES_MAX",
                "batches that wait for a lost one",
            ),
            Limit("router/src/stream/held.rs", "HELD_BYTES_MAX", "memory of batches that wait"),
            Limit(
                "router/src/stream/replays.rs",
                "REPLY_TIME_MAX",
                "wait for one reply of a replay",
            ),
            Limit(
                "router/src/stream/replays.rs",
                "REPLAY_TRIES_MAX",
                "replays in a row without progress until the missing batches are given up",
            ),
            Limit(
                "router/src/index.rs",
                "ASSUMPTION_TTL",
                "time for which a routed prompt counts as cached before events confirm it",
            ),
            Limit("router/src/index.rs", "DOUBT_TTL", "lifetime of an unconfirmed block"),
            Limit("router/src/index/budget.rs", "DEFAULT_BYTES", "memory of the index"),
            Limit(
                "router/src/homes.rs",
                "TURNS_MAX",
                "conversation turns whose replica is remembered",
            ),
        ],
    ),
    (
        "Built-in engine",
        &[
            Limit("server/src/replica.rs", "COMMANDS", "commands that wait for one replica"),
            Limit(
                "server/src/replica.rs",
                "RESTARTS",
                "panics in a row until a replica stays down",
            ),
            Limit("store/src/disk.rs", "QUEUE", "commands that wait for the disk"),
            Limit("store/src/disk.rs", "SEGMENT_BYTES", "one segment on disk"),
        ],
    ),
    (
        "Traces and logs",
        &[
            Limit("trace/src/source.rs", "LINE_LIMIT_BYTES", "one line of a trace"),
            Limit("trace/src/format/request_log.rs", "LINE_BYTES_MAX", "one line of a request log"),
            Limit("trace/src/source/zstd.rs", "WINDOW_LIMIT_BYTES", "window of a zstd frame"),
            Limit("trace/src/format/chain.rs", "BLOCKS_MAX", "blocks of one request"),
            Limit(
                "trace/src/format/conversation/requests.rs",
                "USER_TURNS_MAX",
                "requests of one conversation",
            ),
            Limit("trace/src/schedule.rs", "OPEN_BYTES_MAX", "memory of sessions that overlap"),
            Limit("cli/src/prompts.rs", "MAX_PROMPT_TOKENS", "tokens of a prompt, by default"),
            Limit("cli/src/commands/replay.rs", "ROOM_MAX", "blocks of a replayed cache"),
        ],
    ),
];

/// The page, with values from the sources below `root`.
///
/// # Errors
/// When a constant is not where the table says.
pub(crate) fn page(root: &Path) -> Result<String> {
    let mut page = "# Limits\n\n<!-- Generated by `cargo x docs`. Do not edit. -->\n\n\
                    Every queue, wait and input has a limit. Limits that are options of `serve` \
                    are in [configuration](configuration.md).\n"
        .to_owned();
    for (area, limits) in &AREAS {
        page += &format!("\n## {area}\n\n| limit | value | constant |\n|---|--:|---|\n");
        for Limit(file, name, meaning) in *limits {
            let path = root.join("crates").join(file);
            let source = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read crates/{file}"))?;
            let value = value(&source, name)
                .with_context(|| format!("crates/{file} has no constant {name} of a known form"))?;
            let link = format!("[`{name}`](../../crates/{file})");
            page += &format!("| {meaning} | {value} | {link} |\n");
        }
    }
    Ok(page)
}

/// The value of a constant in words.
fn value(source: &str, name: &str) -> Option<String> {
    let (_, rest) = source.split_once(&format!("const {name}: "))?;
    let (_, rest) = rest.split_once(" = ")?;
    let (text, _) = rest.split_once(';')?;
    let inside = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix(')');
    if let Some(seconds) = inside("Duration::from_secs(") {
        return Some(format!("{seconds} s"));
    }
    if let Some(millis) = inside("Duration::from_millis(") {
        return Some(format!("{millis} ms"));
    }
    let number = match text.split_once(" << ") {
        Some((value, bits)) => integer(value)?.checked_shl(integer(bits)?.try_into().ok()?)?,
        None => integer(text)?,
    };
    Some(if name.contains("BYTES") { bytes(number) } else { grouped(number) })
}

fn integer(text: &str) -> Option<u64> {
    text.trim().replace('_', "").parse().ok()
}

fn bytes(number: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits =
        units.iter().find(|(bits, _)| number >= 1 << bits && number.is_multiple_of(1 << bits));
    match fits {
        Some((bits, unit)) => format!("{} {unit}", number >> bits),
        None => format!("{} bytes", grouped(number)),
    }
}

/// Digits with a comma before each three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_current() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let written = std::fs::read_to_string(root.join(super::super::FOLDER).join(FILE));
        let page = page(&root).expect("all constants are there");
        assert!(written.ok() == Some(page), "docs/reference/{FILE} is stale: run `cargo x docs`");
    }

    #[test]
    fn values_are_read_in_every_form() {
        let source = "pub const A_BYTES: usize = 16 << 20;\n\
                      const B: Duration = Duration::from_secs(5);\n\
                      const C: usize = 65_536;\nconst D_BYTES: usize = 200;\nconst E: f64 = 1.5;";
        let value = |name| value(source, name);
        assert_eq!(value("A_BYTES").as_deref(), Some("16 MiB"));
        assert_eq!(value("B").as_deref(), Some("5 s"));
        assert_eq!(value("C").as_deref(), Some("65,536"));
        assert_eq!(value("D_BYTES").as_deref(), Some("200 bytes"));
        assert_eq!(value("E"), None);
    }
}
