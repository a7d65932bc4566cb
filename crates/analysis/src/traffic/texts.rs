//! A log of texts under way: its requests with their blocks, and what it said of them.

use std::time::Duration;

use headstart_core::Nanos;
use headstart_core::figures::counted;
use headstart_trace::format::request_log::{BLOCK_TOKENS, Chains, LoggedRequest, PromptPart};
use headstart_trace::{Format, Provenance, TraceError, TraceInfo};

use super::part::{ParsedLog, RequestMemoryBudget};
use super::prompt::LoggedPrompt;
use super::times::Dates;
use crate::rendering::Rendering;

/// Builder of a [`ParsedLog`] from a log of texts.
pub(super) struct TextLogBuilder<'r> {
    rendering: &'r Rendering,
    chains: Chains,
    name: &'r str,
    part: ParsedLog,
    last: Nanos,
    /// Indices of its requests without a time.
    undated: Vec<usize>,
}

impl<'r> TextLogBuilder<'r> {
    pub(super) fn new(rendering: &'r Rendering, block_tokens: Option<u32>, name: &'r str) -> Self {
        let block_tokens = block_tokens.unwrap_or(BLOCK_TOKENS).max(1);
        Self {
            rendering,
            chains: Chains::new(block_tokens),
            name,
            part: ParsedLog {
                requests: Vec::new(),
                said: Vec::new(),
                info: TraceInfo::new(block_tokens),
                format: Format::Requests,
                remarks: Vec::new(),
                is_dated: true,
                dates: Dates::default(),
                has_text: false,
            },
            last: Nanos(0),
            undated: Vec::new(),
        }
    }

    /// Whether there was room for it.
    pub(super) fn add(
        &mut self,
        logged: &LoggedRequest,
        budget: &mut RequestMemoryBudget,
    ) -> Result<bool, TraceError> {
        let bad_line = |reason| TraceError::bad_line(self.name, logged.line, reason);
        let text = self.rendering.text(&logged.prompt);
        let tokens = self.rendering.tokens_of(&logged.prompt, &text).map_err(bad_line)?;
        let info = &mut self.part.info;
        let mut request = self.chains.request(logged, &tokens, info).map_err(bad_line)?;
        if logged.arrival.is_none() {
            // File order stands for times, unless few have none: a millisecond each.
            request.arrival = self.last + Duration::from_millis(1);
        }
        // A refused request may set it: nothing is read after that one.
        self.last = request.arrival;
        let said = LoggedPrompt {
            name: logged.name(),
            has_id: logged.id.is_some(),
            source: 0,
            text,
            tokens,
            is_ids: matches!(logged.prompt, PromptPart::Tokens(_)),
            model: logged.model.clone(),
            cache_salt: logged.cache_salt.clone(),
            user: logged.user.clone(),
            session: request.session,
            counted: logged.prompt_tokens,
            // Both counts come from the server, so their share does not depend on the tokenizer
            // here.
            cached: logged.prompt_tokens.zip(logged.cached_tokens),
            ttft: logged.ttft,
            settings: logged.settings.clone(),
        };
        let is_taken = budget.takes(&request, Some(&said));
        if is_taken {
            if logged.arrival.is_none() {
                // Indices ascend, because `fill_in` searches them as a sorted list.
                self.undated.push(self.part.requests.len());
            }
            self.part.has_text |= !said.is_ids;
            self.part.requests.push(request);
            self.part.said.push(said);
        }
        Ok(is_taken)
    }

    /// Sets the number of requests whose time field does not hold a time.
    pub(super) fn has_unread(&mut self, times: u64) {
        self.part.dates.unread = times;
    }

    /// Sets the number of records that hold no request.
    pub(super) fn has_passed_over(&mut self, records: u64) {
        if records > 0 {
            let counted = counted(records, "record");
            self.part.remarks.push(format!("{counted} without a request passed over"));
        }
    }

    pub(super) fn into_part(mut self, format: Format, skipped: u64) -> ParsedLog {
        let requests = self.part.requests.len() as u64;
        self.part.dates.requests = requests;
        // Only a request that was taken is in `undated`, so the difference is not negative.
        self.part.dates.dated = requests - self.undated.len() as u64;
        self.part.is_dated = self.part.dates.are_enough();
        if self.part.is_dated {
            self.fill_in();
        }
        let part = &mut self.part;
        part.format = format;
        part.remarks.extend(part.dates.remark());
        let given = |is_given: bool| {
            if is_given { Provenance::Given } else { Provenance::Absent }
        };
        part.info.sessions = given(part.requests.iter().any(|request| request.session.is_some()));
        part.info.turns = given(part.requests.iter().any(|request| request.turn > 0));
        part.info.types_from = Provenance::Given;
        if skipped > 0 {
            part.remarks.push(format!("{} left out", counted(skipped, "bad line")));
        }
        self.part
    }

    /// Gives requests without a time that of the one before, or of the first that has one.
    fn fill_in(&mut self) {
        let requests = &mut self.part.requests;
        let first = (0..requests.len()).find(|index| self.undated.binary_search(index).is_err());
        let mut last = first.map_or(Nanos(0), |first| requests[first].arrival);
        let mut undated = self.undated.iter().peekable();
        for (index, request) in requests.iter_mut().enumerate() {
            match undated.next_if(|undated| **undated == index) {
                Some(_) => request.arrival = last,
                None => last = request.arrival,
            }
        }
    }
}
