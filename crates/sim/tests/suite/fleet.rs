//! Fleets: the same bytes again, nothing lost, and what faults and strategies do.

use std::sync::Arc;
use std::time::Duration;

use headstart_core::{Access, CostModel, Rng};
use headstart_router::Profile;
use headstart_scheduler::{QueueOrder, SchedulerConfig};
use headstart_sim::fleet::replica::ReplicaSpec;
use headstart_sim::fleet::{
    Fault, FleetConfig, FleetOutcome, FleetRun, FleetWorkload, FollowUpRequest, Ladder, Network,
    Order, Request, RequestPacing, Rung, Segment, Slo,
};

/// 10 ms a step, 100 µs a token.
const COST: CostModel = CostModel {
    overhead_s: 0.01,
    weights_s: 0.0,
    token_s: 1e-4,
    pair_s: 0.0,
    kv_token_s: 1e-7,
    sequence_s: 0.0,
};

fn fleet(strategy: &str, replicas: usize) -> FleetConfig {
    let spec = ReplicaSpec {
        cost: COST,
        scheduler: SchedulerConfig {
            max_batched_tokens: 512,
            max_sequences: 64,
            max_waiting: 10_000,
            max_context: 4_096,
            block_size: 16,
            order: QueueOrder::FirstCome,
        },
        capacity_blocks: 400,
    };
    FleetConfig {
        replicas: vec![spec; replicas],
        gateways: 1,
        policy: "lru".to_owned(),
        profile: strategy.parse().expect("a known strategy"),
        seed: 1,
        network: Network::default(),
        pause: Duration::from_secs(1),
        slo: Slo::default(),
        faults: Vec::new(),
    }
}

/// Twelve system prompts of which a replica holds four, asked 20 times a second.
fn workload(seconds: f64) -> FleetWorkload {
    let ladder = Ladder {
        groups: 12,
        prompts: 3,
        system_tokens: 800,
        question_tokens: 160,
        answer_tokens: 40,
        order: Order::InTurn,
        pacing: RequestPacing::Poisson,
        rungs: vec![(10.0, 10.0), (20.0, seconds)],
    };
    ladder.draw(&mut Rng::new(5))
}

fn run(fleet: &FleetConfig, workload: &FleetWorkload) -> FleetOutcome {
    let outcome = FleetRun::new(fleet, workload).finish();
    for (rung, drawn) in outcome.rungs.iter().zip(&workload.rungs) {
        let ended = rung.answered + rung.refused + rung.failed;
        assert_eq!(ended, drawn.requests.len(), "nothing is lost");
        assert!(rung.hits.hits <= rung.hits.lookups);
    }
    outcome
}

#[test]
fn same_seed_same_outcome() {
    let workload = workload(20.0);
    for name in Profile::names() {
        let mut fleet = fleet(name, 3);
        fleet.gateways = 2;
        fleet.network.event_loss = 0.05;
        assert_eq!(run(&fleet, &workload), run(&fleet, &workload), "{name}");
    }
}

#[test]
fn caches_act_as_one_where_prompts_go_where_they_are_cached() {
    let workload = workload(30.0);
    let hit_rate = |name| run(&fleet(name, 4), &workload).rungs[1].hits.rate();
    let (random, precise) = (hit_rate("random"), hit_rate("precise"));
    assert!(precise > 0.85 && random < 0.7, "precise {precise}, random {random}");
}

#[test]
fn one_request_alone_takes_what_its_steps_take() {
    let prompt: Arc<[Segment]> = Arc::new([Segment { text: 1, tokens: 700 }]);
    let request = |turn, at, next| Request {
        seq: Request::name(9, turn),
        at,
        prompt: prompt.clone(),
        answer_tokens: 5,
        access: Access::default(),
        next,
    };
    let think = Duration::from_secs(2);
    let next = Some(FollowUpRequest { request: 1, think });
    let workload = FleetWorkload {
        rungs: vec![Rung {
            rate: 1.0,
            seconds: 1.0,
            requests: vec![request(0, Some(Duration::ZERO), next), request(1, None, None)],
        }],
    };
    let outcome = run(&fleet("precise", 1), &workload);
    let rung = &outcome.rungs[0];
    // The first takes two steps of 512 and 188 tokens; of the second, 43 of 44 blocks are there.
    let first_s = 0.02 + 700.0 * 1e-4 + (512.0 + 700.0) * 1e-7;
    let second_s = 0.01 + 12.0 * 1e-4 + 700.0 * 1e-7;
    assert!((rung.ttft.p99 - first_s).abs() < 1e-6, "{:?}", rung.ttft);
    assert!((rung.ttft.p50 - second_s).abs() < 1e-6, "{:?}", rung.ttft);
    assert_eq!((rung.hits.lookups, rung.hits.hits), (1_400, 688));
    assert_eq!(outcome.steps, 6 + 5);
}

#[test]
fn lost_events_cost_little_because_they_are_asked_for_again() {
    let workload = workload(30.0);
    let hit_rate = |event_loss| {
        let mut fleet = fleet("precise", 4);
        fleet.network.event_loss = event_loss;
        run(&fleet, &workload).rungs[1].hits.rate()
    };
    let (all, most) = (hit_rate(0.0), hit_rate(0.1));
    assert!(most > all - 0.03, "{all} without loss, {most} with");
}

#[test]
fn a_crash_fails_what_was_begun_and_nothing_else() {
    let workload = workload(30.0);
    let mut fleet = fleet("precise", 4);
    let crash = |replica, at| Fault::Crash {
        replica,
        at: Duration::from_secs(at),
        down: Duration::from_secs(3),
    };
    // Slow enough for a request to wait whenever a replica dies.
    fleet.replicas.iter_mut().for_each(|replica| replica.cost.token_s = 1e-3);
    fleet.faults = vec![crash(0, 15), crash(1, 20), crash(0, 30)];
    let outcome = run(&fleet, &workload);
    assert!(outcome.all.retried > 0, "{:?}", outcome.all);
    assert!(outcome.all.failed > 0 && outcome.all.failed < 100);
    assert_eq!(outcome.all.refused, 0);
}

#[test]
fn a_fleet_without_anybody_refuses() {
    let workload = workload(2.0);
    let mut fleet = fleet("load", 1);
    fleet.faults = vec![Fault::Crash {
        replica: 0,
        at: Duration::from_millis(500),
        down: Duration::from_secs(60),
    }];
    let outcome = run(&fleet, &workload);
    let refused: usize = outcome.rungs.iter().map(|rung| rung.refused).sum();
    assert!(refused > 100, "{refused}");
}

#[test]
fn two_gateways_do_as_well_as_one() {
    let workload = workload(60.0);
    let outcome = |gateways| {
        let mut fleet = fleet("precise", 4);
        fleet.gateways = gateways;
        run(&fleet, &workload)
    };
    let (one, two) = (outcome(1), outcome(2));
    let (one, two) = (&one.rungs[1], &two.rungs[1]);
    assert!(two.hits.rate() > one.hits.rate() * 0.95);
}

#[test]
fn a_gateway_that_restarts_learns_again() {
    let workload = workload(60.0);
    let mut fleet = fleet("precise", 4);
    fleet.faults = vec![Fault::GatewayRestart {
        gateway: 0,
        at: Duration::from_secs(40),
        down: Duration::from_millis(500),
    }];
    let outcome = run(&fleet, &workload);
    let recovery = outcome.recoveries[0];
    assert!(outcome.all.failed > 0, "what went through it is lost");
    assert!(recovery.before.rate() > 0.9, "{recovery:?}");
    assert!(recovery.after.rate() > recovery.before.rate() * 0.95, "{recovery:?}");
    assert!(recovery.back_s < Some(10.0), "{recovery:?}");
}
