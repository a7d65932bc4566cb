//! Characterization of a trace: ideal hit rate, sessions, reuse times, skew, sizes, and LRU's hits
//! at every size, in one pass, whatever its length.
//!
//! ```text
//! requests ─ add ─▶ Characterizer ─ finish ─▶ Characterization
//!                    stack      every block's first and last use, by runs
//!                    sessions   requests, turns, hits; users the same
//!                    counts     by time, type, turn, offset, reuse time
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`report`] | [`Characterization`]: the numbers and what each means |
//! | [`stack`] | [`Stack`]: stack distances of runs of blocks |
//! | [`fit`] | exponential, Weibull and log-normal by maximum likelihood |
//! | [`histogram`] | [`Histogram`], and [`Spread`] of its values |
//!
//! Memory is bounded by [`RecordLimits`]: some 100 bytes a piece, session and user, and some
//! 15 KiB a request type; about 600 MiB at the defaults' ends. Below them everything is exact, but
//! for percentiles (within 1.6 %). Beyond, blocks and sessions are sampled, and the result says
//! at what rate.
//!
//! Cost: some operations per run of blocks that have a common past, not per block.
//!
//! Source: the questions are those of "KVCache Cache in the Wild" (ATC'25, section 3).

mod ages;
mod curve;
mod finish;
pub mod fit;
pub mod histogram;
mod owners;
pub mod report;
mod skew;
pub mod stack;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod timeline;

use std::collections::BTreeMap;

use headstart_core::{Nanos, TraceRequest};

use curve::Distances;
pub use fit::{Fit, Fits, Model};
pub use histogram::{Histogram, Spread};
use owners::{SampledTable, Session, User};
pub use report::Characterization;
use report::{Hits, Origins};
pub use stack::Stack;
use stack::Touch;
use timeline::TimeBuckets;

/// Turns that are counted apart; later ones count as this one.
pub const TURNS_MAX: u16 = 16;

/// Parameters that the requests do not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settings {
    /// Tokens per block, from the trace's info.
    pub block_tokens: u32,
    /// Bytes of keys and values of a token, for figures in bytes.
    pub kv_bytes_per_token: Option<f64>,
    /// Bytes of device memory for keys and values, for comparison.
    pub device_bytes: Option<f64>,
    /// Bounds on the records that are kept.
    pub limits: RecordLimits,
}

/// Most records of each kind before sampling begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// Runs of blocks with one past.
    pub pieces: usize,
    /// Sessions.
    pub sessions: usize,
    /// Users.
    pub users: usize,
}

impl Default for RecordLimits {
    /// Two million pieces (the recorded agent sessions, 54 million references, have a tenth of
    /// that), a million sessions and as many users.
    fn default() -> Self {
        Self { pieces: 1 << 21, sessions: 1 << 20, users: 1 << 20 }
    }
}

/// Counts requests as they come by, in order of time.
#[derive(Debug)]
pub struct Characterizer {
    settings: Settings,
    stack: Stack<UseRecord>,
    sessions: SampledTable<Session>,
    users: SampledTable<User>,
    requests: u64,
    without_session: u64,
    has_users: bool,
    end: Nanos,
    ideal: IdealTotals,
    curve: Distances,
    /// Hits of `curve` that serve no token, see [`servable_tokens`].
    unservable: Distances,
    origins: Origins,
    moments: TimeBuckets,
    types: BTreeMap<u16, ByType>,
    turns: BTreeMap<u16, Hits>,
    /// Requests that were followed by another of their session, by class.
    followed: BTreeMap<(u16, u16), u64>,
    gaps: Histogram,
    reuse: Histogram,
    reuse_by_type: BTreeMap<u16, Histogram>,
    reuse_by_turn: BTreeMap<u16, Histogram>,
    offsets: Vec<Hits>,
    strides: Vec<(u64, u64)>,
    prompt_tokens: Histogram,
    output_tokens: Histogram,
}

/// The length of a request's prompt: the trace's, or that of whole blocks where it has none.
#[must_use]
pub fn prompt_tokens(request: &TraceRequest, block_tokens: u32) -> u64 {
    let in_blocks = request.blocks.len() as u64 * u64::from(block_tokens);
    request.input_tokens.map_or(in_blocks, u64::from)
}

/// Prompt tokens of a request that a cache of whole blocks can serve: the last token is always
/// computed, and with it the block that it is in.
#[must_use]
pub fn servable_tokens(request: &TraceRequest, block_tokens: u32) -> u64 {
    let size = u64::from(block_tokens.max(1));
    let in_blocks = request.blocks.len() as u64 * size;
    let tokens = prompt_tokens(request, size as u32);
    (tokens.saturating_sub(1) / size * size).min(in_blocks)
}

/// Record of the uses of a block.
#[derive(Clone, Copy, Debug)]
struct UseRecord {
    first: Nanos,
    last: Nanos,
    uses: u32,
    request_type: u16,
    turn: u16,
    session: u64,
    user: u64,
}

/// No session, no user.
const NOBODY: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct IdealTotals {
    references: u64,
    hits: u64,
    orphans: u64,
    prompt_tokens: u64,
    hit_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ByType {
    all: Hits,
    first_turn: Hits,
    without_session: Hits,
}

impl Hits {
    /// Adds what `other` counted.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.references += other.references;
        self.hits += other.hits;
    }

    /// Hits of references; 0 without any.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.references == 0 {
            return 0.0;
        }
        // Under sampling, hits are estimated and can exceed the references.
        (self.hits as f64 / self.references as f64).min(1.0)
    }
}

/// Time, class, session and user of a request.
#[derive(Clone, Copy)]
struct Sender {
    now: Nanos,
    request_type: u16,
    turn: u16,
    session: u64,
    user: u64,
}

/// Sessions and turns that begin with a request. Under sampling that is an estimate which is right
/// on average: those of a sampled session stand for others, those of another session are none.
#[derive(Clone, Copy, Debug, Default)]
struct NewSessions {
    sessions: u64,
    turns: u64,
}

impl Characterizer {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let limits = settings.limits;
        Self {
            settings,
            stack: Stack::new(limits.pieces),
            sessions: SampledTable::new(limits.sessions),
            users: SampledTable::new(limits.users),
            requests: 0,
            without_session: 0,
            has_users: false,
            end: Nanos(0),
            ideal: IdealTotals::default(),
            curve: Distances::default(),
            unservable: Distances::default(),
            origins: Origins::default(),
            moments: TimeBuckets::default(),
            types: BTreeMap::new(),
            turns: BTreeMap::new(),
            followed: BTreeMap::new(),
            gaps: Histogram::default(),
            reuse: Histogram::default(),
            reuse_by_type: BTreeMap::new(),
            reuse_by_turn: BTreeMap::new(),
            offsets: Vec::new(),
            strides: Vec::new(),
            prompt_tokens: Histogram::default(),
            output_tokens: Histogram::default(),
        }
    }

    /// Counts the next request, without a user.
    pub fn add(&mut self, request: &TraceRequest) {
        self.add_of(request, None);
    }

    /// Counts the next request, of `user` (any number that names one).
    pub fn add_of(&mut self, request: &TraceRequest, user: Option<u64>) {
        let sender = Sender {
            // A request out of order counts at the latest time so far, so no difference of times is
            // negative.
            now: request.arrival.max(self.end),
            request_type: request.request_type,
            turn: request.turn.min(TURNS_MAX),
            session: request.session.map_or(NOBODY, |session| session.0),
            user: user.unwrap_or(NOBODY),
        };
        self.end = sender.now;
        self.requests += 1;
        let hits = self.touch(request, sender);
        let hits = Hits { requests: 1, references: request.blocks.len() as u64, hits };
        let tokens = self.count_tokens(request, hits.hits);
        self.count_places(hits.references, hits.hits);
        self.moments.at(sender.now).hits.add(&hits);
        let by_type = self.types.entry(sender.request_type).or_default();
        by_type.all.add(&hits);
        if sender.turn <= 1 {
            by_type.first_turn.add(&hits);
        }
        if sender.session == NOBODY {
            self.without_session += 1;
            by_type.without_session.add(&hits);
        }
        self.turns.entry(sender.turn).or_default().add(&hits);
        self.count_senders(sender, request.turn, hits, tokens);
    }

    /// Uses the request's blocks; how many of them hit. Under sampling that is an estimate which
    /// is right on average, and can be above their number.
    fn touch(&mut self, request: &TraceRequest, sender: Sender) -> u64 {
        // Read first: the end of the touch may halve the rate, but its hits are counted at this
        // one.
        let weight = self.stack.weight();
        let block_tokens = self.settings.block_tokens;
        let servable = servable_tokens(request, block_tokens) / u64::from(block_tokens.max(1));
        let mut known = 0;
        let mut is_leading = true;
        let Self {
            stack,
            curve,
            unservable,
            origins,
            ideal,
            reuse,
            reuse_by_type,
            reuse_by_turn,
            ..
        } = self;
        stack.touch(&request.blocks, |touch: Touch<UseRecord>| {
            let Some(before) = touch.before else {
                // A block hits only if all blocks before it do, so the first new block ends the
                // hits.
                is_leading = false;
                return UseRecord::new(sender);
            };
            let record = before.record;
            let blocks = u64::from(touch.count) * weight;
            if is_leading {
                known += blocks;
                curve.add(before.distance, touch.count, weight);
                // The block of the prompt's last token is recomputed, so a hit on it serves no
                // token.
                let good = servable.saturating_sub(touch.offset);
                let good = good.min(u64::from(touch.count)) as u32;
                // The others are the last blocks of the piece, so their distances begin `good`
                // later.
                unservable.add(before.distance + u64::from(good), touch.count - good, weight);
                origins.add(&record, sender, blocks);
                let gap_ms = (sender.now.0 - record.last.0) / 1_000_000;
                reuse.add(gap_ms, blocks);
                let of_type = reuse_by_type.entry(record.request_type).or_default();
                of_type.add(gap_ms, blocks);
                let of_turn = reuse_by_turn.entry(record.turn).or_default();
                of_turn.add(gap_ms, blocks);
            } else {
                // A known block after a new one: its id cannot name its whole prefix.
                ideal.orphans += blocks;
            }
            // The next reuse is charged to this request's type, turn, session and user.
            UseRecord {
                first: record.first,
                uses: record.uses.saturating_add(1),
                ..UseRecord::new(sender)
            }
        });
        // All blocks, sampled or not, because a request says how many it has.
        self.ideal.references += request.blocks.len() as u64;
        self.ideal.hits += known;
        known
    }

    /// Prompt tokens of the request.
    fn count_tokens(&mut self, request: &TraceRequest, hits: u64) -> u64 {
        let in_blocks = |blocks: u64| blocks * u64::from(self.settings.block_tokens);
        let tokens = prompt_tokens(request, self.settings.block_tokens);
        self.ideal.prompt_tokens += tokens;
        let servable = servable_tokens(request, self.settings.block_tokens);
        // The hits are estimated under sampling, and the last block of a full prompt serves
        // nothing.
        self.ideal.hit_tokens += in_blocks(hits).min(servable);
        self.prompt_tokens.add(tokens, 1);
        if let Some(output) = request.output_tokens {
            self.output_tokens.add(u64::from(output), 1);
        }
        tokens
    }

    /// Hits by offset and by stride: the first `hits` of `references` blocks hit.
    fn count_places(&mut self, references: u64, hits: u64) {
        // An estimate under sampling can exceed the references.
        let hits = hits.min(references);
        let mut from = 0;
        // Bins double in width, so a prompt of any length falls into few of them.
        let mut until = 1;
        let mut bin = 0;
        while from < references {
            if bin >= self.offsets.len() {
                self.offsets.push(Hits::default());
                self.strides.push((0, 0));
            }
            let here = |blocks: u64| blocks.min(until) - blocks.min(from);
            self.offsets[bin].references += here(references);
            self.offsets[bin].hits += here(hits);
            let stride = 1 << bin;
            // Hits are a prefix. A pair begins at each hit with another block one stride later.
            self.strides[bin].0 += hits.min(references.saturating_sub(stride));
            // Both blocks hit where the second one lies in the prefix as well.
            self.strides[bin].1 += hits.saturating_sub(stride);
            (from, until, bin) = (until, until * 2, bin + 1);
        }
    }

    fn count_senders(&mut self, sender: Sender, turn: u16, hits: Hits, tokens: u64) {
        let begun = if sender.session == NOBODY {
            // A request without a session is a turn of its own.
            NewSessions { sessions: 0, turns: 1 }
        } else {
            self.count_session(sender, turn, hits, tokens)
        };
        if sender.user == NOBODY {
            return;
        }
        self.has_users = true;
        if let Some(user) = self.users.of(sender.user) {
            user.requests += 1;
            user.sessions += begun.sessions;
            user.turns += begun.turns;
            user.hits += hits.hits;
        }
    }

    fn count_session(&mut self, sender: Sender, turn: u16, hits: Hits, tokens: u64) -> NewSessions {
        // Only a known session uses the weight, and to look it up halves nothing.
        let weight = self.sessions.weight();
        let Some(session) = self.sessions.of(sender.session) else {
            // The weights of the sampled sessions include this one.
            return NewSessions::default();
        };
        let is_new_session = session.requests == 0;
        let is_new_turn = is_new_session || turn > session.turns;
        if is_new_session {
            session.first = sender.now;
        } else {
            // The request before was followed, so its class and its time get the count.
            *self.followed.entry(session.class).or_insert(0) += weight;
            self.moments.at(session.last).followed += weight;
            let gap_ms = (sender.now.0 - session.last.0) / 1_000_000;
            self.gaps.add(gap_ms, weight);
        }
        // Last, because the counts above need the request before.
        session.add(sender, turn, hits, tokens);
        // Read again: room for a new session may have halved the rate, and it passed the new one.
        let weight = self.sessions.weight();
        NewSessions {
            sessions: weight * u64::from(is_new_session),
            turns: weight * u64::from(is_new_turn),
        }
    }

    /// The characterization of what was counted.
    #[must_use]
    pub fn finish(self) -> Characterization {
        finish::finish(self)
    }
}

impl UseRecord {
    fn new(sender: Sender) -> Self {
        Self {
            first: sender.now,
            last: sender.now,
            uses: 1,
            request_type: sender.request_type,
            turn: sender.turn,
            session: sender.session,
            user: sender.user,
        }
    }
}

impl Origins {
    fn add(&mut self, before: &UseRecord, sender: Sender, blocks: u64) {
        let count = match (before.session, sender.session) {
            // Two requests without a session do not share one.
            (NOBODY, _) | (_, NOBODY) => &mut self.unknown_session,
            (one, other) if one == other => &mut self.same_session,
            _ => &mut self.other_session,
        };
        *count += blocks;
        let count = match (before.user, sender.user) {
            (NOBODY, _) | (_, NOBODY) => &mut self.unknown_user,
            (one, other) if one == other => &mut self.same_user,
            _ => &mut self.other_user,
        };
        *count += blocks;
    }
}

impl Session {
    fn add(&mut self, sender: Sender, turn: u16, hits: Hits, tokens: u64) {
        self.requests += 1;
        self.references += hits.references;
        self.hits += hits.hits;
        self.prompt_tokens += tokens;
        self.turns = self.turns.max(turn);
        self.last = sender.now;
        self.class = (sender.request_type, sender.turn);
    }
}
