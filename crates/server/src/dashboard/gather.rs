//! A snapshot of a gateway: what its metrics, router and index say now. Off the network threads:
//! it reads all of the index now and then.

mod explained;

use std::sync::atomic::Ordering::Relaxed;

use headstart_core::block::BlockShape;
use headstart_core::{Nanos, ReplicaId, RouteKey};
use headstart_index_sync::clock::unix_seconds;
use headstart_router::index::{KeyChain, Overlaps};
use headstart_router::{Health, PromptKeys, ReplicaStatus};

use super::DashboardState;
use super::occupancy::DeviceOccupancy;
use super::snapshot::{
    CachedPart, ErrorsPart, FailurePart, HolderPart, MoneyPart, NodePart, PredictionsPart,
    ReplicaPart, SavingsPart, ServerPart, Snapshot, SourcePart, StatusPart, TierPart, TotalsPart,
    TreePart, VERSION,
};
use super::tree::{PrefixTree, ShownBranch};
use crate::gateway::{Fleet, HttpGateway};
use crate::lock::lock;
use crate::metrics::{FOUND_IN, Totals};
use crate::upstream::Upstream;

/// Branches that are shown.
const NODES_MAX: usize = 48;

/// Holders of a branch that are named.
const HOLDERS_MAX: usize = 16;

/// A gateway now, without its history.
pub(super) fn snapshot(gateway: &HttpGateway) -> Snapshot {
    let now = gateway.clock.now();
    let totals = gateway.metrics.totals();
    let mut looked = lock(&gateway.dashboard.looked);
    let DashboardState { tree, skipped, occupancy } = &mut *looked;
    let (prompts, unseen) = gateway.dashboard.prompts.take();
    // What came before anybody looked was not missed.
    *skipped += if tree.prompts() > 0 { unseen } else { 0 };
    for (keys, at) in prompts {
        if let Some(chain) = keys.chains().first() {
            tree.insert(&chain.keys, at);
        }
    }
    occupancy.refresh(gateway.index(), gateway.clock.now());
    let snapshot = Snapshot {
        version: VERSION,
        at_unix_s: unix_seconds(),
        server: server(gateway),
        totals: TotalsPart {
            requests: totals.requests,
            errors: totals.errors.values().sum(),
            prompt_tokens: totals.prompt_tokens(),
            cached_tokens: totals.cached_tokens(),
            generation_tokens: totals.generated,
        },
        lately: lock(&gateway.dashboard.history).lately(),
        replicas: replicas(gateway, occupancy, &totals),
        tree: TreePart { skipped: *skipped, ..tree_part(gateway, tree, now) },
        errors: errors(gateway, &totals),
        predictions: predictions(&totals),
        savings: savings(totals),
        ..Snapshot::default()
    };
    match &gateway.observers.insight {
        Some(insight) => explained::add(snapshot, insight, gateway, now),
        None => snapshot,
    }
}

fn server(gateway: &HttpGateway) -> ServerPart {
    let started_unix_s = gateway.started_unix_s();
    ServerPart {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        build: build(),
        has_cost_model: gateway.has_cost_model,
        models: gateway.models(),
        strategy: gateway.strategy().to_owned(),
        started_unix_s,
        uptime_s: (unix_seconds() - started_unix_s as f64).max(0.0),
        is_draining: gateway.draining.load(Relaxed),
        notices: gateway.notices(),
    }
}

fn build() -> String {
    use std::env::consts::{ARCH, OS};
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!("{profile}, {ARCH} {OS}")
}

fn errors(gateway: &HttpGateway, totals: &Totals) -> ErrorsPart {
    let now_s = unix_seconds();
    let by_status = totals.errors.iter();
    let latest = gateway.dashboard.failures.latest().into_iter();
    ErrorsPart {
        by_status: by_status.map(|(&status, &count)| StatusPart { status, count }).collect(),
        latest: latest
            .map(|failure| FailurePart {
                request_id: failure.request_id,
                age_s: (now_s - failure.at_unix_s).max(0.0),
                status: failure.status,
                code: failure.code.map(str::to_owned),
                route: failure.route.to_owned(),
            })
            .collect(),
    }
}

fn replicas(
    gateway: &HttpGateway,
    occupancy: &DeviceOccupancy,
    totals: &Totals,
) -> Vec<ReplicaPart> {
    // Collected first: `with_load` locks the router again.
    let statuses: Vec<ReplicaStatus> = gateway.router().replicas().collect();
    let part = |status: &ReplicaStatus| {
        let id = status.replica;
        let hits = totals.by_replica.get(&id.to_string());
        let hits = hits.filter(|hits| hits.lookups > 0);
        let stream = gateway.stream_report(id);
        let base = ReplicaPart {
            replica: id.0,
            name: "in this process".to_owned(),
            is_healthy: status.health == Health::Healthy,
            stream: stream.map(|report| report.status.name().to_owned()),
            running: (status.in_flight.requests - status.in_flight.queued) as u64,
            waiting: status.in_flight.queued as u64,
            cached_blocks: Some(occupancy.blocks(id)),
            hit_rate: hits.map(|hits| hits.hits as f64 / hits.lookups as f64),
            ..ReplicaPart::default()
        };
        with_load(gateway, id, base)
    };
    statuses.iter().map(part).collect()
}

/// Adds what a replica says of itself.
fn with_load(gateway: &HttpGateway, id: ReplicaId, part: ReplicaPart) -> ReplicaPart {
    let embedded = match &gateway.fleet {
        Fleet::Embedded(embedded) => embedded,
        Fleet::Upstreams(_) => {
            let told = gateway.router().report_of(id, gateway.clock.now());
            let upstream = gateway.upstream(id);
            let trouble = upstream.map(Upstream::trouble);
            return ReplicaPart {
                name: upstream.map_or_else(String::new, name_of),
                trouble: trouble.filter(|text| !part.is_healthy && !text.is_empty()),
                running: told.map_or(part.running, |told| u64::from(told.running)),
                waiting: told.map_or(part.waiting, |told| u64::from(told.waiting)),
                kv_usage: told.map(|told| told.kv_usage).filter(|usage| usage.is_finite()),
                ..part
            };
        }
    };
    let Some(replica) = embedded.replicas.get(id.0 as usize) else {
        return part;
    };
    let load = replica.load();
    let tier = |tier: headstart_cache::tiers::TierSummary| TierPart {
        tier: tier.tier.name().to_owned(),
        units: tier.units as u64,
        capacity_units: tier.capacity_units as u64,
    };
    ReplicaPart {
        running: load.running as u64,
        waiting: load.waiting as u64,
        kv_usage: Some(crate::gateway::kv_usage(&load)),
        capacity_blocks: Some(load.capacity_blocks as u64),
        block_tokens: Some(embedded.block_size as u64),
        tiers: replica.tiers().into_iter().map(tier).collect(),
        ..part
    }
}

fn name_of(upstream: &Upstream) -> String {
    match upstream.rank() {
        Some(rank) => format!("{} rank {rank}", upstream.base()),
        None => upstream.base().to_owned(),
    }
}

fn tree_part(gateway: &HttpGateway, tree: &PrefixTree, now: Nanos) -> TreePart {
    let shown = tree.shown(NODES_MAX, now);
    // Any prompt is cut into blocks of the sizes in use.
    let sizes = gateway.index().hash(headstart_router::Prompt::default());
    let shape = sizes.chains().first().map(|chain| chain.shape);
    let shape = shape.unwrap_or_default();
    let block_tokens = shape.size;
    let names = gateway.dashboard.labels.of_branches(tree, gateway.index());
    let nodes = shown.iter().map(|branch| NodePart {
        label: names.get(&branch.key).map(|&name| name.to_owned()),
        ..node(branch, block_tokens, now)
    });
    let mut nodes: Vec<NodePart> = nodes.collect();
    let mut overlaps = Overlaps::default();
    // While all engines are down no block size is in use, and nothing is held.
    let leaves = shown.iter().enumerate().filter(|(_, branch)| branch.is_leaf);
    for (at, leaf) in leaves.filter(|_| shape.size > 0) {
        let keys = prompt(tree.chain_to(leaf.key), shape);
        gateway.index().overlaps(&keys, now, &mut overlaps);
        tell_holders(&mut nodes, at, &overlaps);
    }
    TreePart {
        block_tokens: u64::from(block_tokens),
        prompts: tree.prompts(),
        skipped: 0,
        branches: tree.len() as u64,
        nodes,
    }
}

fn node(shown: &ShownBranch, block_tokens: u32, now: Nanos) -> NodePart {
    let tokens = |blocks: usize| blocks as u64 * u64::from(block_tokens);
    let (before, own) = shown.blocks;
    let (born, used) = shown.times;
    NodePart {
        id: format!("{:016x}", shown.key.0),
        label: None,
        parent: shown.parent.map(|parent| parent as u64),
        start_tokens: tokens(before),
        tokens: tokens(own),
        prompts: shown.prompts,
        share: shown.share,
        used_s: now.since(used).as_secs_f64(),
        age_s: now.since(born).as_secs_f64(),
        holders: Vec::new(),
    }
}

fn prompt(keys: Vec<RouteKey>, shape: BlockShape) -> PromptKeys {
    let num_tokens = keys.len() * shape.size as usize + shape.lookahead as usize;
    PromptKeys::from_chains(num_tokens, vec![KeyChain { shape, keys }])
}

/// Sets the holders of a leaf and its ancestors from the overlaps with the leaf's prefix.
fn tell_holders(nodes: &mut [NodePart], leaf: usize, overlaps: &Overlaps) {
    let mut next = Some(leaf);
    while let Some(at) = next {
        let node = &mut nodes[at];
        next = node.parent.map(|parent| parent as usize);
        // A shared ancestor: each of its leaves gives the same holders.
        if !node.holders.is_empty() {
            continue;
        }
        let part = |held: u32| u64::from(held).saturating_sub(node.start_tokens).min(node.tokens);
        let holders = overlaps.iter().map(|overlap| HolderPart {
            replica: overlap.replica.0,
            tokens: part(overlap.any_tier_tokens),
            device_tokens: part(overlap.device_tokens),
        });
        let holders = holders.filter(|holder| holder.tokens > 0);
        node.holders = holders.take(HOLDERS_MAX).collect();
    }
}

fn predictions(totals: &Totals) -> PredictionsPart {
    let [predicted_tokens, found_tokens, off_tokens] = totals.foretold;
    let cached = CachedPart { predicted_tokens, found_tokens, off_tokens };
    PredictionsPart {
        cached: (predicted_tokens + found_tokens > 0).then_some(cached),
        ..PredictionsPart::default()
    }
}

fn savings(totals: Totals) -> SavingsPart {
    let sources = FOUND_IN.iter().zip(totals.found);
    let sources = sources.filter(|&(_, tokens)| tokens > 0);
    let money = totals.money.into_iter();
    SavingsPart {
        prefill_s: totals.prefill_s,
        by_source: sources
            .map(|(source, tokens)| SourcePart { source: (*source).to_owned(), tokens })
            .collect(),
        money: money.map(|(currency, amount)| MoneyPart { currency, amount }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leafs_holders_hold_the_branches_before_it() {
        let branch = |parent, start_tokens, tokens| NodePart {
            parent,
            start_tokens,
            tokens,
            ..NodePart::default()
        };
        let mut nodes = vec![branch(None, 0, 64), branch(Some(0), 64, 32), branch(Some(1), 96, 16)];
        let index = headstart_router::RunIndex::new("m");
        let chain: Vec<RouteKey> = (1..8).map(RouteKey).collect();
        let shape = BlockShape::of_size(16);
        let keys = prompt(chain, shape);
        let mut overlaps = Overlaps::default();
        use headstart_router::PrefixIndex;
        use headstart_router::index::Update;
        for (replica, blocks) in [(0, 5), (3, 7)] {
            let replica = ReplicaId(replica);
            let block_size = Some(16);
            index.update(replica, Update::Track { block_size }, Nanos(0));
            let part = prompt((1..=blocks).map(RouteKey).collect(), shape);
            index.update(replica, Update::Assume(&part), Nanos(0));
        }
        index.overlaps(&keys, Nanos(1), &mut overlaps);
        tell_holders(&mut nodes, 2, &overlaps);
        let held: Vec<Vec<(u32, u64)>> = nodes
            .iter()
            .map(|node| node.holders.iter().map(|holder| (holder.replica, holder.tokens)).collect())
            .collect();
        assert_eq!(held, [vec![(0, 64), (3, 64)], vec![(0, 16), (3, 32)], vec![(3, 16)]]);
    }
}
