//! Index of the objects in the store: the last listing, with our own changes since.
//!
//! Decides what a new listing changes and which objects are too old or too many. Sends no request
//! and deletes nothing. Invariant: each name has one object, of several the one that lasts longest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use headstart_core::{BlockHash, TenantTag};

use super::key::ObjectKey;
use crate::backend::ResidentRecord;

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListedObject {
    pub(super) key: ObjectKey,
    pub(super) bytes: u64,
    /// Seconds since 1970, by the store's clock.
    pub(super) modified_s: u64,
}

/// Limits on stored objects.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ObjectLimits {
    /// Age from which on an object is not used, seconds.
    pub(super) ttl_s: Option<u64>,
    /// All objects together.
    pub(super) budget_bytes: Option<u64>,
}

/// Objects that the store named.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) objects: Vec<ListedObject>,
    /// Whether these are all.
    pub(super) is_whole: bool,
    /// Names that are not ours.
    pub(super) strangers: usize,
}

/// Changes since the previous listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// New ones, oldest first.
    pub(super) found: Vec<ResidentRecord>,
    /// No longer there, or no longer wanted because there are too many.
    pub(super) evicted: Vec<BlockHash>,
    /// Too old.
    pub(super) expired: Vec<BlockHash>,
    /// Objects to delete: too old, too many, or a second one of a name.
    pub(super) delete: Vec<ObjectKey>,
}

/// All objects we know of.
#[derive(Debug)]
pub(super) struct ObjectIndex {
    objects: HashMap<BlockHash, ListedObject>,
    limits: ObjectLimits,
}

impl ObjectIndex {
    pub(super) fn new(limits: ObjectLimits) -> Self {
        Self { objects: HashMap::new(), limits }
    }

    pub(super) fn get(&self, name: BlockHash) -> Option<ListedObject> {
        self.objects.get(&name).copied()
    }

    /// Adds an object, unless one of its name is there that lasts as long.
    pub(super) fn insert(&mut self, object: ListedObject) {
        let known = self.objects.entry(object.key.name).or_insert(object);
        // Of equal keys the later one is kept: it has the present length and time.
        if object.key >= known.key {
            *known = object;
        }
    }

    pub(super) fn remove(&mut self, name: BlockHash) -> Option<ListedObject> {
        self.objects.remove(&name)
    }

    /// Removes all of a tenant.
    pub(super) fn remove_tenant(&mut self, tenant: TenantTag) {
        self.objects.retain(|_, object| object.key.tenant != tenant);
    }

    /// From when on an object is not used, seconds since 1970.
    pub(super) fn expires_s(&self, object: &ListedObject) -> Option<u64> {
        let old = self.limits.ttl_s.map(|ttl| object.modified_s.saturating_add(ttl));
        [object.key.expires_s(), old].into_iter().flatten().min()
    }

    pub(super) fn is_expired(&self, object: &ListedObject, now_s: u64) -> bool {
        self.expires_s(object).is_some_and(|expires| expires <= now_s)
    }

    /// Takes over what the store named. Names that changed since it was asked, as `is_newer` says,
    /// stay as they are.
    pub(super) fn take(
        &mut self,
        listing: Listing,
        now_s: u64,
        is_newer: impl Fn(&ObjectKey) -> bool,
    ) -> Changes {
        let mut changes = Changes::default();
        let mut best: HashMap<BlockHash, ListedObject> =
            HashMap::with_capacity(listing.objects.len());
        let objects = listing.objects.into_iter();
        // Changed since the listing began, which may show the state before.
        for object in objects.filter(|object| !is_newer(&object.key)) {
            match best.entry(object.key.name) {
                Entry::Vacant(entry) => drop(entry.insert(object)),
                Entry::Occupied(mut entry) => {
                    let known = entry.get().key.max(object.key);
                    let second = entry.get().key.min(object.key);
                    if object.key == known {
                        entry.insert(object);
                    }
                    changes.delete.push(second);
                }
            }
        }
        // A listing that was cut short does not prove that an object is gone.
        if listing.is_whole {
            self.objects.retain(|name, object| {
                let stays = best.contains_key(name) || is_newer(&object.key);
                if !stays {
                    changes.evicted.push(*name);
                }
                stays
            });
        }
        let mut found = self.merge(best, now_s, &mut changes);
        self.shrink(&mut found, &mut changes);
        found.sort_by_key(|object| (object.modified_s, object.key));
        changes.found = found.iter().map(|object| self.resident(object)).collect();
        changes
    }

    /// Takes over one object for each name; returns those that are new.
    fn merge(
        &mut self,
        best: HashMap<BlockHash, ListedObject>,
        now_s: u64,
        changes: &mut Changes,
    ) -> Vec<ListedObject> {
        let mut found = Vec::new();
        for (name, object) in best {
            if self.is_expired(&object, now_s) {
                changes.delete.push(object.key);
                if self.objects.remove(&name).is_some() {
                    changes.expired.push(name);
                }
            } else if self.objects.insert(name, object).is_none() {
                found.push(object);
            }
        }
        found
    }

    /// Forgets the oldest until the rest is within the budget. Of `found`, too.
    fn shrink(&mut self, found: &mut Vec<ListedObject>, changes: &mut Changes) {
        let mut bytes: u64 = self.objects.values().map(|object| object.bytes).sum();
        let Some(budget) = self.limits.budget_bytes.filter(|&budget| bytes > budget) else {
            return;
        };
        let mut oldest: Vec<ListedObject> = self.objects.values().copied().collect();
        oldest.sort_by_key(|object| (object.modified_s, object.key));
        for object in oldest {
            if bytes <= budget {
                break;
            }
            bytes -= object.bytes;
            self.objects.remove(&object.key.name);
            changes.delete.push(object.key);
            changes.evicted.push(object.key.name);
        }
        // An object that is found and dropped at once was never
        // reported, so its loss is not reported either.
        let was_found: Vec<BlockHash> = found.iter().map(|object| object.key.name).collect();
        let was_found: std::collections::HashSet<BlockHash> = was_found.into_iter().collect();
        changes.evicted.retain(|name| !was_found.contains(name));
        found.retain(|object| self.objects.contains_key(&object.key.name));
    }

    fn resident(&self, object: &ListedObject) -> ResidentRecord {
        ResidentRecord { expires_s: self.expires_s(object), ..object.key.resident(object.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Content, Exactness, Meta};
    use headstart_core::IdentityDigest;

    fn object(name: u64, modified_s: u64, expires_s: Option<u64>) -> ListedObject {
        let key = ObjectKey::of(&Meta {
            name: BlockHash::from_u64(name),
            parent: None,
            identity: IdentityDigest([0; 16]),
            tenant: TenantTag(name % 2),
            tokens: 16,
            exactness: Exactness::Exact,
            content: Content::Unit,
            created_s: 0,
            expires_s,
        });
        ListedObject { key, bytes: 100, modified_s }
    }

    fn whole(objects: &[ListedObject]) -> Listing {
        Listing { objects: objects.to_vec(), is_whole: true, strangers: 0 }
    }

    fn names(residents: &[ResidentRecord]) -> Vec<u64> {
        let number = |resident: &ResidentRecord| u128::from_be_bytes(resident.name.0) as u64;
        residents.iter().map(number).collect()
    }

    fn hashes(names: &[u64]) -> Vec<BlockHash> {
        names.iter().map(|&name| BlockHash::from_u64(name)).collect()
    }

    #[test]
    fn new_objects_are_found_oldest_first_and_vanished_ones_are_lost() {
        let mut index = ObjectIndex::new(ObjectLimits::default());
        let listing = whole(&[object(1, 30, None), object(2, 10, None), object(3, 20, None)]);
        let changes = index.take(listing, 100, |_| false);
        assert_eq!(names(&changes.found), [2, 3, 1]);
        let listing = whole(&[object(1, 30, None), object(4, 40, None)]);
        let mut changes = index.take(listing, 100, |_| false);
        changes.evicted.sort();
        assert_eq!(names(&changes.found), [4]);
        assert_eq!(changes.evicted, hashes(&[2, 3]));
        assert!(changes.delete.is_empty() && changes.expired.is_empty());
    }

    #[test]
    fn a_part_of_a_listing_says_nothing_about_the_rest() {
        let mut index = ObjectIndex::new(ObjectLimits::default());
        index.insert(object(1, 0, None));
        let mut listing = whole(&[object(2, 0, None)]);
        listing.is_whole = false;
        let changes = index.take(listing, 100, |_| false);
        assert!(changes.evicted.is_empty());
        assert!(index.get(BlockHash::from_u64(1)).is_some());
    }

    #[test]
    fn what_changed_since_the_store_was_asked_stays() {
        let mut index = ObjectIndex::new(ObjectLimits::default());
        index.insert(object(1, 0, None));
        let changes = index.take(whole(&[object(2, 0, None)]), 100, |_| true);
        assert_eq!(changes, Changes::default());
        assert!(index.get(BlockHash::from_u64(1)).is_some());
        assert!(index.get(BlockHash::from_u64(2)).is_none());
    }

    #[test]
    fn of_two_objects_of_a_name_the_one_that_lasts_longer_stays() {
        for turn in [[0, 1], [1, 0]] {
            let both = [object(1, 0, Some(500)), object(1, 0, None)];
            let mut index = ObjectIndex::new(ObjectLimits::default());
            let changes = index.take(whole(&turn.map(|at| both[at])), 100, |_| false);
            assert_eq!(names(&changes.found), [1]);
            assert_eq!(changes.found[0].expires_s, None);
            assert_eq!(changes.delete, [both[0].key]);
        }
    }

    #[test]
    fn old_objects_are_deleted_by_their_own_end_and_by_age() {
        let mut index = ObjectIndex::new(ObjectLimits { ttl_s: Some(50), budget_bytes: None });
        index.insert(object(1, 60, None));
        let by_end = object(2, 90, Some(100));
        let listing = whole(&[object(1, 60, None), by_end, object(3, 61, None)]);
        let changes = index.take(listing, 110, |_| false);
        assert_eq!(names(&changes.found), [3]);
        assert_eq!(changes.found[0].expires_s, Some(111));
        assert_eq!(changes.expired, hashes(&[1]), "the other one was never known");
        assert_eq!(changes.delete.len(), 2);
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let mut index = ObjectIndex::new(ObjectLimits { ttl_s: None, budget_bytes: Some(250) });
        index.insert(object(1, 1, None));
        let objects: Vec<ListedObject> = (1..=4).map(|n| object(n, n, None)).collect();
        let changes = index.take(whole(&objects), 100, |_| false);
        assert_eq!(names(&changes.found), [3, 4]);
        assert_eq!(changes.evicted, hashes(&[1]), "the second was never known");
        assert_eq!(changes.delete, [objects[0].key, objects[1].key]);
    }

    #[test]
    fn a_tenant_goes_as_a_whole() {
        let mut index = ObjectIndex::new(ObjectLimits::default());
        (1..=4).for_each(|n| index.insert(object(n, n, None)));
        index.remove_tenant(TenantTag(1));
        let left = [1, 2, 3, 4].map(|n| index.get(BlockHash::from_u64(n)).is_some());
        assert_eq!(left, [false, true, false, true]);
    }
}
