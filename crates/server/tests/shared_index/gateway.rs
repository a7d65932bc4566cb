//! One gateway's shared index, by a clock that all gateways of a test have in common.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use headstart_core::{Nanos, ReplicaId};
use headstart_index_sync::shared::{
    GatewayRole, RoleReport, SharedIndex, SharedIndexConfig, SharedIndexError, SharedServer,
    Timeline, Timing,
};
use headstart_router::index::ledger::DepartedHandles;
use headstart_router::index::{Limits, Overlaps, PrefixIndex, ResidentBlock, TierTokens, Update};
use headstart_router::{IndexStats, Prompt, PromptKeys, RunIndex};

use crate::service::{eventually, eventually_about};

/// The secret is a part of it.
pub(crate) const IDENTITY: &str = "m 5eed";

/// Environment that all gateways of a test share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) url: String,
    pub(crate) model: String,
    pub(crate) replicas: u32,
    pub(crate) timing: Timing,
    now: Arc<AtomicU64>,
}

impl Common {
    /// Unlike all others of this process, even over the same server.
    pub(crate) fn new(url: String, replicas: u32) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        Self {
            url,
            model: format!("model-{number}"),
            replicas,
            timing: patient(),
            now: Arc::new(AtomicU64::new(0)),
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.now.load(Relaxed))
    }

    pub(crate) fn set_now(&self, now: Nanos) {
        self.now.fetch_max(now.0, Relaxed);
    }

    pub(crate) fn replicas(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..self.replicas).map(ReplicaId)
    }

    pub(crate) fn start(&self) -> Gateway {
        self.try_start(&self.url, IDENTITY).expect("it starts")
    }

    /// The same by another way to the server.
    pub(crate) fn start_at(&self, url: &str) -> Gateway {
        self.try_start(url, IDENTITY).expect("it starts")
    }

    pub(crate) fn try_start(&self, url: &str, identity: &str) -> Result<Gateway, SharedIndexError> {
        // The reference forgets no handle.
        let limits = Limits { min_departed: usize::MAX, ..Limits::default() };
        let local = Arc::new(RunIndex::with_limits(identity, limits));
        let index = self.share(url, identity, local.clone())?;
        Ok(Gateway { index, local, common: self.clone() })
    }

    pub(crate) fn share(
        &self,
        url: &str,
        identity: &str,
        local: Arc<dyn PrefixIndex>,
    ) -> Result<SharedIndex, SharedIndexError> {
        let name = |replica: ReplicaId| (replica, format!("tcp://engine-{replica}:5557"));
        let config = SharedIndexConfig {
            server: SharedServer { url: url.to_owned(), timing: self.timing },
            model: self.model.clone(),
            identity: identity.to_owned(),
            replicas: self.replicas().map(name).collect(),
        };
        let now = self.now.clone();
        let timeline = Timeline::common(move || Nanos(now.load(Relaxed)));
        SharedIndex::start(config, local, timeline)
    }
}

/// Limits under which nothing happens by itself; small bases, so that there are many.
fn patient() -> Timing {
    Timing {
        lease: Duration::from_secs(100),
        tick: Duration::from_millis(50),
        retry: Duration::from_millis(5),
        rebase_entries: 30,
        departed: DepartedHandles::Kept,
        ..Timing::default()
    }
}

/// Limits under which faults are found soon.
pub(crate) fn hasty() -> Timing {
    Timing {
        lease: Duration::from_millis(600),
        tick: Duration::from_millis(20),
        reply: Duration::from_millis(200),
        wait: Duration::from_millis(50),
        ..patient()
    }
}

pub(crate) struct Gateway {
    pub(crate) index: SharedIndex,
    pub(crate) local: Arc<RunIndex>,
    common: Common,
}

impl Gateway {
    /// As a router does at its start.
    pub(crate) fn track_all(&self) {
        for replica in self.common.replicas() {
            let block_size = Some(2);
            let now = self.common.now();
            self.index.update(replica, Update::Track { block_size }, now);
        }
    }

    pub(crate) fn run_for_all(&self, is_candidate: bool) {
        for replica in self.common.replicas() {
            self.index.set_candidate(replica, is_candidate);
        }
    }

    pub(crate) fn report(&self, replica: ReplicaId) -> RoleReport {
        self.index.report(replica).expect("a seat")
    }

    pub(crate) fn is(&self, role: GatewayRole) -> bool {
        self.common.replicas().all(|replica| self.report(replica).role == role)
    }

    pub(crate) fn becomes(&self, role: GatewayRole) {
        eventually(&format!("{role:?}"), || self.is(role));
    }

    /// Waits until this one follows all that `owner` wrote.
    pub(crate) fn follows(&self, owner: &Self) {
        for replica in self.common.replicas() {
            self.follows_one(owner, replica);
        }
    }

    pub(crate) fn follows_one(&self, owner: &Self, replica: ReplicaId) {
        let about = || {
            let reports = (owner.report(replica), self.report(replica));
            let stats = (owner.index.shared_stats(), self.index.shared_stats());
            format!("a log of replica {replica} that was read: {reports:?} {stats:?}")
        };
        eventually_about(about, || {
            let (owner, reader) = (owner.report(replica), self.report(replica));
            let is_sent = owner.role == GatewayRole::Owning && owner.unsent == 0;
            is_sent && reader.role == GatewayRole::Following && reader.position == owner.position
        });
    }

    pub(crate) fn residents(&self) -> BTreeSet<ResidentBlock> {
        residents(&self.index, self.common.now())
    }

    /// Leading tokens of `tokens` at `replica`: all of them, and those without doubt.
    pub(crate) fn overlap(&self, replica: ReplicaId, tokens: &[u32]) -> (usize, usize) {
        let prompt = Prompt { tokens, ..Prompt::default() };
        let mut answer = Overlaps::default();
        let keys = self.index.hash(prompt);
        self.index.overlaps(&keys, self.common.now(), &mut answer);
        let overlap = answer.of(replica);
        (overlap.any_tier_tokens as usize, overlap.trusted_tokens as usize)
    }
}

pub(crate) fn residents(index: &dyn PrefixIndex, now: Nanos) -> BTreeSet<ResidentBlock> {
    let mut residents = BTreeSet::new();
    index.residents(now, &mut |resident| {
        residents.insert(resident);
    });
    residents
}

impl PrefixIndex for Gateway {
    fn update(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        self.common.set_now(now);
        self.index.update(replica, update, now);
    }

    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys {
        self.index.hash(prompt)
    }

    fn overlaps(&self, prompt: &PromptKeys, now: Nanos, answer: &mut Overlaps) {
        self.index.overlaps(prompt, now, answer);
    }

    fn tier_tokens(&self, prompt: &PromptKeys, replica: ReplicaId, now: Nanos) -> TierTokens {
        self.index.tier_tokens(prompt, replica, now)
    }

    fn residents(&self, now: Nanos, visit: &mut dyn FnMut(ResidentBlock)) {
        self.index.residents(now, visit);
    }

    fn stats(&self) -> IndexStats {
        self.index.stats()
    }
}
