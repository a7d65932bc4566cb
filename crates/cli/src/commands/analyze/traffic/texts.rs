//! A log of texts under way: its requests with their blocks, and what it said of them.

use std::time::Duration;

use anyhow::Result;
use headstart_core::Nanos;
use headstart_trace::format::request_log::{BLOCK_TOKENS, Chains, LoggedRequest};
use headstart_trace::{Format, Provenance, TraceError, TraceInfo};

use super::{Budget, Part, Said};
use crate::commands::analyze::patience::Patience;
use crate::input::counted;
use crate::logged::Rendering;

/// A log under way.
pub(super) struct Texts<'r> {
    rendering: &'r Rendering,
    chains: Chains,
    name: &'r str,
    part: Part,
    last: Nanos,
}

impl<'r> Texts<'r> {
    pub(super) fn new(rendering: &'r Rendering, block_tokens: Option<u32>, name: &'r str) -> Self {
        let block_tokens = block_tokens.unwrap_or(BLOCK_TOKENS).max(1);
        Self {
            rendering,
            chains: Chains::new(block_tokens),
            name,
            part: Part {
                requests: Vec::new(),
                said: Vec::new(),
                info: TraceInfo::new(block_tokens),
                format: Format::Requests,
                remarks: Vec::new(),
                is_dated: true,
                has_times: true,
            },
            last: Nanos(0),
        }
    }

    /// Whether there was room for it.
    pub(super) fn add(
        &mut self,
        logged: &LoggedRequest,
        patience: &mut Patience,
        budget: &mut Budget,
    ) -> Result<bool> {
        patience.look(self.part.requests.len());
        let bad_line = |reason| TraceError::bad_line(self.name, logged.line, reason);
        let text = self.rendering.text(&logged.prompt);
        let tokens = self
            .rendering
            .tokens_of(&logged.prompt, &text)
            .map_err(bad_line)?;
        let info = &mut self.part.info;
        let mut request = self
            .chains
            .request(logged, &tokens, info)
            .map_err(bad_line)?;
        self.part.is_dated &= logged.arrival.is_some();
        if logged.arrival.is_none() {
            // File order stands for times: a millisecond each.
            request.arrival = self.last + Duration::from_millis(1);
        }
        self.last = request.arrival;
        let said = Said {
            name: logged.name(),
            text,
            tokens,
            model: logged.model.clone(),
            cache_salt: logged.cache_salt.clone(),
            user: logged.user.clone(),
            cached: logged.prompt_tokens.zip(logged.cached_tokens),
            ttft: logged.ttft,
        };
        let is_taken = budget.takes(&request, Some(&said));
        if is_taken {
            self.part.requests.push(request);
            self.part.said.push(said);
        }
        Ok(is_taken)
    }

    pub(super) fn into_part(mut self, format: Format, skipped: u64) -> Part {
        let part = &mut self.part;
        part.format = format;
        part.has_times = part.is_dated;
        let given = |is_given: bool| match is_given {
            true => Provenance::Given,
            false => Provenance::Absent,
        };
        part.info.sessions = given(part.requests.iter().any(|it| it.session.is_some()));
        part.info.turns = given(part.requests.iter().any(|it| it.turn > 0));
        part.info.types_from = Provenance::Given;
        if skipped > 0 {
            part.remarks
                .push(format!("{} left out", counted(skipped, "bad line")));
        }
        self.part
    }
}
