//! The summary of an index, for people: totals, a line per replica, and what is wrong.
//!
//! It takes what a gateway of any version says: what one does not tell is left out, and what is
//! text is shown without anything that a terminal or a table would obey.

use headstart_core::figures::{counted, thousands};
use serde_json::Value;

use crate::server::one_line;

const HEADER: &str = "\
| replica | upstream | health | stream | blocks | doubtful | lost | last event, s |
|--:|---|---|---|---|--:|--:|--:|";

/// The whole of it.
pub(super) fn of(index: &Value) -> String {
    let replicas = || index["replicas"].as_array().into_iter().flatten();
    let mut lines = vec![totals(index)];
    lines.extend(sharing(&index["shared_index"]));
    lines.push(String::new());
    lines.push(HEADER.to_owned());
    lines.extend(replicas().map(row));
    let labels = index["labels"].as_array().into_iter().flatten();
    let mut labels = labels.map(label).peekable();
    // The empty line belongs to the labels, so it needs at least one.
    if labels.peek().is_some() {
        lines.push(String::new());
        lines.extend(labels);
    }
    let notices = index["notices"].as_array().into_iter().flatten();
    let notices = notices.filter_map(Value::as_str).map(one_line);
    let mut problems: Vec<String> = replicas().flat_map(problems).chain(notices).collect();
    // An empty table would look like a fault of the display.
    if replicas().next().is_none() {
        problems.push(
            "The gateway has no replicas; start it with --upstream URL, or without --upstream for \
             built-in ones."
                .to_owned(),
        );
    }
    if !problems.is_empty() {
        lines.push(String::new());
        lines.extend(problems);
    }
    lines.join("\n")
}

/// A named prefix and its holders.
fn label(label: &Value) -> String {
    let held = label["held"].as_array().into_iter().flatten();
    let held: Vec<String> = held
        .map(|replica| {
            let tokens = replica["tokens"].as_u64().unwrap_or(0);
            format!("{} on replica {}", counted(tokens, "token"), replica["replica"])
        })
        .collect();
    let held = if held.is_empty() {
        "not cached".to_owned()
    } else {
        format!("cached: {}", held.join(", "))
    };
    format!("{}: {held}", one_line(label["label"].as_str().unwrap_or_default()))
}

fn totals(index: &Value) -> String {
    let count = |name: &str| index[name].as_u64().unwrap_or(0);
    let mib = count("bytes") as f64 / f64::from(1 << 20);
    format!(
        "{} ({} doubtful), {} assumed, {mib:.1} MiB\n\
         {} of {} predicted to be cached\n\
         {} waiting, {} given up; {} of unknown blocks, {} evicted",
        counted(count("entries"), "entry"),
        count("doubtful"),
        counted(count("assumed_prompts"), "prompt"),
        thousands(count("predicted_cached_tokens")),
        counted(count("prompt_tokens"), "prompt token"),
        counted(count("held_blocks"), "block"),
        count("orphans"),
        counted(count("unknown_removals"), "removal"),
        count("evicted"),
    )
}

/// Describes the listeners of the replicas, if gateways share an index.
fn sharing(shared: &Value) -> Option<String> {
    // Gateways without a shared index do not have the field.
    let is_connected = shared.get("connected")?.as_bool()?;
    let count = |name: &str| shared[name].as_u64().unwrap_or(0);
    Some(format!(
        "shared index: {}; this gateway listens to {} for all and to {} for itself, \
         others to {}",
        if is_connected { "its server is there" } else { "its server is not there" },
        counted(count("own"), "replica"),
        count("alone"),
        count("other"),
    ))
}

fn row(replica: &Value) -> String {
    let tiers = replica["blocks"].as_object().into_iter().flatten();
    let tiers: Vec<String> =
        tiers.map(|(tier, blocks)| cell(&format!("{tier} {blocks}"))).collect();
    let stream = &replica["stream"];
    let age = stream["last_event_age_s"].as_f64().map_or(String::new(), |age| format!("{age:.3}"));
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {age} |",
        replica["replica"],
        cell(&address(replica)),
        if is_up(replica) { "up" } else { "down" },
        cell(stream_state(replica)),
        if tiers.is_empty() { "none".to_owned() } else { tiers.join(", ") },
        replica["doubtful_blocks"].as_u64().unwrap_or(0),
        stream["lost_batches"].as_u64().unwrap_or(0),
    )
}

fn is_up(replica: &Value) -> bool {
    replica["healthy"].as_bool() == Some(true)
}

/// The engine's address, and which of its ranks it is.
fn address(replica: &Value) -> String {
    let upstream = replica["upstream"].as_str().unwrap_or("embedded");
    match replica["rank"].as_u64() {
        Some(rank) => format!("{upstream} rank {rank}"),
        None => upstream.to_owned(),
    }
}

/// Returns the state of a replica's event stream. Without one, it is `elsewhere` if another gateway
/// listens and the replica is up, else `none`.
fn stream_state(replica: &Value) -> &str {
    match replica["stream"]["state"].as_str() {
        Some(state) => state,
        None if replica["listener"] == "other" && is_up(replica) => "elsewhere",
        None => "none",
    }
}

/// A line for each thing that is wrong with a replica: what the gateway says, else what its state
/// means.
fn problems(replica: &Value) -> Vec<String> {
    let places = [&replica["problem"], &replica["stream"]["problem"]];
    let mut problems: Vec<&str> = places.into_iter().filter_map(Value::as_str).collect();
    // The gateway's own words are more precise than anything that follows from the state.
    if problems.is_empty() {
        problems.extend(unsaid(replica));
    }
    let line = |problem: &str| {
        format!(
            "replica {} ({}): {}",
            replica["replica"],
            one_line(&address(replica)),
            one_line(problem)
        )
    };
    problems.into_iter().map(line).collect()
}

/// Names the problem of an engine for which the gateway reports no problem.
fn unsaid(replica: &Value) -> Option<&'static str> {
    // Embedded replicas have no address that a user could correct.
    if !replica["upstream"].is_string() {
        return None;
    }
    match (is_up(replica), stream_state(replica)) {
        (false, _) => Some(
            "the engine does not answer its health check; start it, or correct the address of \
             --upstream",
        ),
        (true, "none") => Some(
            "the gateway follows no KV events of this engine, so the index does not know its \
             cache; give --upstream URL,kv=tcp://HOST:PORT,tokenizer=DIR",
        ),
        _ => None,
    }
}

fn cell(text: &str) -> String {
    // A pipe would end the cell of the table.
    one_line(text).replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The rows of a table whose replicas these are.
    fn rows(replicas: &Value) -> Vec<String> {
        let text = of(&json!({"entries": 0, "replicas": replicas}));
        let rows = text.lines().skip_while(|line| !line.starts_with("|--"));
        rows.skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn a_server_is_told_at_a_glance() {
        let index = json!({
            "entries": 12, "doubtful": 2, "assumed_prompts": 1, "bytes": 3 << 20,
            "predicted_cached_tokens": 64, "prompt_tokens": 100, "shared_index": null,
            "replicas": [
                {"replica": 0, "upstream": "http://h:1", "rank": null, "healthy": true,
                 "blocks": {"device": 10, "host": 2}, "doubtful_blocks": 2,
                 "stream": {"state": "complete", "lost_batches": 3, "last_event_age_s": 0.0021}},
                {"replica": 1, "upstream": "http://h:2", "rank": 3, "healthy": false, "blocks": {},
                 "doubtful_blocks": 0, "stream": null},
            ],
        });
        let text = of(&index);
        let expected = "12 entries (2 doubtful), 1 prompt assumed, 3.0 MiB\n\
            64 of 100 prompt tokens predicted to be cached\n\
            0 blocks waiting, 0 given up; 0 removals of unknown blocks, 0 evicted\n\n\
            | replica | upstream | health | stream | blocks | doubtful | lost | last event, s |\n\
            |--:|---|---|---|---|--:|--:|--:|\n\
            | 0 | http://h:1 | up | complete | device 10, host 2 | 2 | 3 | 0.002 |\n\
            | 1 | http://h:2 rank 3 | down | none | none | 0 | 0 |  |\n\n\
            replica 1 (http://h:2 rank 3): the engine does not answer its health check; start it, \
            or correct the address of --upstream";
        assert_eq!(text, expected);
    }

    #[test]
    fn whoever_listens_is_told() {
        let replica = |up: bool, listener: Value, stream: Value| {
            let replica =
                json!({"replica": 0, "healthy": up, "listener": listener, "stream": stream});
            json!([replica])
        };
        let state = |replicas: Value| rows(&replicas)[0].split(" | ").nth(3).map(str::to_owned);
        let check =
            |replicas, expected: &str| assert_eq!(state(replicas).as_deref(), Some(expected));
        check(replica(true, json!("other"), Value::Null), "elsewhere");
        check(replica(false, json!("other"), Value::Null), "none");
        check(replica(true, Value::Null, Value::Null), "none");
        check(replica(true, json!("own"), json!({"state": "gap"})), "gap");
        let shared = |connected: bool| {
            let shared = json!({"connected": connected, "own": 2, "other": 3, "alone": 1});
            of(&json!({"entries": 0, "replicas": [], "shared_index": shared}))
        };
        let line = "this gateway listens to 2 replicas for all and to 1 for itself, others to 3\n";
        assert!(shared(true).contains(&format!("shared index: its server is there; {line}")));
        assert!(shared(false).contains(&format!("shared index: its server is not there; {line}")));
    }

    #[test]
    fn problems_stand_below_the_table_and_obey_nothing() {
        let lines = rows(&json!([
            {"replica": 0, "upstream": "http://h:1|x\u{1b}[2J", "problem": "no event\n fits",
             "stream": {"state": "gap", "problem": "\u{7}rang"}},
            {"replica": 1, "stream": {"state": "complete", "problem": null}},
        ]));
        assert_eq!(
            lines,
            [
                "| 0 | http://h:1\\|x\\u{1b}[2J | down | gap | none | 0 | 0 |  |",
                "| 1 | embedded | down | complete | none | 0 | 0 |  |",
                "",
                "replica 0 (http://h:1|x\\u{1b}[2J): no event fits",
                "replica 0 (http://h:1|x\\u{1b}[2J): \\u{7}rang",
            ]
        );
    }

    #[test]
    fn named_prefixes_are_shown_with_their_holders() {
        let held = json!([{"replica": 0, "tokens": 1024}, {"replica": 3, "tokens": 16}]);
        let labels = json!([
            {"label": "support\u{7}", "held": held},
            {"label": "shop", "held": []},
        ]);
        let text = of(&json!({"entries": 0, "labels": labels, "replicas": [{"replica": 0}]}));
        let expected = "\n\nsupport\\u{7}: cached: 1,024 tokens on replica 0, 16 tokens on \
                        replica 3\nshop: not cached";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn a_dead_engine_and_a_blind_gateway_are_named() {
        let lines = rows(&json!([
            {"replica": 0, "upstream": "http://h:1", "healthy": false, "stream": null},
            {"replica": 1, "upstream": "http://h:2", "healthy": true, "stream": null},
            {"replica": 2, "healthy": true, "stream": {"state": "complete"}},
        ]));
        assert_eq!(lines.len(), 6, "{lines:?}");
        assert!(lines[4].contains("(http://h:1): the engine does not answer"));
        assert!(lines[5].contains("(http://h:2): the gateway follows no KV events"));
        assert!(lines[5].contains("kv=tcp://HOST:PORT"));
        let none = of(&json!({"entries": 0, "replicas": []}));
        assert!(none.ends_with("for built-in ones."), "{none}");
    }
}
