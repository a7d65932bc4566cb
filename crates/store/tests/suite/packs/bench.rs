//! A store over a disk of which the power can be cut, and what its units are made of.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use headstart_core::transfer::{
    BlockMover, DevicePart, Pack, PartName, TokenFormat, Transfer, TransferId, TransferReport,
    TransferResult,
};
use headstart_core::{BlockHash, BlockId, Tier};
use headstart_store::backend::no_waker;
use headstart_store::disk::{DiskOptions, IoKind, unix_seconds};
use headstart_store::record::Exactness;
use headstart_store::tiered::{Below, Lifetimes, PartsConfig, StoreConfig, TieredStore};

use crate::faults::Faults;
use crate::support::open_faulty;

/// Error code of all writes while the power is cut.
const EIO: u64 = 5;

pub(crate) const TOKENS: usize = 8;
const TOKEN_BYTES: [usize; 4] = [24, 24, 640, 640];

/// Tokens lie one behind the other.
struct Rows;

impl TokenFormat for Rows {
    fn copy_token(&self, from: &[u8], at: usize, to: &mut [u8], to_at: usize) {
        let row = from.len() / TOKENS;
        to[to_at * row..][..row].copy_from_slice(&from[at * row..][..row]);
    }
}

/// A byte of a unit.
pub(crate) fn byte(unit: u64, part: usize, at: usize) -> u8 {
    let mixed = (unit * 4 + part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at as u64 * 0x2545);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xff51_afd7) as u8
}

/// A part of a device whose block `n` is what unit `n` is made of.
pub(crate) struct Device(pub(crate) usize);

impl DevicePart for Device {
    fn block_bytes(&self) -> usize {
        TOKENS * TOKEN_BYTES[self.0]
    }

    fn read(&self, block: BlockId, bytes: &mut [u8]) {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = self::byte(block.index() as u64, self.0, at);
        }
    }

    fn write(&mut self, _: BlockId, _: &[u8]) {}
}

pub(crate) fn number_of(name: BlockHash) -> u64 {
    u128::from_be_bytes(name.0) as u64
}

fn config() -> StoreConfig {
    StoreConfig {
        part_bytes: TOKEN_BYTES.map(|bytes| bytes * TOKENS).to_vec(),
        exactness: Exactness::Exact,
        unit_blocks: 1,
        unit_tokens: TOKENS as u32,
        host_units: 0,
        staging_units: 40,
        lifetimes: Lifetimes::default(),
        now_s: unix_seconds,
        notes: None,
        parts: Some(PartsConfig {
            slots: 4,
            small_slots: 4,
            most_loads: 64,
            most_packs: 8,
            format: Arc::new(Rows),
            host_line: None,
        }),
    }
}

/// A store over a disk, and the switch that cuts its power.
pub(crate) struct Bench {
    pub(crate) store: TieredStore,
    power: Arc<AtomicU64>,
    pub(crate) tears: Arc<AtomicU64>,
    pub(crate) flips: Arc<AtomicU64>,
    moved: Vec<TransferReport>,
}

impl Bench {
    pub(crate) fn open(folder: &Path, seed: u64, flipped: f64) -> Self {
        let faults = Faults { seed, loses_power: true, torn: 0.3, flipped, ..Faults::default() };
        let (power, tears) = (faults.writes_fail.clone(), faults.tears.clone());
        let flips = faults.flips.clone();
        let mut options = DiskOptions::new(folder, 6 << 20);
        options.segment_bytes = Some(512 << 10);
        options.io = IoKind::Threads;
        options.depth = 4;
        let (disk, found) = open_faulty(options, &faults, no_waker());
        let below = Below { tier: Tier::Disk, backend: Box::new(disk), found };
        let store = TieredStore::new(config(), vec![below], no_waker()).expect("a store");
        Self { store, power, tears, flips, moved: Vec::new() }
    }

    /// From now on nothing reaches the files.
    pub(crate) fn cut_power(&self) {
        self.power.store(EIO, Relaxed);
    }

    pub(crate) fn restore_power(&self) {
        self.power.store(0, Relaxed);
    }

    pub(crate) fn poll(&mut self) -> Vec<TransferReport> {
        self.store.poll(&mut self.moved);
        std::mem::take(&mut self.moved)
    }

    /// Polls until something has happened.
    fn wait(&mut self) -> Vec<TransferReport> {
        let started = Instant::now();
        loop {
            let moved = self.poll();
            if !moved.is_empty() {
                return moved;
            }
            assert!(started.elapsed() < Duration::from_secs(30), "no answer");
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Loads a part while nothing else is loaded; keeps what else happened.
    pub(crate) fn part(&mut self, name: PartName) -> Option<Vec<u8>> {
        let (id, from) = (TransferId(u64::MAX), Tier::Disk);
        self.store.submit(Transfer::LoadPart { id, name, from });
        let mut others = Vec::new();
        let result = loop {
            let mut answer = None;
            for moved in self.wait() {
                match moved {
                    TransferReport::PartLoaded { id, result, .. } if id == TransferId(u64::MAX) => {
                        answer = Some(result);
                    }
                    other => others.push(other),
                }
            }
            if let Some(result) = answer {
                break result;
            }
        };
        self.moved = others;
        let bytes = self.store.loaded_part(name).map(<[u8]>::to_vec);
        assert_eq!(bytes.is_some(), result == TransferResult::Done);
        let names = vec![name];
        self.store.submit(Transfer::ReleaseParts { names });
        bytes
    }

    /// Counts the tokens of a pack that can be read, and asserts that each is right.
    pub(crate) fn check(&mut self, pack: &Pack, context: &str) -> usize {
        let row = TOKEN_BYTES[usize::from(pack.part)];
        let mut right = 0;
        for (chunk, tokens) in pack.order.chunks(TOKENS).enumerate() {
            let name = PartName { record: pack.name, part: 1 + chunk as u16 };
            let Some(bytes) = self.part(name) else {
                continue;
            };
            for (place, &token) in tokens.iter().enumerate() {
                let unit = number_of(pack.units[token as usize / TOKENS]);
                let first = token as usize % TOKENS * row;
                let expected = (first..first + row).map(|at| byte(unit, pack.part.into(), at));
                let there = bytes[place * row..][..row].iter().copied();
                assert!(there.eq(expected), "{context}: token {token} of {pack:?}");
                right += 1;
            }
        }
        right
    }
}
