//! A grid of fleets on which strategies are compared, fixed before the strategy that it judges.
//!
//! | axis | values |
//! |---|---|
//! | replicas | 2, 8, 32 |
//! | requests/s per replica | 1, 2.5, 4, 6: idle, busy, about as much as cold prompts allow, more |
//! | system prompts, of the fleet's KV memory | 0.3, 0.8, 2 |
//! | popularity of system prompts | in turn, Zipf with exponent 1 |
//!
//! Every request has one of twenty questions behind its system prompt. The engine is that of the
//! published run ([`FleetPreset::LlmD73`]). The first rung fills the caches and counts for nothing.
//!
//! Beside the grid two loads that are hard for affinity: [`burst`] and [`hot_prefix`].

use std::time::Duration;

use headstart_core::Rng;
use headstart_router::Profile;
use headstart_sim::fleet::{FleetConfig, FleetPreset, FleetWorkload, Ladder, Order, RequestPacing};

/// One fleet under one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    /// Replicas.
    pub(crate) replicas: usize,
    /// Requests per second and replica.
    pub(crate) rate: f64,
    /// Tokens of all system prompts over those that fit the fleet's KV memory.
    pub(crate) working_set: f64,
    /// Order of the system prompts.
    pub(crate) order: Order,
}

const REPLICAS: [usize; 3] = [2, 8, 32];
const RATES: [f64; 4] = [1.0, 2.5, 4.0, 6.0];
const WORKING_SETS: [f64; 3] = [0.3, 0.8, 2.0];
const ORDERS: [Order; 2] = [Order::InTurn, Order::Zipf { exponent: 1.0 }];

const SYSTEM_TOKENS: u32 = 4_000;
const QUESTION_TOKENS: u32 = 400;
const ANSWER_TOKENS: u32 = 200;
const QUESTIONS: usize = 20;

/// Seconds in which caches are filled, and in which it counts.
const WARM_UP_S: f64 = 60.0;
const COUNTED_S: f64 = 90.0;

/// All cells.
pub(crate) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for replicas in REPLICAS {
        for working_set in WORKING_SETS {
            for order in ORDERS {
                cells.extend(RATES.map(|rate| Cell { replicas, rate, working_set, order }));
            }
        }
    }
    cells
}

/// Replicas of [`burst`] and [`hot_prefix`].
const HARD_REPLICAS: usize = 8;

/// Bursts: seconds between two, and requests in each.
const BURST_EVERY_S: f64 = 20.0;
const BURST_REQUESTS: usize = 160;

/// Eight replicas at one request a second each; every twenty seconds half of what is asked comes at
/// once.
pub(crate) fn burst(seed: u64) -> FleetWorkload {
    let cell = Cell { replicas: HARD_REPLICAS, rate: 2.0, working_set: 0.5, order: Order::InTurn };
    let mut workload = cell.workload(seed);
    let counted = &mut workload.rungs[1].requests;
    // At 16 requests a second a period has 320, and the second half of them comes at its start.
    let per_period = 2 * BURST_REQUESTS;
    for (number, request) in counted.iter_mut().enumerate() {
        if let Some(at) = request.at.filter(|_| number % per_period >= BURST_REQUESTS) {
            let period = (at.as_secs_f64() / BURST_EVERY_S).floor();
            request.at = Some(Duration::from_secs_f64(period * BURST_EVERY_S));
        }
    }
    // A rung's requests are sent in order of time, and bursts have moved some forward.
    counted.sort_by_key(|request| request.at);
    workload
}

/// Eight replicas with three requests a second each, six in ten of them behind one system prompt.
pub(crate) fn hot_prefix(seed: u64) -> FleetWorkload {
    let cell = Cell {
        replicas: HARD_REPLICAS,
        rate: 3.0,
        working_set: 0.3,
        order: Order::Zipf { exponent: 2.0 },
    };
    cell.workload(seed)
}

/// Returns the fleet for [`burst`] and [`hot_prefix`].
pub(crate) fn hard_fleet(profile: Profile) -> FleetConfig {
    fleet_of(HARD_REPLICAS, profile)
}

fn fleet_of(replicas: usize, profile: Profile) -> FleetConfig {
    let mut fleet = FleetPreset::LlmD73.fleet(profile);
    // Every replica is the same, so the preset's first one gives them all.
    fleet.replicas = vec![fleet.replicas[0]; replicas];
    fleet
}

impl Cell {
    /// Draws the cell's requests from a seed.
    pub(crate) fn workload(&self, seed: u64) -> FleetWorkload {
        let kv_tokens = (self.replicas * FleetPreset::LlmD73.kv_tokens()) as f64;
        let groups = self.working_set * kv_tokens / f64::from(SYSTEM_TOKENS);
        let replicas = self.replicas as f64;
        let ladder = Ladder {
            // A small fleet with a small working set still needs a system prompt.
            groups: (groups.round() as usize).max(1),
            prompts: QUESTIONS,
            system_tokens: SYSTEM_TOKENS,
            question_tokens: QUESTION_TOKENS,
            answer_tokens: ANSWER_TOKENS,
            order: self.order,
            pacing: RequestPacing::Poisson,
            rungs: vec![(replicas, WARM_UP_S), (self.rate * replicas, COUNTED_S)],
        };
        ladder.draw(&mut Rng::new(seed))
    }

    /// Returns the cell's replicas and gateways.
    pub(crate) fn fleet(&self, profile: Profile) -> FleetConfig {
        fleet_of(self.replicas, profile)
    }
}
