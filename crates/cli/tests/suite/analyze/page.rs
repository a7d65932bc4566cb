//! The page of an analysis: key figures, what to do first, and where it comes from.

use serde_json::{Value, json};

use super::{analyzed, clocked, parsed};

/// Returns the page of `log`, and its data.
fn shown(log: &str, args: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let page = analyzed(folder.path(), log, &[&["--html", "-"], args].concat());
    let data = page.lines().find_map(|line| line.strip_prefix("const data = "));
    let data = parsed(data.expect("the data").trim_end_matches(';'));
    let folder = folder.path().display().to_string();
    assert!(!page.contains(&folder), "no folder is named");
    (page, data)
}

fn tile(data: &Value, index: usize) -> [&str; 3] {
    let tile = &data["tiles"][index];
    ["name", "value", "under"].map(|key| tile[key].as_str().unwrap_or_default())
}

#[test]
fn a_page_opens_with_four_figures_and_the_first_fix() {
    let (page, data) = shown(&clocked(30), &["--gpu-hour", "3600"]);
    assert_eq!(data["tiles"].as_array().map(Vec::len), Some(4));
    assert_eq!(tile(&data, 0)[0], "Hit rate now");
    let [name, _, under] = tile(&data, 1);
    assert_eq!(name, "Hit rate with reuse at any position");
    assert!(under.contains("With an unlimited prefix cache: "), "{under}");
    let [name, value, under] = tile(&data, 2);
    assert_eq!(name, "Wasted per day");
    assert!(value.contains(" · $"), "{value}");
    assert!(under.ends_with(", scaled from 29 min"), "{under}");
    let [_, value, under] = tile(&data, 3);
    assert!(value.ends_with('%'), "{value}");
    assert!(under.starts_with("A date or time that changes"), "{under}");
    assert_eq!(data["first"]["cause"], "clock");
    assert_eq!(data["causes"][0]["is_mistake"], true);
    let footer = page.split("<footer").nth(1).expect("a footer");
    let command = "headstart analyze requests.jsonl --html - --gpu-hour 3600";
    assert!(footer.contains(command), "{footer}");
    assert!(!page.contains("09:01:17"), "text is shown only when asked for");
}

#[test]
fn a_log_without_times_is_scaled_to_no_day() {
    let line = |number: u32| {
        let prompt = format!("{} number {number}", "the same beginning ".repeat(50));
        json!({"model": "m", "prompt": prompt}).to_string()
    };
    let log = (0..30).map(line).collect::<Vec<_>>().join("\n");
    let (_, data) = shown(&log, &[]);
    let [name, value, under] = tile(&data, 2);
    assert_eq!(name, "Wasted in this log");
    assert!(!value.contains('·') && !under.contains("scaled"), "{value} {under}");
    assert!(data["first"]["fix"].as_str().is_some_and(|fix| fix.ends_with('.')));
}
