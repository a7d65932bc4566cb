//! Requests that are there twice, so that each figure counts them twice.

use std::collections::HashMap;

use headstart_core::TraceRequest;
use headstart_core::figures::counted;

use super::part::ParsedLog;
use super::prompt::LoggedPrompt;
use crate::fleet::hashed;

/// Counts of duplicate requests.
#[derive(Clone, Debug, Default)]
pub(super) struct DuplicateCounts {
    /// Requests that are copies of another one.
    pub(super) requests: u64,
    pub(super) remarks: Vec<String>,
}

/// Last tokens of a prompt that its name covers beside its blocks: more than a block leaves over.
const TAIL_TOKENS: usize = 64;

impl DuplicateCounts {
    /// Inputs that hold the same requests. Bytes are not compared: one may be packed.
    pub(super) fn of_files(parts: &[ParsedLog], names: &[String]) -> Self {
        let mut copies = Self::default();
        for (number, part) in parts.iter().enumerate() {
            let before = &parts[..number];
            let same = before.iter().position(|earlier| earlier.requests == part.requests);
            let Some(same) = same.filter(|_| !part.requests.is_empty()) else {
                continue;
            };
            copies.requests += part.requests.len() as u64;
            copies.remarks.push(if names[same] == names[number] {
                format!("{}: given twice, and each time counts", names[same])
            } else {
                format!(
                    "{} and {} hold the same requests, and each time counts; name one of them",
                    names[same], names[number]
                )
            });
        }
        copies
    }

    /// Adds what ids tell of requests in order; those in copied files are counted already.
    pub(super) fn add_ids(&mut self, requests: &[TraceRequest], said: &[LoggedPrompt]) {
        let mut known: HashMap<u64, u64> = HashMap::new();
        let (mut copies, mut ids) = (0, 0);
        for (request, said) in requests.iter().zip(said).filter(|(_, said)| said.has_id) {
            let prompt = prompt(request, said);
            // A hash of the name takes eight bytes, however long the id is.
            match known.insert(hashed(&said.name), prompt) {
                Some(before) if before == prompt => copies += 1,
                Some(_) => ids += 1,
                None => {}
            }
        }
        if copies > 0 {
            self.remarks.push(format!(
                "{} with the id and the prompt of another one: retries, or a part of the log given \
                 twice; each counts",
                counted(copies, "request")
            ));
        }
        if ids > 0 {
            self.remarks.push(format!(
                "{} with the id of another one and another prompt: `why` finds the first of an id",
                counted(ids, "request")
            ));
        }
        self.requests = self.requests.max(copies);
    }
}

/// A prompt's name: its last block's, which covers all before, and the tokens behind.
fn prompt(request: &TraceRequest, said: &LoggedPrompt) -> u64 {
    let last = request.blocks.runs().last();
    // Tokens after the last whole block are in no block's name.
    let tail = said.tokens.len().saturating_sub(TAIL_TOKENS);
    hashed(&(last.map(|run| (run.start, run.count)), said.tokens.len(), &said.tokens[tail..]))
}
