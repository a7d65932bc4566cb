//! Cost of explaining prompts: sketching, looking up the nearest neighbour, aligning.
//!
//! `cargo bench -p headstart-insight --bench text` prints one line each, the median of rounds.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use headstart_core::Rng;
use headstart_insight::text::{NeighbourLimits, Neighbours, Sketch, Sketcher, explain};

/// Rounds of each measurement; the median is printed.
const ROUNDS: usize = 15;

/// Length of a prompt, words.
const PROMPT_WORDS: usize = 6_000;

/// Prompts that are remembered.
const PROMPTS: u64 = 300;

fn main() {
    let sketcher = Sketcher::new(&[7; 32]);
    let texts: Vec<String> = (0..PROMPTS).map(prompt).collect();
    let bytes: usize = texts.iter().map(String::len).sum();
    let seconds = median(|| {
        texts.iter().for_each(|text| {
            black_box(sketcher.sketch(text));
        });
    });
    let (mb_per_s, mean) = (bytes as f64 / 1e6 / seconds, bytes / texts.len());
    println!("sketch: {mb_per_s:.0} MB/s, prompts of {mean} bytes");

    let mut sketches: Vec<Sketch> = texts.iter().map(|text| sketcher.sketch(text)).collect();
    let last = sketches.pop().expect("prompts");
    let mut neighbours = Neighbours::new(NeighbourLimits::default());
    for (name, sketch) in sketches.iter().enumerate() {
        neighbours.insert(1, name, sketch.clone());
    }
    let seconds = median(|| {
        black_box(neighbours.nearest(1, &last));
    });
    println!("nearest of {}: {:.0} us", sketches.len(), seconds * 1e6);
    let seconds = median(|| {
        black_box(explain(&sketches[0], &last, 0));
    });
    println!("explain: {:.0} us", seconds * 1e6);
}

/// Shared instructions behind a time of day, then words of its own.
fn prompt(number: u64) -> String {
    let mut text = format!("It is {}:{:02}. ", number / 60 % 24, number % 60);
    for (seed, words) in [(1, PROMPT_WORDS / 2), (number + 2, PROMPT_WORDS / 2)] {
        let mut rng = Rng::new(seed);
        for at in 0..words {
            let word = rng.below(20_000);
            let end = if at % 12 == 11 { ".\n" } else { " " };
            write!(text, "w{}{end}", "abcdefgh".repeat(3).split_at(2 + word % 8).0).expect("text");
        }
    }
    text
}

/// The median time of `work`, seconds.
fn median(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            work();
            began.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}
