//! The page: one document with its style and scripts in it, and a policy that allows nothing else.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};

use headstart_index_sync::random_key;
use headstart_page::{LOGO, SHARED_SCRIPT, SHARED_STYLE};

/// The icon, for those who do not read the page's.
const ICON: &str = concat!(
    r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none""#,
    r##" stroke="#2f7fd6" stroke-width="2.6" stroke-linecap="round" stroke-linejoin="round">"##,
    r#"<path d="M3 12h6l4-6h8M9 12l4 6h5M9 12h9"/></svg>"#,
);

/// Everything but style and scripts.
const PAGE: &str = include_str!("page/index.html");

/// Style sheet of the dashboard alone.
const STYLE: &str = include_str!("page/style.css");

/// In the order in which they use each other.
const SCRIPTS: [&str; 8] = [
    include_str!("page/dom.js"),
    include_str!("page/charts.js"),
    include_str!("page/ttft.js"),
    include_str!("page/tree.js"),
    include_str!("page/panels.js"),
    include_str!("page/requests.js"),
    SHARED_SCRIPT,
    include_str!("page/main.js"),
];

/// The page, with a nonce of its own: only what came with it runs.
#[must_use]
pub fn page() -> Response {
    let nonce = nonce();
    (headers(&nonce), with(&nonce)).into_response()
}

/// Serves the icon that browsers request on their own.
#[must_use]
pub fn icon() -> Response {
    let fixed = HeaderValue::from_static;
    let kind = (header::CONTENT_TYPE, fixed("image/svg+xml"));
    let age = (header::CACHE_CONTROL, fixed("max-age=86400"));
    ([kind, age], ICON).into_response()
}

fn with(nonce: &str) -> String {
    PAGE.replace("HEADSTART_NONCE", nonce)
        .replacen("HEADSTART_STYLE", &[SHARED_STYLE, STYLE].concat(), 1)
        .replacen("HEADSTART_LOGO", LOGO.trim_end(), 1)
        .replacen("HEADSTART_SCRIPT", &SCRIPTS.concat(), 1)
}

fn nonce() -> String {
    let bytes = &random_key()[..16];
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn headers(nonce: &str) -> HeaderMap {
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src \
         'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let fixed = |name, value| (name, HeaderValue::from_static(value));
    let mut headers: HeaderMap = [
        fixed(header::CONTENT_TYPE, "text/html; charset=utf-8"),
        fixed(header::CACHE_CONTROL, "no-store"),
        fixed(header::REFERRER_POLICY, "no-referrer"),
        fixed(header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        fixed(header::X_FRAME_OPTIONS, "DENY"),
    ]
    .into_iter()
    .collect();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_needs_nothing_else() {
        let page = with("0123");
        assert!(!page.contains("HEADSTART_"), "all is filled in");
        assert_eq!(page.matches("nonce=\"0123\"").count(), 2);
        assert_eq!(page.matches("</script>").count(), 1, "no script ends early");
        assert_eq!(page.matches("</style>").count(), 1);
        for resource in ["src=", "@import", "url(", "import ", "eval(", "innerHTML", " style=\""] {
            assert!(!page.contains(resource), "{resource} in the page");
        }
        let links: Vec<&str> = page.split("href=\"").skip(1).collect();
        let expected = ["data:image/svg", "#main\"", "metrics\"", "openapi.json\""];
        assert_eq!(links.len(), expected.len(), "the page, its icon and what is on this server");
        for (link, start) in links.iter().zip(expected) {
            assert!(link.starts_with(start), "{start}");
        }
        let addresses = page.matches("http").count() - page.matches("http://www.w3.org").count();
        assert_eq!(addresses, 0, "name spaces are no addresses");
    }

    #[test]
    fn each_answer_has_a_nonce_of_its_own() {
        let (first, second) = (nonce(), nonce());
        assert_ne!(first, second);
        assert_eq!(first.len(), 32);
        let headers = headers(&first);
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.contains(&format!("script-src 'nonce-{first}';")), "{policy}");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
    }
}
