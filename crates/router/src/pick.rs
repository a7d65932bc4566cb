//! Third step of a choice: one of the scored candidates.
//!
//! | picker | rule |
//! |---|---|
//! | [`Best`] | the highest score; of equals the one that was chosen least recently |
//! | [`AnyBest`] | the highest score; of equals any |
//! | [`PowerOfTwo`] | two at random, of these the higher score; of equals the first |
//! | [`AtRandom`] | any |
//! | [`RoundRobin`] | the next by id after the last one chosen |
//! | [`SessionHash`] | the session's own order of preference, skipping the overloaded |
//!
//! Sources. Ties: a fixed order sends all new prompts to one replica until the first reports
//! load (llm-d-router issue 2515), and chance is unfair for long: of 60 draws among three, one had
//! 32. Order of preference: Thaler and Ravishankar's highest random
//! weight ("rendezvous") hashing, 1998; no ring to keep, and a replica that leaves moves its own
//! sessions only. Two choices: Mitzenmacher, "The Power of Two Choices in Randomized Load
//! Balancing", 2001. Bound: Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded
//! Loads", SODA 2018.

use headstart_core::{ReplicaId, Rng, RouteHasher, RouteIdentity, fnv1a};

use crate::lookup::StableMap;
use crate::request::RouteRequest;
use crate::view::ReplicaView;

/// A replica of a session's choice is skipped when it would have more than this times its fair
/// share of the requests. The low end of what HAProxy calls reasonable for the same algorithm
/// (`hash-balance-factor` 125 to 200): queues cost a first token more than a cold prefix does.
pub const LOAD_BOUND: f64 = 1.25;

/// Tokens that stand for a session whose client does not name it: vLLM's usual block.
pub const SESSION_TOKENS: u32 = 16;

/// Scores that differ by less are equal; sums of weighted scores carry rounding errors.
const TIE: f64 = 1e-9;

/// One candidate with its weighted sum of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredCandidate {
    /// The candidate.
    pub view: ReplicaView,
    /// Its score; 0 where nothing scores.
    pub score: f64,
}

/// Chooses.
pub trait Picker: Send {
    /// The position of the chosen one in `scored`, which is sorted by replica and not empty.
    fn pick(
        &mut self,
        scored: &[ScoredCandidate],
        request: &RouteRequest<'_>,
        rng: &mut Rng,
    ) -> usize;
}

/// Replicas whose last turn [`Best`] remembers, beyond twice those that it chooses from: some come
/// and go, but those that are gone for good must not stay for ever.
const SPARE_TURNS: usize = 64;

/// The highest score. Of equals the one that was chosen least recently, so that equal replicas take
/// turns whatever happens in between; those that never were are drawn from at random.
#[derive(Clone, Debug, Default)]
pub struct Best {
    turn: u64,
    /// The turn in which each was chosen last.
    last: StableMap<ReplicaId, u64>,
}

impl Best {
    fn note(&mut self, chosen: ReplicaId, scored: &[ScoredCandidate]) {
        self.turn += 1;
        self.last.insert(chosen, self.turn);
        if self.last.len() > 2 * scored.len() + SPARE_TURNS {
            // The trait promises that `scored` is sorted by replica.
            let is_there = |replica| scored.binary_search_by_key(&replica, |one| one.view.replica);
            self.last.retain(|&replica, _| is_there(replica).is_ok());
        }
    }
}

impl Picker for Best {
    fn pick(&mut self, scored: &[ScoredCandidate], _: &RouteRequest<'_>, rng: &mut Rng) -> usize {
        let mut longest_ago: Vec<usize> = Vec::new();
        let mut earliest = None;
        for at in tied(scored) {
            let last = self.last.get(&scored[at].view.replica).copied();
            // `None` is less than any turn: a replica that was never chosen goes first.
            if longest_ago.is_empty() || last < earliest {
                (earliest, longest_ago) = (last, vec![at]);
            } else if last == earliest {
                longest_ago.push(at);
            }
        }
        // The best score ties with itself, so there is one at least.
        let at = longest_ago[rng.below(longest_ago.len())];
        self.note(scored[at].view.replica, scored);
        at
    }
}

/// Positions of the candidates with the highest score; there is one at least.
fn tied(scored: &[ScoredCandidate]) -> impl Iterator<Item = usize> {
    let best = scored.iter().map(|one| one.score).fold(f64::NEG_INFINITY, f64::max);
    (0..scored.len()).filter(move |&at| scored[at].score > best - TIE)
}

/// The highest score; of equals any, as llm-d's picker has it.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyBest;

impl Picker for AnyBest {
    fn pick(&mut self, scored: &[ScoredCandidate], _: &RouteRequest<'_>, rng: &mut Rng) -> usize {
        let tied: Vec<usize> = tied(scored).collect();
        tied[rng.below(tied.len())]
    }
}

/// The better of two that are drawn: never the worst of many, and no herd runs to the best.
#[derive(Clone, Copy, Debug, Default)]
pub struct PowerOfTwo;

impl Picker for PowerOfTwo {
    fn pick(&mut self, scored: &[ScoredCandidate], _: &RouteRequest<'_>, rng: &mut Rng) -> usize {
        let first = rng.below(scored.len());
        if scored.len() == 1 {
            return first;
        }
        // Any other one.
        let second = (first + 1 + rng.below(scored.len() - 1)) % scored.len();
        if scored[second].score > scored[first].score { second } else { first }
    }
}

/// Any candidate, all equally likely.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtRandom;

impl Picker for AtRandom {
    fn pick(&mut self, scored: &[ScoredCandidate], _: &RouteRequest<'_>, rng: &mut Rng) -> usize {
        rng.below(scored.len())
    }
}

/// The candidates in turn, by id; fair also while replicas come and go.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    last: Option<ReplicaId>,
}

impl Picker for RoundRobin {
    fn pick(&mut self, scored: &[ScoredCandidate], _: &RouteRequest<'_>, _: &mut Rng) -> usize {
        // Before the first choice `last` is `None`, which is less than any id.
        let is_next = |candidate: &ScoredCandidate| Some(candidate.view.replica) > self.last;
        let next = scored.iter().position(is_next).unwrap_or(0);
        self.last = Some(scored[next].view.replica);
        next
    }
}

/// The same replica for the same session, as long as it is not overloaded and there.
#[derive(Clone, Debug)]
pub struct SessionHash {
    hasher: RouteHasher,
}

impl SessionHash {
    /// For requests to `model`.
    #[must_use]
    pub fn new(model: &str) -> Self {
        Self { hasher: RouteHasher::new(&RouteIdentity { model, block_size: SESSION_TOKENS }) }
    }

    /// Hashes the conversation's name, else the first block of its prompt; `None` if the prompt is
    /// shorter than that or not tokenized.
    fn session_key(&self, request: &RouteRequest<'_>) -> Option<u64> {
        if let Some(session) = request.session {
            return Some(fnv1a(session.as_bytes()));
        }
        let first = request.tokens?.get(..SESSION_TOKENS as usize)?;
        let root = self.hasher.root(request.namespace);
        Some(self.hasher.next(root, first).0)
    }
}

impl Picker for SessionHash {
    fn pick(
        &mut self,
        scored: &[ScoredCandidate],
        request: &RouteRequest<'_>,
        rng: &mut Rng,
    ) -> usize {
        // A prompt without a key goes to a random replica; a fixed key would send all of them to
        // one.
        let key = self.session_key(request).unwrap_or_else(|| rng.next_u64());
        let bound = max_requests(scored);
        let has_room = |&at: &usize| scored[at].view.requests < bound;
        let weight = |&at: &usize| weight(key, scored[at].view.replica);
        let chosen = (0..scored.len()).filter(has_room).max_by_key(weight);
        chosen.expect("the least loaded one is below the mean, hence below the bound")
    }
}

/// Most requests that a candidate may have, the new one included: [`LOAD_BOUND`] times the mean.
fn max_requests(scored: &[ScoredCandidate]) -> usize {
    let in_flight: usize = scored.iter().map(|candidate| candidate.view.requests).sum();
    let mean = (in_flight + 1) as f64 / scored.len() as f64;
    (LOAD_BOUND * mean).ceil() as usize
}

/// Highest random weight: how much `key` likes `replica`. Both are mixed separately first, because
/// seeds in arithmetic progression would give shifted copies of one sequence.
fn weight(key: u64, replica: ReplicaId) -> u64 {
    let mixed = Rng::new(u64::from(replica.0)).next_u64();
    Rng::new(key ^ mixed).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::TokenId;

    /// Candidates 0, 1, 2, … with these requests in flight and scores.
    fn scored(requests_and_scores: &[(usize, f64)]) -> Vec<ScoredCandidate> {
        let ids = (0..).map(ReplicaId);
        let candidates = ids.zip(requests_and_scores);
        let candidate = |(replica, &(requests, score))| ScoredCandidate {
            view: ReplicaView { requests, ..ReplicaView::idle(replica) },
            score,
        };
        candidates.map(candidate).collect()
    }

    /// Picks 1200 times for the same request and expects about `expected` picks per candidate.
    fn check(picker: &mut dyn Picker, scored: &[ScoredCandidate], expected: &[usize]) {
        let mut rng = Rng::new(3);
        let mut counts = vec![0; scored.len()];
        for _ in 0..1200 {
            counts[picker.pick(scored, &RouteRequest::default(), &mut rng)] += 1;
        }
        let is_near = |(&count, &expected): (&usize, &usize)| count.abs_diff(expected) < 120;
        assert!(counts.iter().zip(expected).all(is_near), "{counts:?}");
    }

    fn pick_session(scored: &[ScoredCandidate], session: &str) -> usize {
        let request = RouteRequest { session: Some(session), ..RouteRequest::default() };
        SessionHash::new("m").pick(scored, &request, &mut Rng::new(0))
    }

    #[test]
    fn the_best_wins_and_ties_are_spread() {
        check(&mut Best::default(), &scored(&[(0, 0.5), (0, 0.7), (0, 0.1)]), &[0, 1200, 0]);
        let tied = scored(&[(0, 0.1 + 0.2), (0, 0.3), (0, 0.1)]);
        check(&mut Best::default(), &tied, &[600, 600, 0]);
    }

    /// Issue 5: of equal replicas one had more than half of the requests under light load.
    #[test]
    fn equals_take_turns_and_the_first_round_is_drawn() {
        let (mut best, mut rng) = (Best::default(), Rng::new(0));
        let mut picked =
            |scored: &[ScoredCandidate]| best.pick(scored, &RouteRequest::default(), &mut rng);
        let three = scored(&[(0, 1.0); 3]);
        let first: Vec<usize> = (0..3).map(|_| picked(&three)).collect();
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2]);
        (0..30).for_each(|at| assert_eq!(picked(&three), first[at % 3]));
        // Being the best counts as a turn, so that what comes next goes to another one.
        let mut better = scored(&[(0, 1.0); 3]);
        better[first[0]].score = 2.0;
        assert_eq!(picked(&better), first[0]);
        let next: Vec<usize> = (0..3).map(|_| picked(&three)).collect();
        assert_eq!(next, [first[1], first[2], first[0]]);
    }

    /// Against counting back through all choices so far, with candidates that come and go.
    #[test]
    fn turns_are_those_of_the_whole_history() {
        let mut rng = Rng::new(11);
        let (mut best, mut history) = (Best::default(), Vec::new());
        for step in 0..4_000 {
            let mut candidates = scored(&[(0, 0.0); 6]);
            candidates.retain(|_| rng.below(3) > 0);
            let score = |one: &mut ScoredCandidate| one.score = rng.below(2) as f64;
            candidates.iter_mut().for_each(score);
            if candidates.is_empty() {
                continue;
            }
            let id = |at: usize| candidates[at].view.replica;
            let top = candidates.iter().map(|one| one.score).fold(0.0, f64::max);
            let last = |at: usize| history.iter().rposition(|&past| past == id(at));
            let equals = (0..candidates.len()).filter(|&at| candidates[at].score == top);
            let equals: Vec<usize> = equals.collect();
            let longest_ago = equals.iter().map(|&at| last(at)).min().expect("not empty");
            let at = best.pick(&candidates, &RouteRequest::default(), &mut Rng::new(step));
            assert!(equals.contains(&at) && last(at) == longest_ago, "step {step}");
            history.push(id(at));
        }
    }

    #[test]
    fn replicas_that_are_gone_for_good_are_forgotten() {
        let mut best = Best::default();
        for id in 0..10_000 {
            let mut one = scored(&[(0, 0.0)]);
            one[0].view.replica = ReplicaId(id);
            best.pick(&one, &RouteRequest::default(), &mut Rng::new(0));
            assert!(best.last.len() <= SPARE_TURNS + 2);
        }
    }

    #[test]
    fn random_and_turns_are_fair() {
        let three = scored(&[(0, 0.0), (9, 0.0), (0, 1.0)]);
        check(&mut AtRandom, &three, &[400, 400, 400]);
        check(&mut RoundRobin::default(), &three, &[400, 400, 400]);
        check(&mut SessionHash::new("m"), &scored(&[(1, 0.0); 3]), &[400, 400, 400]);
    }

    #[test]
    fn turns_survive_a_change_of_candidates() {
        let all = scored(&[(0, 0.0); 4]);
        let (mut turns, mut rng) = (RoundRobin::default(), Rng::new(0));
        let mut next = |candidates: &[ScoredCandidate]| {
            let at = turns.pick(candidates, &RouteRequest::default(), &mut rng);
            candidates[at].view.replica.0
        };
        assert_eq!([next(&all), next(&all), next(&all[2..]), next(&all[..3])], [0, 1, 2, 0]);
    }

    #[test]
    fn a_session_stays_until_its_replica_is_overloaded() {
        let mut four = scored(&[(4, 0.0); 4]);
        let home = pick_session(&four, "a");
        assert_eq!(pick_session(&four, "a"), home);
        four[home].view.requests = 6;
        // 19 requests with this one: at most ceil(1.25 * 19 / 4) = 6 each.
        let second = pick_session(&four, "a");
        assert_ne!(second, home);
        four[home].view.requests = 5;
        assert_eq!(pick_session(&four, "a"), home);
    }

    #[test]
    fn a_leaving_replica_moves_its_own_sessions_only() {
        let (five, four) = (scored(&[(1000, 0.0); 5]), scored(&[(1000, 0.0); 4]));
        let mut moved = 0;
        for session in 0..1000 {
            let before = pick_session(&five, &session.to_string());
            let after = pick_session(&four, &session.to_string());
            assert!(before == 4 || before == after);
            moved += usize::from(before == 4);
        }
        assert!((150..250).contains(&moved), "{moved}");
    }

    #[test]
    fn a_session_without_a_name_is_its_first_block() {
        let picker = SessionHash::new("m");
        let key = |tokens: &[TokenId]| {
            picker.session_key(&RouteRequest { tokens: Some(tokens), ..RouteRequest::default() })
        };
        assert_eq!(key(&[7; 20]), key(&[7; 99]));
        assert_ne!(key(&[7; 20]), key(&[8; 20]));
        assert_eq!(key(&[7; 15]), None);
    }
}
