//! Count of distinct sessions of a trace, in bounded memory.

use std::collections::HashSet;
use std::fmt;

use headstart_core::SessionId;
use headstart_core::figures::counted;

/// Sessions told apart, some 100 MiB; beyond, the count says "more than".
const SESSIONS_MAX: usize = 4 << 20;

/// Counts the distinct sessions met so far.
#[derive(Default)]
pub(super) struct SessionCounter {
    met: HashSet<SessionId>,
    is_more: bool,
}

impl SessionCounter {
    /// Takes note of a request's session.
    pub(super) fn count(&mut self, session: Option<SessionId>) {
        let Some(session) = session else {
            return;
        };
        if self.met.len() < SESSIONS_MAX {
            self.met.insert(session);
        } else if !self.met.contains(&session) {
            // Only a session that is not remembered makes the count a lower bound.
            self.is_more = true;
        }
    }
}

impl fmt::Display for SessionCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.is_more { "more than " } else { "" };
        write!(f, "{more}{}", counted(self.met.len() as u64, "session"))
    }
}
