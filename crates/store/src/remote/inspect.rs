//! Object storage, looked at by its listing and looked after, without the tier's loop.
//!
//! Others may use it meanwhile: what they delete while it is looked for is gone, and nothing worse.

use std::collections::HashMap;
use std::sync::Arc;

use headstart_core::{BlockHash, TenantTag};
use tokio::runtime::Runtime;

use super::index::ListedObject;
use super::key::ObjectKey;
use super::place::StoreLocation;
use super::store::Store;
use super::trouble::{Trouble, TroubleKind};
use super::{RemoteError, RemoteOptions, runtime};
use crate::arena::Slot;
use crate::inspect::{At, CleanupReport, Item, RecordReadError, RecordTally, Survey, Visit};
use crate::record::{Record, Wrong};

/// Records that are read at once.
const AT_ONCE: usize = 16;

/// Objects that are deleted by one call, as S3 takes them.
const DELETED_AT_ONCE: usize = 1_000;

/// Objects of a listing: some hundred bytes of memory each.
const MAX_OBJECTS: usize = 1 << 21;

/// Object storage that holds a context cache.
#[derive(Debug)]
pub struct StoreInspector {
    url: String,
    store: Arc<Store>,
    runtime: Runtime,
}

/// Contents of a listing, sorted.
struct SortedListing {
    /// One object for each name, oldest first.
    wanted: Vec<ListedObject>,
    expired: Vec<ListedObject>,
    /// Second objects of a name.
    replaced: Vec<ListedObject>,
    strangers: usize,
    is_whole: bool,
}

impl StoreInspector {
    /// Opens a store. Reaches it only where it is a folder, which must be there.
    ///
    /// # Errors
    /// When the store cannot be named or used.
    pub fn open(options: &RemoteOptions) -> Result<Self, RemoteError> {
        let place = StoreLocation::parse(&options.url)?;
        options.check(place.least_part_bytes())?;
        if let StoreLocation::Folder(folder) = &place
            && !folder.is_dir()
        {
            return Err(RemoteError::Folder {
                folder: folder.clone(),
                reason: "it is not there".to_owned(),
            });
        }
        let (objects, root) = place.open()?;
        let max_objects = options.max_objects.max(MAX_OBJECTS);
        let options = RemoteOptions { max_objects, ..options.clone() };
        Ok(Self {
            url: options.url.clone(),
            store: Store::new(objects, root, options),
            runtime: runtime()?,
        })
    }

    /// Surveys the store at `now_s`, seconds since 1970.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn survey(&self, now_s: u64) -> Result<Survey, RemoteError> {
        let sorted = self.listing(now_s)?;
        let (records, bytes) = self.runtime.block_on(self.store.count_quarantined());
        let item = |object: &ListedObject| Item {
            resident: object.key.resident(object.bytes),
            created_s: Some(object.modified_s),
            identity: None,
            exactness: None,
            at: At::Object,
        };
        Ok(Survey {
            harm: Vec::new(),
            items: sorted.wanted.iter().map(item).collect(),
            expired: tally(&sorted.expired),
            quarantined: RecordTally { records: records as u64, bytes },
            garbage: tally(&sorted.replaced),
            strangers: sorted.strangers,
            files: None,
            is_whole: sorted.is_whole,
        })
    }

    fn listing(&self, now_s: u64) -> Result<SortedListing, RemoteError> {
        let mut listing = self.ask(self.store.list())?;
        // The one that lasts longest stays, as in the tier's own index.
        listing.objects.sort_by_key(|object| object.key);
        let mut wanted: HashMap<BlockHash, ListedObject> = HashMap::new();
        let (mut expired, mut replaced) = (Vec::new(), Vec::new());
        for object in listing.objects {
            // Only the end in the name counts: an age limit is an option of the server.
            if object.key.expires_s().is_some_and(|at| at <= now_s) {
                expired.push(object);
            } else {
                // The keys ascend, so the object that is replaced ends earlier.
                replaced.extend(wanted.insert(object.key.name, object));
            }
        }
        let mut wanted: Vec<ListedObject> = wanted.into_values().collect();
        wanted.sort_by_key(|object| (object.modified_s, object.key));
        Ok(SortedListing {
            wanted,
            expired,
            replaced,
            strangers: listing.strangers,
            is_whole: listing.is_whole,
        })
    }

    /// Reads and verifies records, some at once.
    pub fn read(&self, items: &[Item], slot: &mut dyn FnMut() -> Slot, visit: &mut Visit<'_>) {
        // In chunks, which bound the slots that are in use at once.
        for items in items.chunks(AT_ONCE) {
            let reads = items.iter().map(|item| {
                let (store, slot) = (self.store.clone(), slot());
                let (key, bytes) = (ObjectKey::of_resident(&item.resident), item.resident.bytes);
                self.runtime.spawn(async move { store.get(key, bytes, slot).await })
            });
            let reads: Vec<_> = reads.collect();
            for (item, read) in items.iter().zip(reads) {
                let found = self.runtime.block_on(read);
                let given_up = |error: &dyn std::fmt::Display| {
                    Err(Trouble::new(TroubleKind::Refused, error.to_string()))
                };
                visit(item, record_of(found.unwrap_or_else(|error| given_up(&error))));
            }
        }
    }

    /// Moves damaged objects out of the way, and keeps some of them for inspection.
    ///
    /// # Errors
    /// When one cannot be deleted.
    pub fn set_aside(&self, items: &[(Item, Wrong)]) -> Result<(), RemoteError> {
        for (item, _) in items {
            let key = ObjectKey::of_resident(&item.resident);
            self.ask(self.store.set_aside(&key))?;
        }
        Ok(())
    }

    /// Deletes objects whose time is over, and second ones of a name.
    ///
    /// # Errors
    /// When the store does not let us.
    pub fn clear(&self, now_s: u64) -> Result<CleanupReport, RemoteError> {
        let sorted = self.listing(now_s)?;
        let objects = sorted.expired.iter().chain(&sorted.replaced);
        let keys: Vec<ObjectKey> = objects.map(|object| object.key).collect();
        for keys in keys.chunks(DELETED_AT_ONCE) {
            self.ask(self.store.delete(keys))?;
        }
        let (expired, garbage) = (tally(&sorted.expired), tally(&sorted.replaced));
        Ok(CleanupReport {
            expired,
            garbage,
            segments: 0,
            won_bytes: expired.bytes + garbage.bytes,
        })
    }

    /// Deletes all of a tenant, what was set aside included; how many objects.
    ///
    /// # Errors
    /// When the store does not let us.
    pub fn purge(&self, tenant: TenantTag) -> Result<u64, RemoteError> {
        Ok(self.ask(self.store.purge(tenant))? as u64)
    }

    /// Deletes all; how many objects.
    ///
    /// # Errors
    /// When the store does not let us.
    pub fn purge_all(&self) -> Result<u64, RemoteError> {
        let layout = &self.store.layout;
        let folders = [layout.records(), layout.quarantine()];
        Ok(self.ask(self.store.destroy(&folders))? as u64)
    }

    /// Waits for a request; one that fails was refused.
    fn ask<T>(&self, request: impl Future<Output = Result<T, Trouble>>) -> Result<T, RemoteError> {
        let answer = self.runtime.block_on(request);
        answer.map_err(|Trouble { text: reason, .. }| RemoteError::Refused {
            url: self.url.clone(),
            reason,
        })
    }
}

fn record_of(found: Result<Result<Record, Wrong>, Trouble>) -> Result<Record, RecordReadError> {
    match found {
        Ok(read) => read.map_err(RecordReadError::Wrong),
        Err(trouble) if trouble.kind == TroubleKind::Missing => Err(RecordReadError::Gone),
        // Longer than when it was listed, and than any record: it is not a record.
        Err(trouble) if trouble.kind == TroubleKind::TooLarge => {
            Err(RecordReadError::Wrong(Wrong::Misplaced))
        }
        Err(trouble) => Err(RecordReadError::Unreadable(trouble.text)),
    }
}

fn tally(objects: &[ListedObject]) -> RecordTally {
    let mut tally = RecordTally::default();
    objects.iter().for_each(|object| tally.add(object.bytes));
    tally
}
