//! The predicted time to the first token, and what a choice takes from others.
//!
//! ```text
//! cost = backlog + (1 + price) · work + (spread + crowding) · cold work
//! ```
//!
//! | part | meaning |
//! |---|---|
//! | backlog | seconds of prompts in front of this one ([`crate::backlog`]) |
//! | work | seconds for the uncached tokens at their depth, and for loading from lower tiers |
//! | price | 8, and 4 for each request that waits per replica: others wait for this work too |
//! | spread | 6 · work placed there lately / mean + 3 · KV usage, for the prompt's uncached share |
//! | crowding | 3 · (requests / mean − 3), where positive: a hot prefix gets a second home |
//! | cold work | seconds for the whole prompt, if nothing were cached or running |
//!
//! With an objective ([`RouteRequest::slo_ttft`]) one's own time counts for nothing where the
//! prediction meets it, and before everything else where it does not.
//!
//! Ours. Dynamo's and Preble's costs add the work of a prompt and the load of a replica with a
//! weight; the price of work is what keeps prefixes together under pressure, where a router that
//! minimises each request's own time scatters them and loses half of the hits. The numbers were
//! chosen with the simulator on the cells of BENCHMARKS.md, seeds 1 to 28 and 101 to 116.

use std::time::Duration;

use headstart_core::cost::Work;

use crate::request::RouteRequest;
use crate::score::Scorer;
use crate::view::ReplicaView;

/// What a second of work costs others, in seconds, when nobody waits.
const PRICE: f64 = 8.0;

/// What each request that waits adds to the price, in the mean over the candidates.
const PRICE_PER_WAITING: f64 = 4.0;

/// What it costs to place a prompt where the mean was placed, in cold work.
const SPREAD: f64 = 6.0;

/// What it costs to place a prompt where the KV memory is full, in cold work.
const MEMORY: f64 = 3.0;

/// Times the mean number of requests from which on a replica is crowded.
const CROWDED: f64 = 3.0;

/// What another mean's worth of requests costs there, in cold work.
const CROWDING: f64 = 3.0;

/// What it costs to miss an objective: more than anything else.
const LATE_S: f64 = 1e6;

/// Least predicted time to the first token and least loss for others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost;

impl Scorer for Cost {
    fn score(&self, candidates: &[ReplicaView], request: &RouteRequest<'_>) -> Vec<f64> {
        let fleet = Means::of(candidates);
        let cost = |view| cost_s(view, request, &fleet);
        candidates.iter().map(|view| -cost(view)).collect()
    }
}

/// What is compared with.
struct Means {
    requests: f64,
    waiting: f64,
    placed_s: f64,
}

impl Means {
    fn of(candidates: &[ReplicaView]) -> Self {
        let mean = |of: fn(&ReplicaView) -> f64| {
            candidates.iter().map(of).sum::<f64>() / candidates.len() as f64
        };
        Self {
            requests: mean(|view| view.requests as f64),
            waiting: mean(|view| view.queue_depth as f64),
            placed_s: mean(|view| view.placed_s),
        }
    }
}

fn cost_s(view: &ReplicaView, request: &RouteRequest<'_>, fleet: &Means) -> f64 {
    let prompt = request.prompt_tokens();
    let work_s = work_s(view, prompt);
    let own_s = match request.slo_ttft {
        None => view.backlog_s + work_s,
        Some(slo) => late_s(predicted_s(view, work_s), slo),
    };
    let price = PRICE + PRICE_PER_WAITING * fleet.waiting;
    let uncached = (prompt - view.any_tier_tokens) as f64 / prompt.max(1) as f64;
    let memory = MEMORY * view.kv_usage.unwrap_or(0.0);
    let spread = (SPREAD * over(view.placed_s, fleet.placed_s) + memory) * uncached;
    let crowding = over(view.requests as f64, fleet.requests.max(1.0)) - CROWDED;
    let crowding = CROWDING * crowding.max(0.0);
    own_s + price * work_s + (spread + crowding) * cold_work_s(view, prompt)
}

/// A replica's figure by the mean; 0 where there is none.
fn over(value: f64, mean: f64) -> f64 {
    if mean > 0.0 { value / mean } else { 0.0 }
}

fn late_s(ttft_s: f64, slo: Duration) -> f64 {
    match ttft_s <= slo.as_secs_f64() {
        true => 0.0,
        false => LATE_S + ttft_s,
    }
}

/// Seconds to the first token: those in front, its own, and half of the step that is under way.
fn predicted_s(view: &ReplicaView, work_s: f64) -> f64 {
    let base_s = view.engine.base_s(view.decoding);
    view.backlog_s + work_s + 1.5 * base_s
}

/// Seconds that an idle replica would spend on a prompt of which it holds nothing.
fn cold_work_s(view: &ReplicaView, prompt: usize) -> f64 {
    let base_s = view.engine.base_s(Work::default());
    view.engine.prefill_s(0, prompt, base_s)
}

/// Seconds that the replica spends on a prompt of `prompt` tokens.
pub(crate) fn work_s(view: &ReplicaView, prompt: usize) -> f64 {
    let held = view.any_tier_tokens.min(prompt);
    let loaded = view.any_tier_tokens - view.device_tokens;
    let load_s = loaded as f64 * view.engine.load_token_s;
    let base_s = view.engine.base_s(view.decoding);
    load_s + view.engine.prefill_s(held, prompt - held, base_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::{EngineModel, ReplicaId};

    /// Two replicas, of which the second holds `held` of 1,000 tokens, as changed.
    fn chosen(change: impl Fn(&mut [ReplicaView; 2]), slo_ttft: Option<Duration>) -> usize {
        let mut views = [0, 1].map(|id| ReplicaView::idle(ReplicaId(id)));
        views[1].device_tokens = 900;
        views[1].any_tier_tokens = 900;
        change(&mut views);
        let request = RouteRequest {
            tokens: Some(&[0; 1_000]),
            slo_ttft,
            ..RouteRequest::default()
        };
        let scores = Cost.score(&views, &request);
        usize::from(scores[1] > scores[0])
    }

    /// What the 900 tokens take, seconds.
    fn saved_s() -> f64 {
        let view = ReplicaView::idle(ReplicaId(0));
        work_s(&view, 1_000) - work_s(&view, 100)
    }

    #[test]
    fn a_prefix_is_worth_waiting_for_and_not_for_ever() {
        assert_eq!(chosen(|_| (), None), 1);
        let waits = |seconds: f64| {
            chosen(
                move |views: &mut [ReplicaView; 2]| views[1].backlog_s = seconds,
                None,
            )
        };
        assert_eq!(waits(4.0 * saved_s()), 1);
        assert_eq!(waits(15.0 * saved_s()), 0);
    }

    #[test]
    fn queues_make_work_dear() {
        let crowd = |queue_depth: usize| {
            chosen(
                move |views: &mut [ReplicaView; 2]| {
                    views[1].backlog_s = 15.0 * saved_s();
                    views.iter_mut().for_each(|it| it.queue_depth = queue_depth);
                },
                None,
            )
        };
        assert_eq!((crowd(0), crowd(10)), (0, 1));
    }

    #[test]
    fn cold_prompts_go_where_little_was_placed() {
        let cold = |placed: [f64; 2]| {
            chosen(
                move |views: &mut [ReplicaView; 2]| {
                    (views[1].device_tokens, views[1].any_tier_tokens) = (0, 0);
                    (views[0].placed_s, views[1].placed_s) = (placed[0], placed[1]);
                },
                None,
            )
        };
        assert_eq!((cold([2.0, 1.0]), cold([1.0, 2.0])), (1, 0));
    }

    #[test]
    fn an_objective_is_met_at_the_least_cost() {
        let slo = |ms, backlog_s: f64| {
            chosen(
                move |views: &mut [ReplicaView; 2]| views[1].backlog_s = backlog_s,
                Some(Duration::from_millis(ms)),
            )
        };
        // Both meet it: the one with less to compute, however long its queue.
        assert_eq!(slo(5_000, 4.0), 1);
        // One does; none does.
        assert_eq!(slo(500, 4.0), 0);
        assert_eq!(slo(1, 4.0), 0);
        assert_eq!(slo(1, 0.0), 1);
    }

    #[test]
    fn lower_tiers_are_loaded_from() {
        let mut view = ReplicaView::idle(ReplicaId(0));
        view.any_tier_tokens = 900;
        let load_s = 900.0 * EngineModel::default_engine().load_token_s;
        let on_device_s = work_s(&view, 1_000) - load_s;
        view.device_tokens = 900;
        assert!((work_s(&view, 1_000) - on_device_s).abs() < 1e-12);
    }
}
