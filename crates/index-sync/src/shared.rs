//! One index for several gateways, by way of a Redis or Valkey server.
//!
//! ```text
//!  engine ═ KV events ═► owner ─► its own index ─► answers
//!                          │ names: tokens and hashes become keyed digests
//!                          ▼
//!                 server: lease, log, base of each replica
//!                          │
//!                          ├─► another gateway's index ─► answers
//!                          └─► another gateway's index ─► answers
//! ```
//!
//! For each replica one gateway at a time, the *owner*, listens to the engine. It applies what it
//! hears to its own index and writes the same updates into the replica's *log* in the server; all
//! other gateways apply the log to theirs. So look-ups never leave the process and never wait,
//! and what events mean is decided by the one index that there is. Answers in the server itself
//! would cost each request a round trip under the router's lock, and a second implementation of
//! what an index is.
//!
//! | module | does |
//! |---|---|
//! | `names` | replaces what could be read back by keyed digests |
//! | `record` | entries of a log and their positions |
//! | `updates` | what this gateway hears itself: into its index, and to the others |
//! | `replica_role` | what this gateway is to a replica: owner, follower, or alone |
//! | `link` | the server's keys and scripts |
//! | `lease_manager` | the thread that holds leases and writes |
//! | `reader` | the thread that reads |
//! | `snapshot` | what a log adds up to, so that it can be short |
//! | `report` | how all that stands |
//!
//! **Guarantees.** A follower applies what the owner applied, in order and without holes: what it
//! confirms the owner confirmed, except for what is in flight. A new owner puts the replica in
//! doubt for all, in the same script that gives it the lease, listens to the engine from the start,
//! and so confirms what is still there. An owner whose lease is gone cannot write. A follower that
//! misses entries reads the base and the log again; where entries are missing there as well, what
//! came before is in doubt. So is all that others reported, while no gateway has the lease and
//! while the log cannot be read.
//!
//! **Without a server** nothing waits and nothing fails: after as long as a lease lasts every
//! gateway doubts what it heard from others, and listens to all engines itself, as gateways do
//! that share nothing. When the server is back, they share again.
//!
//! The server stores digests keyed with the index's secret, block sizes, tiers, times and the
//! replicas' addresses: no text and no token. A client that can write there can make requests go to
//! the wrong replica, which costs time and nothing else.
//!
//! It does not know the sockets of engines: their owner asks [`SharedIndex::listening`]. Source:
//! leases with fencing tokens as in Chubby and ZooKeeper, log and snapshot as in any replicated
//! state machine; llm-d keeps its index itself in Redis, one round trip per look-up.

mod config;
mod lease_manager;
mod link;
mod names;
mod reader;
mod record;
mod replica_role;
mod report;
mod snapshot;
mod updates;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headstart_core::event::BlockChange;
use headstart_core::{CacheEvent, Nanos, ReplicaId};
use headstart_router::index::{Overlaps, ResidentBlock, TierTokens, Update};
use headstart_router::{IndexStats, PrefixIndex, Prompt, PromptKeys};
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo};

pub use config::{SharedIndexConfig, SharedServer, Timeline, Timing};
pub use record::Position;
pub use report::{GatewayRole, RoleReport, SharedIndexStats};

use link::{ReplicaKeys, ServerLink};
use names::Pseudonymizer;
use replica_role::ReplicaRole;

/// Longest wait at the end for leases to be given back: otherwise the next owner waits until they
/// expire.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(2);

/// Why an index cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum SharedIndexError {
    /// The address is invalid.
    #[error("the shared index's address is not understood: {0}; the form is redis://HOST:PORT/DB")]
    Address(String),
    /// The server is there and will not do.
    #[error(
        "the server of the shared index at {address} refuses: {reason} (user, password, database \
         number? it must be Redis 6.2, Valkey 7.2 or newer)"
    )]
    Refused {
        /// Address of the server, without user and password.
        address: String,
        /// Reason that the server gave.
        reason: String,
    },
    /// Other gateways have another secret.
    #[error(
        "gateways that share an index at {address} use another --index-secret than this one; give \
         all of them the same, or this one another database number"
    )]
    OtherSecret {
        /// Address of the server.
        address: String,
    },
    /// The secret is drawn at the start.
    #[error("--shared-index needs --index-secret, the same for all gateways that share")]
    NoSecret,
    /// There are no upstreams.
    #[error("--shared-index is for gateways before the same --upstream engines")]
    Embedded,
    /// Two places to begin from.
    #[error("--shared-index keeps the index in its server; leave --state-dir out")]
    StateFolder,
    /// A thread cannot be started.
    #[error("cannot start a thread of the shared index: {0}")]
    Thread(#[from] std::io::Error),
}

/// A [`PrefixIndex`] that hears of replicas what any of several gateways hears.
pub struct SharedIndex {
    shared: Arc<SyncContext>,
}

/// State shared by the threads.
struct SyncContext {
    local: Arc<dyn PrefixIndex>,
    names: Pseudonymizer,
    timeline: Timeline,
    timing: Timing,
    client: Client,
    /// Without user and password.
    address: String,
    /// Key of what all gateways agree upon, and what we say.
    secret: (String, String),
    /// Tells this gateway from others.
    gateway: String,
    state: Mutex<SyncState>,
    changed: Condvar,
}

struct SyncState {
    seats: BTreeMap<ReplicaId, ReplicaRole>,
    /// When the steward's last whole round began: since then the server may have given our leases
    /// to others. None before the first, and without a connection at the start.
    renewed: Option<Instant>,
    /// When the reader got on last.
    read_at: Instant,
    /// Why it does not.
    read_error: String,
    /// It did not for as long as a lease lasts.
    is_stalled: bool,
    unsent_bytes: usize,
    /// Without the numbers of roles, which are counted when asked for.
    counts: SharedIndexStats,
    /// Something does not bear waiting for the next tick.
    is_urgent: bool,
    is_stopping: bool,
    has_left: bool,
}

impl SharedIndex {
    /// Shares the updates of `local`, which must have the configuration's identity and get no
    /// updates from elsewhere. Tries the server once, for as long as an answer may take; begins
    /// alone if it is not there. Blocks meanwhile.
    ///
    /// # Errors
    /// When the address is invalid, the server refuses, or its gateways have another secret.
    pub fn start(
        config: SharedIndexConfig,
        local: Arc<dyn PrefixIndex>,
        timeline: Timeline,
    ) -> Result<Self, SharedIndexError> {
        let shared = Arc::new(SyncContext::new(config, local, timeline)?);
        let link = match shared.open() {
            Ok(link) => {
                // Counts as a round, or the gateway would go alone before its first one.
                shared.lock().renewed = Some(Instant::now());
                Some(link)
            }
            Err(ConnectFailure::Outage(reason)) => {
                shared.note_loss(&reason);
                None
            }
            // At the start only: an operator sees it. Later it counts as an outage, and requests go
            // on.
            Err(ConnectFailure::Refused(error)) => return Err(error),
        };
        let steward = shared.clone();
        spawn("shared-index", move || lease_manager::run(&steward, link))?;
        let reader = shared.clone();
        spawn("shared-reader", move || reader::run(&reader))?;
        Ok(Self { shared })
    }

    /// Says whether this gateway can hear the replica's engine, and so may own it.
    pub fn set_candidate(&self, replica: ReplicaId, is_candidate: bool) {
        let mut state = self.shared.lock();
        let seat = state.seats.get_mut(&replica);
        if let Some(seat) = seat.filter(|seat| seat.is_candidate != is_candidate) {
            seat.is_candidate = is_candidate;
            state.is_urgent = true;
            self.shared.changed.notify_all();
        }
    }

    /// Whether to listen to the replica's engine: `None` for no, else a number that changes
    /// whenever listening must start over.
    #[must_use]
    pub fn listening(&self, replica: ReplicaId) -> Option<u64> {
        self.shared.note_outage();
        self.shared.lock().seats.get(&replica)?.listening()
    }

    /// Gives all leases back, so that others need not wait for their end. Blocks for
    /// two seconds at most. Nothing is shared any more.
    pub fn leave(&self) {
        let mut state = self.shared.lock();
        state.is_stopping = true;
        self.shared.changed.notify_all();
        let end = Instant::now() + LEAVE_TIME_MAX;
        // Every change wakes all waiters, so the condition is checked again each time.
        while !state.has_left {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for SharedIndex {
    /// The threads end by themselves.
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.changed.notify_all();
    }
}

impl PrefixIndex for SharedIndex {
    fn update(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        let shared = &self.shared;
        match update {
            // Each gateway's own, and on a request's way.
            Update::Assume(_) => shared.local.update(replica, update, now),
            Update::Track { block_size } => shared.track(replica, block_size, now),
            Update::Forget => shared.forget(replica, now),
            Update::Events(events) => {
                shared.heard(replica, events, now, &mut Vec::new());
            }
            Update::Doubt => shared.doubt(replica, now),
            Update::Trust => shared.trust(replica, now),
        }
    }

    fn update_and_tell(
        &self,
        replica: ReplicaId,
        events: &[CacheEvent],
        now: Nanos,
        changes: &mut Vec<BlockChange>,
    ) {
        self.shared.heard(replica, events, now, changes);
    }

    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys {
        // The local index is asked for its block shapes only. Its keys come from digests, not from
        // tokens.
        let nothing = Prompt { tokens: &[], ..prompt };
        let known = self.shared.local.hash(nothing);
        let shapes = known.chains().iter().map(|chain| chain.shape);
        let keys = self.shared.names.keys(prompt, shapes);
        if known.are_in_use() { keys } else { keys.past() }
    }

    fn overlaps(&self, prompt: &PromptKeys, now: Nanos, answer: &mut Overlaps) {
        self.shared.local.overlaps(prompt, now, answer);
    }

    fn tier_tokens(&self, prompt: &PromptKeys, replica: ReplicaId, now: Nanos) -> TierTokens {
        self.shared.local.tier_tokens(prompt, replica, now)
    }

    fn residents(&self, now: Nanos, visit: &mut dyn FnMut(ResidentBlock)) {
        self.shared.local.residents(now, visit);
    }

    fn stats(&self) -> IndexStats {
        self.shared.local.stats()
    }
}

/// Why there is no connection.
enum ConnectFailure {
    /// It may be there later.
    Outage(String),
    /// It will not do.
    Refused(SharedIndexError),
}

impl SyncContext {
    fn new(
        config: SharedIndexConfig,
        local: Arc<dyn PrefixIndex>,
        timeline: Timeline,
    ) -> Result<Self, SharedIndexError> {
        let wrong = |error: redis::RedisError| SharedIndexError::Address(error.to_string());
        let info = config.server.url.as_str().into_connection_info();
        // Small messages, each of which a thread waits for.
        let tcp = TcpSettings::default().set_nodelay(true);
        let info = info.map_err(wrong)?.set_tcp_settings(tcp);
        let client = Client::open(info).map_err(wrong)?;
        let identity =
            blake3::derive_key("headstart 2026 shared index v1", config.identity.as_bytes());
        let identity: String = identity[..8].iter().map(|b| format!("{b:02x}")).collect();
        // The secret's key is the same for all secrets: there gateways with different ones must
        // meet.
        let fleet = format!("headstart:index:v1:{}", config.model);
        let space = format!("{fleet}:{identity}");
        let seat = |(replica, name): (ReplicaId, String)| {
            (replica, ReplicaRole::new(ReplicaKeys::new(&space, &name)))
        };
        let state = SyncState {
            seats: config.replicas.into_iter().map(seat).collect(),
            renewed: None,
            read_at: Instant::now(),
            read_error: String::new(),
            is_stalled: false,
            unsent_bytes: 0,
            counts: SharedIndexStats::default(),
            // The first round must not wait for a tick.
            is_urgent: true,
            is_stopping: false,
            has_left: false,
        };
        let info = client.get_connection_info();
        let address = format!("{}/{}", info.addr(), info.redis_settings().db());
        let random: String =
            crate::random_key()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            local,
            names: Pseudonymizer::new(&config.identity),
            timeline,
            timing: config.server.timing,
            client,
            address,
            secret: (format!("{fleet}:secret"), identity),
            gateway: random,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to a server whose gateways have our secret.
    fn open(&self) -> Result<ServerLink, ConnectFailure> {
        let closed = |error: redis::RedisError| {
            if link::is_outage(&error) {
                ConnectFailure::Outage(link::reason(&error))
            } else {
                ConnectFailure::Refused(SharedIndexError::Refused {
                    address: self.address.clone(),
                    reason: error.to_string(),
                })
            }
        };
        let mut link = ServerLink::open(&self.client, self.timing).map_err(closed)?;
        let (key, ours) = &self.secret;
        let found = link.agree(key, ours).map_err(closed)?;
        // With another secret each would use keys of its own, and silently share nothing.
        if found != *ours {
            let address = self.address.clone();
            return Err(ConnectFailure::Refused(SharedIndexError::OtherSecret { address }));
        }
        Ok(link)
    }

    /// Counts a connection that failed or broke; says so once.
    fn note_loss(&self, reason: &str) {
        let counts = &mut self.lock().counts;
        counts.errors += 1;
        let was_connected = std::mem::take(&mut counts.is_connected);
        // A gateway that never had a connection must log its first failure, too.
        if was_connected || counts.errors == 1 {
            let address = &self.address;
            tracing::warn!(address, reason, "no server of the shared index; going on alone");
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(drop)
}
