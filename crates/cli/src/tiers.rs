//! The lower tiers of `serve`: options made into decisions, memory and files.

mod budgets;
pub(crate) mod importance;
pub(crate) mod in_virtual_time;
mod location;
mod report;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use headstart_cache::Tiers;
use headstart_cache::policy::{self, Lru, Setting};
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, TiersConfig, WriteWhen,
};
use headstart_core::{BlockMover, CostModel, EngineModel, Tier};
use headstart_engine::ModelConfig;
use headstart_engine::kv::{Dtype, KvStorageFormat};
use headstart_server::config::TiersOf;
use headstart_server::learned_tables::LearnedTables;
use headstart_server::metrics::TierReport;
use headstart_server::replica::ReplicaWaker;
use headstart_store::backend::{Condition, no_waker};
use headstart_store::disk::{DiskStats, unix_seconds};
use headstart_store::record::Exactness;
use headstart_store::remote::{Remote, RemoteOptions, RemoteStats};
use headstart_store::shared::{OnCondition, Wakers};
use headstart_store::tiered::{Below, Lifetimes, StoreConfig};
use headstart_store::{Disk, DiskOptions, SharedBackend, TieredStore};

use crate::config::ServeOptions;
use crate::config::importance::wanted;
use crate::config::tenants::Tenant;
use crate::exit::{refuse, usage};
use importance::{LoadingBudgets, PartialLoading};
use location::ContextCacheLocation;
pub(crate) use location::learned_tables;
use report::report;

/// Tokens of a unit: what a hosted context cache stores at once.
pub const UNIT_TOKENS: usize = 64;

const GIB: f64 = (1u64 << 30) as f64;

/// Budget of the context cache where none is given, GiB.
pub(crate) const CONTEXT_CACHE_GIB: f64 = 10.0;

/// Time to live where none is given, hours.
const CONTEXT_CACHE_HOURS: f64 = 24.0;

/// Most host memory for what is on its way, bytes; at least the longest prompt fits all the same.
const STAGING_BYTES: usize = 256 << 20;

/// Assumed speed of host memory. All assumed speeds are used until they are measured.
const HOST: AssumedSpeed = AssumedSpeed { latency_s: 1e-5, bytes_per_s: 5e9 };
/// Assumed speed of a disk.
pub const DISK: AssumedSpeed = AssumedSpeed { latency_s: 1e-3, bytes_per_s: 1e9 };
/// Assumed speed of an object store.
const REMOTE: AssumedSpeed = AssumedSpeed { latency_s: 3e-2, bytes_per_s: 2e8 };

/// Chance of another use below which a policy that learns it does not write.
const LEAST_CHANCE: f64 = 0.1;

/// Most units that are known of a tier: some hundred bytes each, per replica.
const MOST_UNITS: usize = 1 << 22;

/// Seconds of a token until the first prompts were computed: a small model on a few cores.
const TOKEN_S: f64 = 1e-3;

/// Properties of the fleet that the tiers depend on.
pub(crate) struct FleetShape<'a> {
    pub(crate) model: &'a ModelConfig,
    /// Type of keys and values on the device.
    pub(crate) dtype: Dtype,
    /// Type of keys and values in the tiers.
    pub(crate) stored: KvStorageFormat,
    pub(crate) block_size: usize,
    /// Whether nothing is computed: then names are stored, and no bytes.
    pub(crate) is_emulated: bool,
}

/// State that all replicas share, once it is open.
struct SharedTierState {
    tier: Tier,
    shared: Arc<SharedBackend>,
    units: usize,
    assumed: AssumedSpeed,
    stats: Stats,
}

/// Counters of the tier below host memory.
#[derive(Clone)]
enum Stats {
    Disk(Arc<DiskStats>),
    Remote(Arc<RemoteStats>),
}

/// All that makes the tiers of any replica.
struct Recipe {
    opened: Mutex<Option<SharedTierState>>,
    place: ContextCacheLocation,
    budget_bytes: u64,
    store: StoreConfig,
    importance: Option<PartialLoading>,
    shares: Shares,
    most_at_hand: usize,
    block_size: usize,
    /// The policy of all tiers, if it learns from the ends of answers; else they have LRU.
    learned: Option<String>,
    /// Folder for what the policies have learned.
    tables: Option<PathBuf>,
}

/// The tiers that the options ask for, if they ask for any.
pub(crate) fn of(options: &ServeOptions, shape: &FleetShape<'_>) -> Result<Option<TiersOf>> {
    let Some(place) = &options.context_cache else {
        return refuse_without_place(options, shape.stored).map(|()| None);
    };
    // An emulated engine stores names without bytes, so there is nothing to round.
    if shape.is_emulated && shape.stored != KvStorageFormat::Same {
        return Err(usage(
            "--context-cache-dtype fp8 rounds keys and values, and --executor cost-model=FILE \
             computes none: leave one of them out",
        ));
    }
    budgets::check(options, place)?;
    let recipe = Arc::new(Recipe::new(options, place, shape)?);
    // A folder in use or without permission is reported now and not by the first replica.
    recipe.check().context("the context cache cannot be used (--context-cache)")?;
    let reporting = recipe.clone();
    let importance = recipe.importance.as_ref();
    Ok(Some(TiersOf {
        importance: importance.map(|importance| Arc::new(importance.engine())),
        // The error crosses into a crate without `anyhow`, so all causes go into one text.
        make: Arc::new(move |replica, waker| {
            let made = recipe.make(replica, waker);
            made.map_err(|error| format!("{error:#}"))
        }),
        reports: Arc::new(move || reporting.report().into_iter().collect()),
    }))
}

/// Refuses settings of a context cache without a place for it.
///
/// # Errors
/// Names the setting.
pub(crate) fn refuse_without_place(options: &ServeOptions, stored: KvStorageFormat) -> Result<()> {
    if options.context_cache.is_some() {
        return Ok(());
    }
    let settings = [
        ("--context-cache-gib", options.context_cache_gib.is_some()),
        ("--context-cache-hours", options.context_cache_hours.is_some()),
        ("--context-cache-tenant-gib", options.context_cache_tenant_gib.is_some()),
    ];
    refuse(&settings, |name| format!("{name} needs --context-cache DIR|URL"))?;
    // The setting would be accepted and ignored, and a user would believe the cache is in use.
    if wanted(options.importance.as_deref()).is_some() {
        return Err(usage(
            "--importance needs --context-cache DIR: it loads part of what is stored there",
        ));
    }
    match (options.host_cache_gib, stored) {
        (None, KvStorageFormat::Same) => Ok(()),
        (Some(_), _) => Err(usage("--host-cache-gib needs --context-cache DIR|URL")),
        (None, KvStorageFormat::Fp8) => Err(usage(
            "--context-cache-dtype fp8 says how keys and values are stored below the engine's \
             own memory, and nothing stores any: give --context-cache DIR|URL as well",
        )),
    }
}

fn positive(value: Option<f64>, default: f64, name: &str) -> Result<f64> {
    let value = value.unwrap_or(default);
    // The upper limit keeps the products in bytes within 64 bits.
    if value.is_finite() && value > 0.0 && value < 1e9 {
        Ok(value)
    } else {
        Err(usage(format!("{name} {value}: expected a number above 0")))
    }
}

impl Recipe {
    fn new(options: &ServeOptions, place: &str, shape: &FleetShape<'_>) -> Result<Self> {
        let gib = positive(options.context_cache_gib, CONTEXT_CACHE_GIB, "--context-cache-gib")?;
        let hours =
            positive(options.context_cache_hours, CONTEXT_CACHE_HOURS, "--context-cache-hours")?;
        let budget_bytes = (gib * GIB) as u64;
        let importance = importance_of(options, place, shape, budget_bytes)?;
        // Larger blocks than a unit make units of one block.
        let unit_blocks = (UNIT_TOKENS / shape.block_size).max(1);
        let layers = shape.model.num_layers;
        let stored = shape.stored;
        let layer_bytes = stored.layer_bytes(shape.model, shape.dtype, shape.block_size);
        let mut store = StoreConfig {
            // An emulated engine computes no keys and values: its records have a name only.
            part_bytes: if shape.is_emulated { Vec::new() } else { vec![layer_bytes; layers] },
            exactness: exactness(stored),
            unit_blocks,
            unit_tokens: (unit_blocks * shape.block_size) as u32,
            host_units: 0,
            staging_units: 0,
            lifetimes: lifetimes(hours, &options.tenants),
            now_s: unix_seconds,
            notes: None,
            parts: None,
        };
        if let Some(importance) = &importance {
            importance.set_store(&mut store);
        }
        let unit_bytes = store.unit_bytes() as usize;
        // By importance, parts stay in memory instead of units.
        if let Some(gib) = options.host_cache_gib.filter(|_| importance.is_none()) {
            let gib = positive(Some(gib), 0.0, "--host-cache-gib")?;
            store.host_units = (gib * GIB) as usize / unit_bytes;
        }
        // Budgets are whole units: a record is never stored in part.
        let units = |gib: f64| (gib * GIB) as usize / unit_bytes;
        let share = |tenant: &Tenant| Some((tenant.tag, units(tenant.gib?)));
        let tenant_gib = options.context_cache_tenant_gib;
        // Clap parses any number, so zero and NaN come this far.
        if let Some(gib) = tenant_gib {
            positive(Some(gib), 0.0, "--context-cache-tenant-gib")?;
        }
        let shares = Shares {
            each: tenant_gib.map(units),
            named: options.tenants.iter().filter_map(share).collect(),
        };
        // Parts are chosen by importance while a prompt is computed.
        let learns = importance.is_none() && policy::learns_ends(options.eviction_policy());
        let learned = learns.then(|| options.eviction_policy().to_owned());
        // A prompt may end within a unit, which takes a slot as well.
        let longest = shape.model.max_context / (unit_blocks * shape.block_size) + 1;
        // A single longest prompt must fit, or it could never be loaded.
        let most_at_hand = (STAGING_BYTES / unit_bytes).max(longest);
        // As much again for what is on its way down.
        store.staging_units = most_at_hand + most_at_hand.min(64);
        Ok(Self {
            opened: Mutex::new(None),
            place: ContextCacheLocation::of(place),
            budget_bytes,
            store,
            importance,
            shares,
            most_at_hand,
            block_size: shape.block_size,
            learned,
            tables: learned_tables(options),
        })
    }

    /// Checks that the cache can be used, before any replica starts. A folder is opened, and so is
    /// exclusively ours from now on; an object store may be unreachable.
    fn check(&self) -> Result<()> {
        match &self.place {
            ContextCacheLocation::Folder(_) => {
                let opened = self.open()?;
                // A panic of another thread leaves the state as it was, so the lock can be used.
                *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
            }
            ContextCacheLocation::Store(url) => {
                // Only the options are checked here: an object store may be reachable later.
                drop(Remote::open(&RemoteOptions::new(url), no_waker())?);
            }
        }
        Ok(())
    }

    fn disk(&self, folder: &Path) -> DiskOptions {
        DiskOptions::new(folder, self.budget_bytes)
    }

    /// Opens what all replicas share: the tier below host memory.
    fn open(&self) -> Result<SharedTierState> {
        let unit_bytes = self.store.unit_bytes();
        // Waking is set up before the backend opens, so no completion is missed.
        let wakers = Wakers::default();
        let waker = wakers.waker();
        let (tier, shared, units, assumed, stats) = match &self.place {
            ContextCacheLocation::Folder(folder) => {
                let (disk, found) = Disk::open(self.disk(folder), waker)?;
                // Packs take the rest of the budget, so units must not fill it.
                let share = self.importance.as_ref().map_or(1.0, PartialLoading::unit_share);
                let units = (disk.capacity_records(unit_bytes) as f64 * share) as usize;
                let stats = Stats::Disk(disk.stats().clone());
                let shared = SharedBackend::new(Box::new(disk), found, wakers, self.log());
                (Tier::Disk, shared, units, DISK, stats)
            }
            ContextCacheLocation::Store(url) => {
                let mut options = RemoteOptions::new(url);
                options.budget_bytes = Some(self.budget_bytes);
                let (remote, found) = Remote::open(&options, waker)?;
                let stats = Stats::Remote(remote.stats());
                let shared = SharedBackend::new(Box::new(remote), found, wakers, self.log());
                let units = (self.budget_bytes / unit_bytes) as usize;
                (Tier::Remote, shared, units, REMOTE, stats)
            }
        };
        // A budget below one unit could store nothing.
        if units == 0 {
            anyhow::bail!(
                "the context cache has no room for a unit of {unit_bytes} bytes: raise \
                 --context-cache-gib"
            );
        }
        // Names of units are in memory, whatever the budget on the disk allows.
        let units = units.min(MOST_UNITS);
        Ok(SharedTierState { tier, shared, units, assumed, stats })
    }

    /// Returns the report of the tier below host memory, once it is open.
    fn report(&self) -> Option<TierReport> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.as_ref()?;
        Some(report(opened.tier, &opened.stats, opened.shared.status()))
    }

    /// Says once when the context cache works worse, and when it is well again.
    fn log(&self) -> OnCondition {
        let place = match &self.place {
            ContextCacheLocation::Folder(folder) => folder.display().to_string(),
            ContextCacheLocation::Store(url) => url.clone(),
        };
        Box::new(move |condition| match condition {
            // As loud as what it ends.
            Condition::Well => tracing::warn!(place, "the context cache works again"),
            Condition::WritesFail(failure) => tracing::warn!(
                place,
                %failure,
                "the context cache stores nothing for now; what is there can be read"
            ),
            Condition::Gone(failure) => tracing::warn!(
                place,
                %failure,
                "the context cache is gone for now; prompts are computed"
            ),
        })
    }

    /// Returns the configuration common to the tiers of all replicas.
    fn config(&self, engine: EngineModel) -> TiersConfig {
        let importance = self.importance.as_ref();
        TiersConfig {
            unit_blocks: self.store.unit_blocks,
            block_tokens: self.block_size,
            unit_bytes: self.store.unit_bytes(),
            most_at_hand: self.most_at_hand,
            engine,
            load: importance.map_or(LoadWhen::Faster, PartialLoading::load),
        }
    }

    /// A tier under the policy of all tiers.
    fn tier(
        &self,
        which: Tier,
        capacity_units: usize,
        assumed: AssumedSpeed,
        shares: Shares,
    ) -> Result<TierConfig> {
        let lru = tier(which, capacity_units, assumed, shares);
        let Some(learned) = &self.learned else {
            return Ok(lru);
        };
        let block_tokens = (self.store.unit_blocks * self.block_size) as u32;
        let setting = Setting { capacity: capacity_units, block_tokens };
        let policy = policy::by_name(learned, setting).map_err(usage)?;
        // It knows how an answer ended only then. Both tiers are written, so that a restart finds
        // what was in host memory.
        let (admission, write) = (Admission::Likely { chance: LEAST_CHANCE }, WriteWhen::AtEnd);
        Ok(TierConfig { policy, admission, write, ..lru })
    }

    fn make(&self, replica: u32, waker: ReplicaWaker) -> Result<(Tiers, Box<dyn BlockMover>)> {
        // The first replica opens the tier while the lock is held, so no second one opens it.
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match &mut *opened {
            Some(opened) => opened,
            // A folder is open already; an object store is opened by the first replica.
            none => none.insert(self.open()?),
        };
        let (member, found) = opened.shared.join(waker.clone());
        let below = Below { tier: opened.tier, backend: Box::new(member), found };
        let mut tiers = Vec::new();
        // Tiers are in order from the nearest, and loading looks in that order.
        if self.store.host_units > 0 {
            let shares = Shares::default();
            tiers.push(self.tier(Tier::Host, self.store.host_units, HOST, shares)?);
        }
        let shares = self.shares.clone();
        tiers.push(self.tier(opened.tier, opened.units, opened.assumed, shares)?);
        if let Some(folder) = &self.tables {
            let tables = LearnedTables::new(folder, replica);
            tiers.iter_mut().for_each(|tier| tables.restore(&mut *tier.policy, tier.tier));
        }
        let config = self.config(unknown_engine());
        let mut store = self.store.clone();
        if let ContextCacheLocation::Folder(folder) = &self.place {
            // Names of one kind say nothing to a server of the other.
            let name = match store.exactness {
                Exactness::Exact => format!("notes-{replica}"),
                Exactness::Lossy => format!("notes-lossy-{replica}"),
            };
            store.notes = Some(folder.join(name));
        }
        let store = TieredStore::new(store, vec![below], waker)?;
        Ok((Tiers::new(config, tiers), Box::new(store)))
    }
}

/// Builds the settings of loading by importance, if it is on.
fn importance_of(
    options: &ServeOptions,
    place: &str,
    shape: &FleetShape<'_>,
    budget_bytes: u64,
) -> Result<Option<PartialLoading>> {
    let Some(text) = wanted(options.importance.as_deref()) else {
        return Ok(None);
    };
    if place.contains("://") {
        return Err(usage(
            "--importance reads parts of what is stored, in a folder: give --context-cache DIR \
             instead of a URL",
        ));
    }
    let kept_gib = match options.host_cache_gib {
        Some(gib) => positive(Some(gib), 0.0, "--host-cache-gib")?,
        None => 0.0,
    };
    let kept_bytes = (kept_gib * GIB) as u64;
    PartialLoading::new(text, shape, LoadingBudgets { cache_bytes: budget_bytes, kept_bytes })
        .map(Some)
}

/// Returns the exactness of records of this kind.
pub fn exactness(stored: KvStorageFormat) -> Exactness {
    match stored {
        KvStorageFormat::Same => Exactness::Exact,
        KvStorageFormat::Fp8 => Exactness::Lossy,
    }
}

/// Returns the lifetimes of tenants' records; `hours` is the default.
fn lifetimes(hours: f64, tenants: &[Tenant]) -> Lifetimes {
    let seconds = |hours: f64| (hours * 3_600.0) as u64;
    let named = |tenant: &Tenant| Some((tenant.tag, seconds(tenant.hours?)));
    Lifetimes { each_s: Some(seconds(hours)), named_s: tenants.iter().filter_map(named).collect() }
}

/// A tier that takes every unit and evicts the least recently used one.
pub fn tier(
    tier: Tier,
    capacity_units: usize,
    assumed: AssumedSpeed,
    shares: Shares,
) -> TierConfig {
    TierConfig {
        tier,
        capacity_units,
        policy: Box::new(Lru::new(capacity_units)),
        admission: Admission::Always,
        write: WriteWhen::Through,
        shares,
        assumed,
    }
}

/// An engine of which nothing was measured yet.
pub fn unknown_engine() -> EngineModel {
    // Until steps were measured, the plan needs some cost to compare a load with.
    EngineModel {
        cost: CostModel {
            overhead_s: 1e-3,
            weights_s: 0.0,
            token_s: TOKEN_S,
            pair_s: 0.0,
            kv_token_s: 0.0,
            sequence_s: 0.0,
        },
        max_batched_tokens: 512,
        kv_tokens: 0,
        load_token_s: 0.0,
    }
}
