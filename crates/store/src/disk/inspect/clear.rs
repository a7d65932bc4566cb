//! Clearing away what cannot be read any more, and destroying what must go.
//!
//! Nothing is moved, so that no disk wears for it. A segment with no wanted records is deleted. In
//! others the list is rewritten first, then the pages that it does not name are given back to the
//! file system. The file's length, which counts for the budget, stays. After a kill in between, an
//! incomplete list is rejected, and pages given back do not verify.

use std::fs::File;
use std::io;
use std::ops::Range;

use headstart_core::TenantTag;

use super::{FolderInspector, RecordState, SegmentView};
use crate::disk::folder::{DiskError, destroy, io_at, punch_hole};
use crate::disk::layout::{TableEntry, table_pages};
use crate::disk::recover::RecoveryVerdict;
use crate::disk::scan::{SegmentPages, set_aside, write_footer};
use crate::inspect::CleanupReport;
use crate::record::PAGE;

impl SegmentView {
    /// Splits its list into the entries to keep and those to remove.
    fn sorted(&self) -> (Vec<TableEntry>, Vec<TableEntry>) {
        let (stay, go): (Vec<_>, Vec<_>) = self.records().partition(|(_, state)| state.stays());
        let entries =
            |of: Vec<(TableEntry, RecordState)>| of.into_iter().map(|(entry, _)| entry).collect();
        (entries(stay), entries(go))
    }

    fn has_kept(&self) -> bool {
        self.states.contains(&RecordState::Kept)
    }

    /// Pages between a footer behind its last group and its last page: first page, number of pages.
    fn tail(&self, footer_pages: u32, pages: u32) -> (u32, u32) {
        // The last page holds the trailer and stays.
        let start = (self.contents.end + footer_pages).min(pages - 1);
        (start, pages - 1 - start)
    }
}

impl RecordState {
    /// Whether the record is left in place; damaged ones are, for later inspection.
    fn stays(self) -> bool {
        matches!(self, Self::Kept | Self::Dropped(RecoveryVerdict::Quarantined))
    }
}

impl FolderInspector {
    /// Deletes segments of which nothing can be read, and gives back the pages of what is not
    /// wanted in others.
    ///
    /// # Errors
    /// When a file cannot be changed.
    ///
    /// # Panics
    /// When the folder is not locked.
    pub fn clear(&self, now_s: u64) -> Result<CleanupReport, DiskError> {
        self.assert_ours();
        let views = self.views(now_s)?;
        let pages = (views.segment_bytes / PAGE as u64) as u32;
        let mut cleared = CleanupReport::default();
        for view in &views.segments {
            let before = self.allocated_bytes(view.id)?;
            for (entry, state) in view.records() {
                let bytes = entry.resident.bytes;
                match state {
                    RecordState::Dropped(RecoveryVerdict::Expired) => cleared.expired.add(bytes),
                    RecordState::Replaced | RecordState::Dropped(RecoveryVerdict::Purged) => {
                        cleared.garbage.add(bytes);
                    }
                    RecordState::Kept | RecordState::Dropped(_) => {}
                }
            }
            let path = self.folder.segment_path(view.id);
            self.note(view).map_err(io_at(self.folder.path()))?;
            let after = if view.has_kept() {
                self.shrink(view, pages).map_err(io_at(path))?;
                self.allocated_bytes(view.id)?
            } else {
                let removed = self.folder.remove_segment(view.id);
                removed.map_err(io_at(path))?;
                cleared.segments += 1;
                0
            };
            // A new footer may allocate more than was given back.
            cleared.won_bytes += before.saturating_sub(after);
        }
        Ok(cleared)
    }

    /// Notes what is damaged or hidden, before what shows it is gone.
    fn note(&self, view: &SegmentView) -> io::Result<()> {
        set_aside(&self.folder, view.sequence, &view.contents)
    }

    /// Gives back the pages of a segment that nothing will name.
    fn shrink(&self, view: &SegmentView, pages: u32) -> io::Result<()> {
        let (stay, go) = view.sorted();
        if !go.is_empty() || !view.contents.is_sealed() {
            let pages = SegmentPages { end: view.contents.end, all: pages };
            write_footer(&self.folder, view.id, view.sequence, &stay, pages)?;
        }
        let file = File::options().write(true).open(self.folder.segment_path(view.id))?;
        for entry in &go {
            give_back(&file, entry.page, entry.pages())?;
        }
        // Keeps the footer that is valid: the new one, or the old one if nothing was rewritten.
        let footer_pages = view.contents.footer_pages.max(table_pages(stay.len()) as u32);
        let (start, count) = view.tail(footer_pages, pages);
        give_back(&file, start, count)?;
        file.sync_data()
    }

    /// Destroys what belongs to a tenant: noted first, so that it is not read again whatever
    /// happens, then overwritten. Files that are no segments of this tier may hold some of it, and
    /// are deleted, as the next start would.
    ///
    /// # Errors
    /// When that is not possible.
    ///
    /// # Panics
    /// When the folder is not locked.
    pub fn purge(&self, tenant: TenantTag) -> Result<u64, DiskError> {
        self.assert_ours();
        // At time 0 nothing has expired, so expired records of the tenant count as removed, too.
        let views = self.views(0)?;
        let pages = (views.segment_bytes / PAGE as u64) as u32;
        // Without segments no earlier purge is dropped from the list.
        let oldest = views.segments.first().map_or(0, |view| view.sequence);
        let noted = self.folder.note_purge(tenant, views.last_sequence, oldest);
        noted.map_err(io_at(self.folder.path()))?;
        let mut count = 0;
        for view in &views.segments {
            let theirs = view.records().filter(|(entry, _)| entry.resident.tenant == tenant);
            let theirs: Vec<_> = theirs.collect();
            let kept = theirs.iter().filter(|(_, state)| *state == RecordState::Kept);
            count += kept.count() as u64;
            let theirs = theirs.iter().map(|(entry, _)| entry.page..entry.page + entry.pages());
            // Pages of unknown contents may be theirs.
            let theirs: Vec<_> = theirs.chain(view.contents.unknown.iter().cloned()).collect();
            let path = self.folder.segment_path(view.id);
            self.note(view).map_err(io_at(self.folder.path()))?;
            let destroyed = self.destroy(view, &theirs, pages);
            destroyed.map_err(io_at(path))?;
        }
        for &id in &views.unknown {
            let noted = self.folder.quarantine_segment(id);
            noted.map_err(io_at(self.folder.path()))?;
        }
        for id in views.strangers.into_iter().chain(views.unknown) {
            let removed = self.folder.remove_segment(id);
            removed.map_err(io_at(self.folder.segment_path(id)))?;
        }
        Ok(count)
    }

    /// Overwrites records, and what earlier lives of a segment have left behind its last group.
    fn destroy(&self, view: &SegmentView, theirs: &[Range<u32>], pages: u32) -> io::Result<()> {
        let file =
            File::options().read(true).write(true).open(self.folder.segment_path(view.id))?;
        for theirs in theirs {
            destroy(&file, theirs.start, theirs.end - theirs.start)?;
        }
        let (start, count) = view.tail(view.contents.footer_pages, pages);
        if count > 0 {
            destroy(&file, start, count)?;
        }
        file.sync_data()
    }

    /// Deletes all segments, and the lists of what was damaged and used last.
    ///
    /// # Errors
    /// When a file cannot be deleted.
    ///
    /// # Panics
    /// When the folder is not locked.
    pub fn purge_all(&self) -> Result<u64, DiskError> {
        self.assert_ours();
        let files = self.folder.segments().map_err(io_at(self.folder.path()))?;
        for &id in files.segments.keys() {
            let path = self.folder.segment_path(id);
            self.folder.remove_segment(id).map_err(io_at(path))?;
        }
        let forgotten = self.folder.forget_lists();
        forgotten.map_err(io_at(self.folder.path()))?;
        Ok(files.segments.len() as u64)
    }
}

/// Gives pages of a file back to the file system, where that is possible.
fn give_back(file: &File, page: u32, pages: u32) -> io::Result<()> {
    // The system refuses a hole without length.
    if pages == 0 {
        return Ok(());
    }
    // Where it is not, the system keeps them; nothing else is lost.
    punch_hole(file, page, pages).map(drop)
}
