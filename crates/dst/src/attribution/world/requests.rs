//! A request from its placing to its end.
//!
//! A replica computes one prompt at a time, in the order in which they came, and looks its cache up
//! when a prompt's turn has come. What it refuses, and what breaks with it before the first token,
//! the gateway places elsewhere at once; what breaks later, and what clients gave up, they may ask
//! again.

use std::time::Duration;

use headstart_core::{ReplicaId, TokenId};
use headstart_insight::Bucket;
use headstart_insight::loss::{ArrivingRequest, Pending, ServedTokens};
use headstart_router::{Decision, Health, Prompt, ReservationId, RouteRequest};

use super::super::author::{RequestDraft, Space, WrittenToken};
use super::super::engine::Running;
use super::super::oracle::{OracleQuery, PromptNodes};
use super::super::verdicts::{TIERS, said, truth};
use super::{BLOCK_SIZE, BlockText, World, WorldEvent};

/// Requests that wait at a replica; it refuses more.
const WAITING_MAX: usize = 24;

/// Most retries of one request; the default fleet has as many other replicas.
const TRIES: u32 = 3;

/// A request to place, and the replicas to avoid.
#[derive(Clone)]
pub(super) struct PlacementOrder {
    pub(super) draft: RequestDraft,
    /// One of several alike: only the first one's answer counts.
    pub(super) is_copy: bool,
    /// Replicas that have just failed it.
    pub(super) excluded: Vec<ReplicaId>,
    /// Retries of its client so far.
    pub(super) again: u32,
}

/// A request that a replica has taken on.
pub(super) struct AcceptedRequest {
    pub(super) replica: usize,
    pub(super) order: PlacementOrder,
    pub(super) named: PromptNodes,
    why: Vec<Bucket>,
    /// None while it waits, and where a cache was cleared under it.
    pub(super) running: Option<Running>,
    /// Tokens served to it when its turn came, by source.
    served: ServedTokens,
    since: headstart_core::Nanos,
    prefill: Duration,
    /// Number of times that its prompt was begun.
    attempt: u32,
    /// None when it has ended.
    pending: Option<Pending>,
    reservation: ReservationId,
}

impl World {
    /// Sends a request, perhaps several times.
    pub(super) fn ask(&mut self, draft: &RequestDraft) {
        for copy in 0..draft.copies {
            self.place(PlacementOrder {
                draft: draft.clone(),
                is_copy: copy > 0,
                excluded: Vec::new(),
                again: 0,
            });
        }
    }

    /// The gateway places a request: where it is refused, elsewhere.
    pub(super) fn place(&mut self, mut order: PlacementOrder) {
        let prompt = &order.draft.prompt;
        let tokens: Vec<TokenId> = prompt.iter().map(|written| written.token).collect();
        let (pending, decision) = loop {
            // Every replica has refused, or is down. The client tries once more after a pause.
            let Some((pending, decision)) = self.route(&order, &tokens) else {
                return self.ask_again(order, Duration::from_secs(1));
            };
            let replica = &self.replicas[decision.replica.0 as usize];
            let (is_up, is_full) = (replica.is_up, replica.waiting.len() >= WAITING_MAX);
            // Drawn also where it changes nothing, so that each attempt takes the same number of
            // draws.
            let refuses = self.rng.next_f64() < self.config.refused;
            if is_up && !is_full && !refuses {
                break (pending, decision);
            }
            self.attributor.abandon(&pending);
            self.router.finish(decision.reservation, self.now);
            self.verdicts.abandoned += 1;
            order.excluded.push(decision.replica);
            if !is_up {
                // No connection: it counts as dead, at once.
                self.believe(decision.replica.0 as usize, Health::Down);
            }
        };
        let named = self.name(order.draft.space, &order.draft.prompt);
        let replica = decision.replica.0 as usize;
        // Asked before `waits`: a request does not count as in flight by itself.
        let why = self.oracle.why(&OracleQuery {
            prompt: &order.draft.prompt,
            named: &named,
            chosen: replica,
            predicted: decision.overlap_tokens,
            block_size: BLOCK_SIZE,
        });
        self.oracle.waits(replica, &named.nodes);
        let id = self.requests.len();
        self.requests.push(AcceptedRequest {
            replica,
            order,
            named,
            why,
            running: None,
            served: ServedTokens::default(),
            since: self.now,
            prefill: Duration::ZERO,
            attempt: 0,
            pending: Some(pending),
            reservation: decision.reservation,
        });
        self.replicas[replica].waiting.push_back(id);
        if self.rng.next_f64() < self.config.impatient {
            let patience = self.around(Duration::from_millis(150));
            self.after(patience, WorldEvent::Leave(id));
        }
        self.start_next(replica);
    }

    /// Chooses a replica as the gateway does, and tells the attributor.
    fn route(&mut self, order: &PlacementOrder, tokens: &[TokenId]) -> Option<(Pending, Decision)> {
        let namespace = order.draft.space.namespace();
        // One set of keys for routing and attribution, as in the gateway.
        let index = self.router.index();
        let keys = index.hash(Prompt { tokens, namespace, ..Prompt::default() });
        let decision = self.router.route(&RouteRequest {
            tokens: Some(tokens),
            keys: Some(&keys),
            namespace,
            excluded: &order.excluded,
            now: self.now,
            ..RouteRequest::default()
        });
        let decision = decision.ok()?;
        let overlaps = decision.candidates.iter();
        let overlaps: Vec<_> =
            overlaps.map(|one| (one.replica, one.overlap_tokens as u32)).collect();
        let arrival = ArrivingRequest {
            replica: decision.replica,
            prompt_tokens: tokens.len() as u32,
            block_size: BLOCK_SIZE as u32,
            keys: keys.of_size(BLOCK_SIZE as u32),
            tokens: Some(tokens),
            namespace: order.draft.space.number(),
            overlaps: &overlaps,
        };
        Some((self.attributor.arrive(&arrival, self.now), decision))
    }

    /// The next prompt's turn, where none is computed.
    pub(super) fn start_next(&mut self, replica: usize) {
        let state = &mut self.replicas[replica];
        if state.computing.is_some() || !state.is_up {
            return;
        }
        let Some(id) = state.waiting.pop_front() else {
            return;
        };
        state.computing = Some(id);
        let request = &mut self.requests[id];
        let nodes = &request.named.nodes;
        self.oracle.waited(replica, nodes);
        let prompt = request.order.draft.prompt.len();
        // The last token is always computed, and with it its block.
        let usable = prompt.saturating_sub(1) / BLOCK_SIZE;
        let loads = self.rng.next_f64() >= self.config.failed_loads;
        let engine = &mut state.engine;
        let running = engine.take(nodes, usable, loads, &mut self.oracle, self.now);
        let served = &mut request.served;
        *served = ServedTokens::by_device((running.device * BLOCK_SIZE) as u32);
        let lower = TIERS.iter().position(|&tier| tier == engine.tier());
        served.tiers[lower.expect("a tier")] = (running.loaded * BLOCK_SIZE) as u32;
        served.load_failed = (running.failed * BLOCK_SIZE) as u32;
        let computed = prompt - BLOCK_SIZE * (running.device + running.loaded);
        request.running = Some(running);
        // Microseconds: 8 ms for a step and 60 µs for each token.
        request.prefill = Duration::from_micros(8_000 + 60 * computed as u64);
        (request.since, request.attempt) = (self.now, request.attempt + 1);
        let (prefill, attempt) = (request.prefill, request.attempt);
        self.announce(replica);
        self.after(prefill, WorldEvent::FirstToken(id, attempt));
    }

    pub(super) fn first_token(&mut self, id: usize, attempt: u32) {
        let request = &mut self.requests[id];
        let replica = request.replica;
        // The client left, or the cache was cleared and the prompt started over.
        if self.replicas[replica].computing != Some(id) || request.attempt != attempt {
            return;
        }
        let (named, prompt) = (&request.named, &request.order.draft.prompt);
        let running = request.running.as_mut().expect("it is computed");
        let state = &mut self.replicas[replica];
        state.engine.computed(running, &named.nodes, &mut self.oracle, self.now);
        self.oracle.read(prompt, named, prompt.len(), BLOCK_SIZE);
        let pending = request.pending.as_mut().expect("it has not ended");
        self.attributor.computed(pending, self.now);
        self.router.first_token(request.reservation, self.now);
        state.computing = None;
        state.answering.push(id);
        self.announce(replica);
        let decoding = self.around(Duration::from_millis(400));
        self.after(decoding, WorldEvent::Done(id));
        self.start_next(replica);
    }

    pub(super) fn done(&mut self, id: usize) {
        // The client left meanwhile.
        let Some(pending) = self.requests[id].pending.take() else {
            return;
        };
        self.judge(id, pending);
        let request = &mut self.requests[id];
        let replica = request.replica;
        let state = &mut self.replicas[replica];
        state.answering.retain(|&other| other != id);
        self.router.finish(request.reservation, self.now);
        // A copy is answered as well, but its answer is no part of the conversation.
        let (session, is_copy) = (request.order.draft.session, request.order.is_copy);
        let answer = self.author.answer(session, !is_copy);
        if let Some(running) = request.running.take() {
            let mut tokens = request.order.draft.prompt.clone();
            tokens.extend(answer);
            let space = request.order.draft.space;
            // The last token of an answer is never computed.
            let named = self.name(space, &tokens[..tokens.len() - 1]);
            let engine = &mut self.replicas[replica].engine;
            engine.done(running, &named.nodes, &mut self.oracle, self.now);
        }
        self.announce(replica);
        if !is_copy {
            self.go_on(session);
        }
    }

    /// Compares the attributor's bucket of each token with the truth.
    fn judge(&mut self, id: usize, pending: Pending) {
        let request = &self.requests[id];
        let laid_out: Vec<_> = pending.runs().collect();
        let outcome = self.attributor.finish(pending, &request.served, self.now);
        let said = said(&laid_out, &request.served, request.order.draft.prompt.len());
        // The counts per bucket must be those of the runs, whatever the truth is.
        for bucket in Bucket::ALL {
            let count = said.iter().filter(|&&said| said == bucket).count();
            let counted = outcome.split.get(bucket) as usize;
            assert_eq!(count, counted, "the split is what was laid out");
        }
        let truth = truth(&request.why, &request.served);
        self.verdicts.add(truth, said);
    }

    /// A client leaves, if it still waits: its request ends wherever it stands.
    pub(super) fn leave(&mut self, id: usize) {
        let replica = self.requests[id].replica;
        if self.requests[id].pending.is_none() {
            return;
        }
        let state = &mut self.replicas[replica];
        if state.computing == Some(id) {
            state.computing = None;
            self.cancel(id);
        } else if let Some(at) = state.waiting.iter().position(|&other| other == id) {
            // Not begun yet: nothing was computed for it.
            state.waiting.remove(at);
            self.oracle.waited(replica, &self.requests[id].named.nodes);
        } else {
            state.answering.retain(|&other| other != id);
            if let Some(running) = self.requests[id].running.take() {
                state.engine.stop(running, self.now);
            }
        }
        self.give_up(id);
        self.announce(replica);
        self.start_next(replica);
        let order = self.requests[id].order.clone();
        match self.rng.below(3) {
            // The same again, or a new question behind the one that has no answer.
            0 => self.ask_again(order, Duration::from_secs(2)),
            1 if !order.is_copy => self.go_on(order.draft.session),
            _ => {}
        }
    }

    /// Stops computing a prompt: what is computed by now stays.
    fn cancel(&mut self, id: usize) {
        let request = &mut self.requests[id];
        let running = request.running.take().expect("it is computed");
        let share = self.now.since(request.since).as_secs_f64() / request.prefill.as_secs_f64();
        let (held, all) = (running.device + running.loaded, request.named.nodes.len());
        // Rounding may give more than the whole time.
        let upto = held + ((all - held) as f64 * share.min(1.0)) as usize;
        let (named, prompt) = (&request.named, &request.order.draft.prompt);
        let engine = &mut self.replicas[request.replica].engine;
        engine.cancel(running, &named.nodes, upto, &mut self.oracle, self.now);
        self.oracle.read(prompt, named, upto * BLOCK_SIZE, BLOCK_SIZE);
    }

    /// The gateway gives a request up.
    pub(super) fn give_up(&mut self, id: usize) {
        let request = &mut self.requests[id];
        let pending = request.pending.take().expect("it has not ended");
        self.attributor.abandon(&pending);
        self.router.finish(request.reservation, self.now);
        self.verdicts.abandoned += 1;
    }

    /// A client asks the same again, but not for ever.
    pub(super) fn ask_again(&mut self, mut order: PlacementOrder, pause: Duration) {
        order.again += 1;
        // Replicas that refused may have room after the pause.
        order.excluded.clear();
        if order.again <= TRIES {
            let pause = self.around(pause);
            self.after(pause, WorldEvent::Again(order));
        }
    }

    fn go_on(&mut self, session: usize) {
        if let Some(draft) = self.author.go_on(session) {
            let thinking = self.around(Duration::from_secs(4));
            self.after(thinking, WorldEvent::Ask(draft));
        }
    }

    fn name(&mut self, space: Space, tokens: &[WrittenToken]) -> PromptNodes {
        let named = self.oracle.name(space.number(), tokens, BLOCK_SIZE);
        let mut parent = None;
        for (&node, block) in named.nodes.iter().zip(tokens.chunks_exact(BLOCK_SIZE)) {
            self.texts.entry(node).or_insert_with(|| BlockText {
                parent,
                tokens: block.iter().map(|written| written.token).collect(),
                space,
            });
            parent = Some(node);
        }
        named
    }
}
