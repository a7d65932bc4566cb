//! Traffic after "KVCache Cache in the Wild" (USENIX ATC'25, arXiv 2506.02634), which describes a
//! to-consumer trace (A) and a to-business trace (B), each two hours in blocks of 16 tokens.
//!
//! What the study says, and what comes out here (seeds 1 to 3; checked in `tests/synth/atc25.rs`).
//! Turns and prompts are those of conversations that begin in the first quarter of the run:
//!
//! | figure, trace A | study | `atc25-exponential` | `atc25-lognormal` |
//! |---|---|---|---|
//! | types | text 78 %, search, image, file | the same | the same |
//! | conversations of one turn | 54 % | 55 % | 54 to 55 % |
//! | turns, median and 90th percentile | 1, 5 | 1, 5 | 1, 5 |
//! | probability of a next turn, first and later | 0.5, 0.8 | 0.45, 0.62 rising to 0.8 | the same |
//! | prompt tokens, one turn and several | 973, 5,953 | 960, 5,600 | 960, 6,090 |
//! | block reuses within 10 minutes | 80 % | 85 to 86 % | 93 to 94 % |
//! | ideal block hit rate | 62 % | 60 % | 63 % |
//! | reuses by the 10 % most reused blocks | 77 % | 55 to 56 % | 54 % |
//! | hits by conversations of one turn | about half | 3 to 4 % | 2 to 3 % |
//!
//! | figure, trace B | study | `atc25-api` |
//! |---|---|---|
//! | hits by single-turn requests | 97 % | 97 % |
//! | ideal block hit rate | 54 % | 54 % |
//! | block reuses within 10 s | 80 % | 81 % |
//!
//! The figures of A do not all fit together under one reading. Here 54 % are conversations, not
//! requests, and the mean prompts are taken over their requests; then conversations of one turn
//! do not even hold half of the tokens that hit. A constant 0.8 would give a 90th percentile of 8
//! turns, so the probability rises to 0.8 by turn.
//!
//! | number | source |
//! |---|---|
//! | text 78 % | the study |
//! | log-normal gaps, μ 4.82, σ 1.25 | Bailian fit, in SAECache (arXiv 2605.18825) |
//! | answers of 430 tokens | mean of the trace that the study's code was tested on (vLLM, 22236) |
//! | 10 % search, 6 % image, 6 % file | our choice: the study names the types, not their shares |
//! | probabilities by type, their rise by turn | our choice, to meet the study's means |
//! | factors on gaps by type and turn | our choice: the study says only that classes differ |
//! | mean of the exponential gaps | our choice, between 80 % of reuses and of gaps in 10 minutes |
//! | lengths of questions, system prompts, spread | our choice, to meet the mean prompts |
//! | share of rewritten turns | our choice, to meet the ideal hit rate |
//! | 5 % of requests sent again unchanged | our choice |
//! | bursts: 8 requests, gap median 2.2 s, lengths | our choice, to meet B's figures |
//! | when and how behaviour drifts, how labels lie | our choice |

use super::super::bursts::Bursts;
use super::super::conversations::{Conversations, Labels, RequestType};
use super::super::draw::Gap;
use super::super::prompt::Opening;
use super::super::stream::Stream;
use super::{around, steps, system_prompt};

/// Trace A, with labels that are true and classes that stay as they are.
pub(super) fn consumer(gap: Gap) -> Stream {
    Stream::Conversations(conversations(gap))
}

/// Trace A with exponential gaps, whose classes exchange their behaviour.
pub(super) fn drifting() -> Stream {
    Stream::Conversations(Conversations {
        changes_at: vec![0.3, 0.5, 0.65, 0.8],
        ..conversations(Gap::exponential())
    })
}

/// Trace A with exponential gaps and `labels`.
pub(super) fn labelled(labels: Labels) -> Stream {
    Stream::Conversations(Conversations { labels, ..conversations(Gap::exponential()) })
}

fn conversations(gap: Gap) -> Conversations {
    Conversations {
        starts_per_s: 1.0,
        opening: Opening::prompts(20, 1.0, system_prompt(270.0)),
        types: vec![
            kind("text", 0.78, [520.0, 1_150.0, 0.28], 1.0, &TEXT),
            kind("search", 0.10, [900.0, 1_700.0, 0.5], 0.5, &SEARCH),
            kind("image", 0.06, [900.0, 1_100.0, 0.25], 1.5, &IMAGE),
            kind("file", 0.06, [3_000.0, 1_400.0, 0.25], 2.5, &FILE),
        ],
        gap,
        changes_at: Vec::new(),
        labels: Labels::True,
        context_tokens: 131_072,
    }
}

/// Probability of another turn after turns 1, 2, … 6 and later.
const TEXT: [f64; 6] = [0.45, 0.62, 0.66, 0.70, 0.74, 0.80];
const SEARCH: [f64; 6] = [0.35, 0.50, 0.55, 0.60, 0.65, 0.70];
const IMAGE: [f64; 6] = [0.50, 0.60, 0.62, 0.64, 0.66, 0.70];
const FILE: [f64; 6] = [0.65, 0.75, 0.78, 0.80, 0.82, 0.85];

/// Factor on a type's gap after turns 1, 2, … 6 and later.
const GAP_BY_TURN: [f64; 6] = [1.3, 1.1, 0.95, 0.8, 0.7, 0.6];

/// A type: `lengths` are the first question, later ones and the share of rewritten turns.
fn kind(name: &str, weight: f64, lengths: [f64; 3], gap: f64, p_next: &[f64]) -> RequestType {
    RequestType {
        name: name.to_owned(),
        weight,
        question: around(lengths[0]),
        follow_up: around(lengths[1]),
        answer: around(430.0),
        rewrite: lengths[2],
        repeat: 0.05,
        steps: steps(p_next, &GAP_BY_TURN.map(|turn| turn * gap)),
    }
}

/// Trace B: bursts, and now and then a conversation.
pub(super) fn business() -> Vec<Stream> {
    let bursts = Stream::Bursts(Bursts {
        starts_per_s: 1.0,
        size: 8.0,
        gap: Gap::LogNormal { mu: 0.8, sigma: 1.5 },
        template: around(600.0),
        payload: around(373.0),
        answer: around(430.0),
        context_tokens: 32_768,
    });
    let mut few = conversations(Gap::exponential());
    few.types = vec![kind("api", 1.0, [520.0, 1_150.0, 0.0], 1.0, &TEXT)];
    few.starts_per_s = 0.004 * bursts.requests_per_s();
    vec![bursts, Stream::Conversations(few)]
}

/// As many requests of A as of B.
pub(super) fn both() -> Vec<Stream> {
    let mut streams = business();
    let rate: f64 = streams.iter().map(Stream::requests_per_s).sum();
    let mut consumer = consumer(Gap::exponential());
    consumer.scale_rate(rate / consumer.requests_per_s());
    streams.push(consumer);
    streams
}
