//! Speed of reading parts of records from a disk tier, compared with whole records.
//!
//! ```bash
//! cargo run --release -p headstart-store --example parts -- [FOLDER [MIB [PART_KIB [PARTS]]]]
//! ```
//!
//! 64 MiB in the folder for temporary files unless told otherwise, in records of 8 parts of 16
//! KiB and 8 of 256 KiB. The folder must be empty or not there; what is written is deleted.
//! Everything is read and written past the page cache, verified, with 32 reads at once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use headstart_core::{BlockHash, IdentityDigest, Rng, TenantTag};
use headstart_store::backend::no_waker;
use headstart_store::record::{Content, Exactness, Layout};
use headstart_store::{
    Arena, Backend, Command, CommandOutcome, Disk, DiskOptions, Draft, Meta, Report, Slot, Ticket,
};

/// Commands on their way at once.
const WINDOW: usize = 32;

/// Length of a small part, KiB.
const SMALL_KIB: usize = 16;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: usize| {
        let given = arguments.get(at).map(|text| text.parse());
        given.map_or(default, |number| number.expect("a whole number"))
    };
    let given = arguments.get(1).map(PathBuf::from);
    let folder = given.unwrap_or_else(|| std::env::temp_dir().join("headstart-parts"));
    let (mib, kib, half) = (number(2, 64), number(3, 256), number(4, 8));
    assert!(
        !folder.exists() || folder.read_dir().is_ok_and(|mut entries| entries.next().is_none())
    );
    let mut parts = vec![SMALL_KIB << 10; half];
    parts.extend(vec![kib << 10; half]);
    let bytes = Layout::Paged.record_bytes(&parts);
    let records = ((mib << 20) / bytes).max(1);
    let mut options = DiskOptions::new(&folder, ((mib << 20) * 2 + (512 << 20)) as u64);
    options.segment_bytes = Some(64 << 20);
    let arena = Arena::new(bytes, WINDOW).expect("memory");
    let mut bench = Bench {
        disk: Disk::open(options.clone(), no_waker()).expect("it opens").0,
        arena,
        done: 0,
        bytes: 0,
    };
    write(&mut bench, records, &parts);
    // Reopened, so that no header is known.
    bench.disk = {
        drop(bench.disk);
        Disk::open(options, no_waker()).expect("it opens").0
    };
    println!("{records} records of {bytes} bytes, over {}", bench.disk.io_name());
    let all = |part: std::ops::Range<usize>| -> Vec<(usize, usize)> {
        let records = 0..records;
        records.flat_map(|record| part.clone().map(move |part| (record, part))).collect()
    };
    let mut rng = Rng::new(1);
    let mut shuffled = all(half..2 * half);
    rng.shuffle(&mut shuffled);
    let mut small = all(0..half);
    small.sort_by_key(|&(_, part)| part);
    bench.time("small parts, layer by layer", small.len(), |at, bench| {
        bench.part(small[at]);
    });
    bench.time("parts, record by record", records * half, |at, bench| {
        bench.part((at / half, half + at % half));
    });
    bench.time("parts, in any order", shuffled.len(), |at, bench| {
        bench.part(shuffled[at]);
    });
    bench.time("whole records", records, |at, bench| bench.whole(at));
    drop(bench);
    std::fs::remove_dir_all(&folder).expect("it can be deleted");
}

struct Bench {
    disk: Disk,
    arena: Arc<Arena>,
    done: usize,
    bytes: usize,
}

impl Bench {
    fn time(&mut self, what: &str, count: usize, mut ask: impl FnMut(usize, &mut Self)) {
        (self.done, self.bytes) = (0, 0);
        let started = Instant::now();
        (0..count).for_each(|at| ask(at, self));
        while self.done < count {
            self.poll();
        }
        let seconds = started.elapsed().as_secs_f64();
        let mib = self.bytes as f64 / (1 << 20) as f64;
        let (rate, each) = (mib / seconds, count as f64 / seconds);
        println!("{what}: {mib:.0} MiB in {seconds:.3} s, {rate:.0} MiB/s, {each:.0} a second");
    }

    fn part(&mut self, (record, part): (usize, usize)) {
        let (slot, name) = (self.slot(), BlockHash::from_u64(record as u64));
        let (ticket, part) = (Ticket(0), part as u16);
        self.give(Command::GetPart { ticket, name, part, slot });
    }

    fn whole(&mut self, record: usize) {
        let (slot, name) = (self.slot(), BlockHash::from_u64(record as u64));
        let ticket = Ticket(0);
        self.give(Command::Get { ticket, name, slot });
    }

    fn slot(&mut self) -> Slot {
        loop {
            if let Some(slot) = self.arena.take() {
                return slot;
            }
            self.poll();
        }
    }

    fn give(&mut self, mut command: Command) {
        while let Err(back) = self.disk.submit(command) {
            command = back;
            self.poll();
        }
    }

    fn poll(&mut self) {
        let mut reports = Vec::new();
        self.disk.poll(&mut reports);
        if reports.is_empty() {
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
        for report in reports {
            let Report::Done { outcome, .. } = report else {
                continue;
            };
            self.done += 1;
            self.bytes += match outcome {
                CommandOutcome::Stored => 0,
                CommandOutcome::Part(part) => part.bytes().len(),
                CommandOutcome::Loaded(record) => record.bytes().len(),
                other => panic!("{other:?}"),
            };
        }
    }
}

fn write(bench: &mut Bench, records: usize, parts: &[usize]) {
    for number in 0..records {
        let meta = Meta {
            name: BlockHash::from_u64(number as u64),
            parent: None,
            identity: IdentityDigest([1; 16]),
            tenant: TenantTag(1),
            tokens: 64,
            exactness: Exactness::Exact,
            content: Content::Unit,
            created_s: 1,
            expires_s: None,
        };
        let slot = bench.slot();
        let mut draft = Draft::laid_out(slot, meta, parts, Layout::Paged).expect("it fits");
        for part in 0..parts.len() {
            draft.part_mut(part).fill((number + part) as u8);
        }
        let (ticket, record) = (Ticket(0), draft.seal());
        bench.give(Command::Put { ticket, record });
    }
    while bench.done < records {
        bench.poll();
    }
}
