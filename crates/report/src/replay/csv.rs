//! CSV: one line per cell, or, asked for classes, one line per cell and class instead.
//!
//! All lines are of one kind, so that no sum adds a class to the whole that includes it. Written by
//! hand: the only text in it is the name of a policy or a type.

use headstart_sim::HitTally;

use super::{ReplayReport, ReplayRow};

/// The header and all lines, counts rather than rates.
pub fn csv(report: &ReplayReport, per_class: bool) -> String {
    let lines = report
        .rows
        .iter()
        .flat_map(|row| if per_class { classes(report, row) } else { vec![cell(report, row)] });
    let header = if per_class {
        format!("policy,capacity_blocks,type,turn,{}", counts_header(""))
    } else {
        format!(
            "policy,capacity_blocks,{},{},{},insertions,evictions,full_at,belady_block_hits",
            counts_header(""),
            counts_header("cold_"),
            counts_header("steady_")
        )
    };
    let all: Vec<String> = std::iter::once(header).chain(lines).collect();
    all.join("\n")
}

fn counts_header(part: &str) -> String {
    let names = ["requests", "block_lookups", "block_hits", "tokens", "token_hits"];
    names.map(|name| format!("{part}{name}")).join(",")
}

fn counts(tally: &HitTally) -> String {
    let (blocks, tokens) = (tally.blocks, tally.tokens);
    let counts = [tally.requests, blocks.lookups, blocks.hits, tokens.lookups, tokens.hits];
    counts.map(|count| count.to_string()).join(",")
}

fn cell(report: &ReplayReport, row: &ReplayRow) -> String {
    let outcome = &row.outcome;
    let or_empty = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    let yardstick = report.yardstick(row);
    [
        quoted(&row.policy),
        row.blocks.to_string(),
        counts(&outcome.all()),
        counts(&outcome.cold),
        counts(&outcome.steady),
        outcome.insertions.to_string(),
        outcome.evictions.to_string(),
        or_empty(outcome.full_at.map(|request| u64::from(request) + 1)),
        or_empty(yardstick.map(|row| row.outcome.all().blocks.hits)),
    ]
    .join(",")
}

fn classes(report: &ReplayReport, row: &ReplayRow) -> Vec<String> {
    let line = |(class, tally): (&headstart_sim::RequestClass, &HitTally)| {
        let (policy, name) = (quoted(&row.policy), quoted(report.class_name(*class)));
        let (blocks, turn) = (row.blocks, class.turn);
        format!("{policy},{blocks},{name},{turn},{}", counts(tally))
    };
    row.outcome.classes.iter().map(line).collect()
}

/// A name that may hold anything, as RFC 4180 writes it.
fn quoted(name: &str) -> String {
    if name.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn every_line_has_the_headers_columns() {
        let report = testing::report(&[("lru", &[(50, 200), (60, 300)]), ("belady", &[(50, 400)])]);
        for per_class in [false, true] {
            let text = csv(&report, per_class);
            let columns: Vec<_> = text.lines().map(|line| line.split(',').count()).collect();
            assert_eq!(columns, [columns[0]; 4], "{text}");
        }
        let line =
            "lru,50,100,1000,200,16000,3200,20,200,0,3200,0,80,800,200,12800,3200,50,40,31,400";
        assert_eq!(csv(&report, false).lines().nth(1), Some(line));
        let line = "lru,50,unknown,10,100,1000,200,16000,3200";
        assert_eq!(csv(&report, true).lines().nth(1), Some(line));
    }

    #[test]
    fn a_name_with_commas_stays_one_column() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("s3fifo:small=0.1"), "s3fifo:small=0.1");
    }
}
