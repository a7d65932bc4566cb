//! Opening and sealing segments.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::{IoOperation, PAGE, Purpose, SegmentId, Worker};
use crate::backend::Failure;
use crate::disk::condition::failure_of;
use crate::disk::io::Buffer;
use crate::disk::layout::{
    SegmentHeader, TableEntry, TableKind, Trailer, table_pages, write_table,
};

/// Most files open at once, well below what a process may have (1024).
const OPEN_FILES: usize = 128;

/// Pause before another segment is opened after that failed.
const OPENING_PAUSE: Duration = Duration::from_secs(1);

/// The files, the segment that is written, the one after it, and those that end.
pub(super) struct SegmentFiles {
    files: Vec<Option<Arc<File>>>,
    /// Open files, the one opened first at the front.
    opened: VecDeque<SegmentId>,
    /// Files that exist.
    num_files: usize,
    pages: u32,
    pub(super) active: Option<Active>,
    pub(super) next: Option<NextSegment>,
    ending: Vec<Active>,
}

/// A segment that records are added to.
pub(super) struct Active {
    pub(super) segment: SegmentId,
    pub(super) sequence: u64,
    /// The first page that nothing was given yet.
    pub(super) page: u32,
    pub(super) entries: Vec<TableEntry>,
    pub(super) num_groups: u64,
    /// Groups that are not committed yet.
    pub(super) groups_under_way: usize,
    /// A group could not be written.
    pub(super) has_failed: bool,
}

/// The segment after the active one.
pub(super) struct NextSegment {
    segment: SegmentId,
    sequence: u64,
    /// Copies of its header that are not written yet.
    headers_left: usize,
    is_ready: bool,
}

impl SegmentFiles {
    pub(super) fn new(count: usize, pages: u32, num_files: usize) -> Self {
        Self {
            files: vec![None; count],
            opened: VecDeque::new(),
            num_files,
            pages,
            active: None,
            next: None,
            ending: Vec::new(),
        }
    }

    /// Pages of a segment.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// Bytes of a segment.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE as u64
    }

    pub(super) fn num_files(&self) -> usize {
        self.num_files
    }

    /// Keeps a file open, and closes the one that was opened first where there are too many; what
    /// is under way keeps its own.
    fn keep_open(&mut self, segment: SegmentId, file: Arc<File>) {
        self.files[segment.index()] = Some(file);
        self.opened.push_back(segment);
        if self.opened.len() > OPEN_FILES
            && let Some(first) = self.opened.pop_front()
        {
            self.files[first.index()] = None;
        }
    }

    /// Closes all files; what is under way keeps its own.
    fn close_all(&mut self) {
        self.opened.clear();
        self.files.fill(None);
    }

    /// Whether no segment is open any more.
    pub(super) fn is_closed(&self) -> bool {
        self.active.is_none() && self.ending.is_empty()
    }

    /// The open segment, active or ending, of this number.
    pub(super) fn open_mut(&mut self, segment: SegmentId) -> Option<&mut Active> {
        let open = self.active.iter_mut().chain(&mut self.ending);
        open.into_iter().find(|active| active.segment == segment)
    }
}

impl Active {
    /// Whether a group of `records` records with `pages` pages in total fits, including its two
    /// tables and the footer.
    pub(super) fn has_room(&self, records: usize, pages: usize, of: u32) -> bool {
        let footer = table_pages(self.entries.len() + records);
        // The last page is the trailer's, so the group has to end before it.
        let end = self.page as usize + 2 * table_pages(records) + pages + footer;
        end < of as usize
    }
}

/// Whether the process, or the system, has as many open files as it may.
fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl Worker {
    /// The file of a segment.
    pub(super) fn open_file(&mut self, segment: SegmentId) -> io::Result<Arc<File>> {
        if let Some(file) = &self.segments.files[segment.index()] {
            return Ok(file.clone());
        }
        let folder = self.folder.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let is_new = !folder.segment_path(segment).exists();
        let opened = match folder.open_segment(segment, self.segments.bytes()) {
            Err(error) if is_out_of_files(&error) => {
                // Others in the process may need descriptors as well: all of ours are closed, and
                // one more attempt is made.
                self.segments.close_all();
                folder.open_segment(segment, self.segments.bytes())
            }
            opened => opened,
        };
        let file = Arc::new(opened?);
        self.segments.num_files += usize::from(is_new);
        self.segments.keep_open(segment, file.clone());
        Ok(file)
    }

    /// Begins to open another segment unless one is being opened, or `keep` free ones would not be
    /// left behind.
    pub(super) fn open_next(&mut self, keep: usize) {
        let now = self.now();
        let is_refused = self.health.refuses_writes(now).is_some() || now < self.next_opening;
        if is_refused || self.segments.next.is_some() || self.space.num_free() <= keep {
            return;
        }
        let Some((segment, sequence)) = self.space.open() else {
            return;
        };
        // A free segment holds no wanted record, so its list starts empty.
        self.index.forget(segment);
        match self.headers(segment, sequence) {
            Ok(ops) => {
                self.segments.next = Some(NextSegment {
                    segment,
                    sequence,
                    headers_left: ops.len(),
                    is_ready: false,
                });
                for op in ops {
                    self.space.add_reader(segment);
                    self.start(Purpose::Header { segment }, op);
                }
            }
            Err(error) => {
                // Returns the segment to the free ones: nothing was added to it.
                self.space.seal(segment);
                let failure = failure_of(&error);
                if failure != Failure::Full {
                    return self.opening_failed(failure);
                }
                self.space.unmake(segment);
                if !self.space.can_go_on() {
                    return self.opening_failed(failure);
                }
                // The disk is smaller than the budget: continue with the existing segments.
                self.space.bar_unmade();
                // Each call bars at least one more segment, so the recursion ends.
                self.open_next(keep);
            }
        }
    }

    /// Returns the writes that begin a segment's new life: its header, and the copy in its last
    /// page.
    fn headers(&mut self, segment: SegmentId, sequence: u64) -> io::Result<Vec<IoOperation>> {
        let header = SegmentHeader { sequence, segment_bytes: self.segments.bytes() };
        let file = self.open_file(segment)?;
        let op = |at: u32| {
            let mut page = Buffer::pages(1)?;
            header.write(&mut page);
            Ok(IoOperation::Write {
                file: file.clone(),
                offset: u64::from(at) * PAGE as u64,
                pieces: vec![Buffer::Pages(page)],
            })
        };
        [0, self.segments.pages - 1].into_iter().map(op).collect()
    }

    /// Another segment cannot be opened. As long as one is active, that only costs time.
    fn opening_failed(&mut self, failure: Failure) {
        self.next_opening = self.now() + OPENING_PAUSE;
        if self.segments.active.is_none() {
            self.write_failed(failure);
        }
    }

    pub(super) fn wrote_header(
        &mut self,
        segment: SegmentId,
        op: IoOperation,
        result: io::Result<()>,
    ) {
        let next = self.segments.next.as_mut();
        let next = next.filter(|next| next.segment == segment);
        match (result, op, next) {
            (Ok(()), IoOperation::Write { file, .. }, Some(next)) => {
                next.headers_left -= 1;
                // Durable before anything that belongs to the new life is written.
                match next.headers_left {
                    // The last header leaves its reader to the commit, which `opened` ends.
                    0 => self.start(Purpose::HeaderCommit { segment }, IoOperation::Sync { file }),
                    _ => self.space.remove_reader(segment),
                }
            }
            (result, _, _) => self.opened(segment, result),
        }
    }

    pub(super) fn opened(&mut self, segment: SegmentId, result: io::Result<()>) {
        self.space.remove_reader(segment);
        let next = self.segments.next.as_mut();
        // `begin_anew` gave the segment up meanwhile, or its other header failed first.
        let Some(next) = next.filter(|next| next.segment == segment) else {
            return;
        };
        match result {
            Ok(()) => {
                next.is_ready = true;
                self.write_worked();
            }
            Err(error) => {
                self.segments.next = None;
                self.space.seal(segment);
                self.opening_failed(failure_of(&error));
            }
        }
    }

    /// Makes the next segment the active one, if it is ready.
    pub(super) fn activate_next(&mut self) -> bool {
        let Some(next) = self.segments.next.take_if(|next| next.is_ready) else {
            return false;
        };
        self.segments.active = Some(Active {
            segment: next.segment,
            sequence: next.sequence,
            page: 1,
            entries: Vec::new(),
            num_groups: 0,
            groups_under_way: 0,
            has_failed: false,
        });
        true
    }

    /// No more groups go to the active segment. Once its last one is committed it gets its footer.
    pub(super) fn end_active(&mut self) {
        if let Some(active) = self.segments.active.take() {
            self.segments.ending.push(active);
            self.seal_ended();
        }
    }

    /// The same without a footer, because something went wrong in it: at the next start it is read
    /// group by group.
    pub(super) fn abandon_active(&mut self) {
        if let Some(active) = self.segments.active.take() {
            self.space.seal(active.segment);
        }
    }

    /// Directs further additions to a segment whose life has not begun yet.
    pub(super) fn begin_anew(&mut self) {
        self.end_active();
        if let Some(next) = self.segments.next.take() {
            self.space.seal(next.segment);
        }
    }

    /// Ends the active segment when nothing waits to be added.
    pub(super) fn close_active(&mut self) {
        if self.writes.is_empty() && self.cleaning.is_none() {
            self.end_active();
            self.seal_ended();
        }
    }

    /// Seals those whose groups are all committed.
    pub(super) fn seal_ended(&mut self) {
        let ending = std::mem::take(&mut self.segments.ending);
        let (ended, ending): (Vec<_>, Vec<_>) =
            ending.into_iter().partition(|active| active.groups_under_way == 0);
        self.segments.ending = ending;
        for active in ended {
            // Without a footer the next start takes longer; nothing else is lost.
            if !active.has_failed {
                let _ = self.write_footer(&active);
            }
            self.space.seal(active.segment);
        }
    }

    /// Writes a segment's footer and trailer. Their order does not matter, and nothing waits for
    /// them: an incomplete footer does not verify.
    fn write_footer(&mut self, active: &Active) -> io::Result<()> {
        let file = self.open_file(active.segment)?;
        let footer_pages = table_pages(active.entries.len());
        let mut footer = Buffer::pages(footer_pages)?;
        write_table(
            TableKind::Footer,
            active.sequence,
            active.num_groups,
            &active.entries,
            &mut footer,
        );
        let mut last = Buffer::pages(1)?;
        let trailer = Trailer {
            sequence: active.sequence,
            footer_page: u64::from(active.page),
            footer_pages: footer_pages as u64,
        };
        trailer.write(&mut last);
        let last_page = self.segments.pages - 1;
        for (page, pages) in [(active.page, footer), (last_page, last)] {
            let op = IoOperation::Write {
                file: file.clone(),
                offset: u64::from(page) * PAGE as u64,
                pieces: vec![Buffer::Pages(pages)],
            };
            let segment = active.segment;
            // The segment may be free already. A new life must not start
            // before the old footer is written.
            self.space.add_reader(segment);
            self.start(Purpose::Footer { segment }, op);
        }
        Ok(())
    }
}
