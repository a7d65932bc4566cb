//! The writer's hand on the runs: where a block belongs, and when it may go.
//!
//! A block's spot is found from its parent's: it is the next of the same run, or the first of
//! another; a new one prolongs its parent's run if that ends there, and begins one otherwise. No
//! run is ever split, so spots stay.
//!
//! Every replica that knows a handle for a block *names* it. A run loses its last blocks once no
//! replica names or assumes them.
//!
//! Invariant: what is held is named; see [`super::names`] for what else a name is.

use headstart_core::{Nanos, RouteKey};

use super::buffer::Keys;
use super::spot::{Span, Spot};
use super::standing::{BlockPlace, BlockStanding};
use super::table::MAX_RUN_BLOCKS;
use super::view::{View, room};
use super::view_change::{HoldingChange, ViewChange};
use crate::lookup::StableMap;

/// State of the runs that only the writer uses.
#[derive(Debug, Default)]
pub(super) struct Land {
    ledgers: Vec<RunNames>,
    free: Vec<u32>,
    num_blocks: usize,
    num_names: usize,
}

/// One run's names.
#[derive(Debug, Default)]
struct RunNames {
    /// By block: how many handles of replicas stand for it. 65,535 is for good, since no fleet is
    /// that large.
    names: Vec<u16>,
    /// Whether readers may still see other keys behind the run's end: it must not grow there.
    is_cut: bool,
}

impl Land {
    pub(super) fn num_names(&self, spot: Spot) -> u16 {
        self.ledgers[spot.run as usize].names[spot.offset as usize]
    }

    /// Blocks that have a spot.
    pub(super) fn num_blocks(&self) -> usize {
        self.num_blocks
    }

    /// Names that all replicas have for them.
    pub(super) fn total_names(&self) -> usize {
        self.num_names
    }

    /// Memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        let ledger = |ledger: &RunNames| ledger.names.capacity() * size_of::<u16>();
        let lists: usize = self.ledgers.iter().map(ledger).sum();
        self.ledgers.capacity() * size_of::<RunNames>() + lists
    }

    /// Names one block once more.
    pub(super) fn name(&mut self, spot: Spot) {
        self.num_names += 1;
        let names = &mut self.ledgers[spot.run as usize].names[spot.offset as usize];
        *names = names.saturating_add(1);
    }

    /// Takes one name back. The end of its run may go then: [`Forest::trim`].
    pub(super) fn unname(&mut self, spot: Spot) {
        self.num_names -= 1;
        let names = &mut self.ledgers[spot.run as usize].names[spot.offset as usize];
        if *names < u16::MAX {
            *names -= 1;
        }
    }
}

/// The runs while they are changed: every change goes to the view and into the log.
pub(super) struct Forest<'a> {
    pub(super) land: &'a mut Land,
    pub(super) view: &'a mut View,
    pub(super) log: &'a mut Vec<ViewChange>,
    pub(super) now: Nanos,
    /// Blocks that are to follow the next new one: lists that grow make room for them at once.
    pub(super) coming: u32,
}

impl Forest<'_> {
    pub(super) fn apply(&mut self, op: ViewChange) {
        self.view.apply(&op);
        self.log.push(op);
    }

    pub(super) fn hold(&mut self, run: u32, slot: u32, change: HoldingChange) {
        self.apply(ViewChange::Hold { run, slot, change });
    }

    pub(super) fn key(&self, spot: Spot) -> RouteKey {
        self.view.run(spot.run).key(spot.offset)
    }

    pub(super) fn block_size(&self, spot: Spot) -> u32 {
        self.view.run(spot.run).block_size
    }

    pub(super) fn set(
        &mut self,
        spots: Span,
        slot: u32,
        place: BlockPlace,
        standing: Option<BlockStanding>,
    ) {
        if standing.is_some() {
            self.view.run(spots.run).touch(self.now);
        }
        let Span { run, offsets } = spots;
        let change = HoldingChange::Set { offsets, place, standing };
        let op = ViewChange::Hold { run, slot, change };
        self.view.apply(&op);
        // Blocks in a row, either way, are one change of the other view.
        if !self.log.last_mut().is_some_and(|last| last.extend(&op)) {
            self.log.push(op);
        }
    }

    /// The spot of the block `key` of this size behind `parent`, new if need be.
    pub(super) fn locate(&mut self, parent: Option<Spot>, key: RouteKey, block_size: u32) -> Spot {
        self.find(parent, key).unwrap_or_else(|| self.add(parent, key, block_size))
    }

    fn find(&self, parent: Option<Spot>, key: RouteKey) -> Option<Spot> {
        // Most chains continue in their run, which needs no search by key.
        if let Some(Spot { run, offset }) = parent {
            let next = offset + 1;
            let known = self.view.run(run);
            if next < known.len() && known.key(next) == key {
                return Some(Spot { run, offset: next });
            }
        }
        // A key names its whole prefix, so the run that begins with it has the block, whatever its
        // parent.
        let run = self.view.head(key)?;
        Some(Spot { run, offset: 0 })
    }

    fn add(&mut self, parent: Option<Spot>, key: RouteKey, block_size: u32) -> Spot {
        self.land.num_blocks += 1;
        match parent {
            Some(parent) if self.is_at_end(parent) => self.grow(parent.run, key),
            _ => self.begin(key, block_size),
        }
    }

    /// Whether the next block can stand right behind this one.
    fn is_at_end(&self, Spot { run, offset }: Spot) -> bool {
        let next = offset + 1;
        // A name keeps offsets in 16 bits.
        next == self.view.run(run).len() && next < MAX_RUN_BLOCKS
    }

    fn begin(&mut self, key: RouteKey, block_size: u32) -> Spot {
        let ledgers = &mut self.land.ledgers;
        let run = self.land.free.pop().unwrap_or_else(|| {
            if ledgers.len() == ledgers.capacity() {
                ledgers.reserve_exact(room(ledgers.len()) - ledgers.len());
            }
            ledgers.push(RunNames::default());
            ledgers.len() as u32 - 1
        });
        self.land.ledgers[run as usize].push(self.coming as usize);
        self.apply(ViewChange::Begin {
            run,
            block_size,
            keys: Keys::one(key, self.coming, self.now),
        });
        Spot { run, offset: 0 }
    }

    fn grow(&mut self, run: u32, key: RouteKey) -> Spot {
        let known = self.view.run(run);
        let offset = known.len();
        let ledger = &mut self.land.ledgers[run as usize];
        let must_move = ledger.is_cut || offset == known.capacity();
        let room = (room(offset as usize) as u32).max(offset + 1 + self.coming);
        // Readers may still see the old keys, which therefore stay as they are.
        let keys = must_move.then(|| known.keys().moved(offset, room));
        keys.as_ref().unwrap_or(known.keys()).put(offset, key);
        ledger.is_cut = false;
        ledger.push(self.coming as usize);
        let len = offset + 1;
        // Many blocks in a row are one change.
        if let (None, Some(ViewChange::Grow { run: last, len: end, .. })) =
            (&keys, self.log.last_mut())
            && *last == run
        {
            *end = len;
            self.view.apply(&ViewChange::Grow { run, keys: None, len });
        } else {
            self.apply(ViewChange::Grow { run, keys, len });
        }
        Spot { run, offset }
    }

    /// Cuts off the last blocks of a run that no replica names or assumes.
    pub(super) fn trim(&mut self, run: u32) {
        let ledger = &mut self.land.ledgers[run as usize];
        let old = ledger.names.len();
        let last = ledger.names.iter().rposition(|&names| names > 0);
        let named = last.map_or(0, |last| last + 1);
        if named == old {
            return;
        }
        // Assumptions are never part of a plain lead.
        let holders = self.view.run(run).holders().others();
        let assumed = holders.map(|holder| holder.assumed_end()).max().unwrap_or(0);
        let len = named.max(assumed as usize);
        if len == old {
            return;
        }
        let known = self.view.run(run);
        // Keys move only where much room is left over: a run may soon grow again.
        let is_roomy = known.capacity() as usize > 2 * len + 8;
        let keys = is_roomy.then(|| known.keys().moved(len as u32, len as u32));
        ledger.is_cut = keys.is_none() && len > 0;
        ledger.cut(len);
        self.land.num_blocks -= old - len;
        if len == 0 {
            self.land.free.push(run);
        }
        let len = len as u32;
        self.apply(ViewChange::Cut { run, keys, len });
    }

    /// The runs of the chain `keys`, all of them known afterwards: run and number of keys.
    pub(super) fn lay(&mut self, keys: &[RouteKey], block_size: u32) -> Vec<(u32, u32)> {
        let mut pieces: Vec<(u32, u32)> = Vec::new();
        let mut parent: Option<Spot> = None;
        let mut rest = keys;
        while let Some(&key) = rest.first() {
            let spot = self.locate(parent, key, block_size);
            // `matched` compares from a run's start; inside of a run blocks go one by one.
            let matched = match spot.offset {
                0 => self.view.run(spot.run).matched(rest),
                _ => 1,
            };
            match pieces.last_mut() {
                Some((run, blocks)) if *run == spot.run => *blocks = spot.offset + matched,
                _ => pieces.push((spot.run, spot.offset + matched)),
            }
            let offset = spot.offset + matched - 1;
            parent = Some(Spot { run: spot.run, offset });
            rest = &rest[matched as usize..];
        }
        pieces
    }

    /// A run of these keys, none of which is known.
    pub(super) fn restore(&mut self, keys: &[RouteKey], block_size: u32) -> u32 {
        self.land.num_blocks += keys.len();
        let first = self.begin(keys[0], block_size);
        for &key in &keys[1..] {
            self.grow(first.run, key);
        }
        first.run
    }

    /// Asserts that the ledgers fit the view. O(size).
    pub(super) fn check(&self) {
        let mut num_blocks = 0;
        for (id, ledger) in self.land.ledgers.iter().enumerate() {
            let len = match self.view.runs().get(id) {
                Some(run) => run.len() as usize,
                None => 0,
            };
            assert_eq!(ledger.names.len(), len, "ledgers are as long as runs");
            num_blocks += len;
            let is_free = self.land.free.contains(&(id as u32));
            assert_eq!(is_free, len == 0, "empty runs are free");
            if let (Some(&last), Some(run)) = (ledger.names.last(), self.view.runs().get(id)) {
                let mut holders = run.holders().others();
                let is_assumed = holders.any(|holder| holder.assumed_end() == run.len());
                assert!(last > 0 || is_assumed, "the end of a run is needed");
            }
        }
        assert_eq!(num_blocks, self.land.num_blocks, "blocks are counted");
    }

    /// Asserts that blocks have as many names as replicas have handles for them. O(size).
    pub(super) fn check_names(&self, names: &StableMap<Spot, u16>) {
        let mut num_names = 0;
        for (run, ledger) in self.land.ledgers.iter().enumerate() {
            for (offset, &count) in ledger.names.iter().enumerate() {
                let (run, offset) = (run as u32, offset as u32);
                let expected = names.get(&Spot { run, offset }).copied();
                assert_eq!(count, expected.unwrap_or(0), "names are counted");
                num_names += usize::from(count);
            }
        }
        assert_eq!(num_names, self.land.num_names, "names are counted in all");
    }
}

impl RunNames {
    /// Adds a block, with room for `coming` more.
    fn push(&mut self, coming: usize) {
        let names = &mut self.names;
        if names.len() == names.capacity() {
            let room = if names.is_empty() {
                1 + coming
            } else {
                room(names.len()).max(names.len() + 1 + coming)
            };
            names.reserve_exact(room - names.len());
        }
        names.push(0);
    }

    fn cut(&mut self, len: usize) {
        self.names.truncate(len);
        if self.names.capacity() > 2 * len {
            self.names.shrink_to_fit();
        }
    }
}
