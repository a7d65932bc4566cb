//! Requests of the loop's own: it checks if the store is back, lists it, and deletes expired,
//! damaged and excess records.

use std::collections::HashMap;
use std::hash::Hash;

use headstart_core::{BlockHash, TenantTag};
use tokio::time::Instant;

use super::{Newer, RequestPurpose, RequestResult, Service};
use crate::remote::key::ObjectKey;

/// Deletions of ours that wait. Further ones are found again by the next listing.
const MAX_SWEEPS: usize = 10_000;

/// Objects that one of our own deletions deletes, so that it does not last long: puts wait for it.
const SWEPT_AT_ONCE: usize = 1_000;

/// A deletion of ours.
pub(super) enum ObjectSweep {
    Delete(ObjectKey),
    SetAside(ObjectKey),
}

impl Service {
    /// Starts internal work: a probe, a listing, deletions.
    pub(super) fn start_ours(&mut self) {
        if let Some(at) = self.setup.health.probe_at() {
            if self.now() >= at && !self.is_probing {
                self.is_probing = true;
                let store = self.setup.store.clone();
                self.ask(RequestPurpose::Probe, async move {
                    RequestResult::Probed(store.probe().await)
                });
            }
            // Nothing else is tried while the store is gone.
            return;
        }
        if self.newer.is_none() && Instant::now() >= self.next_listing {
            // The listing may show puts and deletions under way or not, so
            // their names count as newer.
            self.newer = Some(Newer {
                names: self.puts.keys().chain(self.deleting.keys()).copied().collect(),
                tenants: self.purging.keys().copied().collect(),
            });
            let store = self.setup.store.clone();
            self.ask(
                RequestPurpose::List,
                async move { RequestResult::Listed(store.list().await) },
            );
        }
        if !self.is_sweeping {
            self.start_sweep();
        }
    }

    fn start_sweep(&mut self) {
        let Some(first) = self.sweeps.pop_front() else {
            return;
        };
        let mut keys = Vec::new();
        let store = self.setup.store.clone();
        let aside = match first {
            ObjectSweep::SetAside(key) => Some(key),
            ObjectSweep::Delete(key) => {
                keys.push(key);
                // A damaged object is taken alone, because it is copied before it is deleted.
                while let Some(ObjectSweep::Delete(key)) =
                    self.sweeps.pop_front_if(|next| matches!(next, ObjectSweep::Delete(_)))
                {
                    keys.push(key);
                    if keys.len() == SWEPT_AT_ONCE {
                        break;
                    }
                }
                None
            }
        };
        // One that was written again is new: the next listing decides about it.
        let index = &self.setup.index;
        keys.retain(|key| {
            let is_written = index.get(key.name).is_some_and(|known| known.key == *key);
            !is_written && !self.puts.contains_key(&key.name)
        });
        let mut names: Vec<BlockHash> = keys.iter().map(|key| key.name).collect();
        self.block(&names);
        // This name was blocked when the sweep was planned; the end of the request unblocks it.
        names.extend(aside.iter().map(|key| key.name));
        self.is_sweeping = true;
        self.ask(RequestPurpose::Sweep(names), async move {
            // What is still there will be listed again.
            let _ = match aside {
                Some(key) => store.set_aside(&key).await,
                None => store.delete(&keys).await.map(drop),
            };
            RequestResult::Swept
        });
    }

    /// Plans a deletion. What is damaged goes first, and puts of its name wait from now on: they
    /// would find it there.
    pub(super) fn sweep(&mut self, sweep: ObjectSweep) {
        if self.sweeps.len() >= MAX_SWEEPS {
            return;
        }
        match sweep {
            ObjectSweep::SetAside(key) => {
                self.block(&[key.name]);
                self.sweeps.push_front(sweep);
            }
            ObjectSweep::Delete(_) => self.sweeps.push_back(sweep),
        }
    }

    /// Puts of these wait until as many [`Self::unblock`] were called.
    pub(super) fn block(&mut self, names: &[BlockHash]) {
        for &name in names {
            *self.deleting.entry(name).or_insert(0) += 1;
        }
        self.outdate(names);
    }

    /// A listing under way says nothing about these any more.
    pub(super) fn outdate(&mut self, names: &[BlockHash]) {
        if let Some(newer) = &mut self.newer {
            newer.names.extend(names);
        }
    }

    pub(super) fn unblock(&mut self, names: &[BlockHash]) {
        names.iter().for_each(|&name| count_down(&mut self.deleting, name));
    }

    /// A purge ended: puts of the tenant wait for the others.
    pub(super) fn end_purging(&mut self, tenant: TenantTag) {
        count_down(&mut self.purging, tenant);
    }
}

/// Counts one less; what is counted down to nothing goes.
fn count_down<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    let count = counts.remove(&key).unwrap_or(0);
    if count > 1 {
        counts.insert(key, count - 1);
    }
}
