//! Options of the HTTP edge: its limits, and what it lets through.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use headstart_server::{Cors, Edge, EdgeLimits};
use http::{HeaderValue, Uri};

use super::ServeOptions;
use crate::exit::usage;

/// Allowed time-outs, seconds: from short ones for tests to a day.
const SECONDS: RangeInclusive<f64> = 0.001..=86_400.0;

/// Largest body that can be allowed, MiB: each is held in memory as a whole.
const BODY_MIB_MAX: usize = 4096;

impl ServeOptions {
    /// The limits of the edge.
    pub(crate) fn limits(&self) -> Result<EdgeLimits> {
        let usual = EdgeLimits::default();
        let seconds = |given: Option<f64>, option: &str, usual: Duration| match given {
            None => Ok(usual),
            // The range also excludes values for which `from_secs_f64` panics.
            Some(seconds) if SECONDS.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
            Some(seconds) => {
                let (least, most) = (SECONDS.start(), SECONDS.end());
                let message = format!("{option} {seconds}: it is from {least} to {most} seconds");
                Err(usage(message))
            }
        };
        // Connections beyond the limit wait, so with zero all clients would wait forever.
        ensure!(
            self.max_connections != Some(0),
            usage("--max-connections 0 accepts no client; write 1 or more, or leave it out")
        );
        Ok(EdgeLimits {
            body_bytes: body_bytes(self.max_body_mib)?.unwrap_or(usual.body_bytes),
            first_token_timeout: seconds(
                self.upstream_timeout,
                "--upstream-timeout",
                usual.first_token_timeout,
            )?,
            silence_timeout: seconds(
                self.upstream_silence,
                "--upstream-silence",
                usual.silence_timeout,
            )?,
            connections: self.max_connections,
            ..usual
        })
    }

    /// Returns the CORS and admin-route settings of the HTTP edge.
    pub(crate) fn edge(&self) -> Result<Edge> {
        Ok(Edge { cors: cors(&self.cors_origin)?, pass_admin_routes: self.pass_admin_routes })
    }
}

/// The limit of bodies, bytes, where one is given.
fn body_bytes(mib: Option<usize>) -> Result<Option<usize>> {
    match mib {
        None => Ok(None),
        Some(mib) if (1..=BODY_MIB_MAX).contains(&mib) => Ok(Some(mib << 20)),
        Some(mib) => {
            bail!(usage(format!("--max-body-mib {mib}: it is from 1 to {BODY_MIB_MAX}")))
        }
    }
}

/// Parses the origins of the web pages that may call the API.
fn cors(origins: &[String]) -> Result<Cors> {
    // With `*` in the list the other origins change nothing, so they are not parsed.
    if origins.iter().any(|origin| origin == "*") {
        return Ok(Cors::Any);
    }
    if origins.is_empty() {
        return Ok(Cors::Off);
    }
    let origins: Result<Vec<_>> = origins.iter().map(|text| origin(text)).collect();
    Ok(Cors::Origins(origins?))
}

/// An origin as browsers write it: scheme, host and port, and nothing behind them.
fn origin(text: &str) -> Result<HeaderValue> {
    // Browsers send origins in lower case and without a trailing slash; both are compared as bytes.
    let plain = text.trim().trim_end_matches('/').to_ascii_lowercase();
    let uri = plain.parse::<Uri>().ok();
    let is_origin = uri.is_some_and(|uri| {
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        // An origin with a path or a query never equals the header of a browser.
        let is_bare = uri.path() == "/" && uri.query().is_none();
        // A user name is part of the authority of a URI, and no browser sends one.
        is_web && is_bare && !plain.contains('@')
    });
    let value = HeaderValue::from_str(&plain).ok().filter(|_| is_origin);
    value.ok_or_else(|| {
        let message = format!(
            "--cors-origin {text}: expected SCHEME://HOST or SCHEME://HOST:PORT as browsers send \
             it, such as https://chat.example.com, or * for all"
        );
        usage(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_scheme_a_host_and_nothing_else() {
        let of = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|text| (*text).to_owned()).collect();
            cors(&list).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[]), Ok(Cors::Off));
        assert_eq!(of(&["https://a.example", "*"]), Ok(Cors::Any));
        let two = ["https://A.example/", "http://localhost:3000"];
        let expected = ["https://a.example", "http://localhost:3000"];
        let expected = expected.map(HeaderValue::from_static).to_vec();
        assert_eq!(of(&two), Ok(Cors::Origins(expected)));
        for wrong in
            ["a.example", "ftp://a.example", "https://a.example/app", "https://u@a.example", ""]
        {
            let error = of(&[wrong]).expect_err(wrong);
            assert!(error.contains("--cors-origin"), "{error}");
        }
    }

    #[test]
    fn a_body_may_be_as_large_as_is_said() {
        assert_eq!(body_bytes(Some(64)).expect("fits"), Some(64 << 20));
        assert_eq!(body_bytes(None).expect("usual"), None);
        assert!(body_bytes(Some(0)).is_err() && body_bytes(Some(5000)).is_err());
    }
}
