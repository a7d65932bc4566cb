//! A page with a panel per figure that opens without a network: `page.html` with the data in it.

use serde_json::{Value, json};

use super::{FleetReport, json, winner};
use headstart_page::{ReportPage, ReportProvenance};

const PAGE: ReportPage = ReportPage {
    kind: "Fleet report",
    body: include_str!("page.html"),
    script: include_str!("page.js"),
};

/// The whole page.
pub fn page(report: &FleetReport, made: &ReportProvenance) -> String {
    PAGE.with(made, &data(report))
}

fn data(report: &FleetReport) -> Value {
    let strategies = report.runs.iter().map(|run| {
        let rungs = run.rungs().skip(report.warm_up()).map(|rung| {
            let mut point = json::figures(rung);
            let published = report.published(&run.name, rung.rate);
            point["published"] = json!(published.map(|figures| [figures.0, figures.1]));
            point
        });
        let mut rungs: Vec<Value> = rungs.collect();
        // As the axis has them, whatever order they were asked in.
        let rate = |rung: &Value| rung["rate"].as_f64().unwrap_or(0.0);
        rungs.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        json!({"name": run.label(), "rungs": rungs})
    });
    json!({
        "title": format!("Fleet: {}", report.asked.name),
        "verdict": winner::sentences(report),
        "has_published": report.asked.published.is_some(),
        "facts": report.facts(),
        "strategies": strategies.collect::<Vec<_>>(),
    })
}
