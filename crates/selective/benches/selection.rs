//! Cost of the decisions per layer when loading by importance: three probes over 5,120 tokens, a
//! quarter of them kept, in units of 64; whole chunks also over 100,032 and of 16.
//!
//! `cargo bench -p headstart-selective`

use std::hint::black_box;
use std::time::Instant;

use headstart_cache::policy::Importance;
use headstart_core::transfer::PartName;
use headstart_core::{BlockHash, Nanos, Rng, Tier};
use headstart_selective::{
    Cover, NodeOptions, Nodes, PackView, PartCache, PartRead, Selecting, Wish, fit, reads, select,
};

const TOKENS: usize = 5_120;
const UNIT_TOKENS: usize = 64;
/// A prefix that takes long to load.
const MANY_TOKENS: usize = 100_032;
const LAYERS: usize = 32;
/// Tokens of a question, whose attention the importances are.
const QUERIES: usize = 32;
/// Odd, so that the median is one of them.
const ROUNDS: usize = 1_001;
/// The same of what takes long.
const FEW_ROUNDS: usize = 51;

fn main() {
    let mut rng = Rng::new(1);
    let importances = probes(&mut rng, TOKENS);
    let slices: Vec<&[f32]> = importances.iter().map(Vec::as_slice).collect();
    let units = units_of(TOKENS, UNIT_TOKENS);
    let mut tokens = Vec::new();
    for spared in [0.0, 0.01, 0.02, 0.05] {
        let selecting = Selecting { spared, ..Selecting::default() };
        let order = packed_order(&mut rng, &selecting, (&units, UNIT_TOKENS));
        tokens = select(&selecting, &slices, QUERIES).tokens;
        tell(&format!("spared {spared}, units"), &tokens, &question(&units, &[]));
        let packs = [pack(&units, &order)];
        tell(&format!("spared {spared}, and a pack"), &tokens, &question(&units, &packs));
    }
    let selecting = Selecting::default();
    let order = packed_order(&mut rng, &selecting, (&units, UNIT_TOKENS));
    let packs = [pack(&units, &order)];
    timed("select", ROUNDS, || select(&selecting, &slices, QUERIES).tokens.len());
    timed("reads, units", ROUNDS, || reads(&question(&units, &[]), &tokens).len());
    timed("reads, units and a pack", ROUNDS, || reads(&question(&units, &packs), &tokens).len());
    keep(&reads(&question(&units, &[]), &tokens));
    track(&units, &tokens);
    for num_tokens in [TOKENS, MANY_TOKENS] {
        for chunk_tokens in [64, 16] {
            whole_chunks(&mut rng, num_tokens, chunk_tokens);
        }
    }
}

/// Whole chunks for what is selected.
fn whole_chunks(rng: &mut Rng, num_tokens: usize, chunk_tokens: usize) {
    let importances = probes(rng, num_tokens);
    let slices: Vec<&[f32]> = importances.iter().map(Vec::as_slice).collect();
    let selecting = Selecting::default();
    let units = units_of(num_tokens, chunk_tokens);
    let order = packed_order(rng, &selecting, (&units, chunk_tokens));
    let packs = [pack(&units, &order)];
    let selection = select(&selecting, &slices, QUERIES);
    let wish = Wish { selection: &selection, importances: &slices, spared: selecting.spared };
    for (name, packs) in [("units", &packs[..0]), ("units and a pack", &packs)] {
        let question = Cover { unit_tokens: chunk_tokens, ..question(&units, packs) };
        let kept = fit(&question, &wish).tokens;
        let [selected, fitted] =
            [&selection.tokens, &kept].map(|tokens| reads(&question, tokens).len());
        let name = format!("fit, {name}, {num_tokens} of {chunk_tokens}");
        println!("{name:<36} {fitted} parts instead of {selected}");
        let rounds = if num_tokens > TOKENS { FEW_ROUNDS } else { ROUNDS };
        timed(&name, rounds, || fit(&question, &wish).tokens.len());
    }
}

fn units_of(num_tokens: usize, unit_tokens: usize) -> Vec<BlockHash> {
    let units = 0..(num_tokens / unit_tokens) as u64;
    units.map(BlockHash::from_u64).collect()
}

fn pack<'a>(units: &[BlockHash], order: &'a [u32]) -> PackView<'a> {
    PackView {
        name: BlockHash::from_u64(u64::MAX),
        before: 0,
        first_unit: 0,
        units: units.len(),
        order,
    }
}

fn question<'a>(units: &'a [BlockHash], packs: &'a [PackView<'a>]) -> Cover<'a> {
    Cover { units, skip: 0, unit_tokens: UNIT_TOKENS, part: 0, packs, is_cached: &|_| false }
}

fn tell(name: &str, tokens: &[u32], question: &Cover<'_>) {
    let (num_tokens, num_parts) = (tokens.len(), reads(question, tokens).len());
    let amplification = (num_parts * UNIT_TOKENS) as f64 / num_tokens as f64;
    println!(
        "{name:<36} {num_parts} parts for {num_tokens} tokens, amplification {amplification:.2}"
    );
}

/// Parts that come and go, each prompt's own.
fn keep(reads: &[PartRead]) {
    let parts: Vec<_> = reads.iter().map(|read| (read.part, 0.25)).collect();
    let levels = [(Tier::Device, 2_000), (Tier::Host, 8_000)];
    let mut cache = PartCache::new(&levels, |slots| Box::new(Importance::new(slots)));
    let mut request = 0;
    timed("parts used", ROUNDS, || {
        request += 1;
        let of_request = |(name, share): &(PartName, f32)| {
            let record = BlockHash::from_u64(request << 32 | u64::from(name.record.0[15]));
            (PartName { record, ..*name }, *share)
        };
        let parts: Vec<_> = parts.iter().map(of_request).collect();
        cache.used(&parts, Nanos(request)).len()
    });
}

/// One prompt again and again, then what is to be packed of it.
fn track(units: &[BlockHash], tokens: &[u32]) {
    let mut nodes = Nodes::new(NodeOptions::default());
    timed("nodes, a layer selected", ROUNDS, || {
        nodes.used(units);
        nodes.selected(units, 0, tokens);
        nodes.num_units()
    });
    (0..LAYERS).for_each(|layer| nodes.selected(units, layer, tokens));
    let start = Instant::now();
    let jobs = nodes.due(Nanos(0), 1).len();
    let micros = start.elapsed().as_secs_f64() * 1e6;
    println!("{:<36} {micros:>8.1} µs, once: {jobs} job of {LAYERS} layers", "nodes due");
}

/// The pack of thirty prompts like the one that is asked for.
fn packed_order(
    rng: &mut Rng,
    selecting: &Selecting,
    (units, unit_tokens): (&[BlockHash], usize),
) -> Vec<u32> {
    let mut nodes = Nodes::new(NodeOptions { unit_tokens, ..NodeOptions::default() });
    for _ in 0..30 {
        let importances = probes(rng, units.len() * unit_tokens);
        let slices: Vec<&[f32]> = importances.iter().map(Vec::as_slice).collect();
        nodes.used(units);
        nodes.selected(units, 0, &select(selecting, &slices, QUERIES).tokens);
    }
    let mut jobs = nodes.due(Nanos(0), 1);
    jobs.pop().map_or(Vec::new(), |mut job| job.layers.remove(0).1)
}

/// Attention is heavy in its tail: most tokens draw next to nothing, and what little they draw
/// differs from probe to probe. One in five draws much, for all probes and prompts; they lie
/// anywhere, so that every unit has some: the worst case without packs.
fn probes(rng: &mut Rng, num_tokens: usize) -> [Vec<f32>; 3] {
    std::array::from_fn(|_| {
        let draw = |token: usize| {
            let is_heavy = token.wrapping_mul(0x9e37_79b9) % 1_024 < 205;
            let mean = if is_heavy { 3.0 } else { 0.0 };
            (mean + 2.0 * rng.next_f64()).exp() as f32
        };
        let drawn: Vec<f32> = (0..num_tokens).map(draw).collect();
        // Nine tenths of the attention are the prefix's.
        let scale = 0.9 * QUERIES as f32 / drawn.iter().sum::<f32>();
        drawn.into_iter().map(|attention| attention * scale).collect()
    })
}

fn timed(name: &str, rounds: usize, mut decide: impl FnMut() -> usize) {
    let mut micros: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            black_box(decide());
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    micros.sort_by(f64::total_cmp);
    let median = micros[rounds / 2];
    println!("{name:<36} {median:>8.1} µs a layer, median of {rounds}");
}
