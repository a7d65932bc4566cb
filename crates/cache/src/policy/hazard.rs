//! `hazard`: learns when prefixes return, and evicts the blocks whose return is worth least.
//!
//! | step | what happens |
//! |---|---|
//! | ownership | a block belongs to the last request that passed it ([`pieces`]) |
//! | learning | returns and exposure, by state, age and features of the owner ([`rates`]) |
//! | decision | the least Gittins index of the learned hazard goes first |
//! | guard | LRU rules after the learned order has lost to it ([`guard`]) |
//!
//! An agent whose answer ended in a tool call comes back in seconds, a chat in minutes or never.
//! A prefix that a longer request has superseded is worth less than the last block of a
//! conversation. The policy learns this from the requests themselves: their types, turns, sizes,
//! gaps, and how their answers ended. It reads no text and has no setting. Evicted blocks count as
//! well ([`ghosts`]), so its own evictions do not hide returns from it.
//!
//! Costs: O(1) for a block that is used, some hundred multiplications when a piece enters another
//! of 44 steps of age, O(log candidates) an eviction.
//!
//! Source: ours. The index is Gittins' for jobs of unknown length (Gittins, "Bandit processes and
//! dynamic allocation indices", 1979); the factors are a proportional-hazards model fitted online.
//!
//! When not to use it: where requests are independent of one another it is LRU, at twice the cost.

mod age;
mod clock;
mod features;
mod ghosts;
mod guard;
mod owner;
mod pieces;
mod rates;
mod saved;
mod tier;
mod window;

use headstart_core::{Access, BlockHash, BlockId, FinishKind, Nanos};

use super::options::SpecOptions;
use super::{Newcomer, Policy};
use crate::queues::{Key64, Queues};
use age::{AGES, TICKS, start_s, width_s};
use clock::RequestClock;
use features::{Features, HiddenFeatures, Predecessor};
use ghosts::GhostNames;
use guard::TrialGuard;
use owner::Owner;
use pieces::{OwnedPiece, OwnedPieces, PieceId};
use rates::{LAST_BLOCK, Rates, rows};
pub use saved::ForeignTables;

/// Ghosts, at least, and for each block of the cache: few requests tell much about long ages.
const LEAST_GHOST_BLOCKS: u64 = 1 << 20;
const GHOST_BLOCKS_PER_BLOCK: u64 = 4;
const LEAST_GHOST_PIECES: usize = 1 << 15;
const BLOCKS_PER_GHOST_PIECE: usize = 8;

/// Candidates whose keys may be recomputed for one victim.
const MOST_REVALIDATED: usize = 16;

/// Candidates whose keys are brought up to date at a request.
const SWEPT: usize = 32;

/// Options of [`Hazard`]; the default enables all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HazardOptions {
    /// Whether LRU rules for a time after the learned order has lost to it.
    pub has_guard: bool,
    /// Whether returns of evicted blocks count.
    pub has_ghosts: bool,
    /// Features that are taken to be unknown.
    hidden: HiddenFeatures,
}

impl Default for HazardOptions {
    fn default() -> Self {
        Self { has_guard: true, has_ghosts: true, hidden: HiddenFeatures::default() }
    }
}

impl HazardOptions {
    /// Reads `no-guard`, and for ablations `no-ghosts` and the options that hide a feature.
    pub(super) fn read(options: &mut SpecOptions<'_>) -> Self {
        Self {
            has_guard: !options.flag("no-guard"),
            has_ghosts: !options.flag("no-ghosts"),
            hidden: HiddenFeatures::read(|name| options.flag(name)),
        }
    }
}

/// The learned hazard of the last block of requests whose answers ended alike.
#[derive(Clone, Debug, PartialEq)]
pub struct HazardCurve {
    /// The end of the answers.
    pub finish: FinishKind,
    /// Requests that the curve is the mean of.
    pub requests: usize,
    /// Ages in seconds at which steps begin, with the chance to return within the next second. The
    /// first step begins at 0, the others at half-octaves from 0.25 s on.
    pub per_second: Vec<(f64, f64)>,
}

/// The blocks of a request that earlier requests had.
#[derive(Debug, Default)]
struct PassedPrefix {
    known: u32,
    /// The request that this one continues.
    continues: Option<Predecessor>,
    /// Leading blocks that were resident, and those that LRU would have kept.
    hits: usize,
    lru_hits: usize,
}

/// The learned order of returns.
#[derive(Debug)]
pub struct Hazard {
    options: HazardOptions,
    capacity: usize,
    clock: RequestClock,
    /// The clock at the last release, ticks.
    now: u32,
    pieces: OwnedPieces,
    ghosts: GhostNames,
    rates: Rates,
    guard: Option<TrialGuard>,
    owners: Vec<Owner>,
    candidates: Queues<Key64>,
    /// Number of candidates.
    num_candidates: usize,
    chosen: Option<BlockId>,
    serves_tier: bool,
    /// In a tier: age of the latest victims, seconds, on average: other blocks stay about as long.
    residence_s: Option<f64>,
    /// Place in the queue up to which the sweep has brought keys up to date.
    swept: usize,
}

impl Hazard {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize, options: HazardOptions) -> Self {
        Self {
            options,
            capacity,
            clock: RequestClock::default(),
            now: 0,
            pieces: OwnedPieces::new(capacity),
            ghosts: GhostNames::default(),
            rates: Rates::new(),
            guard: options.has_guard.then(TrialGuard::new),
            owners: vec![Owner::NONE; capacity],
            candidates: Queues::new(capacity, 1),
            num_candidates: 0,
            chosen: None,
            serves_tier: false,
            residence_s: None,
            swept: 0,
        }
    }

    /// The learned hazards, one curve for each end of answers that occurs among the requests whose
    /// blocks are remembered. O(those requests).
    #[must_use]
    pub fn curves(&self) -> Vec<HazardCurve> {
        let of = |finish: FinishKind| {
            let mut sums = [0.0; AGES];
            let mut requests = 0_u32;
            for piece in self.pieces.live().filter(|piece| piece.features.finish() == finish) {
                requests += 1;
                let hazards = self.rates.hazards(&rows(&piece.features), LAST_BLOCK, 0);
                sums.iter_mut().zip(hazards).for_each(|(sum, one)| *sum += f64::from(one));
            }
            let mean = sums.iter().map(|sum| sum / f64::from(requests.max(1)));
            let per_second = mean.enumerate().map(|(age, mean)| (start_s(age), mean)).collect();
            HazardCurve { finish, requests: requests as usize, per_second }
        };
        let curves = FinishKind::ALL.into_iter().map(of);
        curves.filter(|curve| curve.requests > 0).collect()
    }

    /// The learned tables, for [`Policy::learn_from`], scaled down to `most_returns` returns: a
    /// prior for other traffic. Some 40 KB.
    #[must_use]
    pub fn prior(&self, most_returns: f64) -> Vec<u8> {
        self.rates.save(most_returns)
    }

    /// The owner of a block that is not here, if it is known.
    fn ghost(&mut self, hash: BlockHash, offset: u32) -> Owner {
        let ghost = self.ghosts.find(hash, offset, &self.pieces);
        Owner::ghost_of(ghost.filter(|_| self.options.has_ghosts))
    }

    fn is_learned(&self) -> bool {
        self.guard.as_ref().is_none_or(TrialGuard::is_learned)
    }

    /// The key of a candidate now, in the order that rules: the least goes first.
    fn key(&mut self, block: BlockId) -> Key64 {
        let is_learned = self.is_learned();
        let owner = self.owners[block.index()].resident_of();
        let Some(piece) = owner.and_then(|id| self.pieces.get_mut(id)) else {
            // No request has released it: nothing speaks for it.
            return Key64::default();
        };
        // Above all that no piece owns. Ties go to the older one.
        let number = u64::from(piece.number) + 1;
        if !is_learned {
            return Key64::from(number);
        }
        let worth = worth(&self.rates, piece, self.now);
        Key64::from((u64::from(worth.to_bits()) << 32) + number)
    }

    /// Books the exposure of all pieces that enter another step of age, and sorts those again that
    /// are candidates.
    fn cross(&mut self) {
        let Self { pieces, rates, now, .. } = self;
        let mut candidates = Vec::new();
        pieces.cross(*now, |piece, age_s| {
            book(rates, piece, age_s);
            candidates.extend(piece.offered());
        });
        if self.is_learned() {
            for block in candidates {
                self.sort(block);
            }
        }
    }

    /// Sorts some candidates again, in turn: their worth falls with age, and the rates change.
    fn sweep(&mut self) {
        if !self.is_learned() {
            return;
        }
        for _ in 0..SWEPT.min(self.num_candidates) {
            self.swept = (self.swept + 1) % self.num_candidates;
            let block = self.candidates.at(0, self.swept);
            self.sort(block);
        }
    }

    /// Sorts a candidate by its key of now.
    fn sort(&mut self, block: BlockId) {
        let key = self.key(block);
        self.sort_by(block, key);
    }

    fn sort_by(&mut self, block: BlockId, key: Key64) {
        self.candidates.remove(0, block);
        self.candidates.push(0, block, key);
    }

    /// Sorts all candidates again, by the order that rules now.
    fn sort_all(&mut self) {
        let blocks: Vec<_> = (0..self.num_candidates).map(|at| self.candidates.at(0, at)).collect();
        for block in blocks {
            self.sort(block);
        }
    }

    /// A request, which came `lag_s` before now, asks for the blocks of `blocks`, and behind them
    /// for those of the owners of `missing`.
    fn pass_all(&mut self, blocks: &[BlockId], missing: &[Owner], lag_s: f64) -> PassedPrefix {
        let len = blocks.len() + missing.len();
        let mut passed = PassedPrefix::default();
        let mut at = 0;
        while at < len {
            let owner = |at: usize| match blocks.get(at) {
                Some(block) => self.owners[block.index()],
                None => missing[at - blocks.len()],
            };
            let Some((id, _)) = owner(at).piece() else {
                at += 1;
                continue;
            };
            let is_of = |at: usize| owner(at).piece().filter(|(piece, _)| *piece == id);
            let run = (at..len).map_while(is_of);
            let first = at;
            let mut resident = 0;
            for (_, is_resident) in run {
                at += 1;
                resident += u32::from(is_resident);
            }
            // Both find a prefix of the request.
            if passed.hits == first {
                passed.hits += resident as usize;
            }
            if passed.lru_hits == first {
                let end = (self.pieces.lru_end(id) as usize).clamp(first, at);
                passed.lru_hits += end - first;
            }
            let Some(piece) = self.pieces.get(id) else {
                continue;
            };
            let (to, gap_s) = (at as u32, (piece.age_s(self.now) - lag_s).max(0.0));
            passed.known = to;
            // The request continues another one if it has half of it.
            let is_half = u64::from(to) * 2 >= u64::from(piece.len);
            let before = Predecessor { features: piece.features, gap_s };
            passed.continues = is_half.then_some(before);
            self.pass(id, to, resident, lag_s);
        }
        passed
    }

    /// A request asks for the blocks of a piece up to `to`, `lag_s` before now. Of those,
    /// `resident` were resident.
    fn pass(&mut self, id: PieceId, to: u32, resident: u32, lag_s: f64) {
        let Some(piece) = self.pieces.get_mut(id) else {
            return;
        };
        let to = to.min(piece.len);
        let age_s = (piece.age_s(self.now) - lag_s).max(0.0);
        book(&mut self.rates, piece, age_s);
        let rows = rows(&piece.features);
        for (first, end, state) in piece.parts() {
            let taken = end.min(to).saturating_sub(first.max(piece.from));
            if taken > 0 {
                let share = f64::from(taken) / f64::from(end - first);
                self.rates.returned(&rows, state, share, age_s);
            }
        }
        let covered = u64::from(to) * 100 / u64::from(piece.len.max(1));
        let superseded = u8::from(covered > 50) + u8::from(covered > 95);
        piece.superseded = piece.superseded.max(superseded);
        self.pieces.take(id, to, resident);
    }
}

/// The worth of keeping the last resident block of a piece.
fn worth(rates: &Rates, piece: &mut OwnedPiece, now: u32) -> f32 {
    let worths = piece.worths(rates.refreshed(), |piece, state| {
        rates.worths(&rows(&piece.features), state, piece.age())
    });
    at_age(worths, piece, now)
}

/// The worth at a piece's age, between those at two steps.
fn at_age([here, next]: [f32; 2], piece: &OwnedPiece, now: u32) -> f32 {
    let age = piece.age();
    let fraction = (piece.age_s(now) - start_s(age)) / width_s(age);
    here + (next - here) * fraction.clamp(0.0, 1.0) as f32
}

/// Books the exposure of a piece up to an age.
fn book(rates: &mut Rates, piece: &mut OwnedPiece, age_s: f64) {
    let from_s = f64::from(piece.booked) / TICKS;
    if age_s <= from_s {
        return;
    }
    let rows = rows(&piece.features);
    for (first, end, state) in piece.parts() {
        let left = end.saturating_sub(first.max(piece.from));
        if left > 0 {
            let share = f64::from(left) / f64::from(end - first);
            rates.expose(&rows, state, share, from_s, age_s);
        }
    }
    piece.booked = (age_s * TICKS).ceil() as u32;
}

impl Policy for Hazard {
    fn insert(&mut self, block: BlockId, hash: BlockHash, access: &Access) {
        self.owners[block.index()] = self.ghost(hash, access.offset);
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        self.release_some(blocks, &[], access);
    }

    fn release_some(&mut self, blocks: &[BlockId], missing: &[BlockHash], access: &Access) {
        self.chosen = None;
        self.ghosts.end_run();
        let offsets = blocks.len() as u32..;
        let missing_owners: Vec<Owner> =
            offsets.zip(missing).map(|(offset, &hash)| self.ghost(hash, offset)).collect();
        self.ghosts.end_run();
        self.now = self.clock.advance(access.now);
        self.rates.settle(self.clock.num_requests());
        self.cross();
        self.sweep();
        let lag_s = access.started.map_or(0.0, |at| access.now.since(at).as_secs_f64());
        let PassedPrefix { known, continues, hits, lru_hits } =
            self.pass_all(blocks, &missing_owners, lag_s);
        let len = blocks.len() + missing.len();
        if len > 0 {
            let features = Features::new(access, len as u32, known, continues);
            let features = features.without(self.options.hidden);
            let piece = self.pieces.add(len as u32, known, features, self.now);
            for block in blocks {
                self.owners[block.index()] = Owner::of(piece);
            }
            // As if they had been here, and were evicted at once.
            for &hash in missing.iter().rev() {
                if let Some(id) = piece {
                    self.ghosts.evicted(hash, id, &self.pieces);
                    self.pieces.shrink(id, true);
                }
            }
            self.ghosts.end_run();
        }
        let ghosts = (self.capacity as u64 * GHOST_BLOCKS_PER_BLOCK).max(LEAST_GHOST_BLOCKS);
        let pieces = (self.capacity / BLOCKS_PER_GHOST_PIECE).max(LEAST_GHOST_PIECES);
        self.pieces.limit_ghosts(pieces, ghosts);
        let candidates = self.num_candidates;
        let guard = self.guard.as_mut();
        if guard.is_some_and(|guard| guard.served(hits, lru_hits, len, candidates)) {
            self.sort_all();
        }
    }

    fn learned(&self) -> Option<Vec<u8>> {
        Some(self.rates.save(f64::INFINITY))
    }

    fn learn_from(&mut self, learned: &[u8]) -> Result<(), ForeignTables> {
        self.rates.restore(learned)
    }

    fn serve_tier(&mut self) {
        self.serves_tier = true;
        self.ghosts.keep_all();
    }

    fn admits(&mut self, newcomer: &Newcomer) -> bool {
        self.is_worth_a_victim(newcomer)
    }

    fn chance_of_use(&mut self, newcomer: &Newcomer) -> Option<f64> {
        self.chance_within_residence(newcomer)
    }

    fn store(&mut self, block: BlockId, hash: BlockHash, access: &Access) {
        self.store_in_tier(block, hash, access);
    }

    fn offer(&mut self, block: BlockId) {
        self.chosen = None;
        self.num_candidates += 1;
        if let Some(id) = self.owners[block.index()].resident_of()
            && let Some(piece) = self.pieces.get_mut(id)
        {
            piece.set_offered(Some(block));
        }
        let key = self.key(block);
        self.candidates.push(0, block, key);
    }

    fn withdraw(&mut self, block: BlockId) {
        self.chosen = None;
        self.num_candidates -= 1;
        self.candidates.remove(0, block);
        if let Some(id) = self.owners[block.index()].resident_of()
            && let Some(piece) = self.pieces.get_mut(id)
            && piece.offered() == Some(block)
        {
            piece.set_offered(None);
        }
    }

    fn victim(&mut self, _: Nanos, _: Option<&Newcomer>) -> Option<BlockId> {
        if self.chosen.is_none() {
            for _ in 0..MOST_REVALIDATED {
                let (sorted_by, block) = self.candidates.first(0)?;
                // It has aged since it was sorted, or the rates have changed.
                let key = self.key(block);
                if key <= sorted_by {
                    break;
                }
                self.sort_by(block, key);
            }
            self.chosen = self.candidates.first(0).map(|(_, block)| block);
        }
        self.chosen
    }

    fn remove(&mut self, block: BlockId, hash: BlockHash) {
        self.withdraw(block);
        let Some(id) = self.owners[block.index()].resident_of() else {
            return;
        };
        self.ghosts.evicted(hash, id, &self.pieces);
        if self.serves_tier {
            self.note_residence(id);
        }
        self.pieces.shrink(id, true);
    }

    fn forget(&mut self, block: BlockId, _: BlockHash) {
        self.chosen = None;
        let owner = std::mem::replace(&mut self.owners[block.index()], Owner::NONE);
        if let Some(id) = owner.resident_of() {
            self.pieces.shrink(id, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Lru;
    use super::*;
    use crate::{Admit, PrefixCache};

    /// Block hits of agents whose answers end in calls of tools and who return after 5 s, beside
    /// chats that end and never return; how each answer ended is the only difference.
    fn hits(policy: Box<dyn Policy>, capacity: usize) -> usize {
        let mut cache = PrefixCache::new(capacity, policy);
        let (mut hits, mut next) = (0, 0);
        let mut agents: Vec<Vec<BlockHash>> = vec![Vec::new(); 10];
        for second in 0..5_000_u64 {
            let mut request = |chain: &[BlockHash], finish| {
                let now = Nanos::from_secs_f64(second as f64);
                let access = Access { finish, ..Access::at(now) };
                let mut lease = cache.acquire(chain);
                hits += lease.matched();
                for (offset, &hash) in (0..).zip(chain).skip(lease.matched()) {
                    let access = Access { offset, ..access };
                    assert_ne!(cache.admit(&mut lease, hash, &access), Admit::Declined);
                }
                cache.release(lease, &access);
                cache.check();
            };
            let mut fresh = |count: u64| {
                next += count;
                (next - count..next).map(BlockHash::from_u64).collect::<Vec<_>>()
            };
            let agent = &mut agents[second as usize % 10];
            if agent.len() > 20 {
                agent.clear();
            }
            agent.extend(fresh(2));
            request(agent, FinishKind::ToolCalls);
            request(&fresh(30), FinishKind::Stop);
        }
        hits
    }

    #[test]
    fn the_end_of_an_answer_tells_who_returns() {
        let capacity = 200;
        let lru = hits(Box::new(Lru::new(capacity)), capacity);
        let options = HazardOptions::default();
        let hazard = hits(Box::new(Hazard::new(capacity, options)), capacity);
        assert!(hazard > 3 * lru && hazard > 30_000, "{hazard} and {lru}");
    }
}
