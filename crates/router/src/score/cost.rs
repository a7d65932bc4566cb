//! The predicted time to the first token, and what a choice takes from others.
//!
//! ```text
//! cost = ttft + price · work + (homes + traffic) · uncached · cold work + crowding · cold work
//! traffic = 6 · (t − t clamped to ± 0.25),  t from − 0.6 to 2
//! ```
//!
//! | part | meaning |
//! |---|---|
//! | ttft | predicted: the prompts in front ([`crate::backlog`]), the work, a step and a half |
//! | work | seconds for the uncached tokens at their depth, and for loading from lower tiers |
//! | price | 8, plus 4 for each request that waits on average, 0.4 for each that waits here |
//! | homes | tokens of new prompts that were placed there lately / mean, 3 at most |
//! | t | prompt tokens sent there lately / mean − 1 |
//! | uncached | the prompt's uncached share |
//! | crowding | 3 · (requests / mean − 3), where positive: a hot prefix gets a second home |
//! | cold work | seconds for the whole prompt, if nothing were cached or running |
//!
//! Others wait for this work too: requests that wait here share its steps, and later ones queue
//! behind it. Homes in equal numbers fill all memories alike. Cold prompts stay away from where
//! hits come, which would wait for them; differences by chance do not count. A mean counts as four
//! prompts at least, and replicas that differ most count no more than the limits above. So a
//! conversation stays where it is while traffic is low.
//!
//! With an objective ([`RouteRequest::slo_ttft`]) one's own time counts for nothing where the
//! prediction meets it, and before everything else where it does not.
//!
//! Ours. Dynamo's and Preble's costs add the work of a prompt and the load of a replica with a
//! weight; the price of work is what keeps prefixes together under pressure, where a router that
//! minimises each request's own time scatters them and loses half of the hits. The numbers were
//! chosen with the simulator on the first four rows of the table in docs/benchmarks/fleet.md, with
//! the seeds from 101 and from 1,001 on; the table has others.

use std::time::Duration;

use headstart_core::cost::Work;

use crate::request::RouteRequest;
use crate::score::Scorer;
use crate::view::ReplicaView;

/// Cost to other requests of a second of work, seconds, when none waits.
const PRICE: f64 = 8.0;

/// Addition to the price per waiting request, on average over the candidates.
const PRICE_PER_WAITING: f64 = 4.0;

/// Addition to the price per request that waits on the replica itself.
const PRICE_PER_WAITING_HERE: f64 = 0.4;

/// Cost per mean of placed new prompt tokens, in cold work.
const HOMES: f64 = 1.0;

/// Most of it, in means.
const HOMES_MAX: f64 = 3.0;

/// Cost per mean of traffic beyond the mean, in cold work.
const TRAFFIC: f64 = 6.0;

/// Share of the mean by which traffic differs by chance.
const CHANCE: f64 = 0.25;

/// Limits of traffic below and above the mean, in means: a new replica must not draw all new
/// prompts.
const LITTLE: f64 = 0.6;
const MUCH: f64 = 2.0;

/// Lower bound of a mean, in prompts of the size in question.
const FEW: f64 = 4.0;

/// Times the mean number of requests from which on a replica is crowded.
const CROWDED: f64 = 3.0;

/// Cost per mean of requests beyond [`CROWDED`] means, in cold work.
const CROWDING: f64 = 3.0;

/// Cost of a missed objective, seconds: more than anything else.
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

/// Means over the candidates, which theirs are compared with.
struct Means {
    requests: f64,
    waiting: f64,
    placed_tokens: f64,
    placed_new_tokens: f64,
}

impl Means {
    fn of(candidates: &[ReplicaView]) -> Self {
        let mean = |of: fn(&ReplicaView) -> f64| {
            candidates.iter().map(of).sum::<f64>() / candidates.len() as f64
        };
        Self {
            requests: mean(|view| view.requests as f64),
            waiting: mean(|view| view.queue_depth as f64),
            placed_tokens: mean(|view| view.placed_tokens),
            placed_new_tokens: mean(|view| view.placed_new_tokens),
        }
    }
}

fn cost_s(view: &ReplicaView, request: &RouteRequest<'_>, fleet: &Means) -> f64 {
    let prompt = request.prompt_tokens();
    let work_s = work_s(view, prompt);
    let ttft_s = ttft_s(view, work_s);
    let own_s = request.slo_ttft.map_or(ttft_s, |slo| late_s(ttft_s, slo));
    // Overlaps are never longer than the prompt.
    let uncached = (prompt - view.any_tier_tokens) as f64 / prompt.max(1) as f64;
    let place = home(view, fleet, prompt) * uncached + crowding(view, fleet);
    own_s + price(view, fleet) * work_s + place * cold_work_s(view, prompt)
}

/// Returns the cost to other requests of a second of work, seconds.
fn price(view: &ReplicaView, fleet: &Means) -> f64 {
    let here = PRICE_PER_WAITING_HERE * view.queue_depth as f64;
    PRICE + PRICE_PER_WAITING * fleet.waiting + here
}

/// Returns the cost of a new prompt's home there, in units of its cold work.
fn home(view: &ReplicaView, fleet: &Means, prompt: usize) -> f64 {
    let least = FEW * prompt.max(1) as f64;
    let above = |tokens: f64, mean: f64| (tokens - mean) / mean.max(least);
    // `above` is at least -1, so this is at least 0.
    let homes = 1.0 + above(view.placed_new_tokens, fleet.placed_new_tokens);
    let traffic = above(view.placed_tokens, fleet.placed_tokens).clamp(-LITTLE, MUCH);
    let by_chance = traffic.clamp(-CHANCE, CHANCE);
    HOMES * homes.min(HOMES_MAX) + TRAFFIC * (traffic - by_chance)
}

/// Returns the cost of one more request there, in units of its cold work.
fn crowding(view: &ReplicaView, fleet: &Means) -> f64 {
    // An idle fleet has a mean of 0.
    let times = view.requests as f64 / fleet.requests.max(1.0);
    CROWDING * (times - CROWDED).max(0.0)
}

fn late_s(ttft_s: f64, slo: Duration) -> f64 {
    // If all replicas are late, the earliest is still the best.
    if ttft_s <= slo.as_secs_f64() { 0.0 } else { LATE_S + ttft_s }
}

/// Predicted seconds to the first token of a prompt of `prompt` tokens.
pub(crate) fn predicted_ttft_s(view: &ReplicaView, prompt: usize) -> f64 {
    ttft_s(view, work_s(view, prompt))
}

/// Seconds to the first token: those in front, its own, half of the step that is under way, and its
/// own step.
fn ttft_s(view: &ReplicaView, work_s: f64) -> f64 {
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
    // Device tokens are part of those of any tier.
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
        let request =
            RouteRequest { tokens: Some(&[0; 1_000]), slo_ttft, ..RouteRequest::default() };
        let scores = Cost.score(&views, &request);
        usize::from(scores[1] > scores[0])
    }

    /// Returns the work that 900 cached tokens save, seconds.
    fn saved_s() -> f64 {
        let view = ReplicaView::idle(ReplicaId(0));
        work_s(&view, 1_000) - work_s(&view, 100)
    }

    #[test]
    fn a_prefix_is_worth_waiting_for_and_not_for_ever() {
        assert_eq!(chosen(|_| (), None), 1);
        let waits = |seconds: f64| {
            chosen(move |views: &mut [ReplicaView; 2]| views[1].backlog_s = seconds, None)
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
                    views.iter_mut().for_each(|view| view.queue_depth = queue_depth);
                },
                None,
            )
        };
        assert_eq!((crowd(0), crowd(10)), (0, 1));
    }

    /// Returns the index of the replica that takes a prompt that neither holds, after `change`.
    fn cold(change: impl Fn(&mut ReplicaView, &mut ReplicaView)) -> usize {
        chosen(
            |views: &mut [ReplicaView; 2]| {
                let [first, second] = views;
                (second.device_tokens, second.any_tier_tokens) = (0, 0);
                change(first, second);
            },
            None,
        )
    }

    /// Whether a changed replica loses the prompt to the other.
    fn avoids(change: impl Fn(&mut ReplicaView)) -> bool {
        cold(|first, _| change(first)) == 1 && cold(|_, second| change(second)) == 0
    }

    #[test]
    fn cold_prompts_go_where_few_have_their_home() {
        assert!(avoids(|view| view.placed_new_tokens = 1.0));
    }

    #[test]
    fn cold_prompts_go_where_few_wait_and_few_decode() {
        assert!(avoids(|view| view.queue_depth = 1));
        let decoding = EngineModel::default_engine().cost.decode(100, 100_000);
        assert!(avoids(|view| view.decoding = decoding));
    }

    /// Whether a replica that was sent `tokens` tokens loses to one with more homes, which was sent
    /// 100,000.
    fn is_busy(tokens: f64) -> bool {
        cold(|first, second| {
            (first.placed_tokens, second.placed_tokens) = (tokens, 100_000.0);
            (first.placed_new_tokens, second.placed_new_tokens) = (49_000.0, 51_000.0);
        }) == 1
    }

    #[test]
    fn cold_prompts_go_where_little_is_asked_unless_by_chance() {
        let found = [50_000.0, 110_000.0, 160_000.0, 190_000.0].map(is_busy);
        assert_eq!(found, [false, false, false, true]);
        assert!(is_busy(500_000.0));
    }

    #[test]
    fn who_is_new_does_not_draw_all_cold_prompts() {
        let new = |backlog: f64| {
            cold(move |first, second| {
                (first.placed_tokens, first.placed_new_tokens) = (100_000.0, 50_000.0);
                second.backlog_s = backlog * cold_work_s(second, 1_000);
            })
        };
        assert_eq!((new(1.0), new(9.0)), (1, 0));
    }

    #[test]
    fn a_conversation_stays_while_little_else_is_asked() {
        let mut views = [(); 32].map(|()| ReplicaView::idle(ReplicaId(0)));
        // Its turns so far, and the next one, of which a fifth is new.
        (views[0].placed_tokens, views[0].placed_new_tokens) = (4_000.0, 1_000.0);
        (views[0].device_tokens, views[0].any_tier_tokens) = (800, 800);
        let request = RouteRequest { tokens: Some(&[0; 1_000]), ..RouteRequest::default() };
        let scores = Cost.score(&views, &request);
        assert!(scores[0] > scores[1], "{scores:?}");
    }

    #[test]
    fn the_first_token_comes_after_a_step_and_a_half() {
        let mut view = ReplicaView::idle(ReplicaId(0));
        view.backlog_s = 2.0;
        view.decoding = view.engine.cost.decode(100, 100_000);
        let base_s = view.engine.base_s(view.decoding);
        assert!((ttft_s(&view, 0.5) - 2.5 - 1.5 * base_s).abs() < 1e-12);
    }

    #[test]
    fn an_objective_is_met_at_the_least_cost() {
        let slo = |ms, backlog_s: f64| {
            chosen(
                move |views: &mut [ReplicaView; 2]| views[1].backlog_s = backlog_s,
                Some(Duration::from_millis(ms)),
            )
        };
        // Both meet it: the one with less to compute, however long those in front take.
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
