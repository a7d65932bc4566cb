//! A running server that a command asks, and what to do where it does not answer, is no Headstart
//! gateway, or will not.
//!
//! Errors of ours have a code. What others say is shown as one short line.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};
use clap::Args;
pub(crate) use headstart_core::shown::one_line;
use headstart_loadgen::{LoadgenError, fetch};
use headstart_terminal::TaskProgress;
use serde_json::Value;

use crate::commands::serve::runtime;
use crate::config::first_line;
use crate::exit::usage;

/// Of a foreign answer, what is looked at.
const FOREIGN_BYTES: usize = 4096;

/// Characters of a foreign answer that are shown: enough to know it by.
const SHOWN_CHARS: usize = 100;

/// Longest snapshot that is read: some 100 KB, and room for thousands of replicas.
const SNAPSHOT_BYTES_MAX: usize = 16 << 20;

/// The server to ask.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerOptions {
    /// Address of the server, or HEADSTART_URL
    #[arg(
        long,
        alias = "server",
        env = "HEADSTART_URL",
        hide_env = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:8000"
    )]
    pub(crate) url: String,
    /// File whose first line is the server's API key
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
}

impl ServerOptions {
    /// Reads a JSON document of at most `limit` bytes, with whatever is wrong in words that name
    /// what to change.
    pub(crate) fn json(&self, path: &str, limit: usize) -> Result<Value> {
        let asked = self.asked(path);
        let body = self.document(&asked, limit)?;
        serde_json::from_slice(&body).map_err(|_| asked.foreign(&body))
    }

    /// Reads the dashboard's figures, as JSON of
    /// [`Snapshot`](headstart_server::dashboard::Snapshot).
    pub(crate) fn snapshot(&self) -> Result<Value> {
        self.json("/dashboard/snapshot", SNAPSHOT_BYTES_MAX)
    }

    /// Reads a document of at most `limit` bytes, as it comes.
    pub(crate) fn document(&self, asked: &RequestTarget<'_>, limit: usize) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        let mut is_too_long = false;
        let got = self.get(asked.path, |bytes| {
            is_too_long = body.len() + bytes.len() > limit;
            if is_too_long {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            body.extend_from_slice(bytes);
            Ok(())
        })?;
        if is_too_long {
            return Err(asked.foreign(&body));
        }
        got.map_err(|error| asked.explained(error))?;
        Ok(body)
    }

    /// Passes what it answers on, piece by piece.
    pub(crate) fn get(
        &self,
        path: &str,
        write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Result<(), LoadgenError>> {
        let key = self.api_key_file.as_deref().map(first_line).transpose()?;
        let _progress = TaskProgress::endless(format!("asking {}", self.url));
        let fetched = fetch(&self.url, path, key.as_deref(), write);
        Ok(runtime()?.block_on(fetched))
    }

    /// Returns the target of a request, for errors.
    pub(crate) fn asked<'a>(&'a self, path: &'a str) -> RequestTarget<'a> {
        RequestTarget { url: &self.url, path, key_file: self.api_key_file.as_deref() }
    }
}

/// Target of a request, for errors.
pub(crate) struct RequestTarget<'a> {
    pub(crate) url: &'a str,
    pub(crate) path: &'a str,
    /// The value of `--api-key-file`.
    pub(crate) key_file: Option<&'a Path>,
}

impl RequestTarget<'_> {
    /// An error in words that name what to change.
    pub(crate) fn explained(&self, error: LoadgenError) -> Error {
        let (url, path) = (self.url, self.path);
        let (status, code, message) = match error {
            LoadgenError::Refused { status, code, message } => (status, code, message),
            LoadgenError::TimedOut { after, .. } => {
                return anyhow!(
                    "{url} did not answer {path} within {} s: it takes connections and seems to \
                     hang, or it is no Headstart gateway; its log may say",
                    after.as_secs()
                );
            }
            // It names its innermost cause itself; those between tell a reader nothing.
            other => return anyhow!("{other}{}", self.by_variable()),
        };
        match (status, code.as_deref()) {
            (401 | 403, _) => usage(self.unauthorized()),
            (400, Some(_)) => usage(one_line(&message)),
            // Ours, and it has not what was asked for.
            (404, Some(code)) if code != "not_found" => anyhow!("{url}: {}", one_line(&message)),
            (404, _) | (..500, None) => self.not_ours(&format!("HTTP status {status}"), &message),
            (_, None) => anyhow!(
                "{url} answers {path} with HTTP status {status}{}; if a Headstart gateway is \
                 behind it, is that running?",
                shown(&message)
            ),
            (_, Some(_)) => anyhow!("{url}: HTTP status {status}{}", shown(&message)),
        }
    }

    /// Returns the error for an answer of another program.
    pub(crate) fn foreign(&self, body: &[u8]) -> Error {
        let beginning = &body[..body.len().min(FOREIGN_BYTES)];
        self.not_ours("something else", &String::from_utf8_lossy(beginning))
    }

    fn not_ours(&self, what: &str, body: &str) -> Error {
        anyhow!(
            "{} is not a Headstart gateway, or an older one: it answers {} with {what}{}; name \
             another --url",
            self.url,
            self.path,
            shown(body)
        )
    }

    /// Names the variable that gives the address, if one does.
    fn by_variable(&self) -> &'static str {
        let is_set = std::env::var("HEADSTART_URL").is_ok_and(|url| url == self.url);
        if is_set { " (HEADSTART_URL)" } else { "" }
    }

    fn unauthorized(&self) -> String {
        let url = self.url;
        match self.key_file {
            None => format!(
                "{url} wants an API key: give --api-key-file FILE, the one that its `headstart \
                 serve` has"
            ),
            Some(file) => format!(
                "{url} refuses the API key: is {} what its `headstart serve` has as \
                 --api-key-file?",
                file.display()
            ),
        }
    }
}

/// Whatever may stand in an error's words: a colon and one short line in quotes, or nothing.
fn shown(body: &str) -> String {
    let line = one_line(body);
    let mut chars = line.chars();
    let short: String = chars.by_ref().take(SHOWN_CHARS).collect();
    match (short.is_empty(), chars.next()) {
        (true, _) => String::new(),
        (false, None) => format!(": `{short}`"),
        (false, Some(_)) => format!(": `{short}…`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: RequestTarget<'static> =
        RequestTarget { url: "http://h:1", path: "/debug/index", key_file: None };

    fn check(status: u16, code: Option<&str>, message: &str, expected: &str) {
        let error = ASKED.explained(LoadgenError::Refused {
            status,
            code: code.map(str::to_owned),
            message: message.to_owned(),
        });
        assert_eq!(error.to_string(), expected);
        let is_usage = error.downcast_ref::<headstart_core::UsageError>().is_some();
        assert_eq!(is_usage, [400, 401, 403].contains(&status) && code.is_some());
    }

    #[test]
    fn errors_say_what_to_change() {
        let page = "<html>\r\n<head><title>404 Not Found</title></head>\n<body>\u{1b}[2J";
        let line = "<html> <head><title>404 Not Found</title></head> <body>\\u{1b}[2J";
        let foreign = "http://h:1 is not a Headstart gateway, or an older one: it answers \
                       /debug/index with HTTP status";
        let other = "name another --url";
        check(404, None, page, &format!("{foreign} 404: `{line}`; {other}"));
        check(404, Some("not_found"), "no", &format!("{foreign} 404: `no`; {other}"));
        let nothing = "http://h:1: no shadow fleet runs";
        check(404, Some("no_shadow"), "no shadow fleet runs", nothing);
        check(302, None, "", &format!("{foreign} 302; {other}"));
        check(400, None, "a\tb", &format!("{foreign} 400: `a b`; {other}"));
        let long = format!("{foreign} 405: `{}…`; {other}", "x".repeat(SHOWN_CHARS));
        check(405, None, &"x".repeat(SHOWN_CHARS + 1), &long);
        let key = "http://h:1 wants an API key: give --api-key-file FILE, the one that its \
                   `headstart serve` has";
        check(401, Some("invalid_api_key"), "send `Authorization`", key);
        check(400, Some("invalid_value"), "there is no\nreplica 9", "there is no replica 9");
        check(500, Some("internal_error"), "oh", "http://h:1: HTTP status 500: `oh`");
        let behind = "http://h:1 answers /debug/index with HTTP status 502: `Bad`; if a Headstart \
                      gateway is behind it, is that running?";
        check(502, None, "Bad", behind);
    }

    #[test]
    fn a_server_that_hangs_is_said_to() {
        let error = ASKED.explained(LoadgenError::TimedOut {
            url: "http://h:1/debug/index".to_owned(),
            after: std::time::Duration::from_secs(5),
        });
        let expected = "http://h:1 did not answer /debug/index within 5 s: it takes connections";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn a_key_that_is_refused_is_named_by_its_file() {
        let asked = RequestTarget { key_file: Some(Path::new("some/key")), ..ASKED };
        let said = asked.unauthorized();
        assert!(said.contains("is some/key what"), "{said}");
    }
}
