//! A writer's state as a [dump](super::dump), and back.
//!
//! Restored blocks go through the same changes as those of events, so the index need not know that
//! they come from a dump.

use headstart_core::Nanos;
use headstart_core::block::BlockShape;
use headstart_core::event::CacheGroup;

use super::draft::ViewDraft;
use super::dump::{BlockDump, DumpError, IndexDump, PlaceDump, ReplicaDump, RunDump};
use super::replica::GroupLayout;
use super::spot::Spot;
use super::standing::{BlockPlace, BlockStanding, PlacedHandle, is_over};
use super::view::View;
use super::writer::IndexWriter;

impl IndexWriter {
    /// All that is held at `now`.
    pub(super) fn dump(&self, view: &View, now: Nanos) -> IndexDump {
        let mut numbers = vec![None; view.runs().len()];
        let mut runs = Vec::new();
        for (id, run) in view.runs().iter().enumerate() {
            // The end of a run that is only named or assumed is not kept.
            let held = run.holders().iter().map(|holder| holder.held_end()).max().unwrap_or(0);
            if held > 0 {
                numbers[id] = Some(runs.len() as u32);
                runs.push(RunDump {
                    block_size: run.block_size,
                    keys: (0..held).map(|offset| run.key(offset)).collect(),
                });
            }
        }
        let mut replicas = Vec::new();
        for replica in self.replicas.iter().flatten() {
            let profile = &view.replicas()[replica.slot as usize];
            let Some(id) = profile.id else {
                continue;
            };
            let mut places: Vec<PlaceDump> = Vec::new();
            for (handle, spot) in replica.names.awake() {
                let Some(run) = numbers[spot.run as usize] else {
                    continue;
                };
                let block = BlockDump { run, offset: spot.offset, handle };
                replica.visit(view, handle, spot, |place, standing| {
                    if let Some(known) = to_keep(&mut places, place, standing, now) {
                        known.blocks.push(block);
                    }
                });
            }
            // In order, so that rows of blocks are restored as one.
            let order = |block: &BlockDump| (block.run, block.offset);
            places.iter_mut().for_each(|place| place.blocks.sort_unstable_by_key(order));
            let groups = replica.groups.iter().map(|(&index, group)| {
                let known = CacheGroup {
                    index,
                    attention: group.attention,
                    lookahead: group.shape.lookahead,
                };
                (known, group.shape.size)
            });
            replicas.push(ReplicaDump { replica: id, groups: groups.collect(), places });
        }
        IndexDump { model: self.model.clone(), runs, replicas }
    }

    /// Takes over what a dump says of replicas that are tracked. Returns the number of holdings.
    pub(super) fn restore(
        &mut self,
        draft: &mut ViewDraft<'_>,
        dump: &IndexDump,
    ) -> Result<usize, DumpError> {
        if dump.model != self.model {
            return Err(DumpError::OtherModel {
                expected: self.model.clone(),
                found: dump.model.clone(),
            });
        }
        if self.land.num_blocks() > 0 {
            return Err(DumpError::NotEmpty);
        }
        // All checks come before the first change: a damaged dump leaves the index as it was.
        dump.validate()?;
        let mut restored = 0;
        let mut runs: Vec<Option<u32>> = vec![None; dump.runs.len()];
        for known in &dump.replicas {
            self.restore_groups(draft, known);
            for held in &known.places {
                let place = BlockPlace { group: held.group, tier: held.tier };
                let since = draft.now.before(held.doubtful_for.unwrap_or_default());
                for &block in &held.blocks {
                    let run = self.restore_run(draft, dump, &mut runs, block.run);
                    let spot = Spot { run, offset: block.offset };
                    let Some(slot) = self.slot_of(draft.view, known.replica) else {
                        continue;
                    };
                    restored += 1;
                    let held = PlacedHandle { handle: block.handle, spot, place };
                    self.change(&mut draft.at(since), slot, |replica, forest| {
                        replica.restore(forest, held);
                    });
                }
            }
        }
        // Restored runs are whole, but replicas that are not tracked may have held their ends.
        self.trim(draft, &runs);
        self.keep_to_budget(draft);
        Ok(restored)
    }

    /// Takes over a restored replica's groups.
    fn restore_groups(&mut self, draft: &mut ViewDraft<'_>, dump: &ReplicaDump) {
        let Some(slot) = self.slot_of(draft.view, dump.replica) else {
            return;
        };
        let Some(replica) = &mut self.replicas[slot as usize] else {
            return;
        };
        let before = replica.shapes();
        for &(group, block_size) in &dump.groups {
            replica.groups.entry(group.index).or_insert(GroupLayout {
                attention: group.attention,
                shape: BlockShape { size: block_size, lookahead: group.lookahead },
            });
        }
        self.change_shapes(slot, &before);
        self.publish(draft, slot, Some(dump.replica));
    }

    /// The run that stands for one of a dump's, new at its first use.
    fn restore_run(
        &mut self,
        draft: &mut ViewDraft<'_>,
        dump: &IndexDump,
        runs: &mut [Option<u32>],
        number: u32,
    ) -> u32 {
        let known = &dump.runs[number as usize];
        *runs[number as usize].get_or_insert_with(|| {
            let mut forest = draft.forest(&mut self.land);
            forest.restore(&known.keys, known.block_size)
        })
    }

    /// Cuts off the blocks of a dump that no replica holds.
    fn trim(&mut self, draft: &mut ViewDraft<'_>, runs: &[Option<u32>]) {
        let mut forest = draft.forest(&mut self.land);
        for &run in runs.iter().flatten() {
            forest.trim(run);
        }
    }
}

/// Returns the entry of `places` with this place and standing, and creates it if needed; `None` if
/// the doubt has expired.
fn to_keep(
    places: &mut Vec<PlaceDump>,
    place: BlockPlace,
    standing: BlockStanding,
    now: Nanos,
) -> Option<&mut PlaceDump> {
    let doubtful_for = match standing {
        BlockStanding::Confirmed => None,
        BlockStanding::Doubtful { since } if is_over(since, now) => return None,
        BlockStanding::Doubtful { since } => Some(now.since(since)),
    };
    let BlockPlace { group, tier } = place;
    // A handful of places: a search in a list is enough.
    let known = places.iter().position(|known| {
        (known.group, known.tier, known.doubtful_for) == (group, tier, doubtful_for)
    });
    let at = known.unwrap_or_else(|| {
        places.push(PlaceDump { group, tier, doubtful_for, blocks: Vec::new() });
        places.len() - 1
    });
    Some(&mut places[at])
}
