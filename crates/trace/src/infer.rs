//! Sessions, turns and types for traces that name none, by prefix containment.
//!
//! A conversation sends its history again with each turn, so a request that extends the whole
//! blocks of an earlier one is taken for its next turn:
//!
//! ```text
//! earlier   0 1 2 3 x        x: the last block; if it is partial, it gets another id later
//! later     0 1 2 3 4 5 y    holds 3, the earlier one's end: the same session, one turn later
//! other     0 1 8 z          holds no end: a session of its own
//! ```
//!
//! An id names a block *and its whole prefix*, so holding an end is containing the prefix. Of
//! several ends the deepest decides. What it cannot know, and how it errs:
//!
//! - Sessions are counted below what they share. An end in the first block is a system prompt,
//!   not a turn; so is one that more than [`BRANCHES_MAX`] different prompts go on from.
//! - Two users with the same first prompt are one session; a chat whose history was rewritten
//!   is two. A prompt sent again unchanged is the same turn.
//! - Beyond [`ENDS_MAX`] ends the oldest are forgotten, and their conversations count as new.
//!
//! The type says how a request continues what came before it: `new` (from nothing),
//! `follow-up` (the next turn), `repeat` (the same prompt again: retries, several answers) or
//! `template` (from a shared prompt: an application's calls). Nothing later is looked at: whether
//! a conversation continues is not a type, because a class that knew it would flatter a policy.
//!
//! Source: the heuristic by which Mooncake's conversation trace has 8,057 linked sessions.

use std::collections::BTreeMap;

use headstart_core::{Run, SessionId, TraceRequest};

use crate::{Provenance, TraceInfo};

/// Different next blocks behind one end, beyond which it is a shared prompt. Users who edit and
/// retry were seen to make 12.
pub const BRANCHES_MAX: usize = 16;

/// Ends held: half an hour of 300 requests a second, some 60 MiB.
pub const ENDS_MAX: usize = 1 << 19;

/// The types that are inferred.
pub const TYPES: [&str; 4] = ["new", "follow-up", "repeat", "template"];

/// Fewest blocks of a prefix that make a turn.
const DEPTH_MIN: usize = 2;

/// Names sessions and turns as requests come by, in order.
#[derive(Debug)]
pub struct Inference {
    fills_sessions: bool,
    fills_turns: bool,
    /// The indices of [`TYPES`], where types are inferred.
    types: Option<[u16; 4]>,
    next_session: u64,
    ends: Ends,
}

/// The link of a request to earlier ones; numbered as [`TYPES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestLink {
    New,
    FollowUp,
    Repeat,
    Template,
}

/// The last whole block of an earlier prompt.
#[derive(Debug)]
struct PromptEnd {
    session: SessionId,
    turn: u16,
    /// The prompt's last block and its length, by which the same prompt is known.
    prompt: (u64, Option<u32>),
    /// Blocks that followed this one.
    branches: Vec<u64>,
}

impl Inference {
    /// Fills in what `info` says is absent, and says so there. `None` where sessions and turns
    /// are given, or where the trace has no blocks to tell by. Types are inferred with sessions
    /// only: a trace that names its sessions has one kind of request for all it says.
    #[must_use]
    pub fn new(info: &mut TraceInfo) -> Option<Self> {
        let is_absent = |provenance| provenance == Provenance::Absent;
        let fills_sessions = is_absent(info.sessions);
        let fills_turns = is_absent(info.turns);
        if info.block_tokens == 0 || !(fills_sessions || fills_turns) {
            return None;
        }
        if fills_sessions {
            info.sessions = Provenance::Inferred;
        }
        if fills_turns {
            info.turns = Provenance::Inferred;
        }
        let fills_types = fills_sessions && is_absent(info.types_from);
        if fills_types {
            info.types_from = Provenance::Inferred;
        }
        Some(Self {
            fills_sessions,
            fills_turns,
            types: fills_types.then(|| TYPES.map(|name| info.type_index(name))),
            next_session: 0,
            ends: Ends::default(),
        })
    }

    /// Sets what `request` lacks: its session, its turn, its type.
    pub fn assign(&mut self, request: &mut TraceRequest) {
        let (link, parent) = self.link(request);
        let (session, turn) = match (link, parent) {
            (RequestLink::Repeat, Some((session, turn))) => (session, turn),
            (_, Some((session, turn))) => (session, turn.saturating_add(1)),
            (_, None) => (self.fresh_session(), 1),
        };
        // A repeat as well, so the next turn follows the latest request with this end.
        self.remember(request, session, turn);
        if self.fills_sessions {
            request.session = Some(session);
        }
        if self.fills_turns {
            request.turn = turn;
        }
        if let Some(types) = self.types {
            request.request_type = types[link as usize];
        }
    }

    fn fresh_session(&mut self) -> SessionId {
        self.next_session += 1;
        SessionId(self.next_session - 1)
    }

    /// Returns the link of `request` to an earlier one, and that one's session and turn.
    fn link(&mut self, request: &TraceRequest) -> (RequestLink, Option<(SessionId, u16)>) {
        let Some((id, next)) = self.ends.deepest(request) else {
            return (RequestLink::New, None);
        };
        // `deepest` has just found it, so this is never taken.
        let Some(end) = self.ends.get_mut(id) else {
            return (RequestLink::New, None);
        };
        // One beyond the limit is enough to tell, which bounds the list.
        if let Some(next) = next
            && end.branches.len() <= BRANCHES_MAX
            && !end.branches.contains(&next)
        {
            end.branches.push(next);
        }
        // A template stays one, because `remember` keeps the branches of an end.
        if end.branches.len() > BRANCHES_MAX {
            return (RequestLink::Template, None);
        }
        let is_same = end.prompt == prompt_of(request);
        let link = if is_same { RequestLink::Repeat } else { RequestLink::FollowUp };
        (link, Some((end.session, end.turn)))
    }

    /// Keeps where the whole blocks of `request` end.
    fn remember(&mut self, request: &TraceRequest, session: SessionId, turn: u16) {
        let blocks = &request.blocks;
        // The last block may be partial, so the end is the block before it.
        if blocks.len() <= DEPTH_MIN {
            return;
        }
        let runs = blocks.runs();
        let Some(end) = second_last(runs) else {
            return;
        };
        // The end gets a new request, but what followed it stays known.
        let branches = self.ends.remove(end).map_or(Vec::new(), |end| end.branches);
        let end_of = PromptEnd { session, turn, prompt: prompt_of(request), branches };
        self.ends.insert(end, end_of);
    }
}

/// The ends, by their block. What is used stays: when the younger half is full, the older one is
/// forgotten.
#[derive(Debug, Default)]
struct Ends {
    younger: BTreeMap<u64, PromptEnd>,
    older: BTreeMap<u64, PromptEnd>,
}

impl Ends {
    /// The deepest block of `request` that is an end, and the block behind it. One look-up per
    /// run, not per block.
    fn deepest(&self, request: &TraceRequest) -> Option<(u64, Option<u64>)> {
        let mut behind = None;
        let mut depth = request.blocks.len();
        for run in request.blocks.runs().iter().rev() {
            depth -= run.count as usize;
            // Blocks above the least depth are no ends; only the first run has such blocks.
            let first = run.start + (DEPTH_MIN - 1).saturating_sub(depth) as u64;
            let last = last_id(run);
            if first <= last {
                let in_run = |ends: &BTreeMap<u64, PromptEnd>| {
                    ends.range(first..=last).next_back().map(|(id, _)| *id)
                };
                // Ids of a run grow with depth, so the larger of the two is the deeper.
                if let Some(id) = in_run(&self.younger).max(in_run(&self.older)) {
                    let next = if id < last { Some(id + 1) } else { behind };
                    return Some((id, next));
                }
            }
            behind = Some(run.start);
        }
        None
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut PromptEnd> {
        match self.younger.get_mut(&id) {
            Some(end) => Some(end),
            None => self.older.get_mut(&id),
        }
    }

    fn remove(&mut self, id: u64) -> Option<PromptEnd> {
        let younger = self.younger.remove(&id);
        younger.or_else(|| self.older.remove(&id))
    }

    fn insert(&mut self, id: u64, end: PromptEnd) {
        if self.younger.len() >= ENDS_MAX / 2 {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(id, end);
    }
}

/// The last block and the length.
fn prompt_of(request: &TraceRequest) -> (u64, Option<u32>) {
    let last = request.blocks.runs().last().map_or(0, last_id);
    (last, request.input_tokens)
}

fn last_id(run: &Run) -> u64 {
    run.start + u64::from(run.count - 1)
}

/// The last block but one.
fn second_last(runs: &[Run]) -> Option<u64> {
    let (last, before) = runs.split_last()?;
    if last.count > 1 {
        return Some(last_id(last) - 1);
    }
    before.last().map(last_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each prompt with the type, session and turn expected of it.
    fn check(prompts: &[(&[u64], &str, u64, u16)]) {
        let mut info = TraceInfo::new(16);
        let mut inference = Inference::new(&mut info).expect("all is absent");
        assert_eq!(info.sessions, Provenance::Inferred);
        for (index, (blocks, kind, session, turn)) in prompts.iter().enumerate() {
            let mut request = TraceRequest {
                blocks: blocks.iter().copied().collect(),
                ..TraceRequest::default()
            };
            inference.assign(&mut request);
            let got = (request.session, request.turn);
            assert_eq!(got, (Some(SessionId(*session)), *turn), "prompt {index}");
            let got = &info.types[usize::from(request.request_type)];
            assert_eq!(got, kind, "prompt {index}");
        }
    }

    #[test]
    fn a_prompt_that_extends_another_is_its_next_turn() {
        check(&[
            (&[0, 1, 2, 9], "new", 0, 1),
            (&[0, 1, 5, 6], "new", 1, 1),
            (&[0, 1, 2, 3, 4, 10], "follow-up", 0, 2),
            (&[0, 1, 5, 7, 8], "follow-up", 1, 2),
            (&[0, 1, 2, 3, 4, 11, 12], "follow-up", 0, 3),
        ]);
    }

    #[test]
    fn a_prompt_sent_again_is_the_same_turn() {
        check(&[
            (&[0, 1, 2, 9], "new", 0, 1),
            (&[0, 1, 2, 9], "repeat", 0, 1),
            (&[0, 1, 2, 8], "follow-up", 0, 2),
        ]);
    }

    #[test]
    fn what_is_shared_at_the_root_links_nobody() {
        check(&[
            (&[0, 9], "new", 0, 1),
            (&[0, 8], "new", 1, 1),
            (&[0, 1, 7], "new", 2, 1),
            (&[], "new", 3, 1),
        ]);
    }

    /// A short question under a long system prompt ends inside of it, once.
    #[test]
    fn a_prompt_that_many_go_on_from_is_shared() {
        let branches = BRANCHES_MAX as u64;
        let prompt = |branch: u64| vec![0, 1, 2, 3, 100 + 2 * branch, 1000];
        let mut prompts = vec![(vec![0, 1, 2, 3, 4], "new", 0, 1)];
        prompts.extend((0..branches).map(|branch| (prompt(branch), "follow-up", 0, 2)));
        prompts.extend((0..4).map(|more| (prompt(branches + more), "template", 1 + more, 1)));
        let prompts = prompts.iter().map(|(b, k, s, t)| (&b[..], *k, *s, *t));
        check(&prompts.collect::<Vec<_>>());
    }

    #[test]
    fn only_what_is_absent_is_filled_in() {
        let mut info = TraceInfo { sessions: Provenance::Given, ..TraceInfo::new(16) };
        let mut inference = Inference::new(&mut info).expect("turns are absent");
        assert_eq!((info.sessions, info.turns), (Provenance::Given, Provenance::Inferred));
        let mut request = TraceRequest { session: Some(SessionId(77)), ..TraceRequest::default() };
        inference.assign(&mut request);
        assert_eq!((request.session, request.turn), (Some(SessionId(77)), 1));
        assert_eq!((request.request_type, info.types.len()), (0, 1));
        info.turns = Provenance::Given;
        assert!(Inference::new(&mut info).is_none());
        assert!(Inference::new(&mut TraceInfo::new(0)).is_none());
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let mut ends = Ends::default();
        let end = || PromptEnd {
            session: SessionId(0),
            turn: 1,
            prompt: (0, None),
            branches: Vec::new(),
        };
        for id in 0..2 * ENDS_MAX as u64 {
            ends.insert(id, end());
            // Taken out and put back, as a conversation that continues does.
            let used = ends.remove(0).expect("it is used all the time");
            ends.insert(0, used);
            assert!(ends.younger.len() + ends.older.len() <= ENDS_MAX);
        }
        assert!(ends.get_mut(1).is_none());
    }
}
