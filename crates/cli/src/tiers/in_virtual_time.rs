//! The same tiers without files or memory behind them: what `bench trace` compares a server with.

use std::time::Duration;

use anyhow::{Context, Result};
use headstart_cache::Tiers;
use headstart_cache::tiers::{AssumedSpeed, Shares};
use headstart_core::{EngineModel, Tier};
use headstart_sim::{Channel, SimMover};

use super::{DISK, FleetShape, HOST, REMOTE, Recipe};
use crate::config::ServeOptions;

/// Empty tiers of these capacities, in units, the nearest first, as [`super::of`] would make them,
/// beside an engine that costs this. They are as fast as is believed of them before they are
/// measured.
///
/// # Errors
/// When the options ask for no tiers, or for such as cannot be.
pub(crate) fn tiers(
    options: &ServeOptions,
    shape: &FleetShape<'_>,
    capacities: &[(Tier, usize)],
    engine: EngineModel,
) -> Result<(Tiers, SimMover)> {
    let place = options.context_cache.as_ref();
    let place = place.context("there are no lower tiers without --context-cache")?;
    // The same recipe as for a server, so that both decide by the same sizes.
    let recipe = Recipe::new(options, place, shape)?;
    let config = recipe.config(engine);
    let of = |&(which, units): &(Tier, usize)| {
        recipe.tier(which, units, assumed(which), Shares::default())
    };
    let channels: Vec<(Tier, Channel)> = capacities
        .iter()
        .map(|&(tier, _)| {
            // The speeds are the assumed ones, because a fresh server has measured nothing yet
            // either.
            let AssumedSpeed { latency_s, bytes_per_s } = assumed(tier);
            let latency = Duration::from_secs_f64(latency_s);
            let channel = Channel { latency, bytes_per_s };
            (tier, channel)
        })
        .collect();
    let mover = SimMover::new(config.unit_bytes, &channels);
    let tiers = capacities.iter().map(of).collect::<Result<_>>()?;
    Ok((Tiers::new(config, tiers), mover))
}

fn assumed(tier: Tier) -> AssumedSpeed {
    match tier {
        Tier::Device | Tier::Host => HOST,
        Tier::Disk => DISK,
        Tier::Remote => REMOTE,
    }
}
