//! A page with curves that opens without a network: `page.html` with the data in it.

use serde_json::{Value, json};

use super::published::{self, figures};
use super::{ArmPoint, ExperimentReport, axis, table, winner};
use headstart_page::{ReportPage, ReportProvenance};

const PAGE: ReportPage = ReportPage {
    kind: "Eviction simulation",
    body: include_str!("page.html"),
    script: include_str!("page.js"),
};

/// The whole page.
pub(crate) fn page(report: &ExperimentReport, made: &ReportProvenance) -> String {
    PAGE.with(made, &data(report))
}

fn data(report: &ExperimentReport) -> Value {
    let sweeps = report.sweeps().into_iter().map(|sweep| {
        let lines = report.lines(sweep);
        let mut arms: Vec<&str> = Vec::new();
        for line in &lines {
            if !arms.contains(&&line.shown.arm[..]) {
                arms.push(&line.shown.arm);
            }
        }
        let curves = arms.into_iter().map(|arm| {
            let points = lines.iter().filter(|line| line.shown.arm == arm).map(point);
            json!({"name": arm, "points": points.collect::<Vec<_>>()})
        });
        json!({"axis": axis(sweep), "curves": curves.collect::<Vec<_>>()})
    });
    let figures = figures(report).into_iter();
    let figures = figures.map(|figure| json!([figure.name, figure.published, figure.ours]));
    json!({
        "title": report.facts.source,
        "verdict": winner::sentences(report),
        "facts": table::facts(report).lines().skip(1).collect::<Vec<_>>(),
        "sweeps": sweeps.collect::<Vec<_>>(),
        "figures": figures.collect::<Vec<_>>(),
        "source": published::SOURCES,
    })
}

fn point(line: &ArmPoint<'_>) -> Value {
    let rates = line.runs.iter().map(|run| run.hit_rate);
    let low = rates.clone().fold(f64::INFINITY, f64::min);
    json!({
        "x": line.shown.x,
        "rate": line.hit_rate,
        "low": low,
        "high": rates.fold(low, f64::max),
        "gain": line.gain,
        "closed": line.closed,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use headstart_page as frame;

    #[test]
    fn the_page_holds_its_data_and_needs_nothing_else() {
        let report = testing::report(&[("lru", 6, &[0.25, 0.75]), ("oracle", 6, &[1.0])]);
        let page = page(&report, &frame::testing::made());
        assert!(page.contains("\"name\":\"lru\""));
        frame::testing::check(&page);
    }
}
