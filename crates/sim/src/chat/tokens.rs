//! Made-up tokens: a prompt's content without its text.
//!
//! A token is a function of the conversation and the position in it. A later prompt therefore
//! repeats the earlier prompts and answers exactly, a preempted answer comes out the same, and
//! no state is kept. Two conversations share blocks only where one's prompt begins with the
//! other's tokens.

use headstart_core::{SeqId, SessionId, TokenId};
use headstart_trace::characterize::stack::mix;

/// Bits of a sequence's id that number the request within its conversation.
const TURN_BITS: u32 = 16;

/// Id of the request number `turn` (from 0) of `session`.
pub(crate) fn sequence(session: SessionId, turn: u16) -> SeqId {
    SeqId(session.0 << TURN_BITS | u64::from(turn))
}

/// The conversation and the number of the request that `seq` names.
pub(crate) fn parts(seq: SeqId) -> (SessionId, u16) {
    let turn = seq.0 & ((1 << TURN_BITS) - 1);
    (SessionId(seq.0 >> TURN_BITS), turn as u16)
}

/// The token at `position` of the conversation that `seq` belongs to.
pub(crate) fn of_sequence(seq: SeqId, position: usize) -> TokenId {
    token(parts(seq).0, position)
}

/// Leading tokens of a session's prompts.
#[derive(Clone, Copy)]
pub(crate) struct SessionPrefix {
    pub(crate) session: SessionId,
    /// Its length in tokens.
    pub(crate) tokens: usize,
}

/// A prompt of `length` tokens: `prefix`, then those of `session`.
pub(crate) fn forked(prefix: SessionPrefix, session: SessionId, length: usize) -> Vec<TokenId> {
    let owner = |position| if position < prefix.tokens { prefix.session } else { session };
    (0..length).map(|position| token(owner(position), position)).collect()
}

/// The token at `position` of `session`.
pub(crate) fn token(session: SessionId, position: usize) -> TokenId {
    // Mixed twice, so that neighbouring sessions share no tokens at neighbouring positions.
    let mixed = mix(mix(session.0) ^ position as u64);
    (mixed >> 32) as TokenId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_prompt_begins_with_the_earlier_one_and_its_answer() {
        let session = SessionId(5);
        let prefix = SessionPrefix { session: SessionId(0), tokens: 4 };
        let prompt = |length| forked(prefix, session, length);
        let later = prompt(60);
        assert_eq!(later[..20], prompt(20));
        assert_eq!(later[30], of_sequence(sequence(session, 3), 30));
        assert_eq!(parts(sequence(session, 3)), (session, 3));
    }

    #[test]
    fn conversations_share_what_they_fork_and_nothing_else() {
        let prefix = SessionPrefix { session: SessionId(9), tokens: 8 };
        let prompt = |number| forked(prefix, SessionId(number), 1_000);
        let (one, other) = (prompt(1), prompt(2));
        assert_eq!(one[..8], other[..8]);
        let equal = one.iter().zip(&other).filter(|(a, b)| a == b);
        assert_eq!(equal.count(), 8);
    }
}
