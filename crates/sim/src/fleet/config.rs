//! Configuration of a fleet: what it has, what its clients want, and the faults that happen to it.

use std::time::Duration;

use headstart_cache::policy::{self, Setting};
use headstart_router::Profile;

use super::replica::ReplicaSpec;

/// A fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetConfig {
    /// Each of its engines.
    pub replicas: Vec<ReplicaSpec>,
    /// Gateways, which take requests in turn.
    pub gateways: usize,
    /// Eviction policy of the replicas, by name.
    pub policy: String,
    /// Routing profile of the gateways.
    pub profile: Profile,
    /// For all that is random.
    pub seed: u64,
    /// Network between gateways and replicas.
    pub network: Network,
    /// Pause between two rungs.
    pub pause: Duration,
    /// Latency objectives of the clients.
    pub slo: Slo,
    /// Faults during the run.
    pub faults: Vec<Fault>,
}

/// Network between gateways and replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Average time from a client's send to the router, and back from the replica's first token,
    /// together: tokenizing, proxies, connections, and clients that look up now and then. Uniformly
    /// distributed from 0 to twice as much; part of TTFT and of nothing else.
    pub request_latency: Duration,
    /// Time that events take to a gateway, and questions to a replica.
    pub event_delay: Duration,
    /// Share of the batches of events that never come, in `[0, 1]`.
    pub event_loss: f64,
    /// Batches that a replica keeps for replays.
    pub replay_batches: usize,
    /// Time between two looks at each replica's load.
    pub scrape: Duration,
    /// From a replica's death or return until gateways know of it.
    pub notice: Duration,
}

/// Latency objectives of a request; a good one meets both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// Longest TTFT, seconds.
    pub ttft_s: f64,
    /// Longest TPOT, seconds.
    pub tpot_s: f64,
}

/// Something that goes wrong, from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A replica's process dies, and another one with an empty cache takes its place.
    Crash {
        /// Index of the replica.
        replica: usize,
        /// Time from the start.
        at: Duration,
        /// Time until the replica serves again.
        down: Duration,
    },
    /// A gateway's process dies with all that it knows and all that goes through it.
    GatewayRestart {
        /// Index of the gateway.
        gateway: usize,
        /// Time from the start.
        at: Duration,
        /// Time until the gateway serves again.
        down: Duration,
    },
}

impl FleetConfig {
    /// Asserts that it is one.
    ///
    /// # Panics
    /// When there is no replica or no gateway, when scrapes take no time, when the policy has no
    /// such name, or when a fault names a replica or gateway that does not exist.
    pub fn check(&self) {
        assert!(!self.replicas.is_empty() && self.gateways > 0, "a fleet");
        assert!(self.network.scrape > Duration::ZERO, "scrapes take time");
        let policy = policy::by_name(&self.policy, Setting { capacity: 1, block_tokens: 1 });
        assert!(policy.is_ok(), "{}: no such policy", self.policy);
        for fault in &self.faults {
            let is_there = match *fault {
                Fault::Crash { replica, .. } => replica < self.replicas.len(),
                Fault::GatewayRestart { gateway, .. } => gateway < self.gateways,
            };
            assert!(is_there, "{fault:?}: no such replica or gateway");
        }
    }

    /// Whether all events arrive, so that no replay is needed.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        // Only then can a publisher keep a single batch.
        self.faults.is_empty() && self.network.event_loss <= 0.0
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            request_latency: Duration::ZERO,
            event_delay: Duration::from_millis(5),
            event_loss: 0.0,
            replay_batches: 10_000,
            scrape: Duration::from_millis(50),
            notice: Duration::from_secs(1),
        }
    }
}

impl Default for Slo {
    /// Two seconds to the first token, then ten tokens a second: no slower than one reads.
    fn default() -> Self {
        Self { ttft_s: 2.0, tpot_s: 0.1 }
    }
}
