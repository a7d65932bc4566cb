//! Output of the commands about a log, and checks of it.

use serde_json::Value;

use crate::log::{Log, Mark};
use crate::support::{output, text};

/// Output and exit status of a command.
pub(crate) struct Said {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    stderr: String,
}

impl Said {
    pub(crate) fn by(arguments: &[&str]) -> Self {
        let out = output(arguments);
        Self { status: out.status.code(), stdout: text(&out.stdout), stderr: text(&out.stderr) }
    }

    /// The one object that it printed.
    pub(crate) fn json(&self) -> Result<Value, String> {
        serde_json::from_str(&self.stdout).map_err(|error| {
            let said: String = self.stderr.chars().take(200).collect();
            format!("no JSON ({error}); status {:?}, {said}", self.status)
        })
    }
}

/// Whether the first finding is `cause`, with an example that shows the change.
pub(crate) fn first_finding(told: &Value, cause: &str, log: &Log) -> Result<(), String> {
    let findings = told["findings"].as_array().ok_or("no findings")?;
    let first = findings.first().ok_or("an empty list of findings")?;
    if first["cause"] != cause {
        let names: Vec<_> = findings.iter().map(|found| found["cause"].to_string()).collect();
        return Err(format!("{} first of {}", first["cause"], names.join(", ")));
    }
    let example = &first["example"];
    shows_change(example, name(&example["request"]), name(&example["neighbour"]), cause, log)
}

/// Whether `why` names `cause` and shows the change.
pub(crate) fn explanation(
    told: &Value,
    request: &str,
    cause: &str,
    log: &Log,
) -> Result<(), String> {
    if told["cause"] != cause {
        let (at, old, new) = (&told["diverged_at"], &told["old"], &told["new"]);
        return Err(format!("{} at {at}: {} -> {}", told["cause"], cut(old), cut(new)));
    }
    let neighbour = name(&told["neighbour"]["request"]);
    shows_change(told, request.to_owned(), neighbour, cause, log)
}

/// A request's name, which may be the number of its line.
fn name(value: &Value) -> String {
    match value {
        Value::String(name) => name.clone(),
        other => other.to_string(),
    }
}

fn cut(value: &Value) -> String {
    let whole = value.to_string();
    let short: String = whole.chars().take(70).collect();
    if short.len() < whole.len() { format!("{short}…") } else { short }
}

/// Whether `old` and `new` hold what differs between what the defect wrote into the two requests.
fn shows_change(
    told: &Value,
    request: String,
    neighbour: String,
    cause: &str,
    log: &Log,
) -> Result<(), String> {
    let marks = log.marks();
    let mark = |name: &str| marks.get(name).copied().ok_or(format!("no request {name}"));
    let (was, is) = (mark(&neighbour)?, mark(&request)?);
    let text = |key: &str| {
        let text = told[key].as_str();
        text.ok_or_else(|| format!("no text in {key}: {}", cut(&told[key])))
    };
    let (old, new) = (text("old")?, text("new")?);
    let pair = format!("{neighbour} and {request}");
    let (before, after) = difference(was, is).ok_or(format!("{pair} do not differ so"))?;
    let may_be_missing = matches!(cause, "thinking" | "trimmed");
    for (side, part) in [(old, &before), (new, &after)] {
        let is_missing = may_be_missing && side.is_empty() && !(old.is_empty() && new.is_empty());
        if !side.contains(part) && !is_missing {
            let (old, new) = (cut(&told["old"]), cut(&told["new"]));
            return Err(format!("{before:?} -> {after:?} is shown as {old} -> {new} ({pair})"));
        }
    }
    if cause == "white-space" && !differ_in_blanks_only(old, new) {
        let (old, new) = (cut(&told["old"]), cut(&told["new"]));
        return Err(format!("more than white space: {old} -> {new} ({pair})"));
    }
    Ok(())
}

/// Whether they differ, and without white space one begins as the other.
fn differ_in_blanks_only(old: &str, new: &str) -> bool {
    let visible = |text: &str| text.split_whitespace().collect::<String>();
    let (one, other) = (visible(old), visible(new));
    old != new && (one.starts_with(&other) || other.starts_with(&one))
}

/// The least that must be seen of what the neighbour had and what the request has.
fn difference(was: &Mark, is: &Mark) -> Option<(String, String)> {
    match (was, is) {
        (Mark::Text(was), Mark::Text(is)) => {
            let (was, is) = without_common_front(was, is)?;
            let (was, is) = (reversed(was), reversed(is));
            let (was, is) = without_common_front(&was, &is)?;
            Some((reversed(was), reversed(is)))
        }
        (Mark::Order(was), Mark::Order(is)) => {
            let mut pairs = was.iter().zip(is);
            let (was, is) = pairs.find(|(was, is)| was != is)?;
            let (was, is) = without_common_front(was, is)?;
            Some((was.to_owned(), is.to_owned()))
        }
        (Mark::Block(was), Mark::Block(is)) => {
            let mut pairs = was.iter().zip(is);
            let (was, is) = pairs.find(|(was, is)| was != is)?;
            let (was, is) = (was.as_deref().unwrap_or(""), is.as_deref().unwrap_or(""));
            let (was, is) = without_common_front(was, is)?;
            Some((was.to_owned(), is.to_owned()))
        }
        _ => None,
    }
}

fn without_common_front<'a>(one: &'a str, other: &'a str) -> Option<(&'a str, &'a str)> {
    let pairs = one.chars().zip(other.chars());
    let common = pairs.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8());
    let common: usize = common.sum();
    (one != other).then_some((&one[common..], &other[common..]))
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

#[test]
fn differences_are_the_least_that_must_be_seen() {
    let text = |text: &str| Mark::Text(text.to_owned());
    let order = |names: &[&str]| Mark::Order(names.iter().map(|&n| n.to_owned()).collect());
    let of = |was: &Mark, is: &Mark| difference(was, is);
    let pair = |was: &str, is: &str| Some((was.to_owned(), is.to_owned()));
    assert_eq!(of(&text("at 14:05:12Z"), &text("at 14:07:51Z")), pair("5:12", "7:51"));
    assert_eq!(of(&text("\n"), &text("\r\n")), pair("", "\r"));
    assert_eq!(of(&text("same"), &text("same")), None);
    let (one, other) = (order(&["read", "run", "edit"]), order(&["read", "edit", "run"]));
    assert_eq!(of(&one, &other), pair("run", "edit"));
    assert_eq!(of(&order(&["read"]), &one), None);
    let (kept, dropped) = (Some("<think>".to_owned()), None);
    let blocks = (Mark::Block(vec![kept]), Mark::Block(vec![dropped]));
    assert_eq!(of(&blocks.0, &blocks.1), pair("<think>", ""));
    assert!(differ_in_blanks_only("a  \nb", "a\nb c") && !differ_in_blanks_only("a b", "a c"));
    assert!(!differ_in_blanks_only("same", "same"));
}
