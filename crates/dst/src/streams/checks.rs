//! Invariants of an index, checked against the real contents of engines.
//!
//! | a stream is | a resident that is | must be |
//! |---|---|---|
//! | whatever | confirmed | held by the engine at the applied position, and announced there by a |
//! | | | batch that arrived, with no loss and no doubt since |
//! | late, of which it has evidence | confirmed | nothing |
//! | complete | held | reported, as confirmed |
//! | complete | reported | held |
//! | partial | held | reported, or impossible to know: see `is_excused` |
//!
//! Where an engine reports several copies of a block, its events do not tell how many are left:
//! there, only the first row counts.

use headstart_core::event::Attention;
use headstart_core::{Nanos, ReplicaId};
use headstart_router::index::{Overlap, Overlaps};
use headstart_router::stream::StreamStatus;
use headstart_router::{PrefixIndex, RunIndex};

use super::catalog::{BlockNo, Catalog, PromptText};
use super::engine::{BlockLocation, GroupSpec};
use super::station::{Commons, Late, Station};
use super::tally::CoverageTally;
use super::texts::Texts;
use super::truth::{AnnouncementStatus, Standing, Truth};

/// Blocks of one replica that the index reports, each with its doubt; sorted.
type Residents = Vec<(BlockLocation, bool)>;

/// Compares all that the index holds of `stations` with what their engines hold.
pub fn residents<'a>(
    commons: &mut Commons,
    stations: impl IntoIterator<Item = &'a Station>,
) -> Result<(), String> {
    let Commons { catalog, tally, now, index, .. } = commons;
    for station in stations {
        let check = ReplicaCheck {
            truth: &station.truth,
            is_complete: station.follower.status() == StreamStatus::Complete,
            late: station.lateness.at(*now),
            catalog,
            now: *now,
        };
        let residents = of_replica(station.replica, index, catalog, *now);
        // Surplus first: a block that is confirmed wrongly is worse than one that is missing.
        let difference = residents.and_then(|residents| {
            check.surplus(&residents, tally)?;
            check.missing(&residents, tally)
        });
        difference.map_err(|words| format!("{:?}: {words}", station.replica))?;
    }
    Ok(())
}

/// Asks about a prompt, and compares the answer with what engines hold.
pub fn overlaps(
    commons: &mut Commons,
    stations: &[Station],
    text: &PromptText,
) -> Result<(), String> {
    let mut answer = Overlaps::default();
    let prompt = commons.index.hash(Texts::question(text));
    commons.index.overlaps(&prompt, commons.now, &mut answer);
    for station in stations {
        let truth = &station.truth;
        // Assumed prompts are the router's guess, and no event confirms or denies them.
        if truth.has_blurred() || commons.now < station.assumed_until {
            continue;
        }
        let spec = station.applied_engine();
        // Routers see prompts without their images.
        let plain = PromptText { image: None, ..text.clone() };
        let groups = spec.groups.iter();
        let known: Vec<(GroupSpec, Vec<BlockNo>)> = groups
            // An index cannot require a group that it never heard of.
            .filter(|group| truth.is_announced(group.group.index))
            .map(|group| (*group, commons.catalog.chain(&plain, group.block_size)))
            .collect();
        let longest = |only_device| {
            let mut all = (0..=plain.tokens.len()).rev();
            // From the longest down: a window or a state may allow a length whose shorter ones are
            // missing.
            let longest = all.find(|&tokens| is_enough(truth, &known, tokens, only_device));
            longest.filter(|_| !known.is_empty()).unwrap_or(0) as u32
        };
        let overlap = answer.of(station.replica);
        let expected = Overlap {
            replica: station.replica,
            device_tokens: longest(true),
            any_tier_tokens: longest(false),
            trusted_tokens: longest(false),
        };
        let is_complete = station.follower.status() == StreamStatus::Complete;
        // Of several groups, one may be known and another not: then less is needed than there is.
        let is_plain = spec.groups.len() == 1;
        let is_right = if is_complete {
            overlap == expected
        } else {
            !is_plain || overlap.trusted_tokens <= expected.trusted_tokens
        };
        if !is_right {
            let claim = if is_complete { "complete" } else { "partial" };
            return Err(format!("{claim}: {overlap:?} instead of {expected:?} for {plain:?}"));
        }
        let is_mixed = known.len() > 1 && spec.has_mixed_sizes();
        let is_mixed = is_mixed && is_complete && expected.device_tokens > 0;
        commons.tally.questions += u64::from(is_complete);
        commons.tally.mixed_questions += u64::from(is_mixed);
    }
    Ok(())
}

/// Whether all groups, each with the prompt in its own blocks, can continue behind `num_tokens`.
fn is_enough(
    truth: &Truth,
    groups: &[(GroupSpec, Vec<BlockNo>)],
    num_tokens: usize,
    only_device: bool,
) -> bool {
    groups.iter().all(|(known, chain)| {
        let block_size = known.block_size as usize;
        let blocks = num_tokens / block_size;
        let num_needed = match known.group.attention {
            Attention::Full => blocks,
            Attention::State => blocks.min(1),
            Attention::Window { tokens } => {
                let before = tokens.saturating_sub(1) as usize;
                blocks.min(before.div_ceil(block_size))
            }
        };
        // A length has at most the chain's blocks, so the slice lies within it.
        let mut needed = chain[blocks - num_needed..blocks].iter();
        num_tokens.is_multiple_of(block_size)
            && needed.all(|&block| truth.holds(known.group.index, block, only_device))
    })
}

fn of_replica(
    replica: ReplicaId,
    index: &RunIndex,
    catalog: &Catalog,
    now: Nanos,
) -> Result<Residents, String> {
    let mut found = Residents::new();
    let mut unknown = None;
    index.residents(now, &mut |resident| {
        if resident.replica != replica {
            return;
        }
        let Some(block) = catalog.find(resident.key) else {
            unknown = Some(resident);
            return;
        };
        let place = BlockLocation { group: resident.group, tier: resident.tier, block };
        found.push((place, resident.is_doubtful));
    });
    // Sorted once, so that each later look-up is a search by halves.
    found.sort_unstable();
    if let Some(resident) = unknown {
        return Err(format!("no replica ever had {resident:?}"));
    }
    match found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(format!("{:?} is reported twice", pair[0].0)),
        None => Ok(found),
    }
}

/// One replica's comparison.
struct ReplicaCheck<'a> {
    truth: &'a Truth,
    is_complete: bool,
    late: Option<Late>,
    catalog: &'a Catalog,
    now: Nanos,
}

impl ReplicaCheck<'_> {
    /// Checks that every reported block is held.
    fn surplus(
        &self,
        residents: &[(BlockLocation, bool)],
        tally: &mut CoverageTally,
    ) -> Result<(), String> {
        let truth = self.truth;
        let checks = match self.late.filter(|_| !residents.is_empty()) {
            Some(Late::Unanswered) => Some(&mut tally.unanswered_checks),
            Some(Late::Behind) => Some(&mut tally.behind_checks),
            Some(Late::Silent) => Some(&mut tally.silent_checks),
            None => None,
        };
        checks.into_iter().for_each(|checks| *checks += 1);
        for &(place, is_doubtful) in residents {
            if let Some(late) = self.late.filter(|_| !is_doubtful) {
                return Err(format!("{place:?} is confirmed though it is late: {late:?}"));
            }
            let held = truth.held().get(&place);
            let is_exempt = !self.is_complete || truth.is_blurred(place.block);
            match (is_doubtful, held) {
                (true, _) if is_exempt => tally.doubtful += 1,
                (true, _) => return Err(format!("complete, and {place:?} is in doubt")),
                (false, Some(&standing)) if self.may_confirm(standing) => tally.confirmed += 1,
                (false, _) => {
                    let at = truth.position();
                    return Err(format!("{place:?} is confirmed at {at:?}, but {held:?}"));
                }
            }
        }
        Ok(())
    }

    fn may_confirm(&self, standing: Standing) -> bool {
        standing.told != AnnouncementStatus::No
            && standing.doubted.is_none()
            && !self.truth.may_be_lost(standing)
    }

    /// Checks that every held block is reported.
    fn missing(
        &self,
        residents: &[(BlockLocation, bool)],
        tally: &mut CoverageTally,
    ) -> Result<(), String> {
        if self.is_complete {
            tally.complete_checks += 1;
            // `Complete` is a claim that nothing is missing, so a loss or a doubt contradicts it.
            if self.truth.has_loss() || self.truth.is_doubted() {
                return Err("claims to be complete after a loss".to_owned());
            }
        } else {
            tally.partial_checks += 1;
        }
        for (&place, &standing) in self.truth.held() {
            if residents.binary_search_by_key(&place, |resident| resident.0).is_ok() {
                continue;
            }
            if self.is_excused(place, standing) {
                tally.excused += 1;
                continue;
            }
            let at = self.truth.position();
            let prefix: Vec<BlockNo> = self.catalog.prefix(place.block).collect();
            let words = format!("{place:?} is missing at {at:?}, with {standing:?}");
            return Err(format!("{words}, behind {prefix:?}"));
        }
        Ok(())
    }

    /// Whether what is held need not be known: nothing that arrived tells of it, or of what it
    /// stands behind; or it has been in doubt for too long; or there were copies.
    fn is_excused(&self, place: BlockLocation, standing: Standing) -> bool {
        let is_unknown = || {
            standing.told != AnnouncementStatus::Yes
                || standing.is_over(self.now)
                || self.truth.is_tainted(place.block, self.catalog)
        };
        self.truth.is_behind_blurred(place.block, self.catalog) || !self.is_complete && is_unknown()
    }
}
