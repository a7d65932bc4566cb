//! Any bytes through the readers, under all options.
//!
//! `cargo +nightly fuzz run read corpus ../tests/seeds`, in `crates/trace/fuzz`. libFuzzer
//! watches for panics, time and memory; the test `fuzz` of the crate, which needs no nightly
//! compiler and runs in CI, holds memory against the largest record as well.

#![no_main]

// The test uses more of it.
#[allow(dead_code)]
#[path = "../../tests/fuzz/read.rs"]
mod read;

use headstart_core::Rng;
use headstart_trace::Format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The options follow from the bytes, so that a seed is a trace and nothing else.
    let mut rng = Rng::new(bytes.iter().fold(bytes.len() as u64, |sum, &byte| {
        sum.rotate_left(5) ^ u64::from(byte)
    }));
    let formats: Vec<Format> = Format::all().collect();
    let format = formats[rng.below(formats.len())];
    let choices = read::Choices::new(&mut rng, format);
    let _ = read::all(bytes, &choices);
});
