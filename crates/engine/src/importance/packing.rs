//! Packs: which there are, which are worth making, and the one that is being made.
//!
//! ```text
//! prompts ─ what was selected ─► Nodes ─ due ─► queue ─ one at a time ─► mover reads, writes
//! reads ◄─ Packs ◄──────────────────────────────────────────── a pack is there, replaces others
//! ```

use std::collections::{HashMap, VecDeque};

use headstart_cache::importance::{NodeOptions, Nodes, Packs};
use headstart_cache::tiers::PARTS_FROM;
use headstart_core::transfer::{FoundPack, Pack, PartName, Transfer, TransferId, TransferResult};
use headstart_core::{BlockHash, IdentityDigest, Nanos, TenantTag};

/// The ids of packs begin here, far behind those of units and parts.
const FIRST_ID: u64 = 3 << 62;

/// Nodes that are packed in one go.
const MOST_JOBS: usize = 4;

/// Units of which it is remembered whose they are: beyond that all is forgotten, and learnt again.
const MOST_ORIGINS: usize = 1 << 17;

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

/// What follows from a pack that is there.
#[derive(Default)]
pub(super) struct News {
    /// Packs that nobody will read any more: it is one of them if it is not what its name says.
    pub(super) gone: Vec<BlockHash>,
    /// Parts of units that it stands for.
    pub(super) superseded: Vec<PartName>,
}

/// Packs and nodes.
pub(super) struct Packing {
    pub(super) packs: Packs,
    nodes: Option<Nodes>,
    num_layers: usize,
    origins: HashMap<BlockHash, Origin>,
    queue: VecDeque<Pack>,
    under_way: Option<(TransferId, FoundPack)>,
    next_id: u64,
    counts: PackCounts,
}

impl Packing {
    pub(super) fn new(options: Option<PackingOptions>, num_layers: usize) -> Self {
        Self {
            packs: Packs::new(options.map_or(0, |options| options.most_units)),
            nodes: options.map(|options| Nodes::new(options.nodes)),
            num_layers,
            origins: HashMap::new(),
            queue: VecDeque::new(),
            under_way: None,
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
        if self.under_way.is_some() {
            return;
        }
        if self.queue.is_empty() {
            self.look_for_work(now);
        }
        let Some(pack) = self.queue.pop_front() else {
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
        self.under_way = Some((id, found));
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
    pub(super) fn packed(&mut self, id: TransferId, result: TransferResult) -> News {
        let Some((_, pack)) = self.under_way.take_if(|(under_way, _)| *under_way == id) else {
            return News::default();
        };
        match result {
            TransferResult::Done => {
                self.counts.made += 1;
                self.found(pack)
            }
            TransferResult::Failed => {
                self.counts.failed += 1;
                self.unpacked(&pack);
                News::default()
            }
        }
    }

    /// A pack is there.
    pub(super) fn found(&mut self, pack: FoundPack) -> News {
        let is_rest = usize::from(pack.part) >= self.num_layers;
        let name = Pack::name_of(&pack.units, pack.part, &pack.order);
        if !is_rest || pack.name != name {
            return News {
                gone: vec![pack.name],
                ..News::default()
            };
        }
        let part = pack.part;
        let units = pack.units.iter();
        let superseded = units.map(|&record| PartName { record, part }).collect();
        News {
            gone: self.packs.insert(pack),
            superseded,
        }
    }

    /// A record is gone, which may have been a pack. Whether it was.
    pub(super) fn lost(&mut self, name: BlockHash) -> bool {
        let pack = self.packs.forget(name);
        if let Some(pack) = &pack {
            self.unpacked(pack);
        }
        pack.is_some()
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
