//! The router as its caller meets it: whole request lives over a small fleet.

mod conversations;

use std::sync::Arc;
use std::time::Duration;

use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, ReplicaId, Rng, Tier, TokenId};
use headstart_dst::index::ReferenceIndex;
use headstart_router::index::ASSUMPTION_TTL;
use headstart_router::profile::IndexKind;
use headstart_router::{
    Decision, Health, NoReplica, Profile, ReportedLoad, RouteRequest, Router, RouterConfig,
};

const BLOCK_SIZE: u32 = 16;

/// Long after every assumption and report of the test's start.
const LATER: Nanos = Nanos(60_000_000_000);

fn config(profile: &str, seed: u64) -> RouterConfig {
    RouterConfig { model: "m".to_owned(), profile: profile.parse().expect("a profile"), seed }
}

/// The profiles that learn from events who holds what.
fn by_events() -> impl Iterator<Item = &'static str> {
    let is_told = |name: &&str| config(name, 0).profile.index == IndexKind::Events;
    Profile::names().filter(is_told)
}

fn fleet(profile: &str, size: u32) -> Router {
    let mut router = Router::new(config(profile, 7));
    (0..size).for_each(|id| router.add_replica(ReplicaId(id), Some(BLOCK_SIZE), Nanos(0)));
    router
}

fn prompt(first_token: TokenId, len: usize) -> Vec<TokenId> {
    (first_token..).take(len).collect()
}

/// Builds the event of a replica that computed `tokens`.
fn stored(tokens: &[TokenId]) -> CacheEvent {
    let num_blocks = tokens.len() / BLOCK_SIZE as usize;
    let name = |block: usize| u64::from(tokens[0]) * 1000 + block as u64;
    CacheEvent::Stored(StoredBlocks {
        blocks: (0..num_blocks).map(|block| BlockHash::from_u64(name(block))).collect(),
        parent: None,
        tokens: tokens[..num_blocks * BLOCK_SIZE as usize].to_vec(),
        block_size: BLOCK_SIZE,
        extras: Vec::new(),
        group: CacheGroup::default(),
        tier: Tier::Device,
        salt: None,
        adapter: None,
    })
}

fn route(router: &mut Router, tokens: &[TokenId], now: Nanos) -> Decision {
    let request = RouteRequest { tokens: Some(tokens), now, ..RouteRequest::default() };
    let decision = router.route(&request).expect("some replica is there");
    router.check();
    decision
}

/// Routes `count` copies of one prompt that never end; expects `expected` requests per replica.
fn check_burst(router: &mut Router, count: usize, expected: &[usize]) {
    let tokens = prompt(0, 64);
    for _ in 0..count {
        route(router, &tokens, Nanos(0));
    }
    let found: Vec<_> = router.replicas().map(|status| status.in_flight.requests).collect();
    assert_eq!(found, expected);
}

/// A gateway shares one router among its threads, behind a lock.
#[test]
fn a_router_moves_between_threads() {
    fn check<T: Send>(_: &T) {}
    check(&fleet("precise", 1));
}

#[test]
fn a_burst_does_not_herd_under_load() {
    check_burst(&mut fleet("load", 8), 64, &[8; 8]);
}

#[test]
fn round_robin_is_fair() {
    check_burst(&mut fleet("round-robin", 3), 30, &[10, 10, 10]);
}

#[test]
fn load_counts_prompt_tokens_among_equal_requests() {
    let mut router = fleet("load", 2);
    let long = route(&mut router, &prompt(0, 1000), Nanos(0));
    let short = route(&mut router, &prompt(5000, 10), Nanos(0));
    assert_ne!(long.replica, short.replica);
    assert_eq!(route(&mut router, &prompt(7000, 10), Nanos(0)).replica, short.replica);
    router.first_token(long.reservation, Nanos(0));
    assert_eq!(route(&mut router, &prompt(8000, 10), Nanos(0)).replica, long.replica);
}

#[test]
fn a_second_turn_goes_to_the_holder() {
    let mut router = fleet("precise", 8);
    let first = route(&mut router, &prompt(0, 160), Nanos(0));
    router.apply(first.replica, &[stored(&prompt(0, 160))], Nanos(0));
    router.first_token(first.reservation, Nanos(0));
    router.finish(first.reservation, Nanos(0));
    let second = route(&mut router, &prompt(0, 200), LATER);
    assert_eq!((second.replica, second.overlap_tokens), (first.replica, 160));
    assert_eq!((second.prompt_tokens, second.candidates.len()), (200, 8));
    let best = second.candidates.iter().max_by(|a, b| a.score.total_cmp(&b.score));
    assert_eq!(best.map(|best| best.replica), Some(second.replica));
    // What was placed counts once it is computed; a replica may refuse it.
    let predicted = |router: &Router| router.stats().predicted;
    assert_eq!((predicted(&router).lookups, predicted(&router).hits), (160, 0));
    router.first_token(second.reservation, Nanos(0));
    router.first_token(second.reservation, Nanos(0));
    assert_eq!((predicted(&router).lookups, predicted(&router).hits), (360, 160));
}

#[test]
fn the_prompt_just_sent_counts_as_held_for_a_while() {
    let mut router = fleet("precise", 8);
    let first = route(&mut router, &prompt(0, 160), Nanos(0));
    let before = Nanos(0) + (ASSUMPTION_TTL - Duration::from_millis(1));
    let second = route(&mut router, &prompt(0, 160), before);
    assert_eq!((second.replica, second.overlap_tokens), (first.replica, 160));
    let after = route(&mut router, &prompt(0, 160), LATER);
    assert_eq!(after.overlap_tokens, 0);
}

#[test]
fn a_far_busier_holder_is_left() {
    let mut router = fleet("precise", 2);
    let holder = ReplicaId(1);
    router.apply(holder, &[stored(&prompt(0, 160))], Nanos(0));
    let other = RouteRequest { tokens: None, excluded: &[ReplicaId(0)], ..RouteRequest::default() };
    (0..10).for_each(|_| assert_eq!(router.route(&other).unwrap().replica, holder));
    // Half of it held: 3 · 0.5 for the holder against 2 for the empty queue.
    assert_eq!(route(&mut router, &prompt(0, 320), LATER).replica, ReplicaId(0));
    // All of it held: only memory on top of the queue drives it away.
    let later = LATER + ASSUMPTION_TTL;
    let mut busy = ReportedLoad { waiting: 10, at: later, ..ReportedLoad::default() };
    router.report(ReplicaId(0), busy);
    busy.kv_usage = 1.0;
    busy.waiting = 50;
    router.report(holder, busy);
    let decision = route(&mut router, &prompt(0, 160), later);
    assert_eq!((decision.replica, decision.overlap_tokens), (ReplicaId(0), 0));
}

#[test]
fn a_replica_that_goes_down_is_forgotten_at_once() {
    for strategy in by_events() {
        let mut router = fleet(strategy, 3);
        let tokens = prompt(0, 160);
        (0..3).for_each(|id| router.apply(ReplicaId(id), &[stored(&tokens)], Nanos(0)));
        let running = route(&mut router, &tokens, Nanos(0));
        assert_eq!(router.stats().index.entries, 30);
        router.set_health(running.replica, Health::Down, Nanos(0));
        // What was under way when it went down comes too late.
        router.apply(running.replica, &[stored(&tokens)], Nanos(0));
        let stats = router.stats();
        assert_eq!(
            (stats.index.entries, stats.index.assumed_prompts, stats.ignored_events),
            (20, 0, 1)
        );
        for _ in 0..50 {
            assert_ne!(route(&mut router, &tokens, Nanos(0)).replica, running.replica);
        }
        router.finish(running.reservation, Nanos(0));
        router.check();
        router.set_health(running.replica, Health::Healthy, Nanos(0));
        router.apply(running.replica, &[stored(&tokens)], Nanos(0));
        assert_eq!(router.stats().index.entries, 30);
    }
}

#[test]
fn a_replica_that_comes_back_starts_without_its_old_report() {
    let mut router = fleet("load", 2);
    let report = ReportedLoad { waiting: 50, ..ReportedLoad::default() };
    router.report(ReplicaId(0), report);
    router.set_health(ReplicaId(0), Health::Down, Nanos(0));
    router.set_health(ReplicaId(0), Health::Healthy, Nanos(0));
    check_burst(&mut router, 10, &[5, 5]);
}

#[test]
fn nobody_left_is_an_error_that_reserves_nothing() {
    for strategy in Profile::names() {
        let mut router = fleet(strategy, 3);
        router.set_health(ReplicaId(1), Health::Down, Nanos(0));
        let request =
            RouteRequest { excluded: &[ReplicaId(0), ReplicaId(2)], ..RouteRequest::default() };
        let error = router.route(&request).unwrap_err();
        assert_eq!(error, NoReplica { known: 3, down: 1 });
        assert!(error.to_string().contains("1 of 3 are down, 2 failed it"));
        assert_eq!(fleet(strategy, 0).route(&request).unwrap_err().known, 0);
        router.check();
        let stats = router.stats();
        assert_eq!((stats.refused, stats.reservations), (1, 0));
    }
}

#[test]
fn ties_are_spread() {
    for strategy in ["precise", "load", "random"] {
        let mut router = fleet(strategy, 4);
        let mut counts = [0; 4];
        for turn in 0..400 {
            let decision = route(&mut router, &prompt(turn * 100, 64), Nanos(0));
            router.finish(decision.reservation, Nanos(0));
            counts[decision.replica.0 as usize] += 1;
        }
        assert!(counts.iter().all(|count| (60..140).contains(count)), "{strategy}: {counts:?}");
    }
}

#[test]
fn a_session_sticks_until_its_replica_is_overloaded() {
    let mut router = fleet("session", 4);
    let request = RouteRequest { session: Some("a"), ..RouteRequest::default() };
    let home = router.route(&request).unwrap();
    router.finish(home.reservation, Nanos(0));
    for _ in 0..10 {
        let again = router.route(&request).unwrap();
        assert_eq!(again.replica, home.replica);
        router.finish(again.reservation, Nanos(0));
    }
    for _ in 0..40 {
        router.route(&request).unwrap();
    }
    let requests = router.replicas().map(|status| status.in_flight.requests);
    // 1.25 times the mean of 10, rounded up.
    assert!(requests.max() <= Some(13));
    router.check();
}

#[test]
fn a_replica_without_events_has_no_overlap_and_still_serves() {
    let mut router = Router::new(config("precise", 1));
    router.add_replica(ReplicaId(0), None, Nanos(0));
    for _ in 0..2 {
        assert_eq!(route(&mut router, &prompt(0, 64), Nanos(0)).overlap_tokens, 0);
    }
}

#[test]
fn late_and_repeated_calls_have_no_effect() {
    let mut router = fleet("load", 1);
    let ended = route(&mut router, &prompt(0, 64), Nanos(0)).reservation;
    router.finish(ended, Nanos(0));
    router.finish(ended, Nanos(0));
    router.first_token(ended, Nanos(0));
    let orphaned = route(&mut router, &prompt(0, 64), Nanos(0)).reservation;
    router.remove_replica(ReplicaId(0), Nanos(0));
    router.add_replica(ReplicaId(0), Some(BLOCK_SIZE), Nanos(0));
    router.finish(orphaned, Nanos(0));
    router.check();
    let unknown = ReplicaId(5);
    router.remove_replica(unknown, Nanos(0));
    router.set_health(unknown, Health::Down, Nanos(0));
    router.report(unknown, ReportedLoad::default());
    router.apply(unknown, &[CacheEvent::Cleared], Nanos(0));
    assert_eq!(router.stats().ignored_events, 1);
}

/// A random life of a fleet; returns what it decided.
fn random_life(router: &mut Router, seed: u64) -> Vec<Result<Decision, NoReplica>> {
    let mut rng = Rng::new(seed);
    let (mut decisions, mut open) = (Vec::new(), Vec::new());
    (0..4).for_each(|id| router.add_replica(ReplicaId(id), Some(BLOCK_SIZE), Nanos(0)));
    for step in 0..400 {
        let now = Nanos(step * 50_000_000);
        let replica = ReplicaId(rng.below(4) as u32);
        let tokens = prompt(rng.below(5) as u32 * 1000, 16 * (1 + rng.below(10)));
        match rng.below(10) {
            0 => router.apply(replica, &[stored(&tokens)], now),
            1 if !open.is_empty() => {
                router.finish(open.swap_remove(rng.below(open.len())), now);
            }
            2 if !open.is_empty() => router.first_token(open[rng.below(open.len())], now),
            3 => {
                let health = [Health::Healthy, Health::Down][rng.below(2)];
                router.set_health(replica, health, now);
            }
            4 if rng.below(4) == 0 => router.remove_replica(replica, now),
            5 => router.add_replica(replica, Some(BLOCK_SIZE), now),
            _ => {
                let request = RouteRequest {
                    tokens: Some(&tokens),
                    session: [None, Some("a"), Some("b")][rng.below(3)],
                    now,
                    ..RouteRequest::default()
                };
                let decision = router.route(&request);
                open.extend(decision.iter().map(|decision| decision.reservation));
                decisions.push(decision);
            }
        }
        router.check();
    }
    decisions
}

#[test]
fn same_seed_and_calls_same_decisions_whatever_the_index() {
    for strategy in by_events() {
        for seed in 0..5 {
            let life = random_life(&mut Router::new(config(strategy, 3)), seed);
            let again = random_life(&mut Router::new(config(strategy, 3)), seed);
            assert_eq!(life, again, "{strategy}, seed {seed}");
            let index = Arc::new(ReferenceIndex::new("m"));
            let mut reference = Router::with_index(config(strategy, 3), index);
            assert_eq!(life, random_life(&mut reference, seed), "{strategy}, seed {seed}");
        }
    }
}
