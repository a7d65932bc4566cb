//! A page with plots that opens without a network: `page.html` with the data in it.

use serde_json::{Value, json};

use super::super::html::embedded;
use super::{TrainReport, table, words};

/// Everything but the data; it names no other resource, and its policy forbids any.
const PAGE: &str = include_str!("page.html");

/// Where the data goes.
const DATA: &str = "\"HEADSTART_DATA\"";

/// The whole page.
pub(crate) fn page(report: &TrainReport) -> String {
    PAGE.replacen(DATA, &embedded(&data(report)), 1)
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

    #[test]
    fn the_page_holds_its_data_and_needs_nothing_else() {
        let mut report = testing::report();
        report.curve = testing::curve(&[0.2, 0.4]);
        let page = page(&report);
        assert!(page.contains("\"chats.jsonl\"") && !page.contains(DATA));
        for resource in [
            "http:", "https:", "src=", "href=", "url(", "@import", "fetch(",
        ] {
            assert!(!page.contains(resource), "{resource} in the page");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn names_cannot_end_the_script() {
        let mut report = testing::report();
        report.inputs[0].file = "</script><b>".to_owned();
        let page = page(&report);
        let scripts = page.matches("</script>").count();
        assert_eq!(scripts, PAGE.matches("</script>").count());
    }
}
