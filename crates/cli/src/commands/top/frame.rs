//! A snapshot as lines. What does not fit is left out from below, section by section; what a
//! server says is shown without anything that a terminal would obey.

use std::time::Duration;

use headstart_core::figures::{ago, compact, counted, percent_to_tenths, since, took};
use headstart_server::dashboard::Snapshot;
use headstart_server::dashboard::snapshot::{CausePart, NodePart, ReplicaPart, TreePart};

use super::line::{Style, StyledLine, bar, fit, fit_end, sparkline};
use crate::server::one_line;

/// Columns of bars.
const BAR: usize = 24;

/// Columns of names.
const NAME: usize = 42;

/// Columns of the names of replicas, which are addresses.
const ADDRESS: usize = NAME - 21;

/// Replicas, branches and requests at most, where there is room.
const REPLICAS_MAX: usize = 16;
const BRANCHES_MAX: usize = 12;

/// Causes of recomputed tokens at most.
const CAUSES_MAX: usize = 3;

/// Notices at most.
const NOTICES_MAX: usize = 3;

/// Limits of a frame on the terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) has_colours: bool,
}

impl Frame {
    /// The lines of a frame.
    pub(super) fn of(&self, told: &Snapshot) -> Vec<String> {
        self.render(head(told), told)
    }

    /// The same where the server was not reached for a while.
    pub(super) fn stale(&self, told: &Snapshot, age: Duration, error: &str) -> Vec<String> {
        let age = ago(age.as_secs_f64());
        let warning = format!("Stale, {age} old: {}", one_line(error));
        let mut head = vec![StyledLine::default().with(Style::Warning, warning)];
        head.extend(self::head(told));
        self.render(head, told)
    }

    fn render(&self, head: Vec<StyledLine>, told: &Snapshot) -> Vec<String> {
        let mut lines = head;
        for section in [
            waterfall(told),
            replicas(told),
            branches(&told.tree),
            requests(told, self.rows == usize::MAX),
        ] {
            // A title without a line under it says nothing.
            if lines.len() + 3 > self.rows {
                break;
            }
            lines.push(StyledLine::default());
            lines.extend(section);
        }
        // A section may be longer than the rows that are left.
        lines.truncate(self.rows);
        let rendered = lines.iter().map(|line| line.render(self.columns, self.has_colours));
        rendered.collect()
    }
}

fn title(name: &str, note: String) -> StyledLine {
    StyledLine::default().with(Style::Bold, fit(name, 11)).with(Style::Soft, note)
}

fn head(told: &Snapshot) -> Vec<StyledLine> {
    let server = &told.server;
    let models = one_line(&server.models.join(", "));
    let what = format!("{models} · {} · up {}", one_line(&server.strategy), ago(server.uptime_s));
    let lately = &told.lately;
    let first = |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), took);
    let rates = format!(
        "{:.1} requests/s, {} prompt tokens/s, TTFT {} (95 % within {})",
        lately.requests_per_s,
        compact(lately.prompt_tokens_per_s),
        first(lately.ttft_ms_p50),
        first(lately.ttft_ms_p95),
    );
    let totals = &told.totals;
    let all = totals.prompt_tokens;
    // A fresh server has no share to show.
    let since = match all {
        0 => "nothing yet".to_owned(),
        _ => format!(
            "  {} of {} tokens since the start, where engines report cached tokens",
            percent_to_tenths(totals.cached_tokens as f64 / all as f64),
            compact(all as f64)
        ),
    };
    let notices = server.notices.iter().take(NOTICES_MAX);
    let notices = notices.map(|text| StyledLine::default().with(Style::Warning, one_line(text)));
    let figures = [
        title("Headstart", what),
        title("Now", rates),
        title("Hit rate", String::new())
            .with(Style::Bold, lately.hit_rate.map_or_else(|| "–".to_owned(), percent_to_tenths))
            .with(Style::Plain, "  ")
            .with(Style::Served, sparkline(&hit_rates(told)))
            .with(Style::Soft, since),
    ];
    figures.into_iter().chain(errors(told)).chain(notices).collect()
}

/// Errors since the start, by status.
fn errors(told: &Snapshot) -> Option<StyledLine> {
    let all = told.totals.errors;
    let by_status = told.errors.by_status.iter();
    let by_status: Vec<_> =
        by_status.map(|series| format!("{}: {}", series.status, series.count)).collect();
    (all > 0).then(|| {
        let words = format!(
            "{} to clients since the start ({}), with or without a replica",
            counted(all, "error"),
            by_status.join(", ")
        );
        title("Errors", words)
    })
}

/// Hit rates of the last two minutes, five seconds each.
fn hit_rates(told: &Snapshot) -> Vec<Option<f64>> {
    let history = &told.history;
    // Columns are found by name, so a server may add others.
    let Some(computed) = history.columns.iter().position(|name| name == "computed") else {
        return Vec::new();
    };
    // Two minutes of seconds, in chunks of five.
    let points = &history.points[history.points.len().saturating_sub(120)..];
    let rate = |points: &[Vec<u64>]| {
        let tokens = |from: usize| -> u64 {
            // Columns after `computed` are those of hits.
            let points = points.iter().flat_map(|point| point.get(from..));
            points.flatten().sum()
        };
        let all = tokens(computed);
        (all > 0).then(|| tokens(computed + 1) as f64 / all as f64)
    };
    points.chunks(5).map(rate).collect()
}

fn waterfall(told: &Snapshot) -> Vec<StyledLine> {
    let Some(waterfall) = &told.waterfall else {
        return vec![title(
            "Waterfall",
            "none: this server runs with --insight off, which attributes no tokens".to_owned(),
        )];
    };
    let all = waterfall.tokens;
    let mut note = format!(
        "{} prompt tokens of {}",
        compact(all as f64),
        counted(waterfall.requests, "request")
    );
    // Requests that run or report no hits are in the totals and not in the waterfall.
    let others = told.totals.requests.saturating_sub(waterfall.requests);
    if others > 0 {
        note += &format!(
            "; not counted: {} (running, failed, or without cached tokens)",
            counted(others, "other request")
        );
    }
    let mut lines = vec![title("Waterfall", note)];
    let mut start = 0.0;
    for bucket in waterfall.buckets.iter().filter(|bucket| bucket.tokens > 0) {
        let share = bucket.tokens as f64 / all.max(1) as f64;
        let style = match bucket.is_served {
            true => Style::Served,
            false if bucket.bucket == "never-seen" => Style::Soft,
            false => Style::Lost,
        };
        lines.push(
            StyledLine::default()
                .with(Style::Plain, format!("  {} ", fit(&one_line(&bucket.meaning), NAME)))
                .with(style, bar(start, start + share, BAR))
                .with(Style::Plain, format!(" {:>8}", percent_to_tenths(share)))
                .with(Style::Soft, format!(" {:>8}", compact(bucket.tokens as f64))),
        );
        start += share;
        // Causes explain the row above them.
        if bucket.bucket == "diverged" {
            let causes = waterfall.causes.iter().take(CAUSES_MAX);
            lines.extend(causes.map(|one| cause(one, share)));
        }
    }
    lines
}

/// Why prompts differ that could share more, with its part of all tokens, and what to do.
fn cause(cause: &CausePart, share: f64) -> StyledLine {
    let title =
        format!("{}: about {}", one_line(&cause.title), percent_to_tenths(cause.share * share));
    let fix = match &cause.normalize {
        Some(value) => format!("; {}, or --normalize {}", one_line(&cause.fix), one_line(value)),
        None => format!("; {}", one_line(&cause.fix)),
    };
    StyledLine::default().with(Style::Plain, format!("    {title}")).with(Style::Soft, fix)
}

fn replicas(told: &Snapshot) -> Vec<StyledLine> {
    let up = told.replicas.iter().filter(|replica| replica.is_healthy).count();
    let mut lines =
        vec![title("Replicas", format!("{up} of {} take requests", told.replicas.len()))];
    lines.extend(told.replicas.iter().take(REPLICAS_MAX).map(replica));
    let left = told.replicas.len().saturating_sub(REPLICAS_MAX);
    if left > 0 {
        let more = format!("  {left} more: headstart index show lists all");
        lines.push(StyledLine::default().with(Style::Soft, more));
    }
    lines
}

fn replica(replica: &ReplicaPart) -> StyledLine {
    let name = one_line(&replica.name);
    let name = match name.strip_prefix("http://") {
        // The scheme is the first thing to go, because all upstreams have it.
        Some(address) if name.chars().count() > ADDRESS => address,
        _ => &name,
    };
    let name = format!("{:>3}  {}", replica.replica, fit_end(name, ADDRESS));
    let (style, health) = match (replica.is_healthy, replica.stream.as_deref()) {
        // Health goes before the stream: a stream of a dead engine says nothing.
        (false, _) => (Style::Warning, "down".to_owned()),
        (true, None | Some("complete")) => (Style::Plain, "up".to_owned()),
        (true, Some(stream)) => (Style::Lost, one_line(stream)),
    };
    let held = replica.cached_blocks.unwrap_or_default();
    let share = replica.capacity_blocks.map(|all| held as f64 / all.max(1) as f64);
    let blocks = match replica.capacity_blocks {
        Some(all) => format!("{}/{}", compact(held as f64), compact(all as f64)),
        None if held < 10_000 => counted(held, "block"),
        None => format!("{} blocks", compact(held as f64)),
    };
    let hits = replica.hit_rate.map_or_else(|| "–".to_owned(), percent_to_tenths);
    StyledLine::default()
        .with(Style::Plain, format!("{name} "))
        .with(style, fit(&health, 9))
        .with(Style::Served, bar(0.0, share.unwrap_or_default(), 12))
        .with(Style::Plain, format!(" {blocks:<14}"))
        .with(Style::Plain, format!(" {} running, {} waiting", replica.running, replica.waiting))
        .with(Style::Soft, format!("  hit rate {hits}"))
}

fn branches(tree: &TreePart) -> Vec<StyledLine> {
    if tree.nodes.is_empty() {
        return vec![title("Prefixes", "none yet".to_owned())];
    }
    let note =
        format!("{} of {}", counted(tree.branches, "branch"), counted(tree.prompts, "prompt"));
    let mut lines = vec![title("Prefixes", note)];
    let depths = depths(&tree.nodes);
    let nodes = tree.nodes.iter().zip(depths).take(BRANCHES_MAX);
    lines.extend(nodes.map(|(node, depth)| branch(node, depth)));
    lines
}

/// Returns the depth of each branch in the tree.
fn depths(nodes: &[NodePart]) -> Vec<usize> {
    let mut depths: Vec<usize> = Vec::with_capacity(nodes.len());
    for node in nodes {
        // Parents come before their children, so their depth is known.
        let above = node.parent.and_then(|parent| depths.get(parent as usize));
        depths.push(above.map_or(0, |depth| depth + 1));
    }
    depths
}

fn branch(node: &NodePart, depth: usize) -> StyledLine {
    let id = || one_line(&node.id).chars().take(8).collect();
    let label: String = node.label.as_deref().map_or_else(id, one_line);
    // A deep tree must not push the names out of the columns.
    let name = format!("  {}{label}", "  ".repeat(depth.min(12)));
    let holders: Vec<String> = node
        .holders
        .iter()
        .map(|held| {
            if held.tokens == node.tokens {
                held.replica.to_string()
            } else {
                format!("{} in part", held.replica)
            }
        })
        .collect();
    let holders = if holders.is_empty() { "no replica".to_owned() } else { holders.join(", ") };
    StyledLine::default()
        .with(Style::Plain, fit(&name, 34))
        .with(Style::Plain, format!("{:>16}", counted(node.tokens, "token")))
        .with(Style::Bold, format!(" {:>8}", percent_to_tenths(node.share)))
        .with(Style::Soft, " of prompts")
        .with(Style::Plain, format!("  held by {holders}"))
        .with(Style::Soft, format!("  used {}", since(node.used_s)))
}

/// The last requests; with a line for the id of each where there is room for it.
fn requests(told: &Snapshot, has_room: bool) -> Vec<StyledLine> {
    if told.requests.is_empty() {
        return vec![title("Requests", "none to show yet".to_owned())];
    }
    let mut lines = vec![title("Requests", String::new())];
    for request in &told.requests {
        let took = request.ttft_ms.map_or_else(|| "…".to_owned(), took);
        let mut line = StyledLine::default()
            .with(Style::Soft, format!("  {}", fit(&since(request.age_s), 9)))
            .with(Style::Bold, format!("{took:>8}  "))
            .with(Style::Plain, one_line(&request.decision));
        if let Some(outcome) = &request.outcome {
            line = line.with(Style::Soft, format!(" · {}", one_line(outcome)));
        }
        lines.push(line);
        if has_room {
            let id = format!("{:21}id {}", "", one_line(&request.id));
            lines.push(StyledLine::default().with(Style::Soft, id));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../../../server/src/dashboard/fixture.json");

    fn frame(columns: usize, rows: usize) -> Frame {
        Frame { columns, rows, has_colours: false }
    }

    fn told() -> Snapshot {
        serde_json::from_str(FIXTURE).expect("the example of the contract")
    }

    #[test]
    fn a_frame_has_all_sections() {
        let text = frame(140, usize::MAX).of(&told()).join("\n");
        for part in [
            "Headstart  qwen3-0.6b · precise · up 2 h",
            "97.4 requests/s",
            "Hit rate   62.8 %",
            "48.7 M prompt tokens of 20,412 requests",
            "evicted",
            "a date or time that changes: about 4.1 %; move the date",
            "Replicas   3 of 4 take requests",
            "down",
            "support assistant",
            "2,048 tokens",
            "held by 0 in part, 2, 3 in part",
            "tokens cached, predicted",
            "                     id ",
            "Errors     ",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn a_frame_fits_its_terminal() {
        for (columns, rows) in [(20, 5), (80, 24), (100, 3), (200, 60)] {
            let lines = frame(columns, rows).of(&told());
            assert!(lines.len() <= rows);
            assert!(lines.iter().all(|line| line.chars().count() <= columns));
        }
    }

    #[test]
    fn an_empty_server_and_a_hostile_one_are_shown() {
        let empty = frame(100, 50).of(&Snapshot::default()).join("\n");
        assert!(empty.contains("nothing yet") && empty.contains("none yet"), "{empty}");
        let mut hostile = told();
        hostile.server.models = vec!["\x1b[2Jm".to_owned()];
        hostile.replicas[0].name = "\x1b]0;x\x07".to_owned();
        hostile.requests[0].decision = "a\nb\x1b[31m".to_owned();
        hostile.tree.nodes[0].id = "é\x1b".to_owned();
        hostile.tree.nodes[1].parent = Some(9_999);
        let lines = frame(140, 100).stale(&hostile, Duration::from_secs(3), "no\x1b[2J answer");
        assert!(lines[0].starts_with("Stale, 3 s old: no"));
        let is_plain = |line: &String| !line.chars().any(char::is_control);
        assert!(lines.iter().all(is_plain));
    }
}
