//! Chats that need no data: applications with a system prompt each, conversations of several
//! turns that come in between one another.
//!
//! Every turn's prompt is the whole conversation so far: system prompt, then questions and
//! answers. Popularity of applications falls like 1/rank; everything else is drawn evenly.

use headstart_core::{BlockRuns, Nanos, Rng, Run, TraceRequest};

/// Tokens per id: the smallest block that is measured, so that any prefix can be shared.
pub(super) const ID_TOKENS: u32 = 16;

const CONVERSATIONS: usize = 4_000;
const APPLICATIONS: usize = 40;
/// Bounds of what is drawn, in ids of 16 tokens: system prompts 256 to 2,048 tokens, what one
/// turn adds 128 to 1,024.
const SYSTEM_IDS: (usize, usize) = (16, 128);
const TURN_IDS: (usize, usize) = (8, 64);
const MAX_TURNS: usize = 9;
/// Conversations that are open at one time.
const OPEN: usize = 200;
/// Time between two requests of the service, nanoseconds.
const GAP: u64 = 100_000_000;

struct Conversation {
    prompt: BlockRuns,
    turns_left: usize,
}

/// The requests, in order of arrival.
pub(super) fn requests(seed: u64) -> Vec<TraceRequest> {
    let mut rng = Rng::new(seed);
    let mut ids = Ids { next: 0 };
    let mut system = || ids.take(between(&mut rng, SYSTEM_IDS));
    let systems: Vec<Run> = (0..APPLICATIONS).map(|_| system()).collect();
    let mut open: Vec<Conversation> = Vec::new();
    let mut requests = Vec::new();
    let mut started = 0;
    while started < CONVERSATIONS || !open.is_empty() {
        while started < CONVERSATIONS && open.len() < OPEN {
            started += 1;
            let mut prompt = BlockRuns::default();
            prompt.push_run(systems[popular(&mut rng)]);
            let turns_left = 1 + rng.below(MAX_TURNS);
            open.push(Conversation { prompt, turns_left });
        }
        let at = rng.below(open.len());
        let conversation = &mut open[at];
        let turn = ids.take(between(&mut rng, TURN_IDS));
        conversation.prompt.push_run(turn);
        conversation.turns_left -= 1;
        requests.push(TraceRequest {
            arrival: Nanos(requests.len() as u64 * GAP),
            blocks: conversation.prompt.clone(),
            input_tokens: Some(conversation.prompt.len() as u32 * ID_TOKENS),
            ..TraceRequest::default()
        });
        if conversation.turns_left == 0 {
            open.swap_remove(at);
        }
    }
    requests
}

struct Ids {
    next: u64,
}

impl Ids {
    /// A fresh run, apart from the one before, so that runs do not join.
    fn take(&mut self, count: usize) -> Run {
        let start = self.next;
        self.next += count as u64 + 1;
        let count = count as u32;
        Run { start, count }
    }
}

fn between(rng: &mut Rng, (least, most): (usize, usize)) -> usize {
    least + rng.below(most - least + 1)
}

/// An application, the first ones most often: rank r with weight 1/(r + 1).
fn popular(rng: &mut Rng) -> usize {
    let mut weights = (1..=APPLICATIONS).map(|rank| 1.0 / rank as f64);
    let mut rest = rng.next_f64() * weights.clone().sum::<f64>();
    let found = weights.position(|weight| {
        rest -= weight;
        rest < 0.0
    });
    found.unwrap_or(APPLICATIONS - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn turns_extend_their_conversation_and_a_seed_repeats() {
        let requests = requests(3);
        assert_eq!(requests, super::requests(3));
        let mut seen: HashSet<Vec<Run>> = HashSet::new();
        let mut first_turns = 0;
        for request in &requests {
            let runs = request.blocks.runs();
            let is_first = runs.len() == 2;
            first_turns += usize::from(is_first);
            assert!(is_first || seen.contains(&runs[..runs.len() - 1]));
            seen.insert(runs.to_vec());
        }
        assert_eq!(first_turns, CONVERSATIONS);
        assert!(requests.len() > 4 * CONVERSATIONS);
    }
}
