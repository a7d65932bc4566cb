//! A page with plots that opens without a network: `page.html` with the data in it.

use serde_json::{Value, json};

use super::{table, words};
use headstart_page::{ReportPage, ReportProvenance};
use headstart_predict::training::TrainReport;

const PAGE: ReportPage = ReportPage {
    kind: "Predictor training",
    body: include_str!("page.html"),
    script: include_str!("page.js"),
};

/// The whole page.
pub fn page(report: &TrainReport, made: &ReportProvenance) -> String {
    PAGE.with(made, &data(report))
}

fn data(report: &TrainReport) -> Value {
    let files = report.inputs.iter().map(|input| input.file.as_str());
    json!({
        "title": files.collect::<Vec<_>>().join(", "),
        "facts": table::inputs(report),
        "words": words(report),
        "rows": table::rows(report),
        "made": table::made(report),
        "test": report.test,
        "turn_only": report.turn_only,
        "attainable_mcc": report.attainable_mcc,
        "curve": report.curve,
        "epochs": report.epochs,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use headstart_page as frame;

    #[test]
    fn the_page_holds_its_data_and_needs_nothing_else() {
        let mut report = testing::report();
        report.curve = testing::curve(&[0.2, 0.4]);
        let page = page(&report, &frame::testing::made());
        assert!(page.contains("\"chats.jsonl\""));
        frame::testing::check(&page);
    }
}
