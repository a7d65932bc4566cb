//! Sources of prompt tokens of a trace, tier by tier: a live server beside the same decisions in
//! virtual time.
//!
//! The simulated replica is the scheduler, the cache and the tiers of the server, of the same
//! capacities, given the same prompts; its engine costs what the server's replica has learned of
//! its own steps, and its tiers are as fast as is believed before they are measured. The server's
//! counts are its metrics'.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use headstart_cache::PrefixCache;
use headstart_cache::policy::{self, Setting};
use headstart_core::figures::counted;
use headstart_core::{Nanos, Tier};
use headstart_engine::engine::EngineConfig;
use headstart_loadgen::Pace;
use headstart_scheduler::SchedulerConfig;
use headstart_server::gateway::{EmbeddedReplicas, Fleet, HttpGateway};
use headstart_server::{EngineBackend, ServeConfig};
use headstart_sim::{TieredOutcome, TieredReplica, TieredRequest};
use headstart_trace::materialize::TokenPrompt;
use serde::Serialize;

use crate::config::ServeOptions;
use crate::exit::usage;
use crate::exposition::samples;
use crate::tiers::{FleetShape, in_virtual_time, unknown_engine};

/// The metric that tells where prompt tokens came from.
const BY_SOURCE: &str = "headstart_prompt_tokens_by_source_total";

/// Sources of prompt tokens, in the order of the report.
const SOURCES: [&str; 5] = ["device", "host", "disk", "remote", "computed"];

/// A server with lower tiers whose decisions are to be repeated.
pub(super) struct TieredServer {
    options: ServeOptions,
    engine: EngineConfig,
    policy: String,
    is_emulated: bool,
    /// All prompts that were sent.
    requests: Vec<TieredRequest>,
}

/// The live run against the simulated one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct TierAgreement {
    /// Units that each lower tier may hold.
    capacity_units: BTreeMap<&'static str, usize>,
    rows: Vec<TokenSourceRow>,
    /// Answered requests that found exactly as much as the simulated ones.
    equal: usize,
    /// Answered requests that found more than the simulated ones.
    more: usize,
    /// Answered requests that found less than the simulated ones.
    less: usize,
}

/// One place that tokens come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct TokenSourceRow {
    source: &'static str,
    live_tokens: u64,
    simulated_tokens: u64,
    /// Share of all prompt tokens.
    live: f64,
    simulated: f64,
    /// Simulated less live, in points.
    points: f64,
}

impl TieredServer {
    /// `None` where the server has no lower tiers, or several replicas.
    pub(super) fn of(options: &ServeOptions, config: &ServeConfig) -> Option<Self> {
        match &config.backend {
            EngineBackend::Embedded(fleet) if fleet.replicas == 1 && fleet.tiers.is_some() => {
                Some(Self {
                    options: options.clone(),
                    engine: fleet.engine,
                    policy: fleet.policy.clone(),
                    is_emulated: fleet.emulated.is_some(),
                    requests: Vec::new(),
                })
            }
            _ => None,
        }
    }

    /// Refuses a server that begins with what an earlier one stored.
    pub(super) fn check_empty(gateway: &HttpGateway) -> Result<()> {
        let reports = embedded(gateway)?.tier_reports.iter();
        let mut reports = reports.flat_map(|reports| reports());
        match reports.find(|report| report.records > 0) {
            None => Ok(()),
            Some(report) => {
                bail!(usage(format!(
                    "--context-cache: the {} holds {} from before, which a simulation does \
                     not know; give a new folder",
                    report.tier.name(),
                    counted(report.records, "unit")
                )))
            }
        }
    }

    /// Notes a prompt that is sent.
    pub(super) fn note(&mut self, prompt: &TokenPrompt) {
        self.requests.push(TieredRequest {
            arrival: prompt.arrival,
            prompt: prompt.tokens.clone(),
            answer_tokens: prompt.output_tokens as usize,
            session: prompt.session,
        });
    }

    /// Sends all noted prompts to a replica in virtual time. `found` is what the live requests
    /// found, by number.
    pub(super) fn compare(
        &self,
        gateway: &HttpGateway,
        pace: Pace,
        found: &BTreeMap<u64, u32>,
    ) -> Result<TierAgreement> {
        let live = by_source(&gateway.metrics.render());
        let mut replica = self.replica(embedded(gateway)?)?;
        let outcomes = self.serve(&mut replica, pace);
        let mut simulated = BTreeMap::<&str, u64>::new();
        for outcome in &outcomes {
            let loaded = outcome.loaded_tokens.iter();
            let loaded = loaded.map(|(tier, &tokens)| (tier.name(), tokens));
            let computed = outcome.prompt_tokens - found_tokens(outcome);
            let device = (Tier::Device.name(), outcome.device_tokens);
            for (source, tokens) in loaded.chain([device, ("computed", computed)]) {
                *simulated.entry(source).or_default() += tokens as u64;
            }
        }
        let summary = replica.tiers().summary();
        let capacity_units = summary.iter().map(|row| (row.tier.name(), row.capacity_units));
        let mut agreement = TierAgreement {
            capacity_units: capacity_units.collect(),
            rows: rows(&live, &simulated),
            equal: 0,
            more: 0,
            less: 0,
        };
        for (number, outcome) in outcomes.iter().enumerate() {
            let Some(&live) = found.get(&(number as u64)) else {
                continue;
            };
            *match (live as usize).cmp(&found_tokens(outcome)) {
                std::cmp::Ordering::Equal => &mut agreement.equal,
                std::cmp::Ordering::Greater => &mut agreement.more,
                std::cmp::Ordering::Less => &mut agreement.less,
            } += 1;
        }
        Ok(agreement)
    }

    fn replica(&self, embedded: &EmbeddedReplicas) -> Result<TieredReplica> {
        let live = &embedded.replicas[0];
        // A server that has computed nothing yet has learned nothing.
        let engine = live.learned().unwrap_or_else(unknown_engine);
        let shape = FleetShape {
            model: &embedded.model.config,
            dtype: self.engine.kv_dtype,
            stored: self.engine.stored,
            block_size: self.engine.block_size,
            is_emulated: self.is_emulated,
        };
        let capacities: Vec<(Tier, usize)> =
            live.tiers().iter().map(|tier| (tier.tier, tier.capacity_units)).collect();
        // A tier that failed to open is left out by the server, with a warning in its log.
        ensure!(!capacities.is_empty(), "the server has no lower tiers; see its log");
        let (tiers, mover) = in_virtual_time::tiers(&self.options, &shape, &capacities, engine)?;
        let config = SchedulerConfig {
            max_batched_tokens: self.engine.max_batched_tokens,
            max_sequences: self.engine.max_sequences,
            max_waiting: self.engine.max_waiting,
            max_context: live.context(),
            block_size: self.engine.block_size,
            order: self.engine.order,
        };
        let setting = Setting {
            capacity: self.engine.cache_blocks,
            block_tokens: self.engine.block_size as u32,
        };
        let policy = policy::by_name(&self.policy, setting);
        let policy = policy.map_err(|error| usage(format!("--policy: {error}")))?;
        let cache = PrefixCache::new(self.engine.cache_blocks, policy);
        Ok(TieredReplica::new(config, cache, engine.cost, tiers, mover))
    }

    fn serve(&self, replica: &mut TieredReplica, pace: Pace) -> Vec<TieredOutcome> {
        match pace {
            Pace::Sequential => {
                let serve = |request: &TieredRequest| {
                    // One request at a time: each arrives when the one before has ended.
                    let request = TieredRequest { arrival: replica.now(), ..request.clone() };
                    replica.serve(&[request]).remove(0)
                };
                self.requests.iter().map(serve).collect()
            }
            Pace::Open { speed, .. } | Pace::Sessions { speed, .. } => {
                let first = self.requests.first().map_or(Nanos(0), |first| first.arrival);
                // The driver divides the recorded gaps by the speed as well.
                let at = |arrival: Nanos| Nanos(0) + arrival.since(first).div_f64(speed);
                let requests = self.requests.iter().map(|request| TieredRequest {
                    arrival: at(request.arrival),
                    ..request.clone()
                });
                replica.serve(&requests.collect::<Vec<_>>())
            }
        }
    }
}

impl TierAgreement {
    /// The same in words.
    pub(super) fn to_markdown(&self) -> String {
        let capacities = self.capacity_units.iter();
        let capacities: Vec<String> =
            capacities.map(|(tier, units)| format!("{tier} {units}")).collect();
        let mut text =
            "| prompt tokens from | live | simulated | live, % | simulated, % | points |\n\
             |--|--:|--:|--:|--:|--:|\n"
                .to_owned();
        for row in &self.rows {
            text += &format!(
                "| {} | {} | {} | {:.2} | {:.2} | {:+.2} |\n",
                row.source,
                row.live_tokens,
                row.simulated_tokens,
                row.live * 100.0,
                row.simulated * 100.0,
                row.points
            );
        }
        text + &format!(
            "\nUnits below the device, at most: {}. {} found as many tokens as the \
             simulated ones, {} more, {} less.\n",
            capacities.join(", "),
            counted(self.equal as u64, "request"),
            self.more,
            self.less
        )
    }
}

fn embedded(gateway: &HttpGateway) -> Result<&EmbeddedReplicas> {
    match &gateway.fleet {
        Fleet::Embedded(embedded) => Ok(embedded),
        Fleet::Upstreams(_) => bail!("only embedded replicas have tiers of ours"),
    }
}

fn found_tokens(outcome: &TieredOutcome) -> usize {
    outcome.device_tokens + outcome.loaded_tokens.values().sum::<usize>()
}

/// Prompt tokens by where they came from, of all models and replicas.
fn by_source(metrics: &str) -> BTreeMap<&'static str, u64> {
    let mut tokens = BTreeMap::new();
    for sample in samples(metrics).filter(|sample| sample.name == BY_SOURCE) {
        if let Some(source) = SOURCES.into_iter().find(|&source| sample.label("source") == source) {
            // Replicas have a line each, so the counts add up.
            *tokens.entry(source).or_default() += sample.value as u64;
        }
    }
    tokens
}

fn rows(live: &BTreeMap<&str, u64>, simulated: &BTreeMap<&str, u64>) -> Vec<TokenSourceRow> {
    let of = |tokens: &BTreeMap<&str, u64>, source| tokens.get(source).copied().unwrap_or(0);
    let share = |tokens: &BTreeMap<&str, u64>, source| {
        let all: u64 = tokens.values().sum();
        of(tokens, source) as f64 / all.max(1) as f64
    };
    let row = |source: &'static str| {
        let (live_share, simulated_share) = (share(live, source), share(simulated, source));
        TokenSourceRow {
            source,
            live_tokens: of(live, source),
            simulated_tokens: of(simulated, source),
            live: live_share,
            simulated: simulated_share,
            points: (simulated_share - live_share) * 100.0,
        }
    };
    // Tiers that the server does not have are not shown.
    let is_used = |row: &TokenSourceRow| row.live_tokens + row.simulated_tokens > 0;
    SOURCES.into_iter().map(row).filter(is_used).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_and_shares_compared() {
        let metrics = "# HELP x\n\
            headstart_prompt_tokens_by_source_total{model_name=\"m\",replica=\"0\",\
            source=\"device\"} 300\n\
            headstart_prompt_tokens_by_source_total{model_name=\"m\",replica=\"0\",\
            source=\"computed\"} 700\n\
            headstart_other_total{source=\"device\"} 9\n";
        let live = by_source(metrics);
        assert_eq!(live, BTreeMap::from([("device", 300), ("computed", 700)]));
        let simulated = BTreeMap::from([("device", 100), ("disk", 300), ("computed", 600)]);
        let rows = rows(&live, &simulated);
        let points: Vec<(&str, f64)> =
            rows.iter().map(|row| (row.source, (row.points * 10.0).round() / 10.0)).collect();
        assert_eq!(points, [("device", -20.0), ("disk", 30.0), ("computed", -10.0)]);
        let agreement = TierAgreement {
            capacity_units: BTreeMap::from([("disk", 7)]),
            rows,
            equal: 1,
            more: 2,
            less: 3,
        };
        let text = agreement.to_markdown();
        assert!(text.contains("| disk | 0 | 300 | 0.00 | 30.00 | +30.00 |"), "{text}");
        assert!(text.contains("at most: disk 7"), "{text}");
    }
}
