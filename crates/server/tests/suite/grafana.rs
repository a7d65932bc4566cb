//! The Grafana dashboard asks for nothing that the server does not count.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Prefixes of the names of metrics.
const PREFIXES: [&str; 2] = ["headstart_", "vllm:"];

/// Suffixes that Prometheus adds to the name of a histogram.
const SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The queries of a dashboard, wherever they are.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if ["expr", "definition"].contains(&&name[..]) => {
                        found.push(text.clone());
                    }
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = text.split(|letter| !is_part(letter));
    let is_name = |word: &&str| PREFIXES.iter().any(|prefix| word.starts_with(prefix));
    words.filter(is_name).map(str::to_owned).collect()
}

/// The names that the server spells: in its module `metrics`, and nowhere else, as tidy sees to.
fn defined() -> BTreeSet<String> {
    let mut files = vec![here().join("src/metrics.rs")];
    let folder = std::fs::read_dir(here().join("src/metrics")).expect("the module");
    files.extend(folder.map(|entry| entry.expect("an entry").path()));
    let text = |path: &PathBuf| std::fs::read_to_string(path).expect("a source");
    let quoted = |text: String| -> BTreeSet<String> {
        let literals = text.split('"').skip(1).step_by(2);
        let is_name = |literal: &&str| PREFIXES.iter().any(|prefix| literal.starts_with(prefix));
        literals.filter(is_name).map(str::to_owned).collect()
    };
    files.iter().map(text).flat_map(quoted).collect()
}

fn dashboard(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("the dashboard");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn every_metric_of_the_dashboard_exists() {
    let mut asked = Vec::new();
    queries(&dashboard(&here().join("../../tools/grafana/headstart.json")), &mut asked);
    assert!(asked.len() > 20, "queries are found");
    let defined = defined();
    for query in asked {
        let names = names(&query);
        assert!(!names.is_empty(), "{query} asks for a metric of ours");
        for name in names {
            let bare = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
            let is_defined =
                defined.contains(&name) || bare.is_some_and(|base| defined.contains(base));
            assert!(is_defined, "{name} in {query} is counted nowhere");
        }
    }
}
