//! Packs: which there are, which are worth making, and the one that is being made.
//!
//! ```text
//! prompts ─ what was selected ─► Nodes ─ due ─► queue ─ one at a time ─► mover reads, writes
//! reads ◄─ Packs ◄──────────────────────────────────────────── a pack is there, replaces others
//! ```
//!
//! Replicas of one folder read each other's packs, and of two of the same units the newer one: its
//! maker knew of the older one. Units already packed are not repacked before a replica wants other
//! tokens, so replicas do not replace each other's packs in turns. A pack that a prompt of this
//! replica is reading is dropped once that prompt has its token; prompts of other replicas read
//! units instead.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use headstart_cache::tiers::PARTS_FROM;
use headstart_core::transfer::{Pack, PartName, Transfer, TransferId, TransferResult};
use headstart_core::{BlockHash, IdentityDigest, Nanos, TenantTag};
use headstart_selective::{NodeOptions, Nodes, Packs};

/// The ids of packs begin here, far behind those of units and parts.
const FIRST_ID: u64 = 3 << 62;

/// Nodes that are packed in one go.
const MOST_JOBS: usize = 4;

/// Units of which it is remembered whose they are: beyond that all is forgotten, and learnt again.
const MOST_ORIGINS: usize = 1 << 17;

/// Packing intervals without a local read after which a pack may be dropped for room: another
/// replica's, which may still read it, and one made here.
const IDLE_INTERVALS: [u32; 2] = [100, 10];

/// Runs of units of which it is kept in mind until the next look that a pack of theirs is gone.
const MOST_BARE: usize = 1 << 12;

/// When and how much is packed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackingOptions {
    /// Criteria for packs worth making.
    pub nodes: NodeOptions,
    /// Units of all packs together, at most: one of a layer each.
    pub most_units: usize,
}

/// Counts of packs, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackCounts {
    /// Packs that can be read, one of a layer each.
    pub packs: usize,
    /// Their units.
    pub units: usize,
    /// Packs that are being made, or wait for it.
    pub pending: usize,
    /// Packs that were made.
    pub made: u64,
    /// Packs that could not be made.
    pub failed: u64,
}

/// Units that a prompt went through.
#[derive(Clone, Copy)]
pub(super) struct PromptUnits<'a> {
    pub(super) units: &'a [BlockHash],
    /// The first of which tokens were selected; they are counted from its first token.
    pub(super) first: usize,
}

/// Computation identity and tenant of units.
type UnitOrigin = (IdentityDigest, TenantTag);

/// A pack that is worth making; its generation and name follow from what is there at its turn.
struct PackCandidate {
    units: Vec<BlockHash>,
    origin: UnitOrigin,
    part: u16,
    order: Vec<u32>,
}

/// Packs and nodes, with the queue of packs to make.
pub(super) struct PackManager {
    pub(super) packs: Packs,
    nodes: Option<Nodes>,
    options: NodeOptions,
    num_layers: usize,
    origins: HashMap<BlockHash, UnitOrigin>,
    queue: VecDeque<PackCandidate>,
    under_way: Option<(TransferId, Pack)>,
    /// Units and a part of which a pack is gone. Another may be on its way, which is known by the
    /// next look.
    bare: Vec<(Vec<BlockHash>, u16)>,
    /// Packs to drop once no local prompt reads them.
    doomed: BTreeSet<BlockHash>,
    /// Parts of units that packs stand for since they were asked for last.
    superseded: Vec<PartName>,
    next_id: u64,
    counts: PackCounts,
}

impl PackManager {
    pub(super) fn new(options: Option<PackingOptions>, num_layers: usize) -> Self {
        let room = options.map_or(0, |options| options.most_units);
        let interval = options.map(|options| options.nodes.interval);
        let patience =
            IDLE_INTERVALS.map(|intervals| interval.unwrap_or_default().saturating_mul(intervals));
        Self {
            packs: Packs::new(room, patience),
            nodes: options.map(|options| Nodes::new(options.nodes)),
            options: options.map(|options| options.nodes).unwrap_or_default(),
            num_layers,
            origins: HashMap::new(),
            queue: VecDeque::new(),
            under_way: None,
            bare: Vec::new(),
            doomed: BTreeSet::new(),
            superseded: Vec::new(),
            next_id: FIRST_ID,
            counts: PackCounts::default(),
        }
    }

    /// A prompt went through these units, of which it selected these tokens in each layer; it read
    /// these packs.
    pub(super) fn used(
        &mut self,
        prompt: PromptUnits<'_>,
        origin: UnitOrigin,
        kept: &[Vec<u32>],
        packs: impl IntoIterator<Item = BlockHash>,
        now: Nanos,
    ) {
        let PromptUnits { units, first } = prompt;
        let packs = packs.into_iter();
        packs.for_each(|name| self.packs.used(name, now));
        let Some(nodes) = &mut self.nodes else { return };
        nodes.used(units);
        for (layer, tokens) in kept.iter().enumerate() {
            nodes.selected(&units[first..], layer, tokens);
        }
        // All origins are forgotten at once: later prompts name those that still matter.
        if self.origins.len() + units.len() > MOST_ORIGINS {
            self.origins.clear();
        }
        self.origins.extend(units.iter().map(|&unit| (unit, origin)));
    }

    /// Continues packing and adds the necessary transfers to `transfers`.
    pub(super) fn tend(&mut self, now: Nanos, transfers: &mut Vec<Transfer>) {
        if self.under_way.is_some() {
            return;
        }
        if self.queue.is_empty() {
            self.look_for_work(now);
        }
        let Some(PackCandidate { units, origin, part, order }) = self.queue.pop_front() else {
            return;
        };
        // A pack is numbered at its turn: newer packs may have been found since it was queued.
        let pack = Pack::new(units, part, order, self.packs.next_generation());
        // Without room the tokens count as unpacked, so that a later look finds them again.
        let Some(gone) = self.packs.room_for(&pack.units, pack.part, now) else {
            self.unpacked(&pack);
            return;
        };
        self.drop_for_room(&gone);
        let id = TransferId(self.next_id);
        self.next_id += 1;
        self.under_way = Some((id, pack.clone()));
        let tier = PARTS_FROM;
        transfers.push(Transfer::Pack { id, pack, origin, tier });
    }

    fn look_for_work(&mut self, now: Nanos) {
        self.unpack_bare(now);
        let Some(nodes) = &mut self.nodes else { return };
        for job in nodes.due(now, MOST_JOBS) {
            let origin = job.units.first().and_then(|unit| self.origins.get(unit));
            // The origins were cleared meanwhile. A later prompt names them again.
            let Some(&origin) = origin else {
                let layers = job.layers.iter().map(|(layer, _)| *layer);
                layers.for_each(|layer| nodes.unpacked(&job.units, layer));
                continue;
            };
            for (layer, order) in job.layers {
                let part = (self.num_layers + layer) as u16;
                // Another replica's pack, or one from before a start, may hold these tokens.
                if !is_new(&self.packs, &self.options, &job.units, part, &order) {
                    continue;
                }
                self.queue.push_back(PackCandidate {
                    units: job.units.clone(),
                    origin,
                    part,
                    order,
                });
            }
        }
    }

    /// A pack was made, or could not be.
    pub(super) fn packed(&mut self, id: TransferId, result: TransferResult, now: Nanos) {
        let Some((_, pack)) = self.under_way.take_if(|(under_way, _)| *under_way == id) else {
            return;
        };
        match result {
            TransferResult::Done => {
                self.counts.made += 1;
                // A doomed pack of the same name must not drop this one.
                self.doomed.remove(&pack.name);
                // It may have been refused itself: then others hold some of its units.
                let gone = self.add(pack, true, now);
                gone.iter().for_each(|gone| self.uncovered(gone));
            }
            TransferResult::Failed => {
                self.counts.failed += 1;
                self.unpacked(&pack);
            }
        }
    }

    /// A pack was made elsewhere, or before a start. Without room for it, it is dropped
    /// from the folder, as a found unit without room is: nothing else counts its bytes. The
    /// replicas of a folder are those of one process, and have equal room; so it has none in any
    /// of them. After a restart with less room, or none, the packs of before go.
    pub(super) fn found(&mut self, pack: Pack, now: Nanos) {
        self.add(pack, false, now);
    }

    /// One that is not what its name says is dropped. Those that it replaces are returned; they are
    /// dropped as well.
    fn add(&mut self, pack: Pack, is_ours: bool, now: Nanos) -> Vec<Pack> {
        let is_rest = usize::from(pack.part) >= self.num_layers;
        let name = Pack::name_of(&pack.units, pack.part, &pack.order, pack.generation);
        // The name follows from the contents, so one that differs was damaged or made otherwise.
        if !is_rest || pack.name != name {
            self.doomed.insert(pack.name);
            return Vec::new();
        }
        let is_first = self.packs.find(&pack.units, pack.part).is_empty();
        let parts = parts_of(&pack, self.options.unit_tokens);
        let gone = self.packs.insert(pack, is_ours, now);
        self.doom(&gone);
        // The insertion may have refused it.
        if is_first && self.packs.contains(name) {
            self.superseded.extend(parts);
        }
        gone
    }

    /// Units of a pack that is gone, which are in no other, are to be packed again.
    fn uncovered(&mut self, gone: &Pack) {
        let views = self.packs.find(&gone.units, gone.part);
        let covered = views.iter().flat_map(|view| view.first_unit..view.first_unit + view.units);
        let covered: BTreeSet<usize> = covered.collect();
        let units = gone.units.iter().enumerate();
        let bare = units.filter(|(at, _)| !covered.contains(at));
        let bare = bare.map(|(_, unit)| *unit).collect();
        self.bare(bare, gone.part);
    }

    fn bare(&mut self, units: Vec<BlockHash>, part: u16) {
        // A run that is not noted is packed when other tokens are wanted.
        if !units.is_empty() && self.bare.len() < MOST_BARE {
            self.bare.push((units, part));
        }
    }

    /// When a look is due, marks units for repacking whose pack is gone. Units that another pack
    /// holds are left to its maker.
    fn unpack_bare(&mut self, now: Nanos) {
        let Some(nodes) = &mut self.nodes else { return };
        if !nodes.is_time(now) {
            return;
        }
        for (units, part) in self.bare.drain(..) {
            let layer = usize::from(part).checked_sub(self.num_layers);
            // Another replica may have packed them since they were noted.
            let is_bare = self.packs.find(&units, part).is_empty();
            if let Some(layer) = layer.filter(|_| is_bare) {
                nodes.unpacked(&units, layer);
            }
        }
    }

    /// Drops these packs to make room; their units are packed again when they are wanted again.
    fn drop_for_room(&mut self, gone: &[Pack]) {
        gone.iter().for_each(|pack| self.uncovered(pack));
        self.doom(gone);
    }

    /// Marks these packs as doomed: new prompts do not read them.
    fn doom(&mut self, gone: &[Pack]) {
        self.doomed.extend(gone.iter().map(|pack| pack.name));
    }

    /// Removes and returns the doomed packs for which `is_read` is false.
    pub(super) fn take_dropped(&mut self, is_read: impl Fn(BlockHash) -> bool) -> Vec<BlockHash> {
        let is_over = |name: &BlockHash| !is_read(*name);
        self.doomed.extract_if(.., is_over).collect()
    }

    /// The parts of units that packs stand for, of which these have come since the last call.
    pub(super) fn take_superseded(&mut self) -> Vec<PartName> {
        std::mem::take(&mut self.superseded)
    }

    /// A record is gone, which may have been a pack. Whether it was.
    pub(super) fn lost(&mut self, name: BlockHash) -> bool {
        let was_doomed = self.doomed.remove(&name);
        let pack = self.packs.forget(name);
        let was_known = pack.is_some();
        if let Some(pack) = pack {
            self.bare(pack.units, pack.part);
        }
        was_known || was_doomed
    }

    /// A pack could not be read: it is dropped wherever it is, and made again.
    pub(super) fn missing(&mut self, name: BlockHash) {
        // Its bytes may be on the disk still, so they are dropped there as well.
        if self.lost(name) {
            self.doomed.insert(name);
        }
    }

    fn unpacked(&mut self, pack: &Pack) {
        let layer = usize::from(pack.part).checked_sub(self.num_layers);
        if let (Some(nodes), Some(layer)) = (&mut self.nodes, layer) {
            nodes.unpacked(&pack.units, layer);
        }
    }

    pub(super) fn counts(&self) -> PackCounts {
        let (packs, units) = self.packs.len();
        PackCounts {
            packs,
            units,
            pending: self.queue.len() + usize::from(self.under_way.is_some()),
            ..self.counts
        }
    }
}

/// Whether enough of what is wanted is in no pack that there is: of another replica, or from before
/// a start.
fn is_new(
    packs: &Packs,
    options: &NodeOptions,
    units: &[BlockHash],
    part: u16,
    wanted: &[u32],
) -> bool {
    let unit_tokens = options.unit_tokens;
    let views = packs.find(units, part);
    let held = views.iter().flat_map(|view| {
        let ours = view.before * unit_tokens..(view.before + view.units) * unit_tokens;
        let tokens = view.order.iter().map(|token| *token as usize);
        let tokens = tokens.filter(move |token| ours.contains(token));
        tokens.map(|token| token + view.first_unit * unit_tokens - view.before * unit_tokens)
    });
    let held: HashSet<usize> = held.collect();
    let new = wanted.iter().filter(|token| !held.contains(&(**token as usize)));
    // With a share of 0, an equal pack would otherwise be made again at each look.
    new.count() as f64 >= (options.least_change * wanted.len() as f64).max(1.0)
}

/// The parts of units that a pack stands for: it holds some of their tokens.
fn parts_of(pack: &Pack, unit_tokens: usize) -> Vec<PartName> {
    let units = pack.order.iter().map(|token| *token as usize / unit_tokens);
    let units: BTreeSet<usize> = units.collect();
    let part = pack.part;
    let records = units.into_iter().filter_map(|unit| pack.units.get(unit));
    records.map(|&record| PartName { record, part }).collect()
}

#[cfg(test)]
mod tests;
