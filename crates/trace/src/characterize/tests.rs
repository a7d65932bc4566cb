//! The characterizer against the same questions asked slowly, block by block, of a whole trace.

use std::collections::{BTreeMap, BTreeSet};

use headstart_core::{BlockRuns, Nanos, Rng, Run, SessionId, TraceRequest};

use super::report::{Hits, Origins};
use super::{
    Characterization, Characterizer, Histogram, RecordLimits, Settings, TURNS_MAX, testing,
};

const SETTINGS: Settings = Settings {
    block_tokens: 16,
    kv_bytes_per_token: Some(1000.0),
    device_bytes: Some(1e6),
    limits: RecordLimits { pieces: usize::MAX, sessions: usize::MAX, users: usize::MAX },
};

fn user(index: usize, request: &TraceRequest) -> Option<u64> {
    let session = request.session.map_or(index as u64, |session| session.0);
    (!session.is_multiple_of(4)).then_some(session % 7)
}

fn characterize(trace: &[TraceRequest], settings: Settings) -> Characterization {
    let mut characterizer = Characterizer::new(settings);
    for (index, request) in trace.iter().enumerate() {
        characterizer.add_of(request, user(index, request));
    }
    characterizer.finish()
}

/// One reference to a block that was used before.
struct Reuse {
    request: usize,
    before: usize,
    offset: usize,
}

/// All hits of a trace whose ids name prefixes: a block used before is one.
fn reuses(trace: &[TraceRequest]) -> Vec<Reuse> {
    let mut last: BTreeMap<u64, usize> = BTreeMap::new();
    let mut reuses = Vec::new();
    for (request, row) in trace.iter().enumerate() {
        for (offset, id) in row.blocks.iter().enumerate() {
            if let Some(before) = last.insert(id, request) {
                reuses.push(Reuse { request, before, offset });
            }
        }
    }
    reuses
}

fn uses(trace: &[TraceRequest]) -> BTreeMap<u64, Vec<usize>> {
    let mut uses: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (request, row) in trace.iter().enumerate() {
        row.blocks.iter().for_each(|id| uses.entry(id).or_default().push(request));
    }
    uses
}

fn of(trace: &[TraceRequest], all: &[Reuse], is: impl Fn(&TraceRequest) -> bool) -> Hits {
    let mine = trace.iter().filter(|request| is(request));
    Hits {
        requests: mine.clone().count() as u64,
        references: mine.map(|request| request.blocks.len() as u64).sum(),
        hits: all.iter().filter(|reuse| is(&trace[reuse.request])).count() as u64,
    }
}

fn gap_ms(later: Nanos, earlier: Nanos) -> u64 {
    later.since(earlier).as_millis() as u64
}

fn check_hits(seed: u64, trace: &[TraceRequest], got: &Characterization) {
    let reuses = reuses(trace);
    let uses = uses(trace);
    let ideal = got.ideal;
    let all = of(trace, &reuses, |_| true);
    let sums = (got.requests, ideal.references, ideal.hits, ideal.orphans);
    assert_eq!(sums, (all.requests, all.references, all.hits, 0), "seed {seed}");
    let once = uses.values().filter(|uses| uses.len() == 1).count() as u64;
    assert_eq!((ideal.distinct_blocks, ideal.never_reused), (uses.len() as u64, once));
    let mut tokens = 0;
    for (index, request) in trace.iter().enumerate() {
        let hits = reuses.iter().filter(|reuse| reuse.request == index).count() as u64;
        // The last token is computed, and with it the block that it is in.
        let before_last = u64::from(request.input_tokens.expect("given")).saturating_sub(1);
        tokens += (hits * 16).min(before_last / 16 * 16);
    }
    assert_eq!(ideal.hit_tokens, tokens);
    let per_session = |session: Option<SessionId>| {
        let mine = trace.iter().filter(|request| request.session == session);
        mine.count()
    };
    for row in &got.types {
        let is = |request: &TraceRequest| request.request_type == row.request_type;
        let has = |request: &TraceRequest| is(request) && request.session.is_some();
        assert_eq!(row.all, of(trace, &reuses, is));
        let single = |r: &TraceRequest| has(r) && per_session(r.session) == 1;
        assert_eq!(row.single, of(trace, &reuses, single), "seed {seed}");
        let multi = |r: &TraceRequest| has(r) && per_session(r.session) > 1;
        assert_eq!(row.multi, of(trace, &reuses, multi), "seed {seed}");
        assert_eq!(row.first_turn, of(trace, &reuses, |r| is(r) && r.turn <= 1));
        assert_eq!(row.later_turns, of(trace, &reuses, |r| is(r) && r.turn > 1));
    }
    for row in &got.turns {
        let is = |request: &TraceRequest| request.turn.min(TURNS_MAX) == row.turn;
        assert_eq!(row.all, of(trace, &reuses, is));
    }
    for row in &got.locality.by_offset {
        let places = row.from..row.until;
        let here = |blocks: usize| (0..blocks as u64).filter(|at| places.contains(at)).count();
        let references: usize = trace.iter().map(|request| here(request.blocks.len())).sum();
        let hits = reuses.iter().filter(|reuse| places.contains(&(reuse.offset as u64)));
        assert_eq!((row.references, row.hits), (references as u64, hits.count() as u64));
    }
    let places: BTreeSet<_> = reuses.iter().map(|reuse| (reuse.request, reuse.offset)).collect();
    for row in &got.locality.by_stride {
        let second = |&(request, offset): &(usize, usize)| (request, offset + row.stride as usize);
        let pairs = places.iter().map(second);
        let pairs = pairs.filter(|&(request, offset)| offset < trace[request].blocks.len());
        let both = pairs.clone().filter(|pair| places.contains(pair)).count();
        assert_eq!((row.pairs, row.both), (pairs.count() as u64, both as u64), "seed {seed}");
    }
}

fn check_reuse(trace: &[TraceRequest], got: &Characterization) {
    let reuses = reuses(trace);
    let mut origins = Origins::default();
    let mut times = Histogram::default();
    let mut by_type: BTreeMap<u16, Histogram> = BTreeMap::new();
    for reuse in &reuses {
        let (now, before) = (&trace[reuse.request], &trace[reuse.before]);
        let gap = gap_ms(now.arrival, before.arrival);
        times.add(gap, 1);
        by_type.entry(before.request_type).or_default().add(gap, 1);
        match (before.session, now.session) {
            (Some(one), Some(other)) if one == other => origins.same_session += 1,
            (Some(_), Some(_)) => origins.other_session += 1,
            _ => origins.unknown_session += 1,
        }
        match (user(reuse.before, before), user(reuse.request, now)) {
            (Some(one), Some(other)) if one == other => origins.same_user += 1,
            (Some(_), Some(_)) => origins.other_user += 1,
            _ => origins.unknown_user += 1,
        }
    }
    assert_eq!(got.origins, origins);
    assert_eq!(got.reuse.all.seconds.count, times.count());
    assert_eq!(got.reuse.all.seconds.p90, times.spread(1e-3).p90);
    for (request_type, reuse) in &got.reuse.by_type {
        let expected = by_type[request_type].spread(1e-3);
        assert_eq!((reuse.seconds.count, reuse.seconds.p50), (expected.count, expected.p50));
    }
    let mut lives = Histogram::default();
    let mut skew = super::skew::OwnerHistogram::default();
    for uses in uses(trace).values() {
        skew.add(uses.len() as u64 - 1, 1);
        if let [first, .., last] = uses[..] {
            lives.add(gap_ms(trace[last].arrival, trace[first].arrival), 1);
        }
    }
    assert_eq!(got.block_skew, skew.skew());
    let (got, expected) = (got.lifespan.reused_s, lives.spread(1e-3));
    assert_eq!((got.count, got.p50, got.max), (expected.count, expected.p50, expected.max));
}

fn check_time(trace: &[TraceRequest], got: &Characterization) {
    let place = |time: Nanos| (time.0 as f64 / 1e9 / got.over_time.bucket_s) as usize;
    let reuses = reuses(trace);
    let uses = uses(trace);
    for (bucket, moment) in got.over_time.buckets.iter().enumerate() {
        let here = of(trace, &reuses, |request| place(request.arrival) == bucket);
        let counted = (moment.requests, moment.references, moment.hits);
        assert_eq!(counted, (here.requests, here.references, here.hits));
        let is_live = |uses: &&Vec<usize>| match uses[..] {
            [first, .., last] => {
                let places = place(trace[first].arrival)..=place(trace[last].arrival);
                places.contains(&bucket)
            }
            _ => false,
        };
        assert_eq!(moment.live_blocks, uses.values().filter(is_live).count() as u64);
    }
}

fn check_sessions(trace: &[TraceRequest], got: &Characterization) {
    let mut sessions: BTreeMap<SessionId, Vec<&TraceRequest>> = BTreeMap::new();
    for request in trace {
        if let Some(session) = request.session {
            sessions.entry(session).or_default().push(request);
        }
    }
    let end = trace.last().map_or(Nanos(0), |request| request.arrival);
    let (mut requests, mut turns) = (Histogram::default(), Histogram::default());
    let (mut followed, mut ended, mut open) = (0, 0, 0);
    for rows in sessions.values() {
        requests.add(rows.len() as u64, 1);
        turns.add(rows.iter().map(|row| u64::from(row.turn)).max().unwrap_or(0), 1);
        followed += rows.len() as u64 - 1;
        let last = rows[rows.len() - 1].arrival;
        if end.since(last).as_secs_f64() < got.next_turn.horizon_s {
            open += 1;
        } else {
            ended += 1;
        }
    }
    assert_eq!(got.sessions.requests, requests.spread(1.0));
    assert_eq!(got.sessions.turns, turns.spread(1.0));
    let next = got.next_turn.all;
    assert_eq!((next.followed, next.ended, next.open), (followed, ended, open));
    let classes = got.next_turn.classes.iter().map(|class| class.next.followed);
    assert_eq!(classes.sum::<u64>(), followed);
    let by_time = got.over_time.buckets.iter();
    assert_eq!(by_time.clone().map(|moment| moment.followed).sum::<u64>(), followed);
    assert_eq!(by_time.map(|moment| moment.ended).sum::<u64>(), ended);
    let users = got.users.as_ref().expect("there are some");
    let named = trace.iter().enumerate().filter_map(|(index, row)| user(index, row));
    assert_eq!(users.count, named.clone().collect::<BTreeSet<_>>().len() as u64);
    let all = users.requests.mean * users.count as f64;
    assert_eq!(all.round() as usize, named.count());
}

#[test]
fn counts_are_those_of_the_slow_way() {
    for seed in 0..25 {
        let trace = testing::requests(&mut Rng::new(seed), 150);
        let got = characterize(&trace, SETTINGS);
        check_hits(seed, &trace, &got);
        check_reuse(&trace, &got);
        check_time(&trace, &got);
        check_sessions(&trace, &got);
        let whole = got.curve.last().map_or(0, |point| point.hits);
        assert_eq!(whole, got.ideal.hits);
    }
}

#[test]
fn nothing_is_characterized_without_dividing_by_it() {
    let got = characterize(&[], SETTINGS);
    assert_eq!((got.requests, got.ideal.block_hit_rate), (0, 0.0));
    assert!(got.curve.is_empty() && got.over_time.buckets.is_empty());
    let empty = TraceRequest::default();
    let got = characterize(&[empty.clone(), empty], SETTINGS);
    assert_eq!((got.requests, got.ideal.references, got.sessions.without), (2, 0, 2));
}

/// Agent-like sessions of long runs: beyond the bound of pieces, estimates are near the truth.
#[test]
fn what_is_sampled_is_near_what_is_exact() {
    let mut rng = Rng::new(3);
    let mut chains: Vec<BlockRuns> = Vec::new();
    let mut trace = Vec::new();
    let mut next_id = 0;
    for number in 0..6000 {
        if rng.below(4) == 0 || chains.is_empty() {
            chains.push(BlockRuns::default());
        }
        let newest = chains.len().saturating_sub(30);
        let session = newest + rng.below(chains.len() - newest);
        let count = 100 + rng.below(2000) as u32;
        chains[session].push_run(Run { start: next_id, count });
        next_id += u64::from(count);
        trace.push(TraceRequest {
            arrival: Nanos(number * 1_000_000_000),
            blocks: chains[session].clone(),
            session: Some(SessionId(session as u64)),
            ..TraceRequest::default()
        });
    }
    let exact = characterize(&trace, SETTINGS);
    let limits = RecordLimits { pieces: 3000, sessions: 200, users: 5 };
    let sampled = characterize(&trace, Settings { limits, ..SETTINGS });
    assert!(sampled.sampling.block_rate < 0.3 && sampled.sampling.session_rate < 0.5);
    let near = |one: f64, other: f64, by: f64| assert!((one - other).abs() < by, "{one} {other}");
    near(sampled.ideal.block_hit_rate, exact.ideal.block_hit_rate, 0.03);
    near(sampled.ideal.never_reused_share, exact.ideal.never_reused_share, 0.03);
    near(sampled.next_turn.all.p_next, exact.next_turn.all.p_next, 0.05);
    near(sampled.block_skew.gini, exact.block_skew.gini, 0.04);
    for point in exact.curve.iter().filter(|point| point.capacity_blocks > 1000) {
        let is_below =
            |other: &&super::report::CurvePoint| other.capacity_blocks <= point.capacity_blocks;
        let other = sampled.curve.iter().rfind(is_below).map_or(0.0, |p| p.block_hit_rate);
        near(other, point.block_hit_rate, 0.05);
    }
}

/// Sessions of three turns, the second asked twice: what users did is estimated without a bias.
#[test]
fn users_of_sampled_sessions_are_near_what_is_exact() {
    let mut trace = Vec::new();
    for step in 0..6000_u64 {
        for (turn, behind) in [(1, 0), (2, 100), (2, 150), (3, 200)] {
            let Some(session) = step.checked_sub(behind) else { continue };
            trace.push(TraceRequest {
                arrival: Nanos(step * 1_000_000_000),
                session: Some(SessionId(session)),
                turn,
                ..TraceRequest::default()
            });
        }
    }
    let exact = characterize(&trace, SETTINGS).users.expect("there are some");
    let limits = RecordLimits { sessions: 500, ..SETTINGS.limits };
    let sampled = characterize(&trace, Settings { limits, ..SETTINGS });
    assert!(sampled.sampling.session_rate < 0.1);
    let users = sampled.users.expect("there are some");
    assert_eq!((users.count, users.requests), (exact.count, exact.requests));
    let near = |one: f64, other: f64| assert!((one / other - 1.0).abs() < 0.15, "{one} {other}");
    near(users.sessions.mean, exact.sessions.mean);
    near(users.turns.mean, exact.turns.mean);
}
