//! Differences between measured and simulated figures, by strategy.

use headstart_core::figures::percent_to_tenths;
use headstart_sim::fleet::RungOutcome;
use headstart_terminal::aligned;
use serde_json::{Value, json};

use super::{FigureOrigin, FleetReport, StrategyRun};

/// One strategy, both ways, all rungs but the first together.
struct StrategyPair<'a> {
    name: &'a str,
    measured: &'a RungOutcome,
    simulated: &'a RungOutcome,
}

/// Reads a time from an outcome.
type TimeOf = fn(&RungOutcome) -> f64;

/// Times that are compared.
const TIMES: [(&str, TimeOf); 3] = [
    ("TTFT p50", |rung| rung.ttft.p50),
    ("TTFT p90", |rung| rung.ttft.p90),
    ("TTFT mean", |rung| rung.ttft.mean),
];

/// A table, with the order of the strategies both ways; none where nothing is there both ways.
pub(super) fn table(report: &FleetReport) -> Option<String> {
    let all = both(report);
    if all.is_empty() {
        return None;
    }
    let mut head = vec!["strategy", "hit rate", "simulated", "points"];
    head.extend(TIMES.iter().flat_map(|(name, _)| [*name, "simulated", "ratio"]));
    let mut rows = vec![head.into_iter().map(str::to_owned).collect()];
    rows.extend(all.iter().map(row));
    let mut text = format!("measured beside simulated\n{}", aligned(&rows));
    if all.len() > 1 {
        let by = |of: fn(&StrategyPair<'_>) -> f64| order(&all, of);
        text += &format!("by TTFT p50, measured: {}\n", by(|pair| pair.measured.ttft.p50));
        text += &format!("by TTFT p50, simulated: {}\n", by(|pair| pair.simulated.ttft.p50));
    }
    Some(text)
}

/// The same for scripts, a line a strategy.
pub(super) fn json_lines(report: &FleetReport) -> Vec<Value> {
    let line = |pair: &StrategyPair<'_>| {
        json!({
            "asked": report.asked.name,
            "strategy": pair.name,
            "agreement": {
                "hit_rate_points": points(pair),
                "ttft_p50_ratio": ratio(pair, |rung| rung.ttft.p50),
                "ttft_p90_ratio": ratio(pair, |rung| rung.ttft.p90),
                "ttft_mean_ratio": ratio(pair, |rung| rung.ttft.mean),
                "output_tokens_ratio": ratio(pair, |rung| rung.tokens_s),
            },
        })
    };
    both(report).iter().map(line).collect()
}

fn both(report: &FleetReport) -> Vec<StrategyPair<'_>> {
    let of = |origin: FigureOrigin| report.runs.iter().filter(move |run| run.origin == origin);
    of(FigureOrigin::Measured)
        .filter_map(|measured| pair(measured, of(FigureOrigin::Simulated)))
        .collect()
}

fn pair<'a>(
    measured: &'a StrategyRun,
    mut simulated: impl Iterator<Item = &'a StrategyRun>,
) -> Option<StrategyPair<'a>> {
    let simulated = simulated.find(|run| run.name == measured.name)?;
    // Without answered requests there are no times to compare.
    let is_answered = |run: &StrategyRun| run.outcome.all.answered > 0;
    (is_answered(measured) && is_answered(simulated)).then_some(StrategyPair {
        name: &measured.name,
        measured: &measured.outcome.all,
        simulated: &simulated.outcome.all,
    })
}

/// Figures so close to each other, larger over smaller, have no order: runs differ by more.
const ALIKE: f64 = 1.15;

/// The strategies from the least figure to the greatest, `<` or `≈` between neighbours.
fn order(all: &[StrategyPair<'_>], of: fn(&StrategyPair<'_>) -> f64) -> String {
    let mut sorted: Vec<&StrategyPair<'_>> = all.iter().collect();
    sorted.sort_by(|a, b| of(a).total_cmp(&of(b)));
    let mut text = String::new();
    for (at, it) in sorted.iter().enumerate() {
        let sign = match at.checked_sub(1).map(|before| of(it) / of(sorted[before])) {
            None => "",
            Some(ratio) if ratio > ALIKE => " < ",
            Some(_) => " ≈ ",
        };
        text += sign;
        text += it.name;
    }
    text
}

fn points(both: &StrategyPair<'_>) -> f64 {
    (both.measured.hits.rate() - both.simulated.hits.rate()) * 100.0
}

/// Measured over simulated.
fn ratio(both: &StrategyPair<'_>, of: fn(&RungOutcome) -> f64) -> f64 {
    of(both.measured) / of(both.simulated)
}

fn row(both: &StrategyPair<'_>) -> Vec<String> {
    let percent = |rung: &RungOutcome| percent_to_tenths(rung.hits.rate());
    let mut row = vec![
        both.name.to_owned(),
        percent(both.measured),
        percent(both.simulated),
        format!("{:+.1}", points(both)),
    ];
    for (_, of) in TIMES {
        row.push(format!("{:.3}", of(both.measured)));
        row.push(format!("{:.3}", of(both.simulated)));
        row.push(format!("{:.2}", ratio(both, of)));
    }
    row
}

#[cfg(test)]
mod tests {
    use headstart_core::stats::Summary;

    use super::*;

    #[test]
    fn neighbours_that_are_alike_have_no_order() {
        let rung = |p50| RungOutcome {
            ttft: Summary { p50, ..Summary::default() },
            ..RungOutcome::default()
        };
        let rungs = [("slow", rung(3.0)), ("fast", rung(1.0)), ("also", rung(1.1))];
        let all = rungs.each_ref().map(|(name, rung)| StrategyPair {
            name,
            measured: rung,
            simulated: rung,
        });
        assert_eq!(order(&all, |pair| pair.measured.ttft.p50), "fast ≈ also < slow");
    }
}
