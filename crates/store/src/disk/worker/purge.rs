//! Purges: what belongs to a tenant is forgotten for good first, then overwritten.
//!
//! A write under way would put back what was destroyed before its end. Where one holds records of
//! the tenant, its pages are destroyed again when it ends, and the purge is answered only then. A
//! crash in between brings nothing back, because the purge is noted before; it was not answered,
//! and another one destroys what is left.

use headstart_core::{BlockHash, TenantTag};

use super::{SegmentId, Worker};
use crate::backend::{CommandOutcome, Failure, Ticket};
use crate::disk::folder::destroy;

/// A purge that waits for writes.
pub(super) struct PendingPurge {
    ticket: Ticket,
    tenant: TenantTag,
    /// Records that were forgotten.
    count: usize,
    /// Groups with records of the tenant whose writes have not ended.
    groups: Vec<u64>,
    has_failed: bool,
}

impl Worker {
    /// Destroys what belongs to a tenant.
    pub(super) fn purge(&mut self, ticket: Ticket, tenant: TenantTag) {
        // Records on their way are not in the index yet.
        let on_their_way = self.writes.of_tenant(tenant);
        let theirs = self.index.iter().filter(|(_, place)| place.tenant == tenant);
        let theirs: Vec<BlockHash> = theirs.map(|(name, _)| name).collect();
        let names = on_their_way.into_iter().chain(theirs);
        let count = names.filter(|&name| self.forget(name)).count();
        // Beyond what is noted below.
        self.begin_anew();
        let (last, oldest) = self.space.sequences();
        // Noted before anything is destroyed: a crash in between must not bring records back.
        let noted = match &self.folder {
            Some(folder) => folder.note_purge(tenant, last, oldest).is_ok(),
            None => false,
        };
        // At once, whatever is being written: segments that are free lose their lists when they
        // are used again.
        let has_failed = !noted || self.destroy_all(tenant).is_err();
        let groups = self.writes.groups_being_written(tenant);
        let purge = PendingPurge { ticket, tenant, count, groups, has_failed };
        self.go_on_or_answer(purge);
    }

    /// The last write of a group ended, well or not: nothing can put its pages back any more.
    pub(super) fn destroy_written(&mut self, group: u64, segment: SegmentId) {
        for mut purge in std::mem::take(&mut self.purges) {
            if purge.groups.contains(&group) {
                purge.groups.retain(|&waits_for| waits_for != group);
                purge.has_failed |= self.destroy_in(segment, purge.tenant).is_err();
            }
            self.go_on_or_answer(purge);
        }
    }

    fn go_on_or_answer(&mut self, purge: PendingPurge) {
        if !purge.groups.is_empty() {
            return self.purges.push(purge);
        }
        let outcome = if purge.has_failed {
            // They cannot be read; whether their bytes are gone is not certain.
            CommandOutcome::Failed(Failure::Io)
        } else {
            CommandOutcome::Removed(purge.count)
        };
        self.done(purge.ticket, outcome);
    }

    /// Overwrites whatever was added for a tenant, also what was removed since.
    fn destroy_all(&mut self, tenant: TenantTag) -> std::io::Result<()> {
        // Segment by segment, so that each file is synced once.
        (0..self.space.count() as u32)
            .map(SegmentId)
            .try_for_each(|segment| self.destroy_in(segment, tenant))
    }

    fn destroy_in(&mut self, segment: SegmentId, tenant: TenantTag) -> std::io::Result<()> {
        let runs = self.index.of_tenant(segment, tenant);
        if runs.is_empty() {
            return Ok(());
        }
        let file = self.open_file(segment)?;
        for (page, pages) in runs {
            destroy(&file, page, pages)?;
        }
        file.sync_data()
    }
}
