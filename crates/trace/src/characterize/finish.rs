//! From counts to the report: rates, percentiles, fits, and what only the end tells.

use std::collections::BTreeMap;

use super::fit::{self, UNIT_S};
use super::owners::{SampledTable, Session};
use super::report::{
    Capacity, Characterization, ClassNext, CurvePoint, Ideal, Lifespan, Locality, Moment, Next,
    NextTurn, OffsetRate, OverTime, Reuse, ReuseTimes, SamplingRates, SessionKind, Sessions, Sizes,
    Skew, StrideRate, TurnShare, TypeShare, Users,
};
use super::skew::OwnerHistogram;
use super::{Characterizer, Histogram, Hits};

/// Seconds at which [`NextTurn::within`] is given.
const WITHIN_S: [f64; 10] = [1.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 86_400.0];

/// Share of all reuses between two points of their cumulative distribution.
const CDF_STEP: f64 = 0.02;

/// Share of a histogram after which waiting is given up: for horizons.
const LATE: f64 = 0.9;

const NANOS_PER_MS: u64 = 1_000_000;

pub(super) fn finish(counts: Characterizer) -> Characterization {
    let blocks = Blocks::of(&counts);
    let next_turn = NextTurns::of(&counts);
    let over_time = over_time(&counts, &blocks, &next_turn);
    let ideal = ideal(&counts, &blocks);
    let curve = curve(&counts, &ideal);
    let sizes = sizes(&counts);
    let session_weight = counts.sessions.weight();
    let session_hits = counts.sessions.records().map(|session| session.hits);
    let user_hits = counts.users.records().map(|user| user.hits);
    Characterization {
        requests: counts.requests,
        block_tokens: counts.settings.block_tokens,
        span_s: counts.end.0 as f64 / 1e9,
        sampling: SamplingRates {
            block_rate: 1.0 / counts.stack.weight() as f64,
            session_rate: 1.0 / session_weight as f64,
            user_rate: 1.0 / counts.users.weight() as f64,
            pieces: counts.stack.num_pieces() as u64,
        },
        capacity: capacity(&counts, &over_time, &curve),
        types: types(&counts),
        turns: turns(&counts),
        origins: counts.origins,
        block_skew: blocks.reuses.skew(),
        session_skew: skew(session_hits, session_weight),
        user_skew: counts.has_users.then(|| skew(user_hits, counts.users.weight())),
        sessions: sessions(&counts),
        users: counts.has_users.then(|| users(&counts)),
        next_turn: next_turn.report(&counts),
        reuse: reuse_times(&counts),
        locality: locality(&counts),
        lifespan: blocks.lifespan,
        ideal,
        over_time,
        curve,
        sizes,
    }
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// Totals over all blocks at the end of the trace.
struct Blocks {
    distinct: u64,
    once: u64,
    reuses: OwnerHistogram,
    lifespan: Lifespan,
    /// By bucket of time.
    live: Vec<u64>,
}

impl Blocks {
    fn of(counts: &Characterizer) -> Self {
        let weight = counts.stack.weight();
        // The histogram counts milliseconds, and the times of uses are nanoseconds.
        let horizon = counts.reuse.percentile(LATE) as u64 * NANOS_PER_MS;
        let (mut distinct, mut once, mut open) = (0, 0, 0);
        let (mut all, mut reused) = (Histogram::default(), Histogram::default());
        let mut reuses = OwnerHistogram::default();
        // One more place, for blocks whose last use is in the last bucket.
        let mut changes = vec![0i64; counts.moments.buckets().len() + 1];
        for (count, record) in counts.stack.pieces() {
            let blocks = u64::from(count) * weight;
            distinct += blocks;
            reuses.add(u64::from(record.uses - 1), blocks);
            let life_ms = record.last.since(record.first).as_millis() as u64;
            all.add(life_ms, blocks);
            // No cache gains from a block that is used once, so it is live in no bucket.
            if record.uses == 1 {
                once += blocks;
                continue;
            }
            reused.add(life_ms, blocks);
            // `end` is the latest arrival, so no use lies after it.
            if counts.end.0 - record.last.0 < horizon {
                open += blocks;
            }
            // Only the two ends of a lifespan are marked; `running` fills the buckets between.
            changes[counts.moments.place(record.first)] += blocks as i64;
            changes[counts.moments.place(record.last) + 1] -= blocks as i64;
        }
        Self {
            distinct,
            once,
            reuses,
            lifespan: Lifespan {
                reused_s: reused.spread(UNIT_S),
                all_s: all.spread(UNIT_S),
                open_share: share(open, distinct - once),
            },
            live: running(&changes),
        }
    }
}

/// Sums of all so far, without the last.
fn running(changes: &[i64]) -> Vec<u64> {
    let sums = changes.iter().scan(0, |sum, change| {
        *sum += change;
        // Each block is added no later than it is subtracted, so no sum is negative.
        Some(*sum as u64)
    });
    sums.take(changes.len() - 1).collect()
}

/// Sessions by whether another request followed.
struct NextTurns {
    horizon: u64,
    ended: BTreeMap<(u16, u16), Next>,
    /// By bucket of time.
    ended_at: Vec<u64>,
}

impl NextTurns {
    fn of(counts: &Characterizer) -> Self {
        let horizon = counts.gaps.percentile(LATE) as u64 * NANOS_PER_MS;
        let mut ended: BTreeMap<_, Next> = BTreeMap::new();
        for (&class, &followed) in &counts.followed {
            ended.entry(class).or_default().followed = followed;
        }
        let mut ended_at = vec![0; counts.moments.buckets().len()];
        let weight = counts.sessions.weight();
        for session in counts.sessions.records() {
            let next = ended.entry(session.class).or_default();
            // So late in the trace, the next request may lie beyond its end.
            if counts.end.0 - session.last.0 < horizon {
                next.open += weight;
            } else {
                next.ended += weight;
                ended_at[counts.moments.place(session.last)] += weight;
            }
        }
        Self { horizon, ended, ended_at }
    }

    fn report(&self, counts: &Characterizer) -> NextTurn {
        let mut all = Next::default();
        let mut classes = Vec::new();
        for (&(request_type, turn), next) in &self.ended {
            all.followed += next.followed;
            all.ended += next.ended;
            all.open += next.open;
            classes.push(ClassNext { request_type, turn, next: with_p(*next) });
        }
        let all = with_p(all);
        let within = WITHIN_S.map(|seconds| {
            let bins = counts.gaps.iter();
            // A bin counts only if it lies within the time as a whole.
            let soon = bins.filter(|&(_, last, _)| last as f64 * UNIT_S <= seconds);
            let followed = soon.map(|(_, _, times)| times).sum();
            (seconds, share(followed, all.followed + all.ended))
        });
        NextTurn {
            horizon_s: self.horizon as f64 / 1e9,
            all,
            classes,
            gap_s: counts.gaps.spread(UNIT_S),
            within: within.to_vec(),
        }
    }
}

fn with_p(next: Next) -> Next {
    Next { p_next: share(next.followed, next.followed + next.ended), ..next }
}

fn ideal(counts: &Characterizer, blocks: &Blocks) -> Ideal {
    let totals = &counts.ideal;
    Ideal {
        references: totals.references,
        hits: totals.hits,
        block_hit_rate: share(totals.hits, totals.references),
        prompt_tokens: totals.prompt_tokens,
        hit_tokens: totals.hit_tokens,
        token_hit_rate: share(totals.hit_tokens, totals.prompt_tokens),
        distinct_blocks: blocks.distinct,
        never_reused: blocks.once,
        never_reused_share: share(blocks.once, blocks.distinct),
        orphans: totals.orphans,
    }
}

fn over_time(counts: &Characterizer, blocks: &Blocks, next: &NextTurns) -> OverTime {
    let buckets = counts.moments.buckets().iter().enumerate();
    let buckets = buckets.map(|(place, counted)| {
        let hits = counted.hits;
        let (followed, ended) = (counted.followed, next.ended_at[place]);
        Moment {
            requests: hits.requests,
            references: hits.references,
            hits: hits.hits,
            hit_rate: hits.rate(),
            followed,
            ended,
            p_next: share(followed, followed + ended),
            live_blocks: blocks.live[place],
        }
    });
    OverTime { bucket_s: counts.moments.bucket_s(), buckets: buckets.collect() }
}

fn curve(counts: &Characterizer, ideal: &Ideal) -> Vec<CurvePoint> {
    let block_tokens = u64::from(counts.settings.block_tokens);
    let points = || counts.curve.hits(&counts.unservable);
    // Hits without those on blocks that are recomputed in any case.
    let serving = |(_, hits, unservable): (u64, u64, u64)| hits - unservable;
    // A block's tokens, but for what sampling rounds.
    let tokens_per_hit = share(ideal.hit_tokens, points().last().map_or(0, serving));
    let points = points().map(|point| CurvePoint {
        capacity_blocks: point.0,
        capacity_tokens: point.0.saturating_mul(block_tokens),
        hits: point.1,
        block_hit_rate: share(point.1, ideal.references),
        token_hit_rate: serving(point) as f64 * tokens_per_hit / ideal.prompt_tokens.max(1) as f64,
    });
    points.collect()
}

fn types(counts: &Characterizer) -> Vec<TypeShare> {
    let weight = counts.sessions.weight();
    let mut single: BTreeMap<u16, Hits> = BTreeMap::new();
    for session in counts.sessions.records().filter(|session| session.requests == 1) {
        single.entry(session.class.0).or_default().add(&Hits {
            requests: weight,
            references: session.references * weight,
            hits: session.hits * weight,
        });
    }
    let rows = counts.types.iter().map(|(&request_type, by_type)| {
        let single = single.get(&request_type).copied().unwrap_or_default();
        let all = by_type.all;
        TypeShare {
            request_type,
            all,
            single,
            multi: all.without(&single).without(&by_type.without_session),
            first_turn: by_type.first_turn,
            later_turns: all.without(&by_type.first_turn),
            share_of_hits: share(all.hits, counts.ideal.hits),
        }
    });
    rows.collect()
}

impl Hits {
    fn without(&self, part: &Self) -> Self {
        Self {
            // Both are estimates under sampling, so a part can exceed its whole.
            requests: self.requests.saturating_sub(part.requests),
            references: self.references.saturating_sub(part.references),
            hits: self.hits.saturating_sub(part.hits),
        }
    }
}

fn turns(counts: &Characterizer) -> Vec<TurnShare> {
    let rows = counts.turns.iter().map(|(&turn, &all)| TurnShare {
        turn,
        all,
        share_of_hits: share(all.hits, counts.ideal.hits),
    });
    rows.collect()
}

fn skew(amounts: impl Iterator<Item = u64>, weight: u64) -> Skew {
    let mut owners = OwnerHistogram::default();
    amounts.for_each(|amount| owners.add(amount, weight));
    owners.skew()
}

fn sessions(counts: &Characterizer) -> Sessions {
    let weight = counts.sessions.weight();
    let mut sessions = Sessions { without: counts.without_session, ..Sessions::default() };
    let mut requests = Histogram::default();
    let mut turns = Histogram::default();
    let mut length = Histogram::default();
    for session in counts.sessions.records() {
        sessions.count += weight;
        requests.add(session.requests, weight);
        turns.add(u64::from(session.turns), weight);
        length.add(session.last.since(session.first).as_millis() as u64, weight);
    }
    sessions.requests = requests.spread(1.0);
    sessions.turns = turns.spread(1.0);
    sessions.length_s = length.spread(UNIT_S);
    sessions.single = kind(&counts.sessions, |session| session.requests == 1);
    sessions.multi = kind(&counts.sessions, |session| session.requests > 1);
    let hits = sessions.single.all.hits + sessions.multi.all.hits;
    for kind in [&mut sessions.single, &mut sessions.multi] {
        kind.share_of_hits = share(kind.all.hits, hits);
    }
    sessions
}

fn kind(sessions: &SampledTable<Session>, is_of: impl Fn(&Session) -> bool) -> SessionKind {
    let weight = sessions.weight();
    let mut kind = SessionKind::default();
    let mut prompt_tokens = 0;
    for session in sessions.records().filter(|session| is_of(session)) {
        kind.sessions += weight;
        kind.all.requests += session.requests * weight;
        kind.all.references += session.references * weight;
        kind.all.hits += session.hits * weight;
        prompt_tokens += session.prompt_tokens * weight;
    }
    // A mean and no share; `share` also covers a kind without requests.
    kind.prompt_tokens_mean = share(prompt_tokens, kind.all.requests);
    kind
}

fn users(counts: &Characterizer) -> Users {
    let weight = counts.users.weight();
    let mut users = Users::default();
    let mut parts: [Histogram; 4] = Default::default();
    for user in counts.users.records() {
        users.count += weight;
        let values = [user.requests, user.sessions, user.turns, user.hits];
        for (part, value) in parts.iter_mut().zip(values) {
            part.add(value, weight);
        }
    }
    let [requests, sessions, turns, hits] = parts.map(|part| part.spread(1.0));
    Users { requests, sessions, turns, hits, ..users }
}

fn reuse_times(counts: &Characterizer) -> ReuseTimes {
    let by = |histograms: &BTreeMap<u16, Histogram>| {
        let rows = histograms.iter().map(|(&key, times)| (key, reuse(times)));
        rows.collect()
    };
    ReuseTimes {
        all: reuse(&counts.reuse),
        by_type: by(&counts.reuse_by_type),
        by_turn: by(&counts.reuse_by_turn),
    }
}

fn reuse(times: &Histogram) -> Reuse {
    let mut cdf = Vec::new();
    let (mut below, mut next, mut at_once) = (0, 0.0, 0);
    for (_, last, number) in times.iter() {
        below += number;
        // The bin of 0 ms is exact, and no fit includes it.
        if last == 0 {
            at_once = number;
        }
        let reached = share(below, times.count());
        // A point per step of the share keeps the curve short for any number of bins.
        if reached >= next {
            cdf.push((last as f64 * UNIT_S, reached));
            next = reached + CDF_STEP;
        }
    }
    Reuse { at_once, seconds: times.spread(UNIT_S), fits: fit::fits(times), cdf }
}

fn locality(counts: &Characterizer) -> Locality {
    // The bins of `count_places`: offsets 0, 1, 2 to 3, 4 to 7 and on.
    let mut from = 0;
    let by_offset = counts.offsets.iter().enumerate().map(|(bin, hits)| {
        let until = 1 << bin;
        let rate = OffsetRate {
            from,
            until,
            references: hits.references,
            hits: hits.hits,
            hit_rate: hits.rate(),
        };
        from = until;
        rate
    });
    let by_offset = by_offset.collect();
    let strides = counts.strides.iter().enumerate();
    let strides = strides.filter(|(_, (pairs, _))| *pairs > 0);
    let by_stride = strides.map(|(bin, &(pairs, both))| StrideRate {
        stride: 1 << bin,
        pairs,
        both,
        hit_rate: share(both, pairs),
    });
    Locality { by_offset, by_stride: by_stride.collect() }
}

fn sizes(counts: &Characterizer) -> Sizes {
    let prompt_tokens = counts.prompt_tokens.spread(1.0);
    let output_tokens = counts.output_tokens.spread(1.0);
    let per_token = counts.settings.kv_bytes_per_token;
    let tokens_mean = prompt_tokens.mean + output_tokens.mean;
    let request_bytes_mean = per_token.map(|bytes| bytes * tokens_mean);
    let device_bytes = counts.settings.device_bytes;
    let fitting = device_bytes.zip(request_bytes_mean.filter(|&bytes| bytes > 0.0));
    Sizes {
        prompt_tokens,
        output_tokens,
        kv_bytes_per_token: per_token,
        request_bytes_mean,
        device_bytes,
        requests_in_device: fitting.map(|(device, request)| device / request),
    }
}

fn capacity(counts: &Characterizer, over_time: &OverTime, curve: &[CurvePoint]) -> Capacity {
    let live = over_time.buckets.iter().map(|bucket| bucket.live_blocks);
    let peak_blocks = live.clone().max().unwrap_or(0);
    let settings = &counts.settings;
    let block_bytes =
        settings.kv_bytes_per_token.map(|bytes| bytes * f64::from(settings.block_tokens));
    let peak_bytes = block_bytes.map(|bytes| bytes * peak_blocks as f64);
    let device = settings.device_bytes.filter(|&bytes| bytes > 0.0);
    // Points are in order of size, so the last one has all hits.
    let all = curve.last().map_or(0, |point| point.hits);
    let is_enough = |point: &&CurvePoint| point.hits as f64 >= 0.99 * all as f64;
    Capacity {
        peak_blocks,
        mean_blocks: share(live.sum(), over_time.buckets.len() as u64),
        peak_bytes,
        peak_of_device: peak_bytes.zip(device).map(|(peak, device)| peak / device),
        lru_99_percent_blocks: curve
            .iter()
            .find(is_enough)
            .map_or(0, |point| point.capacity_blocks),
    }
}
