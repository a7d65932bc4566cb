//! One call of a completion route, and what its headers ask for.

use std::sync::Arc;
use std::time::Duration;

use headstart_core::Nanos;
use http::{HeaderMap, HeaderValue};

use super::closer::Closer;
use super::counted::ErrorCounter;
use super::own_headers::{IMPORTANCE_HEADER, SESSION_HEADER, SLO_TTFT_HEADER, request_id};
use crate::gateway::HttpGateway;
use crate::openai::ApiError;
use crate::openai::response::ApiKind;
use crate::spans::RequestTimeline;

/// Longest objective, milliseconds: an hour.
const SLO_TTFT_MAX_MS: f64 = 3_600_000.0;

/// One call of a completion route.
pub(super) struct CompletionCall {
    pub(super) gateway: Arc<HttpGateway>,
    pub(super) kind: ApiKind,
    /// The path and the query.
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) arrival: Nanos,
    pub(super) timeline: RequestTimeline,
    pub(super) closer: Closer,
    /// Counts an error in the middle of the answer.
    pub(super) errors: Option<ErrorCounter>,
}

impl CompletionCall {
    pub(super) fn session<'a>(&'a self, user: Option<&'a str>) -> Option<&'a str> {
        let header = self.headers.get(SESSION_HEADER).and_then(|value| value.to_str().ok());
        header.or(user)
    }

    /// The client's id of the request, if present and short enough.
    pub(super) fn request_id(&self) -> Option<&str> {
        request_id(&self.headers)
    }

    /// The objective that the client names, if it does.
    ///
    /// # Errors
    /// When it is no number of milliseconds.
    pub(super) fn slo_ttft(&self) -> Result<Option<Duration>, ApiError> {
        let Some(value) = self.headers.get(SLO_TTFT_HEADER) else {
            return Ok(None);
        };
        let ms = value.to_str().ok().and_then(|text| text.trim().parse().ok());
        // NaN parses as a number. No comparison holds for it, so it is refused.
        match ms.filter(|ms: &f64| *ms > 0.0 && *ms <= SLO_TTFT_MAX_MS) {
            Some(ms) => Ok(Some(Duration::from_secs_f64(ms / 1e3))),
            None => Err(ApiError::invalid(
                SLO_TTFT_HEADER,
                format!(
                    "{SLO_TTFT_HEADER}: expected milliseconds above 0, up to {SLO_TTFT_MAX_MS}"
                ),
            )),
        }
    }

    /// Whether the client wants what a full computation gives, and nothing else.
    ///
    /// # Errors
    /// When its header says something else than that.
    pub(super) fn is_exact(&self) -> Result<bool, ApiError> {
        let mut values = self.headers.get_all(IMPORTANCE_HEADER).iter().peekable();
        let is_asked = values.peek().is_some();
        let is_off =
            |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"off");
        // Without the header `all` holds as well; the answer then is that it was not asked for.
        if values.all(is_off) {
            Ok(is_asked)
        } else {
            Err(ApiError::invalid(
                IMPORTANCE_HEADER,
                format!(
                    "{IMPORTANCE_HEADER}: expected off, which has all of a stored prefix loaded; \
                     leave it out to have what the server is set to"
                ),
            ))
        }
    }
}
