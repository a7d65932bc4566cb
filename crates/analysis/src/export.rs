//! The traffic as an anonymous trace in the canonical form.
//!
//! Blocks and sessions get numbers in the order in which they are first met, so nothing of a
//! prompt, nor a hash of it, is left: only which blocks are the same. Times count from the first
//! request. What stays is when requests came, how long they and their answers were, and what they
//! shared.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use headstart_core::{Progress, SessionId, TraceRequest};
use headstart_trace::format::canonical::Writer;

use crate::traffic::LoggedTraffic;

/// Writes the trace; each request is a step of `progress`.
///
/// # Errors
/// When `out` fails.
pub fn write(out: impl Write, traffic: &LoggedTraffic, progress: &dyn Progress) -> io::Result<()> {
    let mut names = AnonymousIds::default();
    let mut writer = Writer::new(out, &traffic.info)?;
    for request in &traffic.requests {
        writer.write(&names.anonymous(request))?;
        progress.inc(1);
    }
    writer.finish().map(drop)
}

/// Numbers that replace block hashes and session ids, in the order of first use.
#[derive(Default)]
struct AnonymousIds {
    blocks: HashMap<u64, u64>,
    sessions: HashMap<SessionId, u64>,
}

impl AnonymousIds {
    fn anonymous(&mut self, request: &TraceRequest) -> TraceRequest {
        // A hash of a block would let a reader test a guessed prompt, so a number takes its place.
        let blocks = request.blocks.iter().map(|id| number(&mut self.blocks, id));
        let blocks = blocks.collect();
        let session = request.session.map(|session| SessionId(number(&mut self.sessions, session)));
        TraceRequest { blocks, session, ..request.clone() }
    }
}

fn number<K: Eq + Hash>(names: &mut HashMap<K, u64>, name: K) -> u64 {
    let next = names.len() as u64;
    *names.entry(name).or_insert(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_equal_stays() {
        let mut names = AnonymousIds::default();
        let request = |blocks: &[u64], session| TraceRequest {
            blocks: blocks.iter().copied().collect(),
            session: Some(SessionId(session)),
            ..TraceRequest::default()
        };
        let first = names.anonymous(&request(&[900, 7, 8000], 123_456));
        let second = names.anonymous(&request(&[900, 7, 55], 99));
        let ids = |request: &TraceRequest| request.blocks.iter().collect::<Vec<_>>();
        assert_eq!((ids(&first), ids(&second)), (vec![0, 1, 2], vec![0, 1, 3]));
        assert_eq!([first.session, second.session], [0, 1].map(|number| Some(SessionId(number))));
        assert_eq!(first.blocks.runs().len(), 1, "new blocks of a prompt are one run");
    }
}
