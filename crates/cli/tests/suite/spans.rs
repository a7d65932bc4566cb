//! `serve --otlp` in the binary, whose HTTP client is built with TLS, unneeded here.

use crate::support;

use support::{Served, eventually};

/// It panicked at its start where no provider of cryptography was set, which tests of the server
/// alone do not see.
#[test]
fn a_server_with_spans_starts_although_no_collector_listens() {
    let mut command = support::serve(&["--replicas", "1", "--otlp", "http://127.0.0.1:9"]);
    let server = Served::run(&mut command);
    let is_ready = || server.ask("GET", "/ready", "").starts_with("HTTP/1.1 200");
    eventually("the server to be ready", is_ready);
}
