//! Sessions and turns for traces that name none, by prefix containment.
//!
//! A conversation sends its history again with each turn, so a request that extends the whole
//! blocks of an earlier one is taken for its next turn:
//!
//! ```text
//! earlier   0 1 2 3 x        x: the last block, which may be partial and is then named anew
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
//! - Beyond [`ENDS_MAX`] ends the oldest are forgotten, and their conversations begin anew.
//!
//! Types are not inferred: whether a conversation goes on shows only later, and a class that
//! knows the future would flatter every policy.
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

/// Fewest blocks of a prefix that make a turn.
const DEPTH_MIN: usize = 2;

/// Names sessions and turns as requests come by, in order.
#[derive(Debug)]
pub struct Inference {
    fills_sessions: bool,
    fills_turns: bool,
    next_session: u64,
    ends: Ends,
}

/// The last whole block of an earlier prompt.
#[derive(Debug)]
struct End {
    session: SessionId,
    turn: u16,
    /// The prompt's last block and its length, by which the same prompt is known.
    prompt: (u64, Option<u32>),
    /// Blocks that followed this one.
    branches: Vec<u64>,
}

impl Inference {
    /// Fills in what `info` says is absent, and says so there. `None` where nothing is absent,
    /// or where the trace has no blocks to tell by.
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
        Some(Self {
            fills_sessions,
            fills_turns,
            next_session: 0,
            ends: Ends::default(),
        })
    }

    /// Sets what `request` lacks: its session, its turn or both.
    pub fn assign(&mut self, request: &mut TraceRequest) {
        let last = request.blocks.runs().last().map_or(0, last_id);
        let prompt = (last, request.input_tokens);
        let parent = self.parent(request);
        let (session, turn) = match parent {
            Some(end) if end.prompt == prompt => (end.session, end.turn),
            Some(end) => (end.session, end.turn.saturating_add(1)),
            None => (self.fresh_session(), 1),
        };
        self.remember(request, session, turn);
        if self.fills_sessions {
            request.session = Some(session);
        }
        if self.fills_turns {
            request.turn = turn;
        }
    }

    fn fresh_session(&mut self) -> SessionId {
        self.next_session += 1;
        SessionId(self.next_session - 1)
    }

    /// The request that `request` goes on from.
    fn parent(&mut self, request: &TraceRequest) -> Option<&End> {
        let (id, next) = self.ends.deepest(request)?;
        let end = self.ends.get_mut(id)?;
        if let Some(next) = next
            && end.branches.len() <= BRANCHES_MAX
            && !end.branches.contains(&next)
        {
            end.branches.push(next);
        }
        (end.branches.len() <= BRANCHES_MAX).then_some(end)
    }

    /// Keeps where the whole blocks of `request` end.
    fn remember(&mut self, request: &TraceRequest, session: SessionId, turn: u16) {
        let blocks = &request.blocks;
        if blocks.len() <= DEPTH_MIN {
            return;
        }
        let runs = blocks.runs();
        let (Some(last), Some(end)) = (runs.last(), second_last(runs)) else {
            return;
        };
        let branches = self.ends.remove(end).map_or(Vec::new(), |end| end.branches);
        let prompt = (last_id(last), request.input_tokens);
        let end_of = End {
            session,
            turn,
            prompt,
            branches,
        };
        self.ends.insert(end, end_of);
    }
}

/// The ends, by their block. What is used stays: when the younger half is full, the older one is
/// forgotten.
#[derive(Debug, Default)]
struct Ends {
    younger: BTreeMap<u64, End>,
    older: BTreeMap<u64, End>,
}

impl Ends {
    /// The deepest block of `request` that is an end, and the block behind it. One look-up per
    /// run, not per block.
    fn deepest(&self, request: &TraceRequest) -> Option<(u64, Option<u64>)> {
        let mut behind = None;
        let mut depth = request.blocks.len();
        for run in request.blocks.runs().iter().rev() {
            depth -= run.count as usize;
            let first = run.start + (DEPTH_MIN - 1).saturating_sub(depth) as u64;
            let last = last_id(run);
            if first <= last {
                let in_run = |ends: &BTreeMap<u64, End>| {
                    ends.range(first..=last).next_back().map(|(id, _)| *id)
                };
                if let Some(id) = in_run(&self.younger).max(in_run(&self.older)) {
                    let next = if id < last { Some(id + 1) } else { behind };
                    return Some((id, next));
                }
            }
            behind = Some(run.start);
        }
        None
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut End> {
        match self.younger.get_mut(&id) {
            Some(end) => Some(end),
            None => self.older.get_mut(&id),
        }
    }

    fn remove(&mut self, id: u64) -> Option<End> {
        let younger = self.younger.remove(&id);
        younger.or_else(|| self.older.remove(&id))
    }

    fn insert(&mut self, id: u64, end: End) {
        if self.younger.len() >= ENDS_MAX / 2 {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(id, end);
    }
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

    /// Each prompt with the session and turn expected of it.
    fn check(prompts: &[(&[u64], u64, u16)]) {
        let mut info = TraceInfo::new(16);
        let mut inference = Inference::new(&mut info).expect("all is absent");
        assert_eq!(info.sessions, Provenance::Inferred);
        for (index, (blocks, session, turn)) in prompts.iter().enumerate() {
            let mut request = TraceRequest {
                blocks: blocks.iter().copied().collect(),
                ..TraceRequest::default()
            };
            inference.assign(&mut request);
            let got = (request.session, request.turn);
            assert_eq!(got, (Some(SessionId(*session)), *turn), "prompt {index}");
        }
    }

    #[test]
    fn a_prompt_that_extends_another_is_its_next_turn() {
        check(&[
            (&[0, 1, 2, 9], 0, 1),
            (&[0, 1, 5, 6], 1, 1),
            (&[0, 1, 2, 3, 4, 10], 0, 2),
            (&[0, 1, 5, 7, 8], 1, 2),
            (&[0, 1, 2, 3, 4, 11, 12], 0, 3),
        ]);
    }

    #[test]
    fn a_prompt_sent_again_is_the_same_turn() {
        check(&[
            (&[0, 1, 2, 9], 0, 1),
            (&[0, 1, 2, 9], 0, 1),
            (&[0, 1, 2, 8], 0, 2),
        ]);
    }

    #[test]
    fn what_is_shared_at_the_root_links_nobody() {
        check(&[
            (&[0, 9], 0, 1),
            (&[0, 8], 1, 1),
            (&[0, 1, 7], 2, 1),
            (&[], 3, 1),
        ]);
    }

    /// A short question under a long system prompt ends inside of it, once.
    #[test]
    fn a_prompt_that_many_go_on_from_is_shared() {
        let mut prompts = vec![(vec![0, 1, 2, 3, 4], 0, 1)];
        let branches = BRANCHES_MAX as u64 + 4;
        for branch in 0..branches {
            let prompt = vec![0, 1, 2, 3, 100 + 2 * branch, 1000];
            let is_counted = branch < BRANCHES_MAX as u64;
            // The first prompt went on with block 4, which it alone holds and is no end.
            let (session, turn) = if is_counted {
                (0, 2)
            } else {
                (1 + branch - BRANCHES_MAX as u64, 1)
            };
            prompts.push((prompt, session, turn));
        }
        let prompts: Vec<_> = prompts.iter().map(|(b, s, t)| (&b[..], *s, *t)).collect();
        check(&prompts);
    }

    #[test]
    fn only_what_is_absent_is_filled_in() {
        let mut info = TraceInfo {
            sessions: Provenance::Given,
            ..TraceInfo::new(16)
        };
        let mut inference = Inference::new(&mut info).expect("turns are absent");
        assert_eq!(
            (info.sessions, info.turns),
            (Provenance::Given, Provenance::Inferred)
        );
        let mut request = TraceRequest {
            session: Some(SessionId(77)),
            ..TraceRequest::default()
        };
        inference.assign(&mut request);
        assert_eq!((request.session, request.turn), (Some(SessionId(77)), 1));
        info.turns = Provenance::Given;
        assert!(Inference::new(&mut info).is_none());
        assert!(Inference::new(&mut TraceInfo::new(0)).is_none());
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let mut ends = Ends::default();
        let end = || End {
            session: SessionId(0),
            turn: 1,
            prompt: (0, None),
            branches: Vec::new(),
        };
        for id in 0..2 * ENDS_MAX as u64 {
            ends.insert(id, end());
            // Taken out and put back, as a conversation that goes on does.
            let used = ends.remove(0).expect("it is used all the time");
            ends.insert(0, used);
            assert!(ends.younger.len() + ends.older.len() <= ENDS_MAX);
        }
        assert!(ends.get_mut(1).is_none());
    }
}
