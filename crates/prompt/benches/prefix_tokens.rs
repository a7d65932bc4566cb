//! Whole tokenization against the prefix-tokenization cache, for a fifth turn.
//!
//! `cargo bench -p headstart-prompt --bench prefix_tokens [-- KILOBYTES]`
//!
//! Prompts of 400 KB (or as many as given) out of real conversations where `shared/data` stands
//! beside the workspace, generated text otherwise. `HEADSTART_TOKENIZER=<tokenizer.json>`
//! measures that tokenizer instead of the toy's.
//!
//! | row | |
//! |---|---|
//! | whole | `Tokenizer::encode`, the words' own caches warm |
//! | cold | nothing of the prompt was seen |
//! | fifth turn | four fifths of it were |
//! | repeated | all of it was |
//! | fastokens' segments | its own cache of whole messages, for the fifth turn |
//! | tokenizers | the reference implementation, whole |
//!
//! Median of interleaved rounds; each round has its own texts. `fastokens` spreads whole texts
//! over threads; run on one core (`taskset -c 0`) to compare processor time.

use std::sync::Arc;
use std::time::Instant;

use headstart_core::Rng;
use headstart_prompt::prefix_tokens::CAPACITY_BYTES;
use headstart_prompt::{PrefixTokens, SpecialTokensIn, Tokenizer};

const ROUNDS: usize = 15;
const TOY: &[u8] = include_bytes!("../../../data/toy-tokenizer/tokenizer.json");
const SPECIAL: SpecialTokensIn = SpecialTokensIn::ParseOnly;
/// Of conversations read.
const DATA_BYTES: u64 = 16 << 20;

fn main() {
    let kilobytes = std::env::args().filter_map(|arg| arg.parse().ok()).next();
    let bytes = 1000 * kilobytes.unwrap_or(400);
    let json = match std::env::var_os("HEADSTART_TOKENIZER") {
        Some(path) => std::fs::read(path).expect("HEADSTART_TOKENIZER is a tokenizer.json"),
        None => TOY.to_vec(),
    };
    let tokenizer = Arc::new(Tokenizer::from_bytes(&json).expect("it is a tokenizer.json"));
    let source = source();
    let start = Instant::now();
    let cache = cache(&tokenizer, 4096);
    let self_test_ms = start.elapsed().as_secs_f64() * 1e3;
    println!("{cache:?}\nself-test {self_test_ms:.1} ms, prompts of {bytes} bytes\n");
    println!("| row | segment bytes | ms, median | slowest |");
    println!("|---|---|---|---|");
    let mut rows = rows(&tokenizer, &json);
    let mut rng = Rng::new(11);
    for round in 0..=ROUNDS {
        let turns: Vec<String> = (0..5).map(|_| turn(&source, bytes / 5, &mut rng)).collect();
        let (before, text) = (turns[..4].concat(), turns.concat());
        let expected = tokenizer.encode(&text, SPECIAL).expect("it tokenizes");
        for row in &mut rows {
            row.subject.prepare(&before);
            let start = Instant::now();
            let tokens = row.subject.encode(&text);
            // The first round warms what is warmed once.
            if round > 0 {
                row.wall_ms.push(start.elapsed().as_secs_f64() * 1e3);
            }
            assert!(tokens == expected, "{}", row.name);
        }
    }
    for row in &mut rows {
        row.wall_ms.sort_by(f64::total_cmp);
        let (median, slowest) = (row.wall_ms[ROUNDS / 2], row.wall_ms[ROUNDS - 1]);
        println!("| {} | {median:.2} | {slowest:.2} |", row.name);
    }
}

struct Row {
    name: String,
    subject: Subject,
    wall_ms: Vec<f64>,
}

enum Subject {
    Whole(Arc<Tokenizer>),
    /// As the rows before it left the cache.
    Cache(Arc<PrefixTokens>),
    /// Behind four of the five turns.
    FifthTurn(Box<PrefixTokens>),
    FastokensSegments(Box<fastokens::Tokenizer>),
    Reference(Box<tokenizers::Tokenizer>),
}

impl Subject {
    fn prepare(&self, four_turns: &str) {
        if let Self::FifthTurn(_) | Self::FastokensSegments(_) = self {
            self.encode(four_turns);
        }
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        let tokens = match self {
            Self::Whole(tokenizer) => tokenizer.encode(text, SPECIAL).ok(),
            Self::Cache(cache) => cache.encode(text, SPECIAL).ok(),
            Self::FifthTurn(cache) => cache.encode(text, SPECIAL).ok(),
            Self::FastokensSegments(tokenizer) => tokenizer.encode(text).ok(),
            Self::Reference(tokenizer) => {
                let encoding = tokenizer.encode_fast(text, false).ok();
                encoding.map(|encoding| encoding.get_ids().to_vec())
            }
        };
        tokens.expect("it tokenizes")
    }
}

fn rows(tokenizer: &Arc<Tokenizer>, json: &[u8]) -> Vec<Row> {
    let row = |name: String, subject| Row { name, subject, wall_ms: Vec::new() };
    let whole = Subject::Whole(Arc::clone(tokenizer));
    let mut rows = vec![row("whole | –".to_owned(), whole)];
    for segment_bytes in [1024, 2048, 4096, 8192, 16_384] {
        let named = |name: &str| format!("{name} | {segment_bytes}");
        let cache = || self::cache(tokenizer, segment_bytes);
        // Rows run in this order, so the text is new, and then it is not.
        let seen = Arc::new(cache());
        rows.push(row(named("cold"), Subject::Cache(Arc::clone(&seen))));
        rows.push(row(named("repeated"), Subject::Cache(seen)));
        rows.push(row(named("fifth turn"), Subject::FifthTurn(Box::new(cache()))));
    }
    if let Some(segments) = fastokens_segments(json) {
        rows.push(row("fastokens' segments | –".to_owned(), segments));
    }
    let reference = tokenizers::Tokenizer::from_bytes(json).expect("it was read before");
    let reference = Subject::Reference(Box::new(reference));
    rows.push(row("tokenizers | –".to_owned(), reference));
    rows
}

/// The cache that `fastokens` brings, where it serves this tokenizer.
fn fastokens_segments(json: &[u8]) -> Option<Subject> {
    let json = serde_json::from_slice(json).ok()?;
    let mut fast = fastokens::Tokenizer::from_json(json).ok()?;
    fast.set_truncation(None);
    fast.enable_segment_cache(CAPACITY_BYTES);
    Some(Subject::FastokensSegments(Box::new(fast)))
}

fn cache(tokenizer: &Arc<Tokenizer>, segment_bytes: usize) -> PrefixTokens {
    let cache = PrefixTokens::new(Arc::clone(tokenizer), CAPACITY_BYTES, [1; 32]);
    cache.with_segment_bytes(segment_bytes)
}

/// One turn of about `bytes` bytes, from anywhere in `source`.
fn turn(source: &[char], bytes: usize, rng: &mut Rng) -> String {
    let mut text = String::from("<|im_start|>user\n");
    while text.len() + 11 < bytes {
        let start = rng.below(source.len() - 1);
        // Long enough for a user's text, short enough for a turn of its own.
        let end = source.len().min(start + 2000);
        for &character in &source[start..end] {
            if text.len() + 11 < bytes {
                text.push(character);
            }
        }
    }
    text + "<|im_end|>\n"
}

/// Real conversations one behind the other, or words.
fn source() -> Vec<char> {
    use std::io::Read;
    let data = "../../../shared/data/lmcache-agent-text/requests.jsonl.zst";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(data);
    let Ok(file) = std::fs::File::open(path) else {
        println!("no shared/data beside the workspace: generated words");
        let mut rng = Rng::new(1);
        let word = |rng: &mut Rng| format!("word{} ", rng.below(3000));
        return (0..200_000).flat_map(|_| word(&mut rng).chars().collect::<Vec<_>>()).collect();
    };
    let decoder = ruzstd::decoding::StreamingDecoder::new(std::io::BufReader::new(file));
    let mut lines = Vec::new();
    let mut decoder = decoder.expect("the data is zstd").take(DATA_BYTES);
    decoder.read_to_end(&mut lines).expect("the data is zstd");
    let lines = String::from_utf8_lossy(&lines).into_owned();
    let texts = lines.lines().filter_map(|line| {
        let request: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(request["input"].as_str()?.to_owned())
    });
    texts.collect::<String>().chars().collect()
}
