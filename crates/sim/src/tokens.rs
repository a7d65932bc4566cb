//! Made-up tokens: a prompt's content without its text.
//!
//! A token is a function of the conversation and the position in it. A later prompt therefore
//! repeats the earlier prompts and answers exactly, a preempted answer comes out the same, and
//! no state is kept. Two conversations share blocks only where one's prompt begins with the
//! other's tokens.

use headstart_core::{BlockHasher, BlockIdentity, SeqId, SessionId, TokenId};
use headstart_trace::characterize::stack::mix;

/// Bits of a sequence's id that number the request within its conversation.
const TURN_BITS: u32 = 16;

/// Id of the request number `turn` (from 0) of `session`.
#[must_use]
pub fn sequence(session: SessionId, turn: u16) -> SeqId {
    SeqId(session.0 << TURN_BITS | u64::from(turn))
}

/// The conversation and the number of the request that `seq` names.
#[must_use]
pub fn parts(seq: SeqId) -> (SessionId, u16) {
    let turn = seq.0 & ((1 << TURN_BITS) - 1);
    (SessionId(seq.0 >> TURN_BITS), turn as u16)
}

/// The token at `position` of the conversation that `seq` belongs to.
#[must_use]
pub fn of_sequence(seq: SeqId, position: usize) -> TokenId {
    token(parts(seq).0, position)
}

/// The token at `position` of `session`.
#[must_use]
pub fn token(session: SessionId, position: usize) -> TokenId {
    // Mixed twice, so that neighbouring sessions share no tokens at neighbouring positions.
    let mixed = mix(mix(session.0) ^ position as u64);
    (mixed >> 32) as TokenId
}

/// Names the blocks of a simulated engine.
#[must_use]
pub fn hasher(block_size: usize) -> BlockHasher {
    BlockHasher::new(&BlockIdentity {
        model: "simulated",
        weights_revision: "",
        kv_dtype: "",
        kv_layout: "",
        adapter: None,
        salt: None,
        block_size: block_size as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_continues_its_session() {
        let (session, other) = (SessionId(5), SessionId(6));
        let seq = sequence(session, 3);
        assert_eq!(parts(seq), (session, 3));
        assert_eq!(of_sequence(seq, 30), token(session, 30));
        assert!((0..1_000).all(|position| token(session, position) != token(other, position)));
    }
}
