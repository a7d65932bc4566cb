//! A prompt's blocks as formats write them: ids, runs `[start, count]`, or both mixed.

use std::fmt;

use headstart_core::{BlockRuns, Run};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

/// Most blocks of one request: 67 million tokens in blocks of 16. Without a limit,
/// `[[0, 4000000000]]` in a line would cost an hour's work.
pub const BLOCKS_MAX: usize = 4 << 20;

/// Blocks read from `[1, 2, 3]`, `[[1, 3]]` or a mixture; runs stay runs.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PromptChain(pub(crate) BlockRuns);

impl<'de> Deserialize<'de> for PromptChain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ChainVisitor)
    }
}

impl Serialize for PromptChain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.runs().iter().map(|run| (run.start, run.count)))
    }
}

struct ChainVisitor;

impl<'de> Visitor<'de> for ChainVisitor {
    type Value = PromptChain;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of block ids or of runs [start, count]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<PromptChain, A::Error> {
        let mut blocks = BlockRuns::default();
        while let Some(ChainPiece(run)) = items.next_element()? {
            // The sum never passes the limit, so the subtraction cannot underflow.
            if run.count as usize > BLOCKS_MAX - blocks.len() {
                let message = format!("more than {BLOCKS_MAX} blocks in one request");
                return Err(A::Error::custom(message));
            }
            blocks.push_run(run);
        }
        Ok(PromptChain(blocks))
    }
}

/// One id or one run, whose ids fit 64 bits.
struct ChainPiece(Run);

impl<'de> Deserialize<'de> for ChainPiece {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PieceVisitor)
    }
}

struct PieceVisitor;

impl PieceVisitor {
    fn run<E: Error>(start: u64, count: u32) -> Result<ChainPiece, E> {
        // Everything that takes a run adds these two to find its end.
        match start.checked_add(u64::from(count)) {
            Some(_) => Ok(ChainPiece(Run { start, count })),
            None => Err(E::custom(format!("block id {start} is too large"))),
        }
    }
}

impl<'de> Visitor<'de> for PieceVisitor {
    type Value = ChainPiece;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block id (a whole number from 0) or a run [start, count]")
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<ChainPiece, E> {
        Self::run(id, 1)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<ChainPiece, A::Error> {
        let short = || A::Error::custom("a run is [start, count]");
        let start = pair.next_element()?.ok_or_else(short)?;
        let count = pair.next_element()?.ok_or_else(short)?;
        // Three numbers are a list of ids with a bracket too many.
        match pair.next_element::<u64>()? {
            None => Self::run(start, count),
            Some(_) => Err(short()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&[(u64, u32)], &str>) {
        match (serde_json::from_str::<PromptChain>(text), expected) {
            (Ok(PromptChain(blocks)), Ok(expected)) => {
                let runs: Vec<_> = blocks.runs().iter().map(|r| (r.start, r.count)).collect();
                assert_eq!(runs, expected, "{text}");
            }
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{text}: {error}");
            }
            (got, expected) => panic!("{text}: {got:?} against {expected:?}"),
        }
    }

    #[test]
    fn ids_and_runs_mean_the_same() {
        check("[]", Ok(&[]));
        check("[1, 2, 3, 9]", Ok(&[(1, 3), (9, 1)]));
        check("[[1, 3], [9, 1]]", Ok(&[(1, 3), (9, 1)]));
        check("[1, [2, 2], 9, [10, 0]]", Ok(&[(1, 3), (9, 1)]));
    }

    #[test]
    fn what_cannot_be_blocks_is_refused() {
        check("[-1]", Err("a whole number from 0"));
        check("[1.5]", Err("a whole number from 0"));
        check("[[1]]", Err("a run is [start, count]"));
        check("[[1, 2, 3]]", Err("a run is [start, count]"));
        check("[[1, -2]]", Err("u32"));
        check("7", Err("a list of block ids"));
        check("[18446744073709551615]", Err("is too large"));
        check("[[18446744073709551615, 1]]", Err("is too large"));
    }

    #[test]
    fn a_short_text_cannot_ask_for_much() {
        check("[[0, 4194304]]", Ok(&[(0, 4 << 20)]));
        check("[[0, 4000000000]]", Err("more than 4194304 blocks"));
        check("[[0, 4194304], 7]", Err("more than 4194304 blocks"));
    }
}
