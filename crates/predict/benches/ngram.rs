//! Cost of the built-in encoder per text.
//!
//! `cargo bench -p headstart-predict --bench ngram`

use std::time::Instant;

use headstart_core::Rng;
use headstart_predict::Encoder;
use headstart_predict::encoder::ngram::NgramEncoder;

const ROUNDS: usize = 9;
/// Texts per round.
const TEXTS: usize = 200;

fn main() {
    let encoder = NgramEncoder::new();
    println!("| words | bytes | µs per text |\n|---|---|---|");
    for words in [8, 32, 128, 512, 170_000] {
        let count = if words > 1000 { 4 } else { TEXTS };
        let texts: Vec<String> = (0..count as u64).map(|seed| text(words, seed)).collect();
        let mut micros = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for text in &texts {
                assert_eq!(encoder.encode(&[text]).len(), encoder.dims());
            }
            micros.push(start.elapsed().as_secs_f64() * 1e6 / count as f64);
        }
        micros.sort_by(f64::total_cmp);
        let bytes = texts.iter().map(String::len).sum::<usize>() / count;
        println!("| {words} | {bytes} | {:.1} |", micros[ROUNDS / 2]);
    }
}

/// Words of one to ten letters, the short and common ones more often.
fn text(words: usize, seed: u64) -> String {
    let mut rng = Rng::new(seed);
    let mut text = String::new();
    for _ in 0..words {
        // Out of some thousand words.
        let mut word = Rng::new((rng.below(64) * rng.below(64)) as u64);
        let letters = 1 + word.below(10);
        text.extend((0..letters).map(|_| (b'a' + word.below(26) as u8) as char));
        text.push(' ');
    }
    text
}
