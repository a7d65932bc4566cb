//! `hazard` without its guard, as its rule reads: every candidate is weighed at every eviction,
//! every evicted block is remembered, and logarithms and exponentials are exact.

use std::collections::{BTreeSet, HashMap};

use headstart_cache::Policy;
use headstart_cache::policy::Newcomer;
use headstart_core::{Access, BlockHash, BlockId, Nanos};

const AGES: usize = 44;

/// The states of a block, and all of them together.
const STATES: usize = 9;

/// Returns, and exposure to them.
type Counts = (f64, f64);

/// A stage, the value of its features, some ages, and the kind of state.
type FactorKey = (usize, Vec<i64>, usize, usize);

/// A request, which owns what later requests have not taken.
#[derive(Debug)]
struct Owner {
    /// When it was released, on the policy's clock.
    released_s: f64,
    /// Age up to which its exposure is counted.
    booked_s: f64,
    from: usize,
    len: usize,
    known: usize,
    superseded: usize,
    stages: Vec<Vec<i64>>,
    requests: i64,
    mean_log_gap: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct ResidentBlock {
    hash: BlockHash,
    /// Its place in the last request that released it.
    offset: Option<usize>,
}

/// The plain policy.
#[derive(Debug, Default)]
pub(crate) struct PlainHazard {
    owners: Vec<Owner>,
    /// The last request that passed each block, whether that is resident or not.
    owner_of: HashMap<BlockHash, usize>,
    blocks: HashMap<BlockId, ResidentBlock>,
    offered: BTreeSet<BlockId>,
    base: Vec<[Counts; AGES]>,
    hazards: Vec<[f64; AGES]>,
    factors: HashMap<FactorKey, Counts>,
    times: Option<(Nanos, Nanos)>,
    requests: u64,
    now_s: f64,
}

fn start_s(age: usize) -> f64 {
    if age == 0 { 0.0 } else { 0.25 * 2f64.powf((age as f64 - 1.0) / 2.0) }
}

fn age_of(seconds: f64) -> usize {
    (0..AGES).rev().find(|&age| start_s(age) <= seconds).unwrap_or(0)
}

fn log(count: usize) -> i64 {
    ((count + 1) as f64).log2() as i64
}

impl PlainHazard {
    pub(crate) fn new() -> Self {
        let mut plain = Self { base: vec![[(0.0, 0.0); AGES]; STATES + 1], ..Self::default() };
        plain.refresh();
        plain
    }

    fn refresh(&mut self) {
        let mut all = [0.0; AGES];
        for age in 0..AGES {
            let prior = match age {
                0 => 0.2,
                _ => all[age - 1] * start_s(age) / start_s(age + 1),
            };
            let (returns, exposure) = self.base[STATES][age];
            all[age] = (returns + 1.0) / (exposure + 1.0 / prior);
        }
        self.hazards = vec![all; STATES + 1];
        for state in 0..STATES {
            let counts = &self.base[state];
            let returns: f64 = counts.iter().map(|(returns, _)| returns).sum();
            let expected: f64 = counts.iter().zip(all).map(|((_, time), all)| time * all).sum();
            let ratio = (returns + 4.0) / (expected + 4.0);
            for age in 0..AGES {
                let (returns, exposure) = counts[age];
                let prior = all[age] * ratio;
                self.hazards[state][age] = (returns + 4.0) / (exposure + 4.0 / prior);
            }
        }
    }

    /// Advances the clock: half by time, half by requests.
    fn advance(&mut self, now: Nanos) {
        let (first, last) = self.times.unwrap_or((now, now));
        let now = now.max(last);
        if self.requests > 0 {
            let mean_s = (now.since(first).as_secs_f64() / self.requests as f64).max(0.01);
            self.now_s += (now.since(last).as_secs_f64() + mean_s) / 2.0;
        }
        self.times = Some((first, now));
        self.requests += 1;
        if self.requests.is_multiple_of(20_000) {
            let halve = |(returns, exposure): &mut Counts| {
                (*returns, *exposure) = (*returns / 2.0, *exposure / 2.0);
            };
            self.base.iter_mut().flatten().for_each(halve);
            self.factors.values_mut().for_each(halve);
        }
        if self.requests.is_multiple_of(32) {
            self.refresh();
        }
    }

    fn key(owner: &Owner, stage: usize, age: usize, state: usize) -> FactorKey {
        let kind = if state.is_multiple_of(3) { usize::from(state == 6) } else { 2 };
        let ages = if stage < 3 || stage == 9 { 2 } else { 4 };
        (stage, owner.stages[stage].clone(), age / ages, kind)
    }

    fn factor(&self, key: &FactorKey) -> f64 {
        let (returns, exposure) = self.factors.get(key).copied().unwrap_or_default();
        (returns + 25.0) / (exposure + 25.0)
    }

    /// The parts of a request with their states: known, new, last.
    fn parts(owner: &Owner) -> [(usize, usize, usize); 3] {
        let last = owner.len.saturating_sub(1);
        let known = owner.known.min(last);
        let sup = owner.superseded;
        [(0, known, sup), (known, last, 3 + sup), (last, owner.len, 6 + sup)]
    }

    /// Counts the exposure of an owner up to an age.
    fn expose(&mut self, owner: usize, age_s: f64) {
        for (first, end, state) in Self::parts(&self.owners[owner]) {
            let Owner { from, booked_s, .. } = self.owners[owner];
            let left = end.saturating_sub(first.max(from));
            if left == 0 || age_s <= booked_s {
                continue;
            }
            let share = left as f64 / (end - first) as f64;
            for age in age_of(booked_s)..=age_of(age_s) {
                let until = if age + 1 == AGES { age_s } else { age_s.min(start_s(age + 1)) };
                let time = share * (until - booked_s.max(start_s(age)));
                self.base[state][age].1 += time;
                self.base[STATES][age].1 += time;
                let mut expected = self.hazards[state][age] * time;
                for stage in 0..self.owners[owner].stages.len() {
                    let key = Self::key(&self.owners[owner], stage, age, state);
                    self.factors.entry(key.clone()).or_default().1 += expected;
                    expected *= self.factor(&key);
                }
            }
        }
        let booked = &mut self.owners[owner].booked_s;
        *booked = booked.max(age_s);
    }

    /// A request takes an owner's blocks up to `to`.
    fn pass(&mut self, owner: usize, to: usize) {
        let age_s = self.now_s - self.owners[owner].released_s;
        self.expose(owner, age_s);
        let age = age_of(age_s);
        for (first, end, state) in Self::parts(&self.owners[owner]) {
            let taken = end.min(to).saturating_sub(first.max(self.owners[owner].from));
            if taken == 0 {
                continue;
            }
            let share = taken as f64 / (end - first) as f64;
            self.base[state][age].0 += share;
            self.base[STATES][age].0 += share;
            for stage in 0..self.owners[owner].stages.len() {
                let key = Self::key(&self.owners[owner], stage, age, state);
                self.factors.entry(key).or_default().0 += share;
            }
        }
        let owner = &mut self.owners[owner];
        let covered = to as f64 / owner.len as f64;
        let superseded = usize::from(covered > 0.5) + usize::from(covered > 0.95);
        owner.superseded = owner.superseded.max(superseded);
        owner.from = owner.from.max(to);
    }

    /// The features of a request, by stage.
    fn owner(&self, access: &Access, len: usize, known: usize, before: Option<usize>) -> Owner {
        let (mut gap, mut mean, mut requests) = (0, None, 0);
        if let Some(before) = before {
            let before = &self.owners[before];
            let gap_s = self.now_s - before.released_s;
            gap = 1 + age_of(gap_s) as i64 / 4;
            let last = (0.25 + gap_s).log2();
            mean = Some(before.mean_log_gap.map_or(last, |old| 0.7 * old + 0.3 * last));
            requests = (before.requests + 1).min(12);
        }
        let finish = access.finish as i64;
        let output = access.output_tokens.map_or(0, |tokens| 1 + log(tokens as usize));
        let mean_gap = mean.map_or(0, |mean| ((mean + 3.0) as i64).clamp(1, 20));
        let (turn, request_type) = (access.turn.min(12).into(), access.request_type.into());
        // Without known tools there is no stage for them.
        let tool = Some(i64::from(access.tool.number())).filter(|&tool| tool > 0);
        let tool = tool.map(|tool| vec![tool]);
        Owner {
            released_s: self.now_s,
            booked_s: 0.0,
            from: 0,
            len,
            known,
            superseded: 0,
            stages: [
                vec![finish, output],
                vec![finish, mean_gap],
                vec![gap],
                vec![log(len - known)],
                vec![requests],
                vec![turn],
                vec![request_type],
                vec![request_type, turn],
                vec![log(len)],
            ]
            .into_iter()
            .chain(tool)
            .collect(),
            requests,
            mean_log_gap: mean,
        }
    }

    /// The best rate of returns per second over horizons, from the middle of an age on.
    fn best_rate(hazards: &[f64; AGES], from: usize) -> f64 {
        let (mut survival, mut returns, mut seconds, mut best) = (1.0, 0.0, 0.0, 0.0_f64);
        for (age, &hazard) in hazards.iter().enumerate().skip(from) {
            let width = (start_s(age + 1) - start_s(age)) * if age == from { 0.5 } else { 1.0 };
            let chance = 1.0 - (-hazard * width).exp();
            returns += survival * chance;
            seconds += survival * chance / hazard;
            survival *= 1.0 - chance;
            best = best.max(returns / seconds);
        }
        best
    }

    /// The worth of a resident block now.
    fn worth(&self, block: BlockId) -> (f64, usize) {
        let ResidentBlock { hash, offset } = self.blocks[&block];
        let Some(offset) = offset else {
            return (-1.0, 0);
        };
        let number = self.owner_of[&hash];
        let owner = &self.owners[number];
        let part = if offset + 1 >= owner.len { 2 } else { usize::from(offset >= owner.known) };
        let state = part * 3 + owner.superseded;
        let mut hazards = self.hazards[state];
        for (age, hazard) in hazards.iter_mut().enumerate() {
            for stage in 0..owner.stages.len() {
                *hazard *= self.factor(&Self::key(owner, stage, age, state));
            }
        }
        let age_s = self.now_s - owner.released_s;
        let age = age_of(age_s);
        let here = Self::best_rate(&hazards, age);
        let next = Self::best_rate(&hazards, (age + 1).min(AGES - 1));
        let share = ((age_s - start_s(age)) / (start_s(age + 1) - start_s(age))).min(1.0);
        (here + (next - here) * share, number)
    }
}

impl Policy for PlainHazard {
    fn insert(&mut self, block: BlockId, hash: BlockHash, _: &Access) {
        self.blocks.insert(block, ResidentBlock { hash, offset: None });
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        self.advance(access.now);
        for owner in 0..self.owners.len() {
            let age_s = self.now_s - self.owners[owner].released_s;
            self.expose(owner, start_s(age_of(age_s)));
        }
        let hashes: Vec<_> = blocks.iter().map(|block| self.blocks[block].hash).collect();
        let (mut known, mut continues, mut at) = (0, None, 0);
        while at < hashes.len() {
            let Some(&owner) = self.owner_of.get(&hashes[at]) else {
                at += 1;
                continue;
            };
            let is_its = |hash: &&BlockHash| self.owner_of.get(hash) == Some(&owner);
            at += hashes[at..].iter().take_while(is_its).count();
            known = at;
            continues = (at * 2 >= self.owners[owner].len).then_some(owner);
            self.pass(owner, at);
        }
        let owner = self.owner(access, hashes.len(), known, continues);
        self.owners.push(owner);
        for (offset, (block, hash)) in blocks.iter().zip(hashes).enumerate() {
            self.owner_of.insert(hash, self.owners.len() - 1);
            self.blocks.insert(*block, ResidentBlock { hash, offset: Some(offset) });
        }
    }

    fn offer(&mut self, block: BlockId) {
        self.offered.insert(block);
    }

    fn withdraw(&mut self, block: BlockId) {
        self.offered.remove(&block);
    }

    fn victim(&mut self, _: Nanos, _: Option<&Newcomer>) -> Option<BlockId> {
        let worths = self.offered.iter().map(|&block| (self.worth(block), block));
        let least = worths
            .min_by(|(one, _), (other, _)| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        least.map(|(_, block)| block)
    }

    fn remove(&mut self, block: BlockId, _: BlockHash) {
        self.offered.remove(&block);
        self.blocks.remove(&block);
    }

    fn forget(&mut self, block: BlockId, _: BlockHash) {
        self.blocks.remove(&block);
    }
}
