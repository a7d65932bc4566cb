//! The closed loop: a case by hand, the same bytes again, gaps and places kept, nothing lost.

use std::time::Duration;

use crate::prediction::chat::{
    ChatOutcome, ChatRun, Head, Pacing, Place, Predict, Replica, Script, ScriptedConversation,
    ScriptedTurn,
};
use crate::prediction::experiment::{Arm, PredictionSource, Traffic};
use crate::prediction::noise::NoiseChannel;
use crate::prediction::workload::{ChatWorkload, Seeds};
use headstart_cache::policy::{self, Lru, Setting};
use headstart_core::{CostModel, Nanos, Probability};
use headstart_trace::synth::Gap;

const NOBODY: &Predict<'static> = &|_| None;

/// Every step takes a second.
const ONE_SECOND: CostModel = CostModel {
    overhead_s: 1.0,
    weights_s: 0.0,
    token_s: 0.0,
    pair_s: 0.0,
    kv_token_s: 0.0,
    sequence_s: 0.0,
};

/// Blocks of 4 tokens, steps of a second.
fn small() -> Replica {
    let mut replica = Replica::lpc();
    replica.cost = ONE_SECOND;
    replica.scheduler.block_size = 4;
    replica
}

fn turn(new_tokens: u32, answer_tokens: u32, gap_s: f64) -> ScriptedTurn {
    ScriptedTurn { new_tokens, answer_tokens, gap_s }
}

fn conversation(turns: &[ScriptedTurn]) -> ScriptedConversation {
    ScriptedConversation { turns: turns.to_vec(), head: None }
}

fn script(started: &[(f64, ScriptedConversation)], seconds: f64) -> Script {
    let started = started.iter().cloned();
    let started = started.map(|(at_s, conversation)| (Nanos::from_secs_f64(at_s), conversation));
    Script::recorded(started.collect(), seconds, 0.0)
}

fn run(script: &Script, replica: Replica, blocks: usize) -> ChatOutcome {
    let lru = Box::new(Lru::new(blocks));
    ChatRun::new(script, replica, blocks, lru, NOBODY).finish()
}

/// Turn 1 arrives at 0, has its first token at 1 and its third at 3. Turn 2 arrives a gap of 10
/// later, at 13, with 9 + 3 + 5 tokens. The last one sampled has no computed keys. Of the 11 tokens
/// before it, two blocks of 4 are whole.
#[test]
fn two_turns_by_hand() {
    let turns = [turn(9, 3, 10.0), turn(5, 1, 0.0)];
    let script = script(&[(0.0, conversation(&turns))], 100.0);
    let outcome = run(&script, small(), 16);
    assert_eq!((outcome.tokens.lookups, outcome.tokens.hits), (9 + 17, 8));
    assert_eq!(outcome.computed_tokens, 9 + 9);
    assert_eq!((outcome.turns[&1].tokens.hits, outcome.turns[&2].tokens.hits), (0, 8));
    let first: Vec<_> = outcome.first_tokens.iter().map(|token| token.seconds).collect();
    assert_eq!(first, [1.0, 1.0]);
    assert_eq!(outcome.first_tokens[1].context_tokens, 12);
    // Three steps and one: the run does not wait through the gap.
    assert_eq!(outcome.steps, 4);
}

/// As above; between the turns another conversation takes the whole cache of 5 blocks.
#[test]
fn what_was_evicted_in_the_gap_is_computed_again() {
    let turns = [turn(9, 3, 10.0), turn(5, 1, 0.0)];
    let other = conversation(&[turn(19, 1, 0.0)]);
    let script = script(&[(0.0, conversation(&turns)), (5.0, other)], 100.0);
    let outcome = run(&script, small(), 5);
    assert_eq!((outcome.tokens.lookups, outcome.tokens.hits), (9 + 19 + 17, 0));
    assert_eq!(run(&script, small(), 16).tokens.hits, 8);
}

#[test]
fn a_slow_engine_gets_its_next_prompt_later() {
    let turns = [turn(9, 3, 10.0), turn(5, 1, 0.0)];
    let script = script(&[(0.0, conversation(&turns))], 13.5);
    // At 13 seconds the second prompt is there, with steps twice as long it comes at 16.
    assert_eq!(run(&script, small(), 16).requests(), 2);
    let mut slow = small();
    slow.cost.overhead_s = 2.0;
    assert_eq!(run(&script, slow, 16).requests(), 1);
}

#[test]
fn heads_are_found_whosoever_said_them_first() {
    let started = |at_s, head| {
        let mut conversation = conversation(&[turn(13, 1, 0.0)]);
        conversation.head = head;
        (at_s, conversation)
    };
    let head = |conversation, tokens| Some(Head { conversation, tokens });
    let check = |heads: [Option<Head>; 3], expected: u64| {
        let [a, b, c] = heads;
        let script = script(&[started(0.0, a), started(10.0, b), started(20.0, c)], 50.0);
        assert_eq!(run(&script, small(), 64).tokens.hits, expected, "{heads:?}");
    };
    check([None, None, None], 0);
    check([None, head(0, 8), head(1, 12)], 8 + 12);
    // The third has eight tokens of the first, by way of the second, and one of the second's.
    check([None, head(0, 8), head(1, 9)], 8 + 8);
    // A later conversation cannot be the head of an earlier one.
    check([head(2, 8), None, None], 0);
}

#[test]
fn requests_of_the_warm_up_are_served_but_not_counted() {
    let turns = [turn(9, 3, 10.0), turn(5, 1, 0.0)];
    let script = script(&[(0.0, conversation(&turns))], 100.0);
    let mut replica = small();
    replica.warm_up = Duration::from_secs(5);
    let outcome = run(&script, replica, 16);
    assert_eq!((outcome.tokens.lookups, outcome.tokens.hits), (17, 8));
    assert_eq!((outcome.seconds, outcome.first_tokens.len()), (95.0, 1));
}

#[test]
fn what_cannot_be_taken_is_refused_and_ends_its_conversation() {
    let turns = [turn(9, 3, 1.0), turn(50, 1, 1.0), turn(1, 1, 0.0)];
    let script = script(&[(0.0, conversation(&turns))], 100.0);
    let outcome = run(&script, small(), 8);
    assert_eq!((outcome.requests(), outcome.refused), (1, 1));
}

const GAP: Gap = Gap::Exponential { mean_s: 100.0 };

/// The share of each of the first turns that went on.
fn shares(turns: &mut dyn Iterator<Item = (u16, bool)>) -> Vec<Probability> {
    let mut counts = [(1.0, 2.0); 10];
    for (turn, goes_on) in turns {
        let (went_on, all) = &mut counts[usize::from(turn).min(10) - 1];
        *went_on += f64::from(u8::from(goes_on));
        *all += 1.0;
    }
    let share = |(went_on, all): (f64, f64)| Probability::new(went_on / all).expect("a share");
    counts.map(share).to_vec()
}

fn traffic(name: &str, seconds: f64, gaps: u64) -> Traffic {
    let pacing = Pacing { slots: 200, ramp_s: 100.0, answer_token_s: 0.0, seconds };
    let workload = ChatWorkload::named(name).expect("a data set");
    Traffic::of_workload(workload, 0, &GAP, pacing, Seeds { corpus: 1, gaps }, &shares)
}

fn arm(policy: &str, predictor: PredictionSource) -> Arm {
    Arm { policy: policy.to_owned(), predictor, charge_tokens: 0 }
}

fn noisy(mcc: f64) -> PredictionSource {
    let channel = NoiseChannel::Logit;
    PredictionSource::Noisy { channel, mcc }
}

#[test]
fn the_same_seeds_give_the_same_bytes() {
    let once = |gaps| {
        let outcome =
            traffic("lmsys", 120.0, gaps).run(&arm("lpc", noisy(0.4)), Replica::lpc(), 20_000);
        outcome.expect("a known policy")
    };
    assert_eq!(once(1), once(1));
    assert_ne!(once(1).tokens, once(2).tokens);
}

#[test]
fn a_predictor_that_knows_nothing_is_lru() {
    let traffic = traffic("lmsys", 240.0, 1);
    let run = |arm: &Arm| traffic.run(arm, Replica::lpc(), 20_000).expect("known");
    let lru = run(&arm("lru", PredictionSource::Nobody));
    let blind = run(&arm("lpc", noisy(0.0)));
    assert!(lru.tokens.hits > 0);
    assert_eq!((lru.tokens, lru.steps), (blind.tokens, blind.steps));
    // Late predictions are none.
    let mut late = Replica::lpc();
    late.prediction_delay = Duration::from_secs(3_600);
    let late = traffic.run(&arm("lpc", PredictionSource::Truth), late, 20_000);
    assert_eq!(late.expect("known").tokens, lru.tokens);
}

#[test]
fn whoever_knows_more_hits_more() {
    let traffic = traffic("lmsys", 400.0, 1);
    let rate = |predictor| {
        let outcome = traffic.run(&arm("lpc", predictor), Replica::lpc(), 40_000);
        outcome.expect("known").tokens.rate()
    };
    let rates = [rate(noisy(0.0)), rate(noisy(0.4)), rate(PredictionSource::Truth)];
    assert!(rates.is_sorted() && rates[2] > 1.5 * rates[0], "{rates:?}");
}

#[test]
fn a_run_meets_the_quality_that_was_asked_for() {
    let traffic = traffic("lmsys", 600.0, 1);
    for channel in NoiseChannel::ALL {
        let predictor = PredictionSource::Noisy { channel, mcc: 0.4 };
        let outcome = traffic.run(&arm("lpc", predictor), Replica::lpc(), 60_000);
        let got = outcome.expect("known").quality().mcc;
        assert!((got - 0.4).abs() < 0.04, "{channel:?}: {got}");
    }
}

/// Every policy, a cache so small that sequences are preempted, and the invariants of scheduler
/// and cache after each step.
#[test]
fn nothing_is_lost_under_pressure() {
    let pacing = Pacing { slots: 40, ramp_s: 5.0, answer_token_s: 0.0, seconds: 30.0 };
    let workload = ChatWorkload::named("sharegpt").expect("a data set");
    let gap = Gap::Exponential { mean_s: 4.0 };
    let seeds = Seeds { corpus: 3, gaps: 3 };
    let traffic = Traffic::of_workload(workload, 24, &gap, pacing, seeds, &shares);
    let mut preempted = 0;
    for name in policy::NAMES {
        let (capacity, block_tokens) = (400, 16);
        let setting = Setting { capacity, block_tokens };
        let policy = policy::by_name(name, setting).expect("a known policy");
        let even = |_: Place| Some(Probability::EVEN);
        let mut run = ChatRun::new(traffic.script(), Replica::lpc(), capacity, policy, &even);
        let mut now = Nanos::default();
        while run.step() {
            run.check();
            assert!(run.now() >= now, "time goes on");
            now = run.now();
        }
        let outcome = run.finish();
        let (requests, hits) = (outcome.requests(), outcome.tokens.hits);
        assert!(requests > 50 && hits > 0, "{name}: {requests} {hits}");
        let cold = outcome.tokens.lookups - outcome.tokens.hits;
        assert_eq!(outcome.computed_tokens, cold, "{name}");
        preempted += outcome.preemptions;
    }
    assert!(preempted > 0, "the cache is small enough");
}

#[test]
fn no_more_conversations_are_open_than_there_are_places() {
    for name in ["lmsys", "sharegpt", "arena"] {
        let traffic = traffic(name, 600.0, 1);
        let script = traffic.script();
        let mut changes = Vec::new();
        for (start, conversation) in script.starts().iter().zip(script.conversations()) {
            let open_s = conversation.open_s(0.0);
            let end = *start + Duration::from_secs_f64(open_s);
            if conversation.turns.len() > 1 {
                // Of one moment, ends come before starts.
                changes.extend([(*start, 1), (end, -1)]);
            }
        }
        changes.sort_unstable();
        let mut open = 0;
        let most = changes.iter().map(|(_, change)| {
            open += change;
            open
        });
        assert_eq!(most.max(), Some(200), "{name}");
    }
}
