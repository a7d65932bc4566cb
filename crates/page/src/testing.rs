//! Checks of a page, for the tests of reports: it needs nothing else, and its names cannot end its
//! script.

use crate::ReportProvenance;

/// The same for each test.
pub fn made() -> ReportProvenance {
    ReportProvenance {
        unix_s: 1_772_359_200,
        program: "headstart",
        arguments: ["analyze", "log.jsonl"].map(str::to_owned).to_vec(),
    }
}

/// Checks properties of every report.
#[track_caller]
pub fn check(page: &str) {
    assert!(!page.contains("HEADSTART_"), "all is filled in");
    for resource in ["http:", "https:", "src=", "href=", "url(", "@import", "fetch(", "innerHTML"] {
        assert!(!page.contains(resource), "{resource} in the page");
    }
    assert!(page.contains("default-src 'none'"));
    assert_eq!(page.matches("</script>").count(), 1, "no script ends early");
    assert_eq!(page.matches("</style>").count(), 1);
    let footer = page.split("<footer").nth(1).expect("a footer");
    assert!(footer.contains(concat!("Headstart ", env!("CARGO_PKG_VERSION"), ", 2026-03-01")));
    assert!(footer.contains("<code>headstart analyze log.jsonl</code>"));
}
