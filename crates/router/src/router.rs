//! The router: who is there, what is in flight, and where the next request goes.
//!
//! ```text
//! route ──► Decision { reservation } ──first_token──► ──finish──►
//! ```
//!
//! Choosing and reserving are one call. The next choice sees the load of the last one and assumes
//! that its prompt is held where it went, so that a burst neither herds nor scatters.
//!
//! Invariants, asserted by [`Router::check`]: what replicas have in flight is the sum of the live
//! reservations. A replica that is down holds nothing in the index. Events that were still under
//! way when it went down are ignored or leave when it comes back. All that concerns an unknown
//! replica is ignored too. The feeder of events restarts a replica's stream when it comes back.
//!
//! Same seed and same calls, same decisions.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use headstart_core::stats::HitCount;
use headstart_core::{CacheEvent, EngineModel, Nanos, ReplicaId, Rng, RouteKey};

use crate::homes::Homes;
use crate::index::{
    ApproximateConfig, ApproximateIndex, IndexStats, Overlaps, PrefixIndex, Prompt, PromptKeys,
    TierTokens, Update,
};
use crate::load::{InFlight, Load, Phase, ReportedLoad};
use crate::pick::ScoredCandidate;
use crate::pipeline::{Choice, Pipeline};
use crate::placed::PlacedTokens;
use crate::profile::Profile;
use crate::request::{Candidate, Decision, NoReplica, ReservationId, RouteRequest};
use crate::reservations::{RequestReservation, Reservations};
use crate::score::{predicted_ttft_s, work_s};
use crate::view::{Health, ReplicaView};

/// Configuration of a router.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterConfig {
    /// The model that all its replicas serve.
    pub model: String,
    /// Rules of the choice.
    pub profile: Profile,
    /// Fixes all random choices.
    pub seed: u64,
}

/// Chooses replicas for the requests to one model.
pub struct Router {
    index: Arc<dyn PrefixIndex>,
    /// Replicas of sent prompts whose tokens are unknown, by their text.
    text_index: Arc<ApproximateIndex>,
    homes: Homes,
    overlaps: Overlaps,
    pipeline: Pipeline,
    rng: Rng,
    replicas: BTreeMap<ReplicaId, FleetMember>,
    reservations: Reservations,
    counts: RouterCounts,
}

#[derive(Debug)]
struct FleetMember {
    health: Health,
    load: Load,
    engine: EngineModel,
}

#[derive(Clone, Copy, Debug, Default)]
struct RouterCounts {
    refused: u64,
    ignored_events: u64,
    predicted: HitCount,
}

/// One replica as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The replica.
    pub replica: ReplicaId,
    /// Whether it may be chosen.
    pub health: Health,
    /// This router's requests there.
    pub in_flight: InFlight,
}

/// Counters of a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// Requests without a replica to serve them.
    pub refused: u64,
    /// Requests in flight.
    pub reservations: usize,
    /// Events of replicas that are unknown or down.
    pub ignored_events: u64,
    /// Prompt tokens of the requests that came to their first token, and those of them that the
    /// chosen replica was thought to hold: what a replica refuses counts for nothing.
    pub predicted: HitCount,
    /// The index.
    pub index: IndexStats,
}

impl Router {
    /// A router without replicas, with the index in production.
    #[must_use]
    pub fn new(config: RouterConfig) -> Self {
        let index = config.profile.index(&config.model);
        Self::with_index(config, index)
    }

    /// A router that asks `index`, which tracks nothing yet.
    #[must_use]
    pub fn with_index(config: RouterConfig, index: Arc<dyn PrefixIndex>) -> Self {
        let RouterConfig { model, profile, seed } = config;
        Self {
            index,
            text_index: Arc::new(ApproximateIndex::new(&model, ApproximateConfig::TEXT)),
            homes: Homes::default(),
            overlaps: Overlaps::default(),
            pipeline: profile.pipeline(&model),
            rng: Rng::new(seed),
            replicas: BTreeMap::new(),
            reservations: Reservations::default(),
            counts: RouterCounts::default(),
        }
    }

    /// The index: hash prompts and feed events without holding the router, but ask
    /// [`Self::listens_to`] first.
    #[must_use]
    pub fn index(&self) -> Arc<dyn PrefixIndex> {
        self.index.clone()
    }

    /// The index of prompts whose tokens are not known, for [`RouteRequest::text`].
    #[must_use]
    pub fn text_index(&self) -> Arc<ApproximateIndex> {
        self.text_index.clone()
    }

    /// Adds a healthy, empty replica. `block_size` is what its configuration says; `None` until
    /// its events tell, and for a replica without events. Adding a known one changes nothing.
    pub fn add_replica(&mut self, replica: ReplicaId, block_size: Option<u32>, now: Nanos) {
        if let Entry::Vacant(place) = self.replicas.entry(replica) {
            place.insert(FleetMember {
                health: Health::default(),
                load: Load::default(),
                engine: EngineModel::default_engine(),
            });
            self.update_indices(replica, Update::Track { block_size }, now);
        }
    }

    /// Sets the engine model of a replica, for strategies that predict times.
    pub fn set_engine(&mut self, replica: ReplicaId, engine: EngineModel) {
        if let Some(member) = self.replicas.get_mut(&replica) {
            member.engine = engine;
        }
    }

    /// Removes a replica, its entries and its reservations.
    pub fn remove_replica(&mut self, replica: ReplicaId, now: Nanos) {
        if self.replicas.remove(&replica).is_some() {
            self.update_indices(replica, Update::Forget, now);
            // Reservations must not outlive their replica; `load_mut` relies on that.
            self.reservations.close_all(replica);
        }
    }

    /// Says whether a replica serves. Whenever that changes it loses its entries, and going down
    /// also its last report; its reservations stay until they are finished.
    pub fn set_health(&mut self, replica: ReplicaId, health: Health, now: Nanos) {
        let Some(member) = self.replicas.get_mut(&replica) else {
            return;
        };
        // Also where it was down before: a report may have come since.
        if health == Health::Down {
            member.load.forget_report();
        }
        if member.health != health {
            member.health = health;
            member.load.placed = PlacedTokens::default();
            self.update_indices(replica, Update::Events(&[CacheEvent::Cleared]), now);
        }
    }

    fn update_indices(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        self.index.update(replica, update, now);
        self.text_index.update(replica, update, now);
    }

    /// Whether events of `replica` count: not while it is unknown or down. Then `num_events` are
    /// counted as ignored.
    pub fn listens_to(&mut self, replica: ReplicaId, num_events: usize) -> bool {
        let member = self.replicas.get(&replica);
        let listens = member.is_some_and(|member| member.health == Health::Healthy);
        if !listens {
            self.counts.ignored_events += num_events as u64;
        }
        listens
    }

    /// Takes over changes of what a replica holds.
    pub fn apply(&mut self, replica: ReplicaId, events: &[CacheEvent], now: Nanos) {
        if self.listens_to(replica, events.len()) {
            self.update_indices(replica, Update::Events(events), now);
        }
    }

    /// Takes over what a replica says of its load.
    pub fn report(&mut self, replica: ReplicaId, report: ReportedLoad) {
        if let Some(member) = self.replicas.get_mut(&replica) {
            member.load.report(report);
        }
    }

    /// Chooses a replica and reserves it. From now on it is assumed to hold the prompt.
    ///
    /// # Errors
    /// If all replicas are down or excluded, or if there are no replicas. Nothing is reserved then.
    pub fn route(&mut self, request: &RouteRequest<'_>) -> Result<Decision, NoReplica> {
        let hashed;
        let keys = match (request.keys, prompt_of(request)) {
            // Callers that hashed the prompt without holding the router pass its keys.
            (None, Some(prompt)) => {
                hashed = self.index.hash(prompt);
                Some(&hashed)
            }
            (keys, _) => keys,
        };
        let views = self.views(request, keys);
        let choice = self.pipeline.choose(&views, request, &mut self.rng);
        let Some(Choice { chosen, scored }) = choice else {
            self.counts.refused += 1;
            return Err(no_replica(&views));
        };
        let view = &scored[chosen].view;
        let (replica, overlap_tokens) = (view.replica, view.any_tier_tokens);
        let prompt_tokens = request.prompt_tokens();
        let reservation = RequestReservation {
            replica,
            phase: Phase::Prefill { tokens: prompt_tokens - overlap_tokens },
            overlap_tokens,
            is_exact: !request.lacks_tokens(),
            work_s: work_s(view, prompt_tokens),
        };
        // Before the assumption below, by which the device holds all of the prompt.
        let tier_tokens = self.tier_tokens(view, keys, request.now);
        if let Some(keys) = keys {
            self.index.update(replica, Update::Assume(keys), request.now);
        }
        self.homes.note(turns(request, keys), replica);
        if let Some(text) = request.text_keys {
            let assume = Update::Assume(text);
            self.text_index.update(replica, assume, request.now);
        }
        Ok(Decision {
            replica,
            overlap_tokens,
            tier_tokens,
            prompt_tokens,
            candidates: {
                let candidate = |scored: &ScoredCandidate| candidate(scored, prompt_tokens);
                scored.iter().map(candidate).collect()
            },
            reservation: self.reserve(reservation, prompt_tokens, request.now),
        })
    }

    /// The request's first token is out: its prompt is computed. No effect on a request that has
    /// ended or whose replica was removed.
    pub fn first_token(&mut self, reservation: ReservationId, now: Nanos) {
        let Some(before) = self.reservations.advance(reservation) else {
            return;
        };
        let Phase::Prefill { tokens } = before.phase else {
            unreachable!("it was not computed before");
        };
        let held = before.overlap_tokens;
        let load = load_mut(&mut self.replicas, before.replica);
        load.in_flight.leave(before.phase);
        // Each decode step reads the whole prompt, cached or computed.
        load.in_flight.enter(Phase::Decode { tokens: tokens + held });
        load.backlog.remove(before.work_s, now);
        // Overlaps from text are estimates; they would blur the rate of the index's predictions.
        if before.is_exact {
            self.counts.predicted.record(tokens + held, held);
        }
    }

    /// The request has ended, however. No effect on one that ended before or whose replica was
    /// removed.
    pub fn finish(&mut self, reservation: ReservationId, now: Nanos) {
        if let Some(ended) = self.reservations.close(reservation) {
            let load = load_mut(&mut self.replicas, ended.replica);
            load.in_flight.leave(ended.phase);
            // Without a first token its prompt may never be computed, so neither work nor tokens
            // stay.
            if let Phase::Prefill { tokens } = ended.phase {
                let held = ended.overlap_tokens;
                load.backlog.remove(ended.work_s, now);
                load.placed.take_back(tokens + held, held, now);
            }
        }
    }

    /// All replicas, by ascending id.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaStatus> {
        let members = self.replicas.iter();
        members.map(|(&replica, member)| ReplicaStatus {
            replica,
            health: member.health,
            in_flight: member.load.in_flight,
        })
    }

    /// Returns a replica's load report while it is fresh.
    #[must_use]
    pub fn report_of(&self, replica: ReplicaId, now: Nanos) -> Option<ReportedLoad> {
        self.replicas.get(&replica)?.load.fresh_report(now)
    }

    /// Returns the counters so far, and the size of the index.
    #[must_use]
    pub fn stats(&self) -> RouterStats {
        let RouterCounts { refused, ignored_events, predicted } = self.counts;
        RouterStats {
            refused,
            reservations: self.reservations.len(),
            ignored_events,
            predicted,
            index: self.index.stats(),
        }
    }

    /// Asserts that no reservation leaks. O(requests in flight); for tests and idle routers.
    ///
    /// # Panics
    /// When what replicas have in flight is not the sum of the live reservations.
    pub fn check(&self) {
        let mut sums = self.reservations.sums();
        for status in self.replicas() {
            let sum = sums.remove(&status.replica).unwrap_or_default();
            let replica = status.replica;
            assert_eq!(status.in_flight, sum, "replica {replica}: reservations leak");
        }
        assert!(sums.is_empty(), "reservations have a replica: {sums:?}");
    }

    /// Every replica at the time of `request`.
    fn views(&mut self, request: &RouteRequest<'_>, keys: Option<&PromptKeys>) -> Vec<ReplicaView> {
        let now = request.now;
        match keys {
            Some(keys) => self.index.overlaps(keys, now, &mut self.overlaps),
            None => self.overlaps.clear(),
        }
        let by_text = request.text_keys.map(|text| {
            let mut overlaps = Overlaps::default();
            self.text_index.overlaps(text, now, &mut overlaps);
            overlaps
        });
        let view = |(&replica, member): (&ReplicaId, &FleetMember)| {
            let exact = self.overlaps.of(replica);
            let by_text = by_text.as_ref().map(|overlaps| overlaps.of(replica));
            let overlap = by_text.map_or(exact, |by_text| exact.or_longer(by_text));
            let (load, engine) = (&member.load, &member.engine);
            // Of requests that only a report knows, each is taken to be like the others.
            // Not below 0: the depth is the larger of two counts, one of which is `queued`.
            let unknown = load.queue_depth(now) - load.in_flight.queued;
            ReplicaView {
                replica,
                health: member.health,
                device_tokens: overlap.device_tokens as usize,
                any_tier_tokens: overlap.any_tier_tokens as usize,
                trusted_tokens: overlap.trusted_tokens as usize,
                home_lead: None,
                queue_depth: load.queue_depth(now),
                requests: load.requests(now),
                prefill_tokens: load.in_flight.prefill_tokens,
                reported_waiting: load.reported_waiting(now),
                kv_usage: load.kv_usage(now),
                engine: *engine,
                backlog_s: load.backlog.wait_s(now) + unknown as f64 * load.backlog.mean_s(),
                placed_tokens: load.placed.tokens(now),
                placed_new_tokens: load.placed.new_tokens(now),
                decoding: load.decoding(engine, now),
            }
        };
        let mut views: Vec<_> = self.replicas.iter().map(view).collect();
        // The same messages once more continue nothing, and may spread.
        let earlier = match request.messages {
            [earlier @ .., _] => earlier,
            [] => turns(request, keys),
        };
        if let Some(home) = self.homes.find(earlier) {
            set_home_lead(&mut views, home, request.lacks_tokens());
        }
        views
    }

    /// Splits the overlap of the chosen replica by tier.
    fn tier_tokens(
        &self,
        chosen: &ReplicaView,
        keys: Option<&PromptKeys>,
        now: Nanos,
    ) -> TierTokens {
        // In most choices the device holds all, and nothing needs to be looked up.
        let is_lower = chosen.device_tokens < chosen.any_tier_tokens;
        match keys.filter(|_| is_lower) {
            Some(keys) => self.index.tier_tokens(keys, chosen.replica, now),
            None => TierTokens::on_device(chosen.any_tier_tokens as u32),
        }
    }

    fn reserve(
        &mut self,
        reservation: RequestReservation,
        prompt_tokens: usize,
        now: Nanos,
    ) -> ReservationId {
        let load = load_mut(&mut self.replicas, reservation.replica);
        load.in_flight.enter(reservation.phase);
        load.backlog.add(reservation.work_s, now);
        load.placed.add(prompt_tokens, reservation.overlap_tokens, now);
        self.reservations.open(reservation)
    }
}

/// Says of the conversation's replica by how much it leads, where no other holds more.
///
/// Where the overlaps are estimates, one that is longer elsewhere is no reason to leave: earlier
/// turns whose tokens were known are missing among the texts, those of like prompts may not be.
fn set_home_lead(views: &mut [ReplicaView], home: ReplicaId, are_estimates: bool) {
    let others = views.iter().filter(|view| view.replica != home);
    let most = others.map(|view| view.any_tier_tokens).max().unwrap_or(0);
    // `None` where another replica holds more: leaving the home then saves work.
    if let Some(view) = views.iter_mut().find(|view| view.replica == home) {
        let lead = view.any_tier_tokens.checked_sub(most);
        view.home_lead = lead.or(are_estimates.then_some(0));
    }
}

/// Keys that name ever longer parts of a prompt: its messages, else its blocks of the smallest
/// size, which say most.
fn turns<'a>(request: &RouteRequest<'a>, keys: Option<&'a PromptKeys>) -> &'a [RouteKey] {
    if !request.messages.is_empty() {
        return request.messages;
    }
    let chains = request.text_keys.or(keys).map_or(&[][..], PromptKeys::chains);
    chains.first().map_or(&[], |chain| &chain.keys)
}

fn prompt_of<'a>(request: &RouteRequest<'a>) -> Option<Prompt<'a>> {
    let RouteRequest { media, namespace, .. } = *request;
    request.tokens.map(|tokens| Prompt { tokens, media, namespace })
}

fn candidate(scored: &ScoredCandidate, prompt_tokens: usize) -> Candidate {
    Candidate {
        replica: scored.view.replica,
        overlap_tokens: scored.view.any_tier_tokens,
        prefill_tokens: scored.view.prefill_tokens,
        score: scored.score,
        ttft_s: predicted_ttft_s(&scored.view, prompt_tokens),
    }
}

fn no_replica(views: &[ReplicaView]) -> NoReplica {
    let is_down = |view: &&ReplicaView| view.health == Health::Down;
    NoReplica { known: views.len(), down: views.iter().filter(is_down).count() }
}

fn load_mut(replicas: &mut BTreeMap<ReplicaId, FleetMember>, replica: ReplicaId) -> &mut Load {
    let member = replicas.get_mut(&replica);
    &mut member.expect("a live reservation's replica is known").load
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Nanos = Nanos(0);

    fn router() -> Router {
        let mut router = Router::new(RouterConfig {
            model: "m".to_owned(),
            profile: Profile::precise(),
            seed: 1,
        });
        router.add_replica(ReplicaId(0), Some(16), AT);
        router
    }

    fn asked(router: &mut Router) -> ReservationId {
        let request = RouteRequest { tokens: Some(&[7; 64]), ..RouteRequest::default() };
        router.route(&request).expect("a replica").reservation
    }

    fn placed(router: &Router) -> (f64, f64) {
        let placed = &router.replicas[&ReplicaId(0)].load.placed;
        (placed.tokens(AT), placed.new_tokens(AT))
    }

    #[test]
    fn a_prompt_is_placed_unless_it_is_never_computed() {
        let mut router = router();
        let refused = asked(&mut router);
        assert_eq!(placed(&router), (64.0, 64.0));
        router.finish(refused, AT);
        assert_eq!(placed(&router), (0.0, 0.0));
        let answered = asked(&mut router);
        router.first_token(answered, AT);
        router.finish(answered, AT);
        // The first one was assumed to be held, so that this one is not new.
        assert_eq!(placed(&router), (64.0, 0.0));
    }

    #[test]
    fn whoever_went_down_holds_nothing() {
        let mut router = router();
        let answered = asked(&mut router);
        router.first_token(answered, AT);
        router.set_health(ReplicaId(0), Health::Down, AT);
        router.set_health(ReplicaId(0), Health::Healthy, AT);
        assert_eq!(placed(&router), (0.0, 0.0));
    }
}
