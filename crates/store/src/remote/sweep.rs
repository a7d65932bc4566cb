//! Many objects at once: list them, delete them, destroy a tenant's, set a damaged one aside.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::StreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt};
use tokio::time::{Instant, timeout};

use headstart_core::TenantTag;

use super::index::{ListedObject, Listing};
use super::key::ObjectKey;
use super::stats::add;
use super::store::{Attempts, Store};
use super::trouble::{Trouble, TroubleKind};

/// Most objects that are set aside for inspection. Further ones are deleted.
const MAX_QUARANTINED: usize = 64;

/// Objects of a tenant that are listed before they are deleted.
const PURGED_AT_ONCE: usize = 10_000;

/// Longest time for destroying all of a tenant. What is left then is said to be.
const PURGE: Duration = Duration::from_secs(600);

impl Store {
    /// All records, or as many as may be.
    pub(super) async fn list(&self) -> Result<Listing, Trouble> {
        let until = Instant::now() + self.options.listing_timeout;
        let folder = self.layout.records();
        let mut attempts = Attempts::new(self, 0);
        loop {
            // Each attempt starts over: pages of two listings do not fit together.
            let mut listing = Listing::default();
            let walk = self.walk(&folder, until, |object| {
                match self.layout.parse(&object.location) {
                    Some(key) => listing.objects.push(ListedObject {
                        key,
                        bytes: object.size,
                        modified_s: u64::try_from(object.last_modified.timestamp()).unwrap_or(0),
                    }),
                    None => listing.strangers += 1,
                }
                // Strangers count as well, or a bucket full of them would be listed to its end.
                listing.objects.len() + listing.strangers < self.options.max_objects
            });
            match walk.await {
                Ok(is_whole) => {
                    listing.is_whole = is_whole;
                    self.stats.strangers.store(listing.strangers as u64, Relaxed);
                    add(&self.stats.listings, usize::from(is_whole));
                    return Ok(listing);
                }
                Err(trouble) => attempts.again(trouble).await?,
            }
        }
    }

    /// Counts what was set aside before; its objects, as far as they matter, and their bytes.
    pub(super) async fn count_quarantined(&self) -> (usize, u64) {
        let until = Instant::now() + self.options.request_timeout;
        let (mut found, mut bytes) = (0, 0);
        let folder = self.layout.quarantine();
        let walk = self.walk(&folder, until, |object| {
            found += 1;
            bytes += object.size;
            found < MAX_QUARANTINED
        });
        // Where it cannot be counted, some more are set aside than should be.
        let _ = walk.await;
        // A maximum, because records may have been set aside during the count.
        self.quarantined.fetch_max(found, Relaxed);
        (found, bytes)
    }

    /// Shows all objects under a prefix to `visit`, until it has seen enough. Whether that is all.
    async fn walk(
        &self,
        prefix: &Path,
        until: Instant,
        mut visit: impl FnMut(ObjectMeta) -> bool,
    ) -> Result<bool, Trouble> {
        let mut objects = self.objects.list(Some(prefix));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // Each answer has the limit of a request; the whole listing has `until`.
            let limit = self.options.request_timeout.min(left);
            match timeout(limit, objects.next()).await {
                Err(_) => {
                    let text = format!("listing {prefix}: no answer in {limit:?}");
                    return Err(Trouble::new(TroubleKind::Late, text));
                }
                Ok(None) => return Ok(true),
                Ok(Some(object)) => {
                    if !visit(object?) {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Deletes records; the number of those that are gone.
    pub(super) async fn delete(&self, keys: &[ObjectKey]) -> Result<usize, Trouble> {
        let objects = keys.iter().map(|key| self.layout.object(key));
        self.delete_objects(objects.collect()).await
    }

    async fn delete_objects(&self, mut left: Vec<Path>) -> Result<usize, Trouble> {
        let mut attempts = Attempts::new(self, 0);
        let num_objects = left.len();
        loop {
            let (gone, trouble) = self.delete_once(&attempts, &left).await;
            left.retain(|object| !gone.contains(object));
            add(&self.stats.deletes, gone.len());
            match trouble {
                None => return Ok(num_objects - left.len()),
                Some(trouble) => attempts.again(trouble).await?,
            }
        }
    }

    /// One attempt: what is gone now, and what went wrong with the others.
    async fn delete_once(
        &self,
        attempts: &Attempts<'_>,
        objects: &[Path],
    ) -> (HashSet<Path>, Option<Trouble>) {
        let mut gone = HashSet::new();
        let mut trouble = None;
        let wanted: Vec<object_store::Result<Path>> = objects.iter().cloned().map(Ok).collect();
        let mut answers = self.objects.delete_stream(futures::stream::iter(wanted).boxed());
        for asked in 0.. {
            let next = async { Ok::<_, Trouble>(answers.next().await) };
            match attempts.within(next).await {
                Err(late) => return (gone, Some(late)),
                Ok(None) => break,
                Ok(Some(Ok(object))) => drop(gone.insert(object)),
                // Stores that say so answer object by object, in order.
                Ok(Some(Err(Error::NotFound { .. }))) => gone.extend(objects.get(asked).cloned()),
                // The other answers still count. One error is enough for
                // another attempt at the rest.
                Ok(Some(Err(error))) => trouble = Some(error.into()),
            }
        }
        (gone, trouble)
    }

    /// Destroys all of a tenant, also what others wrote and what was set aside; how many objects.
    pub(super) async fn purge(&self, tenant: TenantTag) -> Result<usize, Trouble> {
        self.destroy(&self.layout.of_tenant(tenant)).await
    }

    /// Destroys all objects in some folders; how many.
    pub(super) async fn destroy(&self, folders: &[Path]) -> Result<usize, Trouble> {
        let until = Instant::now() + PURGE;
        let mut num_gone = 0;
        for folder in folders {
            let mut attempts = Attempts::new(self, 0);
            loop {
                let mut objects = Vec::new();
                let walk = self.walk(folder, until, |object| {
                    objects.push(object.location);
                    objects.len() < PURGED_AT_ONCE
                });
                match walk.await {
                    // Listed again until nothing is left: others may write while this deletes.
                    Ok(_) if objects.is_empty() => break,
                    Ok(_) => num_gone += self.delete_objects(objects).await?,
                    Err(trouble) => attempts.again(trouble).await?,
                }
                if Instant::now() >= until {
                    return Err(Trouble::new(TroubleKind::Late, "some of it is still there"));
                }
            }
        }
        Ok(num_gone)
    }

    /// Takes a damaged record out of the way.
    pub(super) async fn set_aside(&self, key: &ObjectKey) -> Result<(), Trouble> {
        let more = |count: usize| (count < MAX_QUARANTINED).then_some(count + 1);
        if self.quarantined.try_update(Relaxed, Relaxed, more).is_ok() {
            let (from, to) = (self.layout.object(key), self.layout.set_aside(key));
            // A failed copy is ignored: the object is deleted, so that no replica finds it again.
            let _ = self.retried(|| self.objects.copy(&from, &to)).await;
        }
        self.delete(&[*key]).await?;
        Ok(())
    }

    /// Whether the store answers at all.
    pub(super) async fn probe(&self) -> bool {
        let object = self.layout.probe();
        match timeout(self.options.request_timeout, self.objects.head(&object)).await {
            Ok(Ok(_)) => true,
            // `NotFound` is an answer as well: the object of the probe never exists.
            Ok(Err(error)) => !Trouble::from(error).kind.is_passing(),
            Err(_) => false,
        }
    }
}
