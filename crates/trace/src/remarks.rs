//! Remarks on a trace that was read, for the user who named it.

use headstart_core::figures::counted;

use crate::{Provenance, Reader};

/// Describes the inferred fields and the errors of a trace, one sentence each.
#[must_use]
pub fn remarks(reader: &Reader<'_>) -> Vec<String> {
    let (info, tally) = (reader.info(), reader.tally());
    let facts = [("sessions", info.sessions), ("turns", info.turns), ("types", info.types_from)];
    let is_inferred = |fact: &(&'static str, Provenance)| fact.1 == Provenance::Inferred;
    let inferred = facts.into_iter().filter(is_inferred).map(|(name, _)| name);
    let inferred = inferred.collect::<Vec<_>>().join(", ");
    let mut remarks = Vec::new();
    if !inferred.is_empty() {
        remarks.push(format!("inferred from shared prefixes: {inferred} (plausible, not certain)"));
    }
    let mut remark = |number: u64, thing: &str, text: &str| {
        if number > 0 {
            remarks.push(format!("{} {text}", counted(number, thing)));
        }
    };
    remark(tally.skipped, "bad line", "left out");
    remark(
        tally.duplicates,
        "session",
        "left out as a copy of another (`headstart replay` and `headstart trace convert` keep \
         them with --keep-duplicates)",
    );
    remark(
        tally.moved,
        "request",
        "earlier than the one before in the file, and moved to its time",
    );
    let text = format!(
        "with blocks for more than twice the prompt: figures in tokens will be wrong; is a block \
         {} tokens (--block-tokens)?",
        info.block_tokens
    );
    remark(tally.oversized, "request", &text);
    let text = format!(
        "with a prompt more than twice as long as its blocks: figures in tokens will be wrong; \
         is a block {} tokens (--block-tokens)?",
        info.block_tokens
    );
    remark(tally.undersized, "request", &text);
    remarks
}
