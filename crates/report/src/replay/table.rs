//! Tables for a terminal.

use headstart_core::figures::{counted, percent_to_hundredths, thousands};
use headstart_sim::{HitTally, ReplayOutcome};
use headstart_terminal::{aligned_by, colour, headings};

use super::{ReplayReport, ReplayRow, YARDSTICK};

/// The table of all cells, with what has to be known to read it; last row: no eviction ever.
pub fn table(report: &ReplayReport) -> String {
    let mut rows = vec![
        headings(&["", "", "block hit rate", "", "", "token hit rate", "", "", "full at", "of"]),
        headings(&[
            "policy", "capacity", "all", "cold", "steady", "all", "cold", "steady", "request",
            YARDSTICK,
        ]),
    ];
    rows.extend(report.rows.iter().map(|row| line(report, row)));
    rows.push(infinite(report));
    let has_late = report.rows.iter().any(|row| is_marked(report, row));
    let late = "* full only after the warm-up: its steady rates include filling the cache\n";
    format!("{}\n{}{}", facts(report), aligned_by(2, &rows), if has_late { late } else { "" })
}

/// The same cells, request type by request type and turn by turn.
pub fn per_class(report: &ReplayReport) -> String {
    let header =
        ["policy", "capacity", "type", "turn", "requests", "block hit rate", "token hit rate"];
    let mut rows = vec![headings(&header)];
    for row in &report.rows {
        for (class, tally) in &row.outcome.classes {
            let turn = match class.turn {
                0 => "unknown".to_owned(),
                headstart_sim::outcome::LAST_TURN => format!("{}+", class.turn),
                turn => turn.to_string(),
            };
            rows.push(vec![
                row.policy.clone(),
                thousands(row.blocks),
                report.class_name(*class).to_owned(),
                turn,
                thousands(tally.requests),
                percent_to_hundredths(tally.blocks.rate()),
                percent_to_hundredths(tally.tokens.rate()),
            ]);
        }
    }
    aligned_by(2, &rows)
}

fn facts(report: &ReplayReport) -> String {
    let trace = &report.trace;
    let all = report.infinite.all();
    let duration = match trace.seconds {
        seconds if seconds >= 1.0 => format!(" over {} s", thousands(seconds as u64)),
        _ => String::new(),
    };
    let mut facts = format!(
        "{}: {}{duration}, {}, {} looked up, {} different, {} each\n",
        trace.name,
        counted(trace.requests as u64, "request"),
        counted(all.tokens.lookups, "prompt token"),
        counted(all.blocks.lookups, "block"),
        thousands(trace.distinct_blocks),
        counted(trace.info.block_tokens.into(), "token"),
    );
    for remark in &trace.remarks {
        facts += &format!("{remark}\n");
    }
    if let Some(kv) = &report.kv {
        let bytes = thousands(kv.per_token);
        facts += &format!("a token's keys and values: {bytes} bytes ({})\n", kv.shape);
    }
    let cold = match trace.cold_requests {
        1 => "the first request".to_owned(),
        some => format!("the first {}", counted(some.into(), "request")),
    };
    let share = 100.0 * f64::from(trace.cold_requests) / trace.requests.max(1) as f64;
    facts + &format!("cold: {cold} ({share:.0} %); steady: all later ones\n")
}

fn line(report: &ReplayReport, row: &ReplayRow) -> Vec<String> {
    let asked = row.asked.as_deref().filter(|asked| asked.parse() != Ok(row.blocks));
    let capacity = match asked {
        Some(asked) => format!("{asked} = {}", thousands(row.blocks)),
        None => thousands(row.blocks),
    };
    let share = report.share_of_yardstick(row).map(percent_to_hundredths);
    let mark = if is_marked(report, row) { "*" } else { " " };
    let full_at = match row.outcome.full_at {
        Some(request) => thousands(u64::from(request) + 1),
        None => "never".to_owned(),
    };
    let mut line = vec![row.policy.clone(), capacity];
    line.extend(rates(&row.outcome));
    line.extend([format!("{full_at}{mark}"), share.unwrap_or_else(|| "–".to_owned())]);
    line
}

fn infinite(report: &ReplayReport) -> Vec<String> {
    let capacity = thousands(report.trace.distinct_blocks);
    let mut line = vec!["infinite".to_owned(), capacity];
    line.extend(rates(&report.infinite));
    line.extend([String::new(), String::new()]);
    line
}

/// Blocks, then tokens: all, cold, steady.
fn rates(outcome: &ReplayOutcome) -> Vec<String> {
    let tallies = [&outcome.all(), &outcome.cold, &outcome.steady];
    let rate = |count: headstart_core::stats::HitCount| match count.lookups {
        0 => "–".to_owned(),
        _ => percent_to_hundredths(count.rate()),
    };
    let blocks = tallies.iter().map(|tally: &&HitTally| rate(tally.blocks));
    let tokens = tallies.iter().map(|tally| rate(tally.tokens));
    let mut rates: Vec<String> = blocks.chain(tokens).collect();
    rates[3] = colour::hit(&rates[3]);
    rates
}

/// Filled, but only after the cold part.
fn is_marked(report: &ReplayReport, row: &ReplayRow) -> bool {
    row.outcome.full_at.is_some() && report.filled_late(row)
}
