//! Sentences per second of the transformer encoder, and its vectors for other tools.
//!
//! `HEADSTART_ENCODER=<model folder> cargo bench -p headstart-predict --bench encoder [-- MODE]`
//!
//! - `speed` (the default): a table over tokens per text and texts per call. `speed TOKENS TEXTS
//!   SECONDS` prints two figures: texts per second, and milliseconds of processor time per text.
//! - `vectors`: reads JSON strings, one to a line, from standard input, and answers each with
//!   `{"ids": […], "vector": […]}`.

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use headstart_predict::Encoder;
use headstart_predict::encoder::bert::BertEncoder;

/// Seconds per cell of the table.
const SECONDS: f64 = 3.0;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(folder) = std::env::var_os("HEADSTART_ENCODER") else {
        println!("SKIPPED: set HEADSTART_ENCODER to a folder with a BERT sentence encoder");
        return Ok(());
    };
    let encoder = BertEncoder::open(Path::new(&folder))?;
    // cargo passes `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] | ["speed"] => table(&encoder),
        ["speed", tokens, texts, seconds] => {
            let cell = (tokens.parse()?, texts.parse()?);
            let (rate, cpu_ms) = speed(&encoder, cell, seconds.parse()?);
            println!("{rate:.2} {cpu_ms:.3}");
        }
        ["vectors"] => vectors(&encoder)?,
        _ => return Err(format!("no mode {args:?}: speed, or vectors").into()),
    }
    Ok(())
}

fn table(encoder: &BertEncoder) {
    println!("{}", encoder.identity());
    println!("| tokens | texts per call | texts/s | CPU-ms per text |\n|---|---|---|---|");
    for tokens in [32, 128, 512] {
        for texts in [1, 16] {
            let (rate, cpu_ms) = speed(encoder, (tokens, texts), SECONDS);
            println!("| {tokens} | {texts} | {rate:.1} | {cpu_ms:.2} |");
        }
    }
}

/// Texts per second over calls of `texts` texts of `tokens` tokens, tokenization included, and
/// processor time per text, ms.
fn speed(encoder: &BertEncoder, (tokens, texts): (usize, usize), seconds: f64) -> (f64, f64) {
    let text = text_of(encoder, tokens);
    let batch = vec![text.as_str(); texts];
    std::hint::black_box(encoder.encode(&batch));
    let (start, cpu_start) = (Instant::now(), cpu_s());
    let mut encoded = 0.0;
    while start.elapsed().as_secs_f64() < seconds {
        std::hint::black_box(encoder.encode(&batch));
        encoded += texts as f64;
    }
    let elapsed = start.elapsed().as_secs_f64();
    (encoded / elapsed, (cpu_s() - cpu_start) * 1e3 / encoded)
}

/// Processor time of this process so far, all threads, in seconds; 0 where the system does not
/// say (it does on Linux, in hundredths).
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name in brackets, user and system time are fields 12 and 13.
    let fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
    let ticks = fields.skip(11).take(2).filter_map(|x| x.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// Words that make exactly `tokens` tokens, or as many as the model takes.
fn text_of(encoder: &BertEncoder, tokens: usize) -> String {
    let words = "the quick brown fox jumps over a lazy dog and then it rests near the old river";
    let mut text = String::new();
    for word in words.split(' ').cycle().take(tokens) {
        let longer = format!("{text}{word} ");
        if encoder.token_ids(&longer).len() > tokens {
            break;
        }
        text = longer;
    }
    text
}

fn vectors(encoder: &BertEncoder) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        let answer = serde_json::json!({
            "ids": encoder.token_ids(&text),
            "vector": encoder.encode(&[text.as_str()]),
        });
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
