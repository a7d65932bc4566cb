//! Tables for a terminal.

use console::{Alignment, measure_text_width, pad_str};
use headstart_core::figures::{counted, percent_to_hundredths, thousands};
use headstart_sim::{HitTally, ReplayOutcome};

use super::{ReplayReport, ReplayRow, YARDSTICK};
use crate::output::{COLUMNS, colour};

/// The table of all cells, with what has to be known to read it; last row: no eviction ever.
pub(crate) fn table(report: &ReplayReport) -> String {
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
pub(crate) fn per_class(report: &ReplayReport) -> String {
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

fn headings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| colour::heading(text)).collect()
}

/// Lines with the columns of `rows`: the first to the left, numbers right. A table that is wider
/// than [`COLUMNS`] becomes several, each with the first column.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    aligned_by(1, rows)
}

/// The same for rows that their first `keys` columns name: those are in each table.
fn aligned_by(keys: usize, rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().map(|row| measure_text_width(&row[column]));
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let parts: Vec<String> =
        parts(keys, &widths).iter().map(|part| lines(rows, &widths, part)).collect();
    parts.join("\n")
}

/// The columns of each table, the keys in each.
fn parts(keys: usize, widths: &[usize]) -> Vec<Vec<usize>> {
    let keys: Vec<usize> = (0..keys.min(widths.len())).collect();
    let of_keys: usize = keys.iter().map(|&key| widths[key] + 2).sum();
    let (mut parts, mut taken) = (vec![keys.clone()], of_keys);
    for (column, &width) in widths.iter().enumerate().skip(keys.len()) {
        let is_alone = parts.last().is_none_or(|part| part.len() == keys.len());
        if taken + width > COLUMNS && !is_alone {
            parts.push(keys.clone());
            taken = of_keys;
        }
        taken += 2 + width;
        parts.last_mut().expect("never empty").push(column);
    }
    parts
}

fn lines(rows: &[Vec<String>], widths: &[usize], columns: &[usize]) -> String {
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for &column in columns.iter().filter(|&&column| column < row.len()) {
            let (cell, width) = (&row[column], widths[column]);
            line += &match column {
                0 => pad_str(cell, width, Alignment::Left, None).into_owned(),
                _ => format!("  {}", pad_str(cell, width, Alignment::Right, None)),
            };
        }
        text += &format!("{}\n", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_tables_become_several() {
        let row = |cell: &str| vec![cell.to_owned(); 12];
        let text = aligned(&[row("a heading"), row("1")]);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert_eq!(text.matches("a heading").count(), 12 + 1, "{text}");
        let narrow = aligned(&[headings(&["policy", "rate"]), headings(&["lru", "1 %"])]);
        assert_eq!(narrow, "policy  rate\nlru      1 %\n");
    }
}
