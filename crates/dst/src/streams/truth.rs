//! Contents of one engine after the last batch that a subscriber applied, and the part of them that
//! the subscriber can know.
//!
//! Nothing here looks at events: it goes by what the engine did ([`BatchRecord`]s), and by which
//! numbers were applied and which were not.
//!
//! ```text
//! numbers     0  1  2  3  4  5  6  7        applied 0 1 2 5; 3 and 4 are lost, 6 and 7 on the way
//!             ●  ●  ●  ○  ○  ●  ·  ·        truth: what the engine held after 5
//! stored at   a        b     c              c is known; a may have been removed by 3 or 4, so it
//!                                           must be in doubt; b cannot be known
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headstart_core::{Nanos, Tier};
use headstart_router::index::DOUBT_TTL;
use headstart_router::stream::Damage;

use super::catalog::{BlockNo, Catalog};
use super::engine::{BlockLocation, Happening};
use super::publisher::{BatchPosition, BatchRecord, ProcessNo};

/// The engine's truth at the applied position.
#[derive(Debug, Default)]
pub struct Truth {
    position: Option<BatchPosition>,
    held: BTreeMap<BlockLocation, Standing>,
    /// Blocks that a subscriber may not know: announced by a lost batch, or in doubt for too long,
    /// or removed from where it knew them, and introduced by no batch that arrived since.
    tainted: BTreeSet<BlockNo>,
    /// Blocks of which several copies were announced: events cannot tell how many are left.
    blurred: BTreeSet<BlockNo>,
    /// Cache groups of which something was announced since everything was cleared.
    announced: BTreeSet<u8>,
    /// The last lost batch that may have removed something.
    lost: Option<u64>,
    /// Whether something is missing that was not cleared since.
    has_loss: bool,
    /// Whether the subscriber was told to doubt since then.
    is_doubted: bool,
    /// When it was last, or a little later.
    last_stamp: Nanos,
    /// The same, unless something was applied since, and whether it had been before.
    last_doubt: Option<(Nanos, bool)>,
}

/// Knowledge about a place that holds its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The batch that last announced it.
    pub stored_at: u64,
    /// Whether that batch was applied.
    pub told: AnnouncementStatus,
    /// When the subscriber first doubted it since then.
    pub doubted: Option<Nanos>,
}

impl Standing {
    /// Whether the subscriber has doubted it for too long to know it still.
    #[must_use]
    pub fn is_over(&self, now: Nanos) -> bool {
        self.doubted.is_some_and(|doubted| doubted + DOUBT_TTL <= now)
    }
}

/// Whether an announcement has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnouncementStatus {
    /// It has.
    Yes,
    /// Its batch has, but not all of that was understood.
    Perhaps,
    /// It has not.
    No,
}

impl Truth {
    /// The subscriber applied the batch at `position`; `records` are its process's. An error if
    /// that is not later than the one before.
    pub fn apply(
        &mut self,
        position: BatchPosition,
        records: &[BatchRecord],
        catalog: &Catalog,
        now: Nanos,
    ) -> Result<(), String> {
        let BatchPosition { process, seq } = position;
        let before = self.position.filter(|before| before.process == process);
        if before.is_none() {
            self.enter();
        }
        // Something was applied after the doubt, so it cannot be taken back any more.
        self.last_doubt = None;
        let first = before.map_or(0, |before| before.seq + 1);
        if seq < first {
            return Err(format!("batch {seq} was applied after {before:?}"));
        }
        // Aged first: what the batch announces was not in doubt before.
        self.age(now);
        // The engine did these things as well, but no one told the subscriber.
        for lost in first..seq {
            self.take(lost, &records[lost as usize], AnnouncementStatus::No, catalog);
        }
        let record = &records[seq as usize];
        let told = match record.damage {
            Damage::None => AnnouncementStatus::Yes,
            Damage::Skipped { .. } => AnnouncementStatus::Perhaps,
            Damage::Unreadable => return Err(format!("unreadable batch {seq} was applied")),
        };
        self.take(seq, record, told, catalog);
        self.position = Some(position);
        Ok(())
    }

    /// The subscriber has forgotten everything.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The subscriber doubts what it knows.
    pub fn doubt(&mut self, now: Nanos) {
        // Told apart also where two come at once.
        let now = now.max(self.last_stamp + Duration::from_nanos(1));
        self.last_stamp = now;
        self.last_doubt = Some((now, self.is_doubted));
        self.is_doubted |= self.position.is_some();
        for standing in self.held.values_mut() {
            // The first doubt counts, because its age decides when a block is forgotten.
            standing.doubted.get_or_insert(now);
        }
    }

    /// The subscriber takes its last doubt back. An error if it has none, or none that it can.
    pub fn trust(&mut self, now: Nanos) -> Result<(), String> {
        let doubt = self.last_doubt.take();
        let in_time = doubt.filter(|(at, _)| now < *at + DOUBT_TTL);
        let (at, was_doubted) =
            in_time.ok_or_else(|| format!("takes {doubt:?} back at {now:?}"))?;
        self.is_doubted = was_doubted;
        let held = self.held.values_mut();
        // Blocks doubted earlier stay in doubt: this doubt was not their first.
        for standing in held.filter(|standing| standing.doubted == Some(at)) {
            standing.doubted = None;
        }
        Ok(())
    }

    /// The last applied batch since everything was forgotten.
    #[must_use]
    pub fn position(&self) -> Option<BatchPosition> {
        self.position
    }

    /// Returns the process whose batches are applied.
    #[must_use]
    pub fn process(&self) -> Option<ProcessNo> {
        self.position.map(|position| position.process)
    }

    /// Returns the places that the engine held at the applied position.
    #[must_use]
    pub fn held(&self) -> &BTreeMap<BlockLocation, Standing> {
        &self.held
    }

    /// Whether anybody can know of this cache group.
    #[must_use]
    pub fn is_announced(&self, group: u8) -> bool {
        self.announced.contains(&group)
    }

    /// Whether a batch is missing that counts still.
    #[must_use]
    pub fn has_loss(&self) -> bool {
        self.has_loss
    }

    /// Whether the subscriber doubted something that counts still.
    #[must_use]
    pub fn is_doubted(&self) -> bool {
        self.is_doubted
    }

    /// Whether several copies of the block were announced.
    #[must_use]
    pub fn is_blurred(&self, block: BlockNo) -> bool {
        self.blurred.contains(&block)
    }

    /// Whether it stands behind such a block, or is one: a subscriber that takes the last copy for
    /// gone may forget what the block was made of.
    #[must_use]
    pub fn is_behind_blurred(&self, block: BlockNo, catalog: &Catalog) -> bool {
        catalog.prefix(block).any(|block| self.is_blurred(block))
    }

    /// Whether any were, anywhere.
    #[must_use]
    pub fn has_blurred(&self) -> bool {
        !self.blurred.is_empty()
    }

    /// Whether the batches that were lost can have removed what `standing` says is there.
    #[must_use]
    pub fn may_be_lost(&self, standing: Standing) -> bool {
        self.lost.is_some_and(|lost| standing.stored_at < lost)
    }

    /// Whether the subscriber cannot know the block's prefix.
    #[must_use]
    pub fn is_tainted(&self, block: BlockNo, catalog: &Catalog) -> bool {
        catalog.prefix(block).any(|block| self.tainted.contains(&block))
    }

    /// Whether a block is in one of the tiers that count.
    #[must_use]
    pub fn holds(&self, group: u8, block: BlockNo, only_device: bool) -> bool {
        let tiers: &[Tier] =
            if only_device { &[Tier::Device] } else { &[Tier::Device, Tier::Host] };
        let mut places = tiers.iter().map(|&tier| BlockLocation { group, tier, block });
        places.any(|place| self.held.contains_key(&place))
    }

    /// Another process: of what was applied before, nothing is there; of its own batches, none.
    fn enter(&mut self) {
        let is_doubted = self.is_doubted;
        *self = Self::default();
        // A doubt outlives the process until a clear arrives, or until all is forgotten.
        self.is_doubted = is_doubted;
    }

    /// Taints blocks that were in doubt for too long: the subscriber forgets their contents.
    fn age(&mut self, now: Nanos) {
        let held = self.held.iter();
        let over = held.filter(|(_, standing)| standing.is_over(now));
        self.tainted.extend(over.map(|(place, _)| place.block));
    }

    fn take(
        &mut self,
        seq: u64,
        record: &BatchRecord,
        told: AnnouncementStatus,
        catalog: &Catalog,
    ) {
        let may_have_removed = match record.damage {
            Damage::Skipped { may_have_removed, .. } => {
                // A subscriber does not know what a lost batch would have said.
                may_have_removed || told == AnnouncementStatus::No
            }
            _ => told != AnnouncementStatus::Yes,
        };
        if told != AnnouncementStatus::Yes {
            self.has_loss = true;
        }
        if may_have_removed {
            self.lost = Some(seq);
        }
        let mut introductions = record.introductions.iter();
        for &happening in &record.happenings {
            match happening {
                Happening::Stored(place) | Happening::CopyStored(place) => {
                    let introduces = introductions.next() == Some(&true);
                    self.announced.insert(place.group);
                    self.note(place.block, introduces, told, catalog);
                    let standing = Standing { stored_at: seq, told, doubted: None };
                    if matches!(happening, Happening::CopyStored(_)) {
                        self.blurred.insert(place.block);
                    }
                    self.held.insert(place, standing);
                }
                Happening::CopyRemoved(_) => {}
                Happening::Removed(place) => self.remove(place, catalog),
                Happening::Cleared => self.clear(told),
            }
        }
    }

    /// Removes a place. Taints its block if it has other places and none of these was announced, or
    /// if it has no other place and its prefix is tainted.
    fn remove(&mut self, place: BlockLocation, catalog: &Catalog) {
        self.held.remove(&place);
        let block = place.block;
        let mut left = self.held.iter().filter(|(place, _)| place.block == block).peekable();
        let may_be_forgotten = match left.peek() {
            Some(_) => left.all(|(_, standing)| standing.told != AnnouncementStatus::Yes),
            None => self.is_tainted(block, catalog),
        };
        if may_be_forgotten {
            self.tainted.insert(block);
        }
    }

    fn note(
        &mut self,
        block: BlockNo,
        introduces: bool,
        told: AnnouncementStatus,
        catalog: &Catalog,
    ) {
        match told {
            AnnouncementStatus::Yes if introduces && self.is_placed(block, catalog) => {
                self.tainted.remove(&block);
            }
            AnnouncementStatus::Yes => {}
            AnnouncementStatus::No | AnnouncementStatus::Perhaps => {
                self.tainted.insert(block);
            }
        }
    }

    /// Whether what it stands behind is somewhere: what left long ago may be forgotten.
    fn is_placed(&self, block: BlockNo, catalog: &Catalog) -> bool {
        let parent = catalog.block(block).parent;
        parent.is_none_or(|parent| self.held.keys().any(|place| place.block == parent))
    }

    fn clear(&mut self, told: AnnouncementStatus) {
        self.held.clear();
        self.tainted.clear();
        self.announced.clear();
        // A clear that never arrived ends no doubt on the subscriber's side.
        if told == AnnouncementStatus::Yes {
            self.blurred.clear();
            (self.has_loss, self.is_doubted) = (false, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::catalog::PromptText;
    use headstart_core::block::Namespace;

    fn record(happenings: &[Happening]) -> BatchRecord {
        BatchRecord {
            happenings: happenings.to_vec(),
            introductions: vec![true; happenings.len()],
            damage: Damage::None,
        }
    }

    #[test]
    fn what_a_lost_batch_stored_is_not_told_and_what_was_before_may_be_gone() {
        let mut catalog = Catalog::default();
        let text =
            PromptText { tokens: vec![1, 2, 3], namespace: Namespace::default(), image: None };
        let chain = catalog.chain(&text, 1);
        let place = |at: usize| BlockLocation { group: 0, tier: Tier::Device, block: chain[at] };
        let records: Vec<BatchRecord> =
            [0, 1, 2].map(|block| record(&[Happening::Stored(place(block))])).into();
        let at = |seq| BatchPosition { process: ProcessNo(0), seq };
        let mut truth = Truth::default();
        truth.apply(at(0), &records, &catalog, Nanos(0)).unwrap();
        truth.apply(at(2), &records, &catalog, Nanos(0)).unwrap();
        let of = |block| truth.held()[&place(block)];
        let told = [0, 1, 2].map(|block| of(block).told);
        assert_eq!(
            told,
            [AnnouncementStatus::Yes, AnnouncementStatus::No, AnnouncementStatus::Yes]
        );
        let may_be_lost = [0, 1, 2].map(|block| truth.may_be_lost(of(block)));
        assert_eq!(may_be_lost, [true, false, false]);
        assert!(truth.has_loss() && truth.apply(at(2), &records, &catalog, Nanos(0)).is_err());
        // A doubt is taken back once, soon enough, and before anything else is applied.
        truth.doubt(Nanos(5));
        assert!(
            truth.is_doubted() && truth.held().values().all(|standing| standing.doubted.is_some())
        );
        assert_eq!(truth.trust(Nanos(6)), Ok(()));
        assert!(
            !truth.is_doubted() && truth.held().values().all(|standing| standing.doubted.is_none())
        );
        assert!(truth.trust(Nanos(6)).is_err());
        truth.doubt(Nanos(7));
        assert!(truth.trust(Nanos(7) + DOUBT_TTL).is_err());
    }
}
