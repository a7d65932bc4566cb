//! Moves records between a backend and *rows*: equal pieces of memory that another program owns.
//!
//! ```text
//! store  row ──copy, checksum──► slot ──► backend      the row is read at once, then never again
//! load   backend ──► slot ──verify──► row              the row is written at once, or never
//! ```
//!
//! The owner leaves the rows of a job as they are until the job is reported. A row is read or
//! written inside [`RowTransfers::advance`] alone, and only for a job that has not been reported: a
//! late answer of the backend lands in a slot, and nowhere else. So a job may be given up at any
//! time; one that is older than [`JOB_LIMIT`] is.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_core::{BlockHash, IdentityDigest, TenantTag};

use crate::arena::Arena;
use crate::backend::{Backend, Command, CommandOutcome, Failure, Report, Ticket};
use crate::disk::unix_seconds;
use crate::record::{Content, Draft, Exactness, Meta, Record};

/// The longest time for a job. A disk that hangs must not hold a request for ever.
pub const JOB_LIMIT: Duration = Duration::from_secs(30);

/// Memory of another program, in equal rows.
pub trait Rows {
    /// Bytes of a row.
    fn row_bytes(&self) -> usize;

    /// Copies a row to `into`, which is as long.
    fn read(&self, row: usize, into: &mut [u8]);

    /// Copies `from`, which is as long, to a row.
    fn write(&mut self, row: usize, from: &[u8]);
}

/// The direction of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowJobKind {
    /// From rows to records.
    Store,
    /// From records to rows.
    Load,
}

/// Records to move; each has one row.
#[derive(Clone, Debug)]
pub struct RowJob {
    /// Its id, which no other job has before this one is reported.
    pub id: u64,
    /// Its direction.
    pub kind: RowJobKind,
    /// Its records, in the order in which they are moved.
    pub records: Vec<RowRecord>,
}

/// One record of a job.
#[derive(Clone, Copy, Debug)]
pub struct RowRecord {
    /// Its name.
    pub name: BlockHash,
    /// The record before it in the prompt; `None` at the start, or where that is not known.
    pub parent: Option<BlockHash>,
    /// Its row.
    pub row: usize,
}

/// Something that happened.
#[derive(Debug)]
pub enum RowReport {
    /// A job has ended.
    Done(EndedJob),
    /// Records that no command removed, and that cannot be read any more.
    Lost(Vec<BlockHash>),
    /// Reports of the backend that concern no job.
    Other(Report),
}

/// A job that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedJob {
    /// Its id.
    pub id: u64,
    /// Records that were not moved, and why.
    pub failed: Vec<(BlockHash, MoveFailure)>,
    /// Bytes that were moved.
    pub bytes: u64,
    /// From its begin to its end.
    pub elapsed: Duration,
}

/// Why a record was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveFailure {
    /// The backend does not have it.
    #[error("it is not there")]
    Missing,
    /// It was made by another model, or by one with another layout.
    #[error("it has another identity or length")]
    Foreign,
    /// The backend says why.
    #[error("{0}")]
    Backend(Failure),
    /// It was not moved in time, or given up.
    #[error("it was given up")]
    GivenUp,
}

/// Transfers between one backend and the rows of one program.
///
/// Cost: a copy and a checksum of each record, on the thread that calls [`Self::advance`].
pub struct RowTransfers<R> {
    backend: Box<dyn Backend>,
    arena: Arc<Arena>,
    rows: R,
    identity: IdentityDigest,
    jobs: HashMap<u64, RunningJob>,
    /// Records that wait for a slot.
    queue: VecDeque<RowMove>,
    /// A command that the backend had no room for.
    refused: Option<Command>,
    running: HashMap<Ticket, RowMove>,
    next_ticket: u64,
    reports: Vec<Report>,
}

struct RunningJob {
    began: Instant,
    left: usize,
    ended: EndedJob,
}

#[derive(Clone, Copy)]
struct RowMove {
    job: u64,
    kind: RowJobKind,
    record: RowRecord,
}

impl<R: Rows> RowTransfers<R> {
    /// Nothing is under way. Records have the identity `identity`; a slot of `arena` must have room
    /// for a record of one row ([`crate::record::record_bytes`]).
    #[must_use]
    pub fn new(
        backend: Box<dyn Backend>,
        arena: Arc<Arena>,
        rows: R,
        identity: IdentityDigest,
    ) -> Self {
        Self {
            backend,
            arena,
            rows,
            identity,
            jobs: HashMap::new(),
            queue: VecDeque::new(),
            refused: None,
            running: HashMap::new(),
            next_ticket: 0,
            reports: Vec::new(),
        }
    }

    /// Whether jobs have not ended.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Queues a job. It begins with the next [`Self::advance`].
    pub fn submit(&mut self, job: RowJob, now: Instant) {
        let RowJob { id, kind, records } = job;
        let ended = EndedJob { id, failed: Vec::new(), bytes: 0, elapsed: Duration::ZERO };
        self.jobs.insert(id, RunningJob { began: now, left: records.len(), ended });
        self.queue.extend(records.into_iter().map(|record| RowMove { job: id, kind, record }));
    }

    /// Forgets records. Those that a job loads now may still be loaded.
    pub fn remove(&mut self, names: Vec<BlockHash>) {
        let ticket = self.ticket();
        // Behind one that was refused, so that commands keep their order.
        self.submit_refused();
        let command = Command::Remove { ticket, names };
        if self.refused.is_some() || self.backend.submit(command).is_err() {
            // They stay on the disk until it needs their room, and nothing asks for them.
        }
    }

    /// Moves what can be moved now, and adds what has happened to `out`. Does not wait.
    pub fn advance(&mut self, now: Instant, out: &mut Vec<RowReport>) {
        self.take_reports(now, out);
        self.begin_steps();
        self.end_jobs(now, out);
    }

    /// Ends all jobs: what has not been moved will not be.
    pub fn give_up(&mut self, now: Instant, out: &mut Vec<RowReport>) {
        let jobs: Vec<u64> = self.jobs.keys().copied().collect();
        jobs.into_iter().for_each(|job| self.give_up_job(job));
        self.end_jobs(now, out);
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn take_reports(&mut self, now: Instant, out: &mut Vec<RowReport>) {
        let mut reports = std::mem::take(&mut self.reports);
        self.backend.poll(&mut reports);
        for report in reports.drain(..) {
            match report {
                Report::Done { ticket, outcome } => {
                    // Removals have no step, nor has a job that was given up.
                    if let Some(step) = self.running.remove(&ticket) {
                        let moved = self.moved(&step, outcome);
                        self.end_step(&step, moved);
                    }
                }
                Report::Lost { names, .. } => out.push(RowReport::Lost(names)),
                other => out.push(RowReport::Other(other)),
            }
        }
        self.reports = reports;
        let late: Vec<u64> = self
            .jobs
            .iter()
            .filter(|(_, job)| now.duration_since(job.began) > JOB_LIMIT)
            .map(|(&id, _)| id)
            .collect();
        late.into_iter().for_each(|job| self.give_up_job(job));
    }

    /// The outcome of a step whose job runs. Writes the row of a load that worked.
    fn moved(&mut self, step: &RowMove, outcome: CommandOutcome) -> Result<(), MoveFailure> {
        match outcome {
            CommandOutcome::Stored => Ok(()),
            CommandOutcome::Loaded(record) if self.is_ours(&record) => {
                self.rows.write(step.record.row, record.part(0));
                Ok(())
            }
            CommandOutcome::Loaded(_) => Err(MoveFailure::Foreign),
            CommandOutcome::Failed(failure) => Err(MoveFailure::Backend(failure)),
            CommandOutcome::Missing | CommandOutcome::Part(_) | CommandOutcome::Removed(_) => {
                Err(MoveFailure::Missing)
            }
        }
    }

    fn is_ours(&self, record: &Record) -> bool {
        record.meta().identity == self.identity
            && record.num_parts() == 1
            && record.part(0).len() == self.rows.row_bytes()
    }

    fn end_step(&mut self, step: &RowMove, moved: Result<(), MoveFailure>) {
        let Some(job) = self.jobs.get_mut(&step.job) else {
            return;
        };
        job.left -= 1;
        match moved {
            Ok(()) => job.ended.bytes += self.rows.row_bytes() as u64,
            Err(failure) => job.ended.failed.push((step.record.name, failure)),
        }
    }

    fn give_up_job(&mut self, job: u64) {
        let is_of = |step: &RowMove| step.job == job;
        let waiting = self.queue.iter().filter(|step| is_of(step));
        let running = self.running.values().filter(|step| is_of(step));
        let steps: Vec<RowMove> = waiting.chain(running).copied().collect();
        self.queue.retain(|step| !is_of(step));
        self.running.retain(|_, step| !is_of(step));
        for step in steps {
            self.end_step(&step, Err(MoveFailure::GivenUp));
        }
    }

    fn submit_refused(&mut self) {
        if let Some(command) = self.refused.take() {
            self.refused = self.backend.submit(command).err();
        }
    }

    fn begin_steps(&mut self) {
        self.submit_refused();
        while self.refused.is_none()
            && let Some(&step) = self.queue.front()
            && let Some(slot) = self.arena.take()
        {
            self.queue.pop_front();
            let (ticket, name) = (self.ticket(), step.record.name);
            let command = match step.kind {
                RowJobKind::Load => Command::Get { ticket, name, slot },
                RowJobKind::Store => {
                    let meta = self.meta(&step.record);
                    let row_bytes = self.rows.row_bytes();
                    let Some(mut draft) = Draft::new(slot, meta, &[row_bytes]) else {
                        let failure = MoveFailure::Backend(Failure::TooLarge);
                        self.end_step(&step, Err(failure));
                        continue;
                    };
                    self.rows.read(step.record.row, draft.part_mut(0));
                    Command::Put { ticket, record: draft.seal() }
                }
            };
            self.running.insert(ticket, step);
            self.refused = self.backend.submit(command).err();
        }
    }

    fn meta(&self, record: &RowRecord) -> Meta {
        Meta {
            name: record.name,
            parent: record.parent,
            identity: self.identity,
            tenant: TenantTag::default(),
            // The owner of the rows does not say.
            tokens: 0,
            exactness: Exactness::Exact,
            content: Content::Unit,
            created_s: unix_seconds(),
            expires_s: None,
        }
    }

    fn end_jobs(&mut self, now: Instant, out: &mut Vec<RowReport>) {
        let ended: Vec<u64> =
            self.jobs.iter().filter(|(_, job)| job.left == 0).map(|(&id, _)| id).collect();
        for id in ended {
            if let Some(RunningJob { began, mut ended, .. }) = self.jobs.remove(&id) {
                ended.elapsed = now.duration_since(began);
                out.push(RowReport::Done(ended));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::no_waker;
    use crate::faulty::{FaultShares, Faulty};
    use crate::record::record_bytes;
    use crate::reference::Map;
    use headstart_core::Rng;

    const ROW_BYTES: usize = 1_000;

    struct Memory(Vec<[u8; ROW_BYTES]>);

    impl Rows for Memory {
        fn row_bytes(&self) -> usize {
            ROW_BYTES
        }

        fn read(&self, row: usize, into: &mut [u8]) {
            into.copy_from_slice(&self.0[row]);
        }

        fn write(&mut self, row: usize, from: &[u8]) {
            self.0[row].copy_from_slice(from);
        }
    }

    fn transfers(backend: Box<dyn Backend>, identity: u8) -> RowTransfers<Memory> {
        let arena = Arena::new(record_bytes(&[ROW_BYTES]), 3).expect("memory");
        let rows = Memory(vec![[0; ROW_BYTES]; 8]);
        RowTransfers::new(backend, arena, rows, IdentityDigest([identity; 16]))
    }

    fn job(id: u64, kind: RowJobKind, records: &[(u64, usize)]) -> RowJob {
        let record =
            |&(name, row)| RowRecord { name: BlockHash::from_u64(name), parent: None, row };
        RowJob { id, kind, records: records.iter().map(record).collect() }
    }

    fn run(transfers: &mut RowTransfers<Memory>, job: RowJob) -> EndedJob {
        let now = Instant::now();
        transfers.submit(job, now);
        let mut out = Vec::new();
        loop {
            transfers.advance(now, &mut out);
            for report in out.drain(..) {
                if let RowReport::Done(ended) = report {
                    return ended;
                }
            }
        }
    }

    #[test]
    fn rows_come_back_as_they_were() {
        let mut moving = transfers(Box::<Map>::default(), 1);
        for row in 0..5 {
            moving.rows.0[row] = [row as u8 + 1; ROW_BYTES];
        }
        let all: Vec<_> = (0..5).map(|at| (at as u64, at)).collect();
        let stored = run(&mut moving, job(1, RowJobKind::Store, &all));
        assert_eq!((stored.failed.len(), stored.bytes), (0, 5 * ROW_BYTES as u64));
        moving.rows.0.fill([0; ROW_BYTES]);
        let loaded = run(&mut moving, job(2, RowJobKind::Load, &[(4, 0), (9, 1), (2, 7)]));
        assert_eq!(loaded.failed, [(BlockHash::from_u64(9), MoveFailure::Missing)]);
        assert_eq!([0, 1, 7].map(|row| moving.rows.0[row][0]), [5, 0, 3]);
        assert_eq!(moving.arena.free(), 3);
        assert!(!moving.is_busy());
    }

    #[test]
    fn a_record_of_another_identity_is_never_written_to_a_row() {
        let mut ours = transfers(Box::<Map>::default(), 1);
        run(&mut ours, job(1, RowJobKind::Store, &[(1, 0)]));
        ours.identity = IdentityDigest([2; 16]);
        ours.rows.0[0] = [7; ROW_BYTES];
        let loaded = run(&mut ours, job(2, RowJobKind::Load, &[(1, 0)]));
        assert_eq!(loaded.failed, [(BlockHash::from_u64(1), MoveFailure::Foreign)]);
        assert_eq!(ours.rows.0[0], [7; ROW_BYTES]);
    }

    /// A backend that never answers.
    struct Hanging;

    impl Backend for Hanging {
        fn submit(&mut self, _: Command) -> Result<(), Command> {
            Ok(())
        }

        fn poll(&mut self, _: &mut Vec<Report>) {}
    }

    #[test]
    fn a_job_that_hangs_is_given_up() {
        let mut hanging = transfers(Box::new(Hanging), 1);
        let began = Instant::now();
        hanging.submit(job(1, RowJobKind::Load, &[(1, 0), (2, 1)]), began);
        let mut out = Vec::new();
        hanging.advance(began + JOB_LIMIT, &mut out);
        assert!(out.is_empty() && hanging.is_busy());
        hanging.advance(began + JOB_LIMIT + Duration::from_secs(1), &mut out);
        let [RowReport::Done(ended)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(ended.failed.len(), 2);
        assert!(ended.failed.iter().all(|failed| failed.1 == MoveFailure::GivenUp));
    }

    /// Whatever the backend does, a row has the bytes of its record, or those that it had.
    #[test]
    fn a_faulty_backend_leaves_no_wrong_byte() {
        let shares = FaultShares {
            seed: 5,
            failed_puts: 0.1,
            failed_gets: 0.1,
            late: 0.3,
            lost: 0.1,
            damaged: 0.2,
        };
        let faulty = Faulty::new(Box::<Map>::default(), shares, no_waker());
        let mut moving = transfers(Box::new(faulty), 1);
        let (mut rng, mut out) = (Rng::new(3), Vec::new());
        let began = Instant::now();
        // A row is 255 while nothing is in it; the records of a name have that name's bytes.
        let content = |name: u64| [(name % 250) as u8; ROW_BYTES];
        let mut loads: HashMap<u64, (u64, usize)> = HashMap::new();
        let mut stores: HashMap<u64, usize> = HashMap::new();
        let mut free: Vec<usize> = (0..8).collect();
        let (mut given_up, mut loaded, mut failed) = (0, 0, 0);
        for id in 0..20_000_u64 {
            let name = rng.below(40) as u64;
            if let Some(row) = free.pop() {
                if rng.below(2) == 0 {
                    moving.rows.0[row] = content(name);
                    stores.insert(id, row);
                    moving.submit(job(id, RowJobKind::Store, &[(name, row)]), began);
                } else {
                    moving.rows.0[row] = [255; ROW_BYTES];
                    loads.insert(id, (name, row));
                    moving.submit(job(id, RowJobKind::Load, &[(name, row)]), began);
                }
            }
            if rng.below(200) == 0 {
                moving.give_up(began, &mut out);
                given_up += 1;
            } else {
                moving.advance(began, &mut out);
            }
            for report in out.drain(..) {
                let RowReport::Done(ended) = report else { continue };
                if let Some((name, row)) = loads.remove(&ended.id) {
                    let expected =
                        if ended.failed.is_empty() { content(name) } else { [255; ROW_BYTES] };
                    assert_eq!(moving.rows.0[row], expected, "{ended:?}");
                    loaded += usize::from(ended.failed.is_empty());
                    failed += ended.failed.len();
                    // The owner uses it for something else at once.
                    free.push(row);
                } else if let Some(row) = stores.remove(&ended.id) {
                    free.push(row);
                }
            }
        }
        assert!(given_up > 10 && loaded > 1_000 && failed > 1_000, "{given_up} {loaded} {failed}");
    }
}
