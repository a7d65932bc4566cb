//! One cache with lower tiers, no service time: what each tier would have found, and what was
//! written for it.
//!
//! Requests come in file order, and each block is a unit. A request takes its prefix from the
//! device, and what follows from the tiers, unit by unit, whether that is faster than computing or
//! not. Transfers take no time. Decisions are those of the production cache and tiers.

use std::time::Duration;

use headstart_cache::tiers::{EndedUnit, TierConfig, TierCounts, TiersConfig};
use headstart_cache::{Admit, Effect, Policy, PrefixCache, Tiers};
use headstart_core::transfer::{Transfer, TransferReport, TransferResult, Unit};
use headstart_core::{Access, BlockHash, IdentityDigest, Nanos, TenantTag, Tier, TraceRequest};

use crate::replay::access_of;

/// A replay in progress.
pub struct TierReplay {
    cache: PrefixCache,
    tiers: Tiers,
    outcome: TierReplayOutcome,
    served: u32,
}

/// Counts of a replay with tiers, in blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierReplayOutcome {
    /// Blocks of all requests.
    pub lookups: u64,
    /// Blocks found on the device.
    pub device: u64,
    /// Blocks found in the nearest tier that had them, by tier.
    pub found: Vec<(Tier, u64)>,
}

impl TierReplay {
    /// Starts with an empty device of `device_blocks` under `policy`, and with empty tiers, the
    /// nearest first. The units of `config` have one block.
    ///
    /// # Panics
    /// When a unit has more than one block.
    #[must_use]
    pub fn new(
        device_blocks: usize,
        policy: Box<dyn Policy>,
        config: TiersConfig,
        tiers: Vec<TierConfig>,
    ) -> Self {
        assert_eq!(config.unit_blocks, 1, "a block is a unit");
        let found = tiers.iter().map(|tier| (tier.tier, 0)).collect();
        Self {
            cache: PrefixCache::new(device_blocks, policy),
            tiers: Tiers::new(config, tiers),
            outcome: TierReplayOutcome { found, ..TierReplayOutcome::default() },
            served: 0,
        }
    }

    /// Serves the next request.
    ///
    /// # Panics
    /// After 2^32 requests.
    pub fn serve(&mut self, request: &TraceRequest) {
        let chain: Vec<BlockHash> = request.blocks.iter().map(BlockHash::from_u64).collect();
        let access = access_of(request, self.served);
        self.served = self.served.checked_add(1).expect("requests are numbered with 32 bits");
        self.outcome.lookups += chain.len() as u64;
        let unit = |at: usize| Unit {
            name: chain[at],
            parent: at.checked_sub(1).map(|before| chain[before]),
            identity: IdentityDigest::default(),
            tenant: TenantTag::default(),
        };
        let mut lease = self.cache.acquire(&chain);
        self.outcome.device += lease.matched() as u64;
        let loadable = lease.matched()..chain.len();
        loadable.take_while(|&at| self.load(&unit(at), access.now)).for_each(drop);
        for (at, &name) in chain.iter().enumerate().skip(lease.matched()) {
            let access = Access { offset: at as u32, ..access };
            let admit = self.cache.admit(&mut lease, name, &access);
            self.forward_evictions(access.now);
            if admit == Admit::Declined {
                break;
            }
            self.tiers.committed(unit(at), &lease.blocks()[at..=at], &access);
            self.transfer(access.now);
        }
        self.tiers.used(&chain, &access);
        let ended = lease.blocks().chunks(1).enumerate();
        let ended = ended.map(|(at, blocks)| EndedUnit { unit: unit(at), blocks });
        self.tiers.ended(ended, &access);
        self.transfer(access.now);
        self.cache.release(lease, &access);
        self.forward_evictions(access.now);
    }

    /// Loads a unit from the nearest tier that has it. Whether one has.
    fn load(&mut self, unit: &Unit, now: Nanos) -> bool {
        let Some(claim) = self.tiers.fetch(unit, now) else {
            return false;
        };
        let from = self.tiers.source(claim);
        self.transfer(now);
        self.tiers.release(claim);
        self.transfer(now);
        for (tier, found) in &mut self.outcome.found {
            *found += u64::from(Some(*tier) == from);
        }
        true
    }

    fn forward_evictions(&mut self, now: Nanos) {
        for effect in self.cache.drain_effects() {
            if let Effect::Evicted { hash, .. } = effect {
                self.tiers.evicted(hash, now);
            }
        }
        self.transfer(now);
    }

    /// Makes all transfers at once.
    fn transfer(&mut self, now: Nanos) {
        loop {
            let transfers = self.tiers.take_transfers();
            if transfers.is_empty() {
                break;
            }
            for transfer in transfers {
                let result = TransferResult::Done;
                match transfer {
                    Transfer::Store { id, to, .. } => {
                        for tier in to {
                            self.tiers.moved(TransferReport::Stored { id, tier, result }, now);
                        }
                    }
                    Transfer::Demote { id, to: tier, .. } => {
                        self.tiers.moved(TransferReport::Stored { id, tier, result }, now);
                    }
                    Transfer::Load { id, .. } => {
                        let ago = Duration::ZERO;
                        self.tiers.moved(TransferReport::Loaded { id, result, ago }, now);
                    }
                    _ => {}
                }
            }
        }
        self.tiers.take_changes();
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn outcome(&self) -> &TierReplayOutcome {
        &self.outcome
    }

    /// Returns the counters of each tier, the nearest first.
    #[must_use]
    pub fn tier_counts(&self) -> Vec<(Tier, TierCounts)> {
        self.tiers.summary().into_iter().map(|tier| (tier.tier, tier.counts)).collect()
    }

    /// Asserts the invariants of cache and tiers.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.cache.check();
        self.tiers.check();
    }
}

#[cfg(test)]
mod tests {
    use headstart_cache::policy::{Hazard, HazardOptions, Lru};
    use headstart_cache::tiers::{Admission, AssumedSpeed, LoadWhen, Shares, WriteWhen};
    use headstart_core::{EngineModel, FinishKind};

    use super::*;

    fn replay(
        policy: fn(usize) -> Box<dyn Policy>,
        write: [WriteWhen; 2],
        admission: Admission,
    ) -> TierReplay {
        let config = TiersConfig {
            unit_blocks: 1,
            block_tokens: 16,
            unit_bytes: 1,
            most_at_hand: 2,
            engine: EngineModel::default_engine(),
            load: LoadWhen::Always,
        };
        let tier = |tier, capacity_units, write| TierConfig {
            tier,
            capacity_units,
            policy: policy(capacity_units),
            admission,
            write,
            shares: Shares::default(),
            assumed: AssumedSpeed { latency_s: 0.0, bytes_per_s: 1e9 },
        };
        let [host, disk] = write;
        let tiers = vec![tier(Tier::Host, 60, host), tier(Tier::Disk, 400, disk)];
        TierReplay::new(40, policy(40), config, tiers)
    }

    /// Ten agents that return after their calls of tools, beside prompts that never return.
    fn serve(replay: &mut TierReplay) -> (f64, u64, u64) {
        let mut next = 0;
        let mut agents = vec![Vec::new(); 10];
        for second in 0..3_000_u64 {
            let agent = &mut agents[second as usize % 10];
            if agent.len() > 20 {
                agent.clear();
            }
            agent.extend([next, next + 1]);
            let other: Vec<u64> = (next + 2..next + 22).collect();
            next += 22;
            let arrival = Nanos::from_secs_f64(second as f64);
            for (blocks, finish) in
                [(agent.clone(), FinishKind::ToolCalls), (other, FinishKind::Stop)]
            {
                let blocks = blocks.into_iter().collect();
                replay.serve(&TraceRequest { arrival, blocks, finish, ..TraceRequest::default() });
            }
            replay.check();
        }
        let TierReplayOutcome { lookups, device, found } = replay.outcome();
        let below: u64 = found.iter().map(|(_, found)| found).sum();
        assert!(device + below < *lookups, "prompts that never return are never found");
        let [(_, host), (_, disk)] = replay.tier_counts()[..] else { unreachable!("two tiers") };
        ((device + below) as f64 / *lookups as f64, disk.stored, host.declined)
    }

    fn lru(capacity: usize) -> Box<dyn Policy> {
        Box::new(Lru::new(capacity))
    }

    fn hazard(capacity: usize) -> Box<dyn Policy> {
        Box::new(Hazard::new(capacity, HazardOptions::default()))
    }

    #[test]
    fn what_returns_is_found_in_a_tier_and_the_rest_is_written_less() {
        let likely = Admission::Likely { chance: 0.1 };
        let (through, all, _) = serve(&mut replay(lru, [WriteWhen::Through; 2], likely));
        // Some are declined, where a block's parent is the least recently used one.
        assert!((65_000..=66_000).contains(&all), "each block is written once: {all}");
        let (at_end, fewer, _) = serve(&mut replay(hazard, [WriteWhen::AtEnd; 2], likely));
        let write = [WriteWhen::AtEnd, WriteWhen::Back];
        let (back, fewest, _) = serve(&mut replay(hazard, write, likely));
        assert!(at_end >= through - 0.01 && back >= through - 0.01, "{through} {at_end} {back}");
        assert!(fewer < all / 2 && fewest < all / 2, "{fewer} and {fewest} of {all}");
    }

    #[test]
    fn a_full_tier_keeps_what_is_worth_more_than_a_newcomer() {
        let write = [WriteWhen::AtEnd; 2];
        let (found, _, declined) = serve(&mut replay(hazard, write, Admission::Always));
        // Three of ten blocks are ever used again.
        assert!(found > 0.3 && declined > 50_000, "{found} {declined}");
    }
}
