//! The loop: what happens next, and to whom.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use headstart_cache::policy::{self, Setting};
use headstart_core::{Nanos, ReplicaId, Rng, SeqId};
use headstart_router::stream::ReplayId;
use headstart_router::{Health, RouterConfig};
use headstart_scheduler::{Output, Submit};

use super::config::{Fault, FleetConfig};
use super::gateway::{Gateway, Heard, ReplayRequest};
use super::outcome::{FleetOutcome, RungObservations, ServedRequest};
use super::prompts::Prompts;
use super::publisher::{BatchRetention, Publisher};
use super::recovery::BySecond;
use super::replica::VirtualReplica;
use super::timeline::EventQueue;
use super::workload::{FleetWorkload, Request};

/// Name of the model that all replicas serve.
const MODEL: &str = "simulated";

/// Least time between two looks at the clock.
const TICK: Duration = Duration::from_micros(1);

mod faults;
mod requests;
mod streams;

/// A run in progress.
pub struct FleetRun<'a> {
    config: &'a FleetConfig,
    workload: &'a FleetWorkload,
    gateways: Vec<GatewaySeat>,
    replicas: Vec<ReplicaSeat>,
    prompts: Prompts,
    timeline: EventQueue<FleetEvent>,
    now: Nanos,
    rng: Rng,
    rung: usize,
    rung_start: Nanos,
    /// Requests of the rung that are neither answered nor given up.
    open: usize,
    in_flight: HashMap<SeqId, InFlightRequest>,
    /// Requests sent so far: gateways take them in turn.
    sent: usize,
    collected: Vec<RungObservations>,
    by_second: BySecond,
    preemptions: u64,
    steps: u64,
}

/// A gateway, and how it is reached.
struct GatewaySeat {
    gateway: Gateway,
    /// From when on it serves.
    up_at: Nanos,
    /// Processes before this one.
    life: u32,
    /// Per replica, the time of its stream's next timer.
    timers: Vec<Option<Nanos>>,
}

/// A replica's place: process after process.
struct ReplicaSeat {
    replica: VirtualReplica,
    publisher: Publisher,
    is_alive: bool,
    /// Processes before this one.
    life: u32,
    /// Requests that are to be given up when the step on its way is over.
    unwanted: Vec<SeqId>,
    /// Preemptions of earlier processes.
    preemptions: u64,
}

/// A request on its way.
struct InFlightRequest {
    /// Its position in the rung.
    position: usize,
    gateway: usize,
    replica: usize,
    /// Tokens of the prompt that the router counted as cached there.
    predicted_tokens: u32,
    served: ServedRequest,
    has_token: bool,
}

/// An event of the simulation.
enum FleetEvent {
    /// A rung begins.
    Rung,
    /// A request of the rung is sent: the one at the position, and the next one after it.
    Arrival(usize),
    /// The request at the position comes to a gateway; it was sent so long ago.
    Reach(usize, Nanos),
    /// The request at the position is sent, because the one before it is over.
    Follow(usize),
    /// The step of a replica's process ends.
    Step { replica: usize, life: u32 },
    /// Something comes to a gateway's process over a replica's stream.
    Heard { gateway: usize, life: u32, replica: usize, heard: Heard },
    /// A question comes to a replica.
    Asked { gateway: usize, life: u32, replica: usize, replay: ReplayId, from: u64 },
    /// Gateways look at all replicas.
    Scrape,
    /// Something goes wrong.
    Fault(Fault),
    /// A replica's next process begins.
    Return(usize),
    /// Gateways find out how a replica is.
    Notice(usize),
    /// A gateway's next process begins.
    GatewayUp(usize),
}

impl<'a> FleetRun<'a> {
    /// Begins at time 0 with empty caches.
    ///
    /// # Panics
    /// When fleet or workload are none: see [`FleetConfig::check`] and [`FleetWorkload::check`].
    #[must_use]
    pub fn new(config: &'a FleetConfig, workload: &'a FleetWorkload) -> Self {
        config.check();
        workload.check();
        let now = Nanos(0);
        let mut run = Self {
            config,
            workload,
            gateways: Vec::new(),
            replicas: Vec::new(),
            prompts: Prompts::default(),
            timeline: EventQueue::default(),
            now,
            rng: Rng::new(config.seed),
            rung: 0,
            rung_start: now,
            open: 0,
            in_flight: HashMap::new(),
            sent: 0,
            collected: Vec::new(),
            by_second: BySecond::default(),
            preemptions: 0,
            steps: 0,
        };
        run.replicas =
            (0..config.replicas.len()).map(|number| run.new_replica(number, 0)).collect();
        for number in 0..config.gateways {
            let seat = run.new_gateway(number, 0);
            run.gateways.push(seat);
            run.connect_all(number);
        }
        // Planned before the first rung, so that a fault at time 0 precedes its requests.
        for &fault in &config.faults {
            let (Fault::Crash { at, .. } | Fault::GatewayRestart { at, .. }) = fault;
            run.timeline.add(now + at, FleetEvent::Fault(fault));
        }
        run.timeline.add(now, FleetEvent::Rung);
        run.timeline.add(now, FleetEvent::Scrape);
        run
    }

    /// Runs to the end and tells what happened.
    #[must_use]
    pub fn finish(self) -> FleetOutcome {
        self.finish_with(|_| ())
    }

    /// The same; calls `on_rung` with the number of finished rungs whenever that grows.
    #[must_use]
    pub fn finish_with(mut self, on_rung: impl Fn(usize)) -> FleetOutcome {
        // Scrapes plan each other for ever, so the rungs end the run, not the queue.
        while self.rung < self.workload.rungs.len()
            && let Some((at, what)) = self.timeline.pop()
        {
            let before = self.rung;
            self.now = at;
            self.happen(what);
            if self.rung > before {
                on_rung(self.rung);
            }
        }
        self.check();
        let faults = self.config.faults.iter().filter(|fault| self.has_been(fault));
        FleetOutcome {
            recoveries: faults.map(|&fault| self.by_second.recovery(fault)).collect(),
            steps: self.steps,
            ..FleetOutcome::of(&self.collected, &self.workload.rungs, self.config.slo)
        }
    }

    /// Whether the run lasted until then.
    fn has_been(&self, fault: &Fault) -> bool {
        let (Fault::Crash { at, .. } | Fault::GatewayRestart { at, .. }) = *fault;
        Nanos(0) + at <= self.now
    }

    fn happen(&mut self, what: FleetEvent) {
        match what {
            FleetEvent::Rung => self.begin_rung(),
            FleetEvent::Arrival(position) => self.send(position),
            FleetEvent::Reach(position, sent) => self.reach(position, sent),
            FleetEvent::Follow(position) => self.follow(position),
            FleetEvent::Step { replica, life } => self.end_step(replica, life),
            FleetEvent::Heard { gateway, life, replica, heard } => {
                self.hear(gateway, life, replica, heard);
            }
            FleetEvent::Asked { gateway, life, replica, replay, from } => {
                self.answer_replay(gateway, life, replica, ReplayRequest { replay, from });
            }
            FleetEvent::Scrape => self.scrape(),
            FleetEvent::Fault(fault) => self.fail(fault),
            FleetEvent::Return(replica) => self.return_replica(replica),
            FleetEvent::Notice(replica) => self.notice(replica),
            FleetEvent::GatewayUp(gateway) => self.gateway_up(gateway),
        }
    }

    fn new_replica(&self, number: usize, life: u32) -> ReplicaSeat {
        let spec = &self.config.replicas[number];
        // Without losses a replay is asked for only to know the publisher.
        let keeps = if self.config.is_calm() {
            BatchRetention::LastHead
        } else {
            BatchRetention::Batches(self.config.network.replay_batches)
        };
        let setting = Setting {
            capacity: spec.capacity_blocks,
            block_tokens: spec.scheduler.block_size as u32,
        };
        let policy = policy::by_name(&self.config.policy, setting);
        ReplicaSeat {
            replica: VirtualReplica::new(spec, policy.expect("`check` knows the policy")),
            publisher: Publisher::new(u64::from(life), keeps),
            is_alive: true,
            life,
            unwanted: Vec::new(),
            preemptions: 0,
        }
    }

    fn new_gateway(&self, number: usize, life: u32) -> GatewaySeat {
        // Each process draws differently, and the same in every run.
        let seed = self.config.seed ^ (number as u64) << 32 ^ u64::from(life);
        let router =
            RouterConfig { model: MODEL.to_owned(), profile: self.config.profile.clone(), seed };
        let replicas = &self.config.replicas;
        GatewaySeat {
            gateway: Gateway::new(router, replicas, self.now),
            up_at: self.now,
            life,
            timers: vec![None; replicas.len()],
        }
    }

    fn request(&self, position: usize) -> &'a Request {
        let workload = self.workload;
        &workload.rungs[self.rung].requests[position]
    }

    fn collected(&mut self) -> &mut RungObservations {
        &mut self.collected[self.rung]
    }

    fn begin_rung(&mut self) {
        let rung = &self.workload.rungs[self.rung];
        self.rung_start = self.now;
        self.open = rung.requests.len();
        self.collected
            .push(RungObservations { seconds: rung.seconds, ..RungObservations::default() });
        // Its end would never come: the last request ends a rung.
        if self.open == 0 {
            self.end_rung();
        } else {
            self.next_arrival(0);
        }
    }

    fn end_rung(&mut self) {
        // Processes that died have counts as well, or a crash would lower the sum.
        let seats = self.replicas.iter();
        let preemptions = seats.map(|seat| seat.preemptions + seat.replica.preemptions());
        let preemptions: u64 = preemptions.sum();
        let lasted_s = self.now.since(self.rung_start).as_secs_f64();
        let before = std::mem::replace(&mut self.preemptions, preemptions);
        let collected = self.collected();
        collected.preemptions = Some(preemptions - before);
        // A rung lasts as long as planned even if its requests end earlier.
        collected.lasted_s = lasted_s.max(collected.seconds);
        self.rung += 1;
        if self.rung < self.workload.rungs.len() {
            self.timeline.add(self.now + self.config.pause, FleetEvent::Rung);
        }
    }

    fn scrape(&mut self) {
        for (number, seat) in self.replicas.iter().enumerate() {
            if !seat.is_alive {
                continue;
            }
            let report = seat.replica.report(self.now);
            // A gateway that is down sees no report.
            for gateway in self.gateways.iter_mut().filter(|gateway| gateway.up_at <= self.now) {
                gateway.gateway.on_report(ReplicaId(number as u32), report);
            }
            // Between two rungs there is nothing to add to.
            if let Some(collected) = self.collected.get_mut(self.rung) {
                collected.waiting.note(f64::from(report.waiting));
                collected.running.note(f64::from(report.running));
                collected.kv_usage.note(report.kv_usage);
            }
        }
        let next = self.now + self.config.network.scrape;
        self.timeline.add(next, FleetEvent::Scrape);
    }

    /// Asserts that nothing is left over.
    fn check(&self) {
        assert!(self.in_flight.is_empty(), "all requests have ended");
        for seat in &self.replicas {
            seat.replica.check();
        }
        for seat in &self.gateways {
            seat.gateway.check();
        }
    }
}
