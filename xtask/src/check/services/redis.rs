//! A Redis or Valkey server, for the tests of the shared index.
//!
//! Installed by apt-get, without a question and without sudo. Each test starts its own; the one
//! that the package starts, as it may where there is systemd, is not used here.

use std::process::{Command, Stdio};

use super::{Service, runs};

/// Either will do; the first is what [`PACKAGE`] brings.
const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];

/// Debian's package.
const PACKAGE: &str = "redis-server";

/// Such a server.
pub(super) struct Redis;

impl Service for Redis {
    fn names(&self) -> String {
        format!("{} or {}", SERVERS[0], SERVERS[1])
    }

    fn tests(&self) -> &'static str {
        "the tests of the shared index"
    }

    fn found(&self) -> Option<String> {
        let server = SERVERS.into_iter().find(|server| runs(server, "--version"));
        server.map(str::to_owned)
    }

    fn install(&self) -> Result<(), String> {
        install()
    }
}

/// Installs the package; the error says what to do by hand.
fn install() -> Result<(), String> {
    let by_hand = format!("install {PACKAGE} by hand");
    for arguments in [
        &["update", "--quiet"][..],
        &["install", "--quiet", "--yes", "--no-install-recommends", PACKAGE],
    ] {
        let line = format!("apt-get {}", arguments.join(" "));
        let status = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("`{line}` ended with {status}; {by_hand}")),
            Err(error) => return Err(format!("`{line}` did not start ({error}); {by_hand}")),
        }
    }
    Ok(())
}
