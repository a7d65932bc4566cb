//! Packs: which there are, which are worth making, and the one that is being made.
//!
//! ```text
//! prompts ─ what was selected ─► Nodes ─ due ─► queue ─ one at a time ─► mover reads, writes
//! reads ◄─ Packs ◄──────────────────────────────────────────── a pack is there, replaces others
//! ```
//!
//! Replicas of one folder read each other's packs. What is there is looked at when a pack's turn
//! comes: nothing is made of which there is as much already, and another replica's pack is replaced
//! only by one that covers more, its tokens included. So each replacement of another's is larger
//! than what it replaces, and they come to an end. A pack that a prompt is reading is dropped when
//! that prompt has its token.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use headstart_cache::importance::{Maker, NodeOptions, Nodes, Packs, Rival};
use headstart_cache::tiers::PARTS_FROM;
use headstart_core::transfer::{FoundPack, Pack, PartName, Transfer, TransferId, TransferResult};
use headstart_core::{BlockHash, IdentityDigest, Nanos, TenantTag};

/// The ids of packs begin here, far behind those of units and parts.
const FIRST_ID: u64 = 3 << 62;

/// Nodes that are packed in one go.
const MOST_JOBS: usize = 4;

/// Units of which it is remembered whose they are: beyond that all is forgotten, and learnt again.
const MOST_ORIGINS: usize = 1 << 17;

/// Packs that are found so soon were made before a restart: whoever made them is gone. To hear of
/// all takes less. One that another replica has made so soon counts as such: it is replaced like
/// one of our own, once.
const FROM_BEFORE: Duration = Duration::from_secs(10);

/// When and how much is packed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackingOptions {
    /// What is worth packing.
    pub nodes: NodeOptions,
    /// Units of all packs together, at most: one of a layer each.
    pub most_units: usize,
}

/// What packing has come to.
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

/// How units were computed, and whose they are.
type Origin = (IdentityDigest, TenantTag);

/// A pack that is being made.
struct UnderWay {
    id: TransferId,
    pack: FoundPack,
    /// What was there when it was begun, and goes when it is there.
    replaces: Vec<BlockHash>,
}

/// Packs and nodes.
pub(super) struct Packing {
    pub(super) packs: Packs,
    options: NodeOptions,
    nodes: Option<Nodes>,
    num_layers: usize,
    origins: HashMap<BlockHash, Origin>,
    /// What is worth packing; of what is there already it knows when its turn comes.
    queue: VecDeque<Pack>,
    under_way: Option<UnderWay>,
    /// Packs that are to be dropped when nobody reads them here: no more than were found by the
    /// prompts that run.
    doomed: BTreeSet<BlockHash>,
    /// Parts of units that packs stand for since they were asked for last.
    superseded: Vec<PartName>,
    /// When packs were looked after first.
    began: Option<Nanos>,
    next_id: u64,
    counts: PackCounts,
}

impl Packing {
    pub(super) fn new(options: Option<PackingOptions>, num_layers: usize) -> Self {
        Self {
            packs: Packs::new(options.map_or(0, |options| options.most_units)),
            options: options.map(|options| options.nodes).unwrap_or_default(),
            nodes: options.map(|options| Nodes::new(options.nodes)),
            num_layers,
            origins: HashMap::new(),
            queue: VecDeque::new(),
            under_way: None,
            doomed: BTreeSet::new(),
            superseded: Vec::new(),
            began: None,
            next_id: FIRST_ID,
            counts: PackCounts::default(),
        }
    }

    /// A prompt went through these units, of which it selected these tokens in each layer, counted
    /// from the first token of unit number `first`; it read these packs.
    pub(super) fn used(
        &mut self,
        (units, first): (&[BlockHash], usize),
        origin: Origin,
        kept: &[Vec<u32>],
        packs: impl IntoIterator<Item = BlockHash>,
    ) {
        packs.into_iter().for_each(|name| self.packs.used(name));
        let Some(nodes) = &mut self.nodes else { return };
        nodes.used(units);
        for (layer, tokens) in kept.iter().enumerate() {
            nodes.selected(&units[first..], layer, tokens);
        }
        if self.origins.len() + units.len() > MOST_ORIGINS {
            self.origins.clear();
        }
        self.origins
            .extend(units.iter().map(|&unit| (unit, origin)));
    }

    /// Goes on with packing. What shall be moved is added to `transfers`.
    pub(super) fn tend(&mut self, now: Nanos, transfers: &mut Vec<Transfer>) {
        self.began.get_or_insert(now);
        if self.under_way.is_some() {
            return;
        }
        if self.queue.is_empty() {
            self.look_for_work(now);
        }
        let mut wanted = std::iter::from_fn(|| self.queue.pop_front());
        let Some((pack, replaces)) =
            wanted.find_map(|pack| decided(&self.packs, &self.options, pack))
        else {
            return;
        };
        let id = TransferId(self.next_id);
        self.next_id += 1;
        let found = FoundPack {
            name: pack.name,
            units: pack.units.clone(),
            part: pack.part,
            order: pack.order.clone(),
        };
        self.under_way = Some(UnderWay {
            id,
            pack: found,
            replaces,
        });
        let tier = PARTS_FROM;
        transfers.push(Transfer::Pack { id, pack, tier });
    }

    fn look_for_work(&mut self, now: Nanos) {
        let Some(nodes) = &mut self.nodes else { return };
        for job in nodes.due(now, MOST_JOBS) {
            let origin = job.units.first().and_then(|unit| self.origins.get(unit));
            let Some(&(identity, tenant)) = origin else {
                let layers = job.layers.iter().map(|(layer, _)| *layer);
                layers.for_each(|layer| nodes.unpacked(&job.units, layer));
                continue;
            };
            for (layer, order) in job.layers {
                let part = (self.num_layers + layer) as u16;
                let name = Pack::name_of(&job.units, part, &order);
                self.queue.push_back(Pack {
                    name,
                    units: job.units.clone(),
                    identity,
                    tenant,
                    part,
                    order,
                });
            }
        }
    }

    /// A pack was made, or could not be.
    pub(super) fn packed(&mut self, id: TransferId, result: TransferResult) {
        let Some(under_way) = self.under_way.take_if(|under_way| under_way.id == id) else {
            return;
        };
        let UnderWay { pack, replaces, .. } = under_way;
        match result {
            TransferResult::Done => {
                self.counts.made += 1;
                self.doomed.remove(&pack.name);
                let parts = parts_of(&pack);
                let gone = self.packs.made(pack, &replaces);
                self.superseded.extend(parts);
                self.drop_packs(gone, &replaces);
            }
            TransferResult::Failed => {
                self.counts.failed += 1;
                self.unpacked(&pack);
            }
        }
    }

    /// A pack is there that was made elsewhere. One that is not what its name says is dropped.
    pub(super) fn found(&mut self, pack: FoundPack, now: Nanos) {
        let is_rest = usize::from(pack.part) >= self.num_layers;
        let name = Pack::name_of(&pack.units, pack.part, &pack.order);
        if !is_rest || pack.name != name {
            self.doomed.insert(pack.name);
            return;
        }
        let began = *self.began.get_or_insert(now);
        let maker = match now.since(began) < FROM_BEFORE {
            true => Maker::Gone,
            false => Maker::Another,
        };
        let parts = parts_of(&pack);
        let gone = self.packs.found(pack, maker);
        self.superseded.extend(parts);
        self.drop_packs(gone, &[]);
    }

    /// These are read by nobody who comes now. What replaces some of them counts as packed.
    fn drop_packs(&mut self, gone: Vec<FoundPack>, replaced: &[BlockHash]) {
        for pack in gone {
            if !replaced.contains(&pack.name) {
                self.unpacked(&pack);
            }
            self.doomed.insert(pack.name);
        }
    }

    /// The packs to be dropped now: those that are to go and that nobody reads here.
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
        if let Some(pack) = &pack {
            self.unpacked(pack);
        }
        pack.is_some() || was_doomed
    }

    fn unpacked(&mut self, pack: &FoundPack) {
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

/// The parts of units that a pack stands for.
fn parts_of(pack: &FoundPack) -> Vec<PartName> {
    let part = pack.part;
    let parts = pack.units.iter().map(|&record| PartName { record, part });
    parts.collect()
}

/// A pack that is worth making, with the tokens of others' that it replaces, and the names of all
/// that it replaces; `None` where what is there does as well.
fn decided(packs: &Packs, options: &NodeOptions, wanted: Pack) -> Option<(Pack, Vec<BlockHash>)> {
    let rivals = packs.rivals(&wanted.units, wanted.part);
    let places: HashMap<BlockHash, usize> = wanted.units.iter().copied().zip(0..).collect();
    let unit_tokens = options.unit_tokens;
    // Its tokens among those that are wanted, counted as these are.
    let tokens_of = |pack: &FoundPack| -> Vec<u32> {
        let tokens = pack.order.iter().filter_map(|&token| {
            let (unit, at) = (token as usize / unit_tokens, token as usize % unit_tokens);
            let place = places.get(pack.units.get(unit)?)?;
            Some((place * unit_tokens + at) as u32)
        });
        tokens.collect()
    };
    let read: Vec<&Rival<'_>> = rivals.iter().filter(|rival| rival.is_read).collect();
    let held = read.iter().flat_map(|rival| tokens_of(rival.pack));
    let held: HashSet<u32> = held.collect();
    let goes_beyond = |rival: &&Rival<'_>| {
        let mut units = rival.pack.units.iter();
        units.any(|unit| !places.contains_key(unit))
    };
    let num_new = wanted.order.iter().filter(|token| !held.contains(token));
    let num_new = num_new.count() as f64;
    let is_new = read.is_empty()
        || read.iter().any(goes_beyond)
        || num_new >= options.least_change * wanted.order.len() as f64;
    let others: Vec<&FoundPack> = read
        .iter()
        .filter(|rival| rival.maker == Maker::Another)
        .map(|rival| rival.pack)
        .collect();
    let mut order = wanted.order;
    let mut tokens: HashSet<u32> = order.iter().copied().collect();
    let theirs = others.iter().flat_map(|pack| tokens_of(pack));
    order.extend(theirs.filter(|token| tokens.insert(*token)));
    let most = options.most_share * (wanted.units.len() * unit_tokens) as f64;
    order.truncate(most as usize);
    let covers_more = |other: &&FoundPack| {
        (wanted.units.len(), order.len()) > (other.units.len(), other.order.len())
    };
    if !is_new || !others.iter().all(covers_more) {
        return None;
    }
    let replaces = rivals.iter().map(|rival| rival.pack.name).collect();
    let name = Pack::name_of(&wanted.units, wanted.part, &order);
    let pack = Pack {
        name,
        order,
        ..wanted
    };
    Some((pack, replaces))
}

#[cfg(test)]
mod tests;
