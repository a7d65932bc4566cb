//! Whether keys and values are worth compressing on their way to a tier, without loss.
//!
//! ```bash
//! cargo bench -p headstart-engine --bench kv_compression            # the toy
//! cargo bench -p headstart-engine --bench kv_compression -- ./qwen3-0.6b
//! ```
//!
//! Takes the units that an engine stores, splits them into byte planes (all first bytes of numbers,
//! all second ones, …) and codes each plane that gets smaller by it: with deflate, which is in the
//! tree, and with order-0 prefix codes made for the purpose, in four streams. Beside them stands
//! the order-0 entropy, which no coder of single bytes gets below. What counts is the speed of a
//! tier below which compressing pays: bytes saved over the seconds that it costs, one core.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use flate2::Compression;
use flate2::write::{DeflateDecoder, DeflateEncoder};
use headstart_cache::Tiers;
use headstart_cache::policy::Lru;
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, TiersConfig, WriteWhen,
};
use headstart_core::transfer::{
    BlockMover, DevicePart, PartName, Transfer, TransferReport, TransferResult,
};
use headstart_core::{BlockHash, BlockId, EngineModel, Nanos, Rng, SeqId, Tier, TokenId};
use headstart_engine::engine::EngineConfig;
use headstart_engine::kv::{Dtype, KvStorageFormat};
use headstart_engine::model::{GenerationDefaults, toy};
use headstart_engine::{Engine, LanguageModel, Output, QueueOrder, Submission};

const BLOCK_TOKENS: usize = 16;
const UNIT_BLOCKS: usize = 4;
const PROMPT_TOKENS: usize = 2_048;

/// Bits of the longest code: a table of that many entries fits the first-level cache.
const MOST_BITS: u32 = 11;

/// A plane that does not get smaller by this stays as it is.
const WORTH: f64 = 0.97;

fn main() {
    let named = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    println!("dtype  bytes MB  entropy  coder    left   encode MB/s  decode MB/s  pays below MB/s");
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let model = match &named {
            Some(folder) => LanguageModel::load(Path::new(folder), dtype).expect("a model"),
            None => toy::with_config(toy::config(), GenerationDefaults::default(), dtype),
        };
        let bytes = stored(Arc::new(model), dtype);
        let width = dtype.bytes();
        let planes: Vec<Vec<u8>> = (0..width)
            .map(|plane| bytes.iter().copied().skip(plane).step_by(width).collect())
            .collect();
        let entropy: f64 = planes.iter().map(|plane| entropy(plane)).sum();
        report(dtype, &bytes, entropy, "deflate", deflate, inflate);
        report(dtype, &bytes, entropy, "prefix", encode, decode);
    }
}

/// The parts of the units that an engine stores of a prompt, one after the other.
fn stored(model: Arc<LanguageModel>, dtype: Dtype) -> Vec<u8> {
    let blocks = PROMPT_TOKENS / BLOCK_TOKENS + 16;
    let config = EngineConfig {
        cache_blocks: blocks,
        block_size: BLOCK_TOKENS,
        kv_dtype: dtype,
        stored: KvStorageFormat::Same,
        max_batched_tokens: 512,
        max_sequences: 1,
        max_waiting: 1,
        order: QueueOrder::FirstCome,
    };
    let tiers = TiersConfig {
        unit_blocks: UNIT_BLOCKS,
        block_tokens: BLOCK_TOKENS,
        unit_bytes: 1,
        most_at_hand: blocks,
        engine: EngineModel::default_engine(),
        load: LoadWhen::Never,
    };
    let disk = TierConfig {
        tier: Tier::Disk,
        capacity_units: blocks,
        policy: Box::new(Lru::new(blocks)),
        admission: Admission::Always,
        write: WriteWhen::Through,
        shares: Shares::default(),
        assumed: AssumedSpeed { latency_s: 0.0, bytes_per_s: 1e9 },
    };
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeper = Keeper { kept: kept.clone(), to_read: Vec::new(), moved: Vec::new() };
    let vocab = model.config.vocab;
    let mut engine = Engine::new(model, "bench", config, Box::new(Lru::new(blocks)))
        .with_tiers(Tiers::new(tiers, vec![disk]), Box::new(keeper));
    let mut rng = Rng::new(1);
    let submission = Submission::greedy(
        SeqId(1),
        (0..PROMPT_TOKENS).map(|_| rng.below(vocab) as TokenId).collect(),
        1,
    );
    engine.submit(submission, Nanos(0));
    let is_last = |output: &Output| matches!(output, Output::Token { .. });
    while !engine.step(Nanos(0)).outputs.iter().any(is_last) {}
    std::mem::take(&mut *kept.lock().expect("one thread"))
}

/// Keeps the bytes of what is stored.
struct Keeper {
    kept: Arc<Mutex<Vec<u8>>>,
    to_read: Vec<BlockId>,
    moved: Vec<TransferReport>,
}

impl BlockMover for Keeper {
    fn submit(&mut self, transfer: Transfer) {
        let Transfer::Store { id, blocks, to, .. } = transfer else {
            return;
        };
        self.to_read.extend(blocks);
        self.moved.extend(to.into_iter().map(|tier| TransferReport::Stored {
            id,
            tier,
            result: TransferResult::Done,
        }));
    }

    fn read(&mut self, _: usize, device: &dyn DevicePart) {
        let mut kept = self.kept.lock().expect("nobody panicked");
        for &block in &self.to_read {
            let at = kept.len();
            kept.resize(at + device.block_bytes(), 0);
            device.read(block, &mut kept[at..]);
        }
    }

    fn end_reads(&mut self) {
        self.to_read.clear();
    }

    fn poll(&mut self, moved: &mut Vec<TransferReport>) {
        moved.append(&mut self.moved);
    }

    fn part(&self, _: BlockHash, _: usize) -> Option<&[u8]> {
        None
    }

    fn loaded_part(&self, _: PartName) -> Option<&[u8]> {
        None
    }
}

/// Order-0 entropy of a plane, bytes.
fn entropy(plane: &[u8]) -> f64 {
    let len = plane.len() as f64;
    let bits = counts(plane).into_iter().filter(|&count| count > 0);
    bits.map(|count| -(f64::from(count)) * (f64::from(count) / len).log2()).sum::<f64>() / 8.0
}

fn counts(plane: &[u8]) -> [u32; 256] {
    let mut counts = [0; 256];
    plane.iter().for_each(|&byte| counts[byte as usize] += 1);
    counts
}

type Coder = fn(&[u8]) -> Vec<u8>;
type Decoder = fn(&[u8], usize) -> Vec<u8>;

/// Codes all units, plane by plane, and back; the best of three times each.
fn report(dtype: Dtype, bytes: &[u8], entropy: f64, name: &str, coder: Coder, decoder: Decoder) {
    let width = dtype.bytes();
    let (mut encode_s, mut decode_s) = (f64::INFINITY, f64::INFINITY);
    let mut left = 0;
    for _ in 0..3 {
        let began = Instant::now();
        let coded: Vec<(bool, Vec<u8>)> = (0..width)
            .map(|plane| {
                let plane: Vec<u8> = bytes.iter().copied().skip(plane).step_by(width).collect();
                // Most planes are noise, and a sample says so.
                let sample = &plane[..plane.len().min(1 << 16)];
                if entropy_share(sample) > WORTH {
                    return (false, plane);
                }
                (true, coder(&plane))
            })
            .collect();
        encode_s = encode_s.min(began.elapsed().as_secs_f64());
        left = coded.iter().map(|(_, plane)| plane.len()).sum();
        let began = Instant::now();
        let mut back = vec![0; bytes.len()];
        for (index, (is_coded, plane)) in coded.iter().enumerate() {
            let decoded =
                if *is_coded { decoder(plane, bytes.len() / width) } else { plane.clone() };
            let places = back.iter_mut().skip(index).step_by(width);
            places.zip(decoded).for_each(|(place, byte)| *place = byte);
        }
        decode_s = decode_s.min(began.elapsed().as_secs_f64());
        assert!(back == bytes, "{name} loses nothing");
    }
    let (all, saved) = (bytes.len() as f64, (bytes.len() - left) as f64);
    println!(
        "{:5}  {:8.1}  {:5.1} %  {name:7}  {:4.1} %  {:11.0}  {:11.0}  {:15.0}",
        dtype.name(),
        all / 1e6,
        entropy / all * 100.0,
        left as f64 / all * 100.0,
        all / encode_s / 1e6,
        all / decode_s / 1e6,
        saved / (encode_s + decode_s) / 1e6,
    );
}

fn entropy_share(plane: &[u8]) -> f64 {
    entropy(plane) / plane.len().max(1) as f64
}

fn deflate(plane: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plane).expect("memory");
    encoder.finish().expect("memory")
}

fn inflate(coded: &[u8], len: usize) -> Vec<u8> {
    let mut decoder = DeflateDecoder::new(Vec::with_capacity(len));
    decoder.write_all(coded).expect("what was coded");
    decoder.finish().expect("what was coded")
}

/// Lengths of the codes, of at most [`MOST_BITS`] bits: Huffman's, of flatter counts until it fits.
fn lengths(mut counts: [u32; 256]) -> [u32; 256] {
    loop {
        let mut trees: Vec<(u64, Vec<usize>)> = (0..256)
            .filter(|&byte| counts[byte] > 0)
            .map(|byte| (u64::from(counts[byte]), vec![byte]))
            .collect();
        let mut lengths = [0; 256];
        if let [(_, only)] = &trees[..] {
            lengths[only[0]] = 1;
        }
        while trees.len() > 1 {
            trees.sort_unstable_by_key(|(count, _)| std::cmp::Reverse(*count));
            let (one, other) = (trees.pop().expect("two"), trees.pop().expect("one"));
            let bytes = [one.1, other.1].concat();
            bytes.iter().for_each(|&byte| lengths[byte] += 1);
            trees.push((one.0 + other.0, bytes));
        }
        if lengths.iter().all(|&length| length <= MOST_BITS) {
            return lengths;
        }
        for count in &mut counts {
            *count = count.div_ceil(2);
        }
    }
}

/// Codes in order of length and byte, the lowest bit first: byte, code, length.
fn codes(lengths: &[u32; 256]) -> Vec<(u8, u32, u32)> {
    let mut order: Vec<usize> = (0..256).filter(|&byte| lengths[byte] > 0).collect();
    order.sort_by_key(|&byte| (lengths[byte], byte));
    let (mut next, mut last) = (0_u32, 0);
    let code = |byte: usize| {
        let length = lengths[byte];
        next <<= length - last;
        last = length;
        let code = next.reverse_bits() >> (32 - length);
        next += 1;
        (byte as u8, code, length)
    };
    order.into_iter().map(code).collect()
}

/// Lengths of codes, lengths of three streams, four streams.
fn encode(plane: &[u8]) -> Vec<u8> {
    let lengths = lengths(counts(plane));
    let mut table = [(0_u64, 0_u32); 256];
    for (byte, code, length) in codes(&lengths) {
        table[byte as usize] = (u64::from(code), length);
    }
    let streams = plane.chunks(plane.len().div_ceil(4).max(1)).map(|piece| {
        let mut out = Vec::with_capacity(piece.len());
        let (mut held, mut bits) = (0_u64, 0);
        for bytes in piece.chunks(4) {
            for &byte in bytes {
                let (code, length) = table[byte as usize];
                held |= code << bits;
                bits += length;
            }
            // Four codes are 44 bits at most, and fewer than 8 were left.
            let whole = bits as usize / 8;
            out.extend_from_slice(&held.to_le_bytes()[..whole]);
            held >>= whole * 8;
            bits %= 8;
        }
        out.push(held as u8);
        // The decoder looks eight bytes ahead.
        out.extend_from_slice(&[0; 8]);
        out
    });
    let streams: Vec<Vec<u8>> = streams.collect();
    let mut all: Vec<u8> = lengths.iter().map(|&length| length as u8).collect();
    for stream in &streams {
        all.extend_from_slice(&(stream.len() as u32).to_le_bytes());
    }
    all.extend(streams.concat());
    all
}

fn decode(coded: &[u8], len: usize) -> Vec<u8> {
    let (head, rest) = coded.split_at(256);
    let lengths: [u32; 256] = std::array::from_fn(|byte| u32::from(head[byte]));
    let mut table = vec![(0_u8, 0_u8); 1 << MOST_BITS];
    for (byte, code, length) in codes(&lengths) {
        for entry in (code as usize..1 << MOST_BITS).step_by(1 << length) {
            table[entry] = (byte, length as u8);
        }
    }
    let (sizes, mut rest) = rest.split_at(16);
    let mut out = vec![0; len];
    let pieces = out.chunks_mut(len.div_ceil(4).max(1));
    for (piece, size) in pieces.zip(sizes.chunks_exact(4)) {
        let size = u32::from_le_bytes(size.try_into().expect("four bytes")) as usize;
        let (stream, behind) = rest.split_at(size);
        rest = behind;
        let mut at = 0_usize;
        for places in piece.chunks_mut(4) {
            let first = at / 8;
            let bytes = stream[first..first + 8].try_into().expect("eight bytes");
            let mut held = u64::from_le_bytes(bytes) >> (at % 8);
            for place in places {
                let (byte, length) = table[held as usize & ((1 << MOST_BITS) - 1)];
                *place = byte;
                held >>= length;
                at += usize::from(length);
            }
        }
    }
    out
}
