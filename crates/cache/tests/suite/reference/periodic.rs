//! LPC as its authors run it: p' of every block is recomputed each tick, and the smallest is
//! evicted first.

use std::time::Duration;

use headstart_cache::Policy;
use headstart_cache::policy::{LpcOptions, Newcomer, Pooling};
use headstart_core::{Access, BlockHash, BlockId, Nanos, Probability, SessionId};

/// Log-odds that differ by less are equal: p' of one probability that fades in one step and of
/// one that fades in two differ in their last bits. Next to 1, where p' is at most 1 - 1e-6, the
/// last bit of p' is 1e-10 of its log-odds.
const ROUNDING: f64 = 1e-9;

/// One list of all residents, with a probability and a time each.
///
/// Equal to [`headstart_cache::policy::Lpc`] on times that are whole ticks, as long as p' does not
/// underflow: for ages below some 700 mean gaps.
#[derive(Debug)]
pub(crate) struct PeriodicLpc {
    options: LpcOptions,
    tick: Duration,
    /// The latest time told by a release.
    now: Nanos,
    /// The tick at which p' was computed last.
    evaluated: Nanos,
    residents: Vec<LpcResident>,
    num_released: u64,
}

#[derive(Debug)]
struct LpcResident {
    block: BlockId,
    /// p at the last use, that is at `t_last`; `None` while never released.
    p: Option<f64>,
    t_last: Nanos,
    /// p' at the last evaluation.
    p_then: f64,
    users: Vec<Option<SessionId>>,
    released: u64,
    is_offered: bool,
}

impl PeriodicLpc {
    /// Evaluates every `tick`, to which times are rounded down; the authors' is 10 s.
    #[must_use]
    pub(crate) fn new(options: LpcOptions, tick: Duration) -> Self {
        Self {
            options,
            tick,
            now: Nanos(0),
            evaluated: Nanos(0),
            residents: Vec::new(),
            num_released: 0,
        }
    }

    fn rounded(&self, time: Nanos) -> Nanos {
        let tick = self.tick.as_nanos().max(1) as u64;
        Nanos(time.0 - time.0 % tick)
    }

    fn scale(&self) -> f64 {
        self.options.interval_s.map_or(0.0, |mean_s| 1.0 / mean_s)
    }

    /// Computes p' of all, where a tick has passed.
    fn evaluate(&mut self, now: Nanos) {
        let (tick, scale) = (self.rounded(now), self.scale());
        if tick > self.evaluated {
            self.evaluated = tick;
            for resident in &mut self.residents {
                resident.p_then = resident.p_at(tick, scale);
            }
        }
    }

    fn find(&mut self, block: BlockId) -> &mut LpcResident {
        let found = self.residents.iter_mut().find(|one| one.block == block);
        found.expect("only what is resident is released, offered or withdrawn")
    }
}

impl LpcResident {
    /// p' = p·d / (p·d + 1 - p), d = exp(-age · scale); 0 while never released.
    fn p_at(&self, time: Nanos, scale: f64) -> f64 {
        let faded = (-time.since(self.t_last).as_secs_f64() * scale).exp();
        self.p.map_or(0.0, |p| p * faded / (p * faded + 1.0 - p))
    }

    fn is_only_of(&self, session: Option<SessionId>) -> bool {
        session.is_some() && self.users.iter().all(|user| *user == session)
    }

    fn log_odds(&self) -> f64 {
        (self.p_then / (1.0 - self.p_then)).ln()
    }
}

impl Policy for PeriodicLpc {
    fn insert(&mut self, block: BlockId, _: BlockHash, _: &Access) {
        self.residents.push(LpcResident {
            block,
            p: None,
            t_last: Nanos(0),
            p_then: 0.0,
            users: Vec::new(),
            released: 0,
            is_offered: false,
        });
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        self.now = self.now.max(access.now);
        self.evaluate(self.now);
        let p_new = access.p_continue.unwrap_or(Probability::EVEN).value();
        let p_new = p_new.clamp(1e-6, 1.0 - 1e-6);
        let (now, evaluated, scale) = (self.rounded(self.now), self.evaluated, self.scale());
        let is_literal = self.options.pooling == Pooling::Literal;
        for &block in blocks.iter().rev() {
            self.num_released += 1;
            let released = self.num_released;
            let resident = self.find(block);
            let p_now = resident.p_at(now, scale);
            let replaces = resident.is_only_of(access.session) && !is_literal;
            resident.p = Some(if replaces { p_new } else { p_now.max(p_new) });
            resident.t_last = now;
            resident.p_then = resident.p_at(evaluated, scale);
            resident.users.push(access.session);
            resident.released = released;
        }
    }

    fn offer(&mut self, block: BlockId) {
        self.find(block).is_offered = true;
    }

    fn withdraw(&mut self, block: BlockId) {
        self.find(block).is_offered = false;
    }

    fn victim(&mut self, now: Nanos, _: Option<&Newcomer>) -> Option<BlockId> {
        self.evaluate(now);
        let offered = || self.residents.iter().filter(|one| one.is_offered);
        let least = offered().map(LpcResident::log_odds).min_by(f64::total_cmp)?;
        let ties = offered().filter(|one| one.log_odds() <= least + ROUNDING);
        let victim = ties.min_by_key(|one| (one.released, one.block));
        victim.map(|one| one.block)
    }

    fn remove(&mut self, block: BlockId, _: BlockHash) {
        self.residents.retain(|one| one.block != block);
    }

    fn forget(&mut self, block: BlockId, _: BlockHash) {
        self.residents.retain(|one| one.block != block);
    }
}
