//! Counts of a replay.

use std::collections::BTreeMap;

use headstart_core::TraceRequest;
use headstart_core::stats::HitCount;
use headstart_trace::characterize::prompt_tokens;

/// Turns from here on are one class.
pub const LAST_TURN: u16 = 10;

/// Hits of one policy at one capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayOutcome {
    /// The first requests, as many as were asked to be counted apart.
    pub cold: HitTally,
    /// All later requests.
    pub steady: HitTally,
    /// All requests, per class.
    pub classes: BTreeMap<RequestClass, HitTally>,
    /// Blocks that became resident.
    pub insertions: u64,
    /// Blocks that were evicted.
    pub evictions: u64,
    /// Number of the first request for which there was no room without an eviction; `None` while
    /// there is room.
    pub full_at: Option<u32>,
}

/// A kind of request: (type, turn).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestClass {
    /// Index into the trace's list of type names.
    pub request_type: u16,
    /// Turn, at most [`LAST_TURN`], which stands for all from there on.
    pub turn: u16,
}

/// Look-ups and hits of some requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitTally {
    /// Number of requests.
    pub requests: u64,
    /// In blocks, a partial last one included.
    pub blocks: HitCount,
    /// In prompt tokens.
    pub tokens: HitCount,
}

impl ReplayOutcome {
    /// Cold and steady together.
    #[must_use]
    pub fn all(&self) -> HitTally {
        let mut all = self.cold;
        all.add(&self.steady);
        all
    }

    pub(crate) fn record(
        &mut self,
        request: &TraceRequest,
        hits: usize,
        block_tokens: u32,
        is_cold: bool,
    ) {
        let tally = HitTally::of(request, hits, block_tokens);
        let phase = if is_cold { &mut self.cold } else { &mut self.steady };
        phase.add(&tally);
        let class =
            RequestClass { request_type: request.request_type, turn: request.turn.min(LAST_TURN) };
        self.classes.entry(class).or_default().add(&tally);
    }
}

impl HitTally {
    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.blocks.add(other.blocks);
        self.tokens.add(other.tokens);
    }

    /// One request. A last block may be partial, so tokens are cut at the prompt's length.
    fn of(request: &TraceRequest, hits: usize, block_tokens: u32) -> Self {
        let input = prompt_tokens(request, block_tokens) as usize;
        let block_tokens = block_tokens as usize;
        let mut tally = Self { requests: 1, ..Self::default() };
        tally.blocks.record(request.blocks.len(), hits);
        // Without a block size hits cannot be counted in tokens.
        if block_tokens > 0 {
            tally.tokens.record(input, (hits * block_tokens).min(input));
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input_tokens: Option<u32>, hits: usize, expected: (u64, u64)) {
        let request =
            TraceRequest { blocks: (0..3).collect(), input_tokens, ..TraceRequest::default() };
        let tally = HitTally::of(&request, hits, 16);
        assert_eq!((tally.tokens.lookups, tally.tokens.hits), expected);
        assert_eq!((tally.blocks.lookups, tally.blocks.hits), (3, hits as u64));
    }

    #[test]
    fn tokens_are_cut_at_the_prompt() {
        check(None, 3, (48, 48));
        check(Some(40), 3, (40, 40));
        check(Some(40), 2, (40, 32));
        check(Some(0), 1, (0, 0));
    }
}
