//! The index in production: runs of keys with their holders, in two copies.
//!
//! ```text
//! events ──► writer (handles → blocks) ──► changes ──► view ◄── look-ups
//!                                              └─────► its twin
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`super::view`] | runs, holders, what replicas need of a prefix: what look-ups read |
//! | [`super::walk`], [`super::lookup_hybrid`] | look-ups; with several cache groups |
//! | [`super::lookup_tiers`] | what each tier of one replica holds of a prompt |
//! | [`super::holders`], [`super::holder`], [`super::extent`] | what replicas hold of one run |
//! | [`super::writer`] | updates: membership, assumptions, doubts that end |
//! | [`super::replica`] | one replica's events: what is held, removed, departed |
//! | [`super::resolve_handles`] | what its handles stand for |
//! | [`super::changes`] | what an update changes, for those who follow blocks |
//! | [`super::expiry`] | how its blocks go otherwise |
//! | [`super::forest`] | where a block belongs, and when it may go |
//! | [`super::names`], [`super::table`] | handles that stand for a block |
//! | [`super::tombstones`] | those that hold nothing any more |
//! | [`super::aliases`] | several handles of one replica for one block |
//! | [`super::waiting`] | handles that stand for none yet |
//! | [`super::budget`] | the memory limit |
//! | [`super::left_right`] | two copies, so that look-ups do not wait |
//!
//! Costs: an event, its blocks; a look-up, its runs times their holders, and a search in the last
//! one; a clear, the replica's own blocks. A block takes about 12 bytes once, and 15 to 30 for each
//! replica that holds it.
//!
//! Source: compressed radix trees as SGLang and Dynamo have them. Differences: runs are found by
//! their first key and not by way of their parent, so they are never split; holders count leading
//! blocks; memory is limited in bytes.

use headstart_core::event::BlockChange;
use headstart_core::{CacheEvent, Nanos, ReplicaId};

use super::budget::Limits;
use super::draft::ViewDraft;
use super::dump::{DumpError, IndexDump};
use super::left_right::{ReplayTarget, Twin};
use super::standing::{BlockStanding, is_over};
use super::view::View;
use super::view_change::ViewChange;
use super::writer::IndexWriter;
use super::{
    IndexStats, Overlaps, PrefixIndex, Prompt, PromptKeys, ResidentBlock, TierTokens, Update,
};
use super::{lookup_tiers, question};

/// A [`PrefixIndex`] for the replicas of one model.
#[derive(Debug)]
pub struct RunIndex {
    twin: Twin<View, IndexWriter, ViewChange>,
}

impl ReplayTarget<ViewChange> for View {
    fn replay(&mut self, change: &ViewChange) {
        self.apply(change);
    }
}

impl RunIndex {
    /// An index without replicas, of at most a gibibyte.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self::with_limits(model, Limits::default())
    }

    /// The same without the second copy: less work for updates, for those who never look up while
    /// another thread updates. It counts its memory as if there were two, and so forgets when the
    /// others would.
    #[must_use]
    pub fn alone(model: impl Into<String>) -> Self {
        let writer = IndexWriter::new(model.into(), Limits::default());
        Self { twin: Twin::alone(View::default(), writer) }
    }

    /// An index without replicas. Above about `max_bytes` bytes of memory, it forgets what was not
    /// used for the longest time.
    #[must_use]
    pub fn with_budget(model: impl Into<String>, max_bytes: usize) -> Self {
        let limits = Limits { max_bytes, ..Limits::default() };
        Self::with_limits(model, limits)
    }

    /// An index without replicas, with these limits.
    #[must_use]
    pub fn with_limits(model: impl Into<String>, limits: Limits) -> Self {
        let writer = IndexWriter::new(model.into(), limits);
        Self { twin: Twin::new([View::default(), View::default()], writer) }
    }

    /// All that is held at `now`. Updates wait meanwhile, look-ups do not.
    #[must_use]
    pub fn dump(&self, now: Nanos) -> IndexDump {
        self.twin.inspect(|writer, view| writer.dump(view, now))
    }

    /// Takes over what `dump` says of the replicas that are tracked, as doubtful. Returns how much
    /// that is, in blocks times the places that hold them.
    ///
    /// # Errors
    /// When the dump cannot be used, or events were applied already; nothing changes then.
    pub fn restore(&self, dump: &IndexDump, now: Nanos) -> Result<usize, DumpError> {
        self.twin.write(|writer, view, log| writer.restore(&mut ViewDraft { view, log, now }, dump))
    }

    /// Asserts all invariants. O(size); for tests.
    ///
    /// # Panics
    /// When one is broken, with its name.
    pub fn check(&self) {
        self.twin.read(View::check);
        self.twin.write(|writer, view, _| writer.check(view));
    }
}

impl PrefixIndex for RunIndex {
    fn update(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        self.twin.write(|writer, view, log| {
            writer.update(&mut ViewDraft { view, log, now }, replica, update);
        });
    }

    fn update_and_tell(
        &self,
        replica: ReplicaId,
        events: &[CacheEvent],
        now: Nanos,
        changes: &mut Vec<BlockChange>,
    ) {
        self.twin.write(|writer, view, log| {
            writer.update_and_tell(&mut ViewDraft { view, log, now }, replica, events, changes);
        });
    }

    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys {
        let known = |view: &View| (view.hashers().clone(), view.uses_hashers());
        let (hashers, are_in_use) = self.twin.read(known);
        // Hashing takes as long as the prompt is, so it happens outside of `read`.
        let keys = PromptKeys::new(prompt, &hashers);
        if are_in_use { keys } else { keys.past() }
    }

    fn overlaps(&self, prompt: &PromptKeys, now: Nanos, answer: &mut Overlaps) {
        self.twin.read(|view| question::overlaps(view, prompt, now, answer));
    }

    fn tier_tokens(&self, prompt: &PromptKeys, replica: ReplicaId, now: Nanos) -> TierTokens {
        self.twin.read(|view| lookup_tiers::tier_tokens(view, prompt, replica, now))
    }

    fn residents(&self, now: Nanos, visit: &mut dyn FnMut(ResidentBlock)) {
        self.twin.read(|view| {
            view.visit(|run, replica, place, standing, extent| {
                let is_doubtful = match standing {
                    BlockStanding::Confirmed => false,
                    // Aged out, though no sweep has removed it yet.
                    BlockStanding::Doubtful { since } if is_over(since, now) => return,
                    BlockStanding::Doubtful { .. } => true,
                };
                for offset in extent.iter() {
                    visit(ResidentBlock {
                        replica,
                        key: run.key(offset),
                        group: place.group,
                        tier: place.tier,
                        is_doubtful,
                    });
                }
            });
        });
    }

    fn stats(&self) -> IndexStats {
        self.twin.inspect(IndexWriter::stats)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use headstart_core::event::StoredBlocks;
    use headstart_core::{BlockHash, Tier};

    use super::*;

    const REPLICAS: [ReplicaId; 2] = [ReplicaId(0), ReplicaId(3)];

    fn stored(tokens: &[u32]) -> CacheEvent {
        CacheEvent::Stored(StoredBlocks {
            blocks: tokens.iter().map(|&token| BlockHash::from_u64(token.into())).collect(),
            parent: None,
            tokens: tokens.to_vec(),
            block_size: 1,
            extras: Vec::new(),
            tier: Tier::Device,
            group: headstart_core::event::CacheGroup::default(),
            salt: None,
            adapter: None,
        })
    }

    /// The contents of both copies, which must be equal.
    fn residents(index: &RunIndex) -> Vec<ResidentBlock> {
        let [one, other] = [(); 2].map(|()| {
            let mut all = Vec::new();
            index.residents(Nanos(9), &mut |block| all.push(block));
            all.sort_unstable();
            // The copies change their roles.
            index.update(ReplicaId(99), Update::Doubt, Nanos(9));
            all
        });
        assert_eq!(one, other);
        one
    }

    #[test]
    fn an_update_that_panics_leaves_an_empty_index_that_learns_again() {
        let alone = RunIndex::alone("m");
        for index in [RunIndex::new("m"), alone] {
            for replica in REPLICAS {
                index.update(replica, Update::Track { block_size: Some(1) }, Nanos(0));
                index.update(replica, Update::Events(&[stored(&[1, 2, 3])]), Nanos(1));
            }
            assert_eq!(residents(&index).len(), 6);
            let panics = || {
                index.twin.write(|writer, view, log| {
                    let draft = &mut ViewDraft { view, log, now: Nanos(2) };
                    let events = [stored(&[1, 2, 7, 8])];
                    writer.update(draft, REPLICAS[0], Update::Events(&events));
                    // As if in the middle: the state knows less than the view.
                    writer.replicas.clear();
                    panic!("in an update, as planned");
                });
            };
            catch_unwind(AssertUnwindSafe(panics)).expect_err("it panics");
            index.check();
            assert_eq!(residents(&index), []);
            index.update(REPLICAS[1], Update::Events(&[stored(&[1, 2])]), Nanos(3));
            index.check();
            let held = residents(&index);
            assert!(held.len() == 2 && held.iter().all(|block| block.replica == REPLICAS[1]));
        }
    }
}
