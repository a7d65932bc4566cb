//! The same where stored prefixes are loaded in part and packed all the time, on a model whose
//! answers can be proved: keys and values of other tokens than were asked for, or of none, are
//! wrong values.
//!
//! Packs are also compared with units, token by token, by a reader that knows the layouts from
//! their descriptions only.

use std::collections::BTreeMap;
use std::path::Path;

use headstart_core::{BlockHash, Rng};
use headstart_engine::kv::Dtype;
use headstart_engine::model::constructed::tasks::{Document, Size};
use headstart_engine::model::constructed::words::Symbol;
use headstart_engine::model::constructed::{self, HeadLayout};
use headstart_prompt::{PromptModel, SpecialTokensOut};
use headstart_store::record::Layout;
use serde_json::json;

use crate::audit::ROUNDING;
use crate::control;
use crate::pool::{Pool, Request};
use crate::support::{Scratch, Served, eventually};
use crate::{BUDGET_GIB, Campaign, number_of};

/// Kills where nothing else is asked for: some seconds.
const KILLS: usize = 12;

/// Documents, of which not all fit the disk, and their tokens: 12 units.
const DOCUMENTS: usize = 6;
const TOKENS: usize = 780;

/// Questions about each; the first ones are asked by several clients at once.
const QUESTIONS: usize = 12;
const QUESTION_TOKENS: usize = 24;

const UNIT_TOKENS: usize = 64;
const BLOCK_TOKENS: usize = 16;

/// Heads whose keys are in a part of their own, by the model's shape.
const PROBED: usize = 3;

const MODEL: [&str; 2] = ["--model", "needle-small"];

/// Memory for one prompt, so that most of what is asked comes from the disk.
const SMALL: [&str; 8] = [
    "--replicas",
    "2",
    "--cache-blocks",
    "60",
    "--host-cache-gib",
    "0.002",
    "--max-batched-tokens",
    "256",
];

/// Answers in a life, as a multiple of what is usual: packing needs something to go by.
const BUSY: usize = 12;

/// Packs as often as possible, whatever the gain; some prompts are recomputed in full.
const IMPORTANCE: &str = "ratio=0.25,least=128,when=always,reorder=0.1,check=0.05,max-kl=1000";

fn arguments(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let own = ["--context-cache", &folder, "--context-cache-gib", BUDGET_GIB];
    let all = own.into_iter().chain(["--importance", IMPORTANCE]);
    let all = all.chain(MODEL).chain(SMALL);
    all.map(str::to_owned).collect()
}

/// Questions with what is right, which is also what a server says that keeps nothing.
fn pool(documents: usize, seed: u64) -> Pool {
    let mut rng = Rng::new(seed);
    let tokenizer = PromptModel::toy().tokenizer;
    let mut requests = Vec::new();
    for _ in 0..documents {
        let document = Document::new(&mut rng, Size::of(TOKENS), Symbol::Loud);
        for _ in 0..QUESTIONS {
            let question = document.ask_value(&mut rng, QUESTION_TOKENS);
            let prompt = [&document.tokens[..], &question.tokens].concat();
            let text = tokenizer.decode(&[question.answer], SpecialTokensOut::Keep);
            let choice = json!({
                "index": 0, "text": text.expect("a token"), "finish_reason": "length",
                "logprobs": null,
            });
            requests.push(Request {
                path: "/v1/completions",
                body: json!({
                    "model": "needle-small", "max_tokens": 1, "temperature": 0, "prompt": prompt,
                }),
                salt: None,
                expected: vec![json!([choice])],
            });
        }
    }
    let count = requests.len();
    let mut pool = Pool::unanswered(requests, QUESTIONS);
    pool.learn(["--replicas", "2", "--model", "needle-small"]);
    assert_eq!(pool.num_answers(), count, "what is right is what is said");
    pool
}

/// Counts from comparing packs with units.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    packs: usize,
    /// Tokens that were compared, and those whose unit is gone.
    tokens: usize,
    without_unit: usize,
}

type Records = BTreeMap<BlockHash, Option<Vec<Vec<u8>>>>;

/// A pack's own description.
struct Description {
    part: usize,
    units: Vec<BlockHash>,
    order: Vec<usize>,
}

impl Description {
    fn of(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| -> usize {
            let bytes = bytes[at..at + 4].try_into().expect("4 bytes");
            u32::from_le_bytes(bytes) as usize
        };
        if !bytes.starts_with(b"HDST-PCK") {
            return None;
        }
        let (part, num_units, num_tokens) = (number(12), number(20), number(24));
        let order = 32 + 16 * num_units;
        let units = bytes[32..order].chunks_exact(16);
        Some(Self {
            part,
            units: units.map(|name| BlockHash(name.try_into().expect("16 bytes"))).collect(),
            order: (0..num_tokens).map(|at| number(order + 4 * at)).collect(),
        })
    }
}

/// The numbers of one token of a part that has all of a layer but the probes' keys.
fn token(part: &[u8], at: usize) -> Vec<f32> {
    let config = constructed::config(HeadLayout::Small);
    let (heads, dim) = (config.num_kv_heads, config.head_dim);
    let numbers: Vec<f32> =
        part.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let keys = (heads - PROBED) * dim;
    let block_numbers = (keys + heads * dim) * BLOCK_TOKENS;
    assert_eq!(numbers.len(), block_numbers * UNIT_TOKENS / BLOCK_TOKENS);
    let block = &numbers[at / BLOCK_TOKENS * block_numbers..][..block_numbers];
    let slot = at % BLOCK_TOKENS;
    let own_keys = (0..keys).map(|row| block[row * BLOCK_TOKENS + slot]);
    let values = &block[keys * BLOCK_TOKENS..];
    let own_values = (0..heads).flat_map(|head| {
        let start = (head * BLOCK_TOKENS + slot) * dim;
        values[start..start + dim].iter().copied()
    });
    own_keys.chain(own_values).collect()
}

impl Counts {
    /// Every token of a pack is its unit's, as far as that is there.
    pub(crate) fn compare(&mut self, records: &Records, context: &str) {
        for (name, pack) in records {
            let Some(pack) = pack else { continue };
            let Some(description) = Description::of(&pack[0]) else {
                continue;
            };
            self.packs += 1;
            for (place, &at) in description.order.iter().enumerate() {
                let unit = description.units[at / UNIT_TOKENS];
                let Some(Some(unit)) = records.get(&unit) else {
                    self.without_unit += 1;
                    continue;
                };
                let packed = token(&pack[1 + place / UNIT_TOKENS], place % UNIT_TOKENS);
                let own = token(&unit[description.part], at % UNIT_TOKENS);
                let largest = own.iter().fold(1.0, |most: f32, value| most.max(value.abs()));
                let pairs = packed.iter().zip(&own);
                let is_same =
                    |(one, other): (&f32, &f32)| (one - other).abs() <= ROUNDING * largest;
                let is_right = pairs.into_iter().all(is_same);
                assert!(is_right, "{context}: token {at} of pack {name:?} is another");
                self.tokens += 1;
            }
        }
    }
}

#[test]
#[cfg_attr(not(feature = "ablations"), ignore = "needs --features ablations")]
fn killed_while_packing_and_harmed_packs_never_answer_wrongly() {
    assert_eq!(Dtype::F32.bytes(), 4, "what is stored is read as such");
    let kills = number_of("HEADSTART_KILLS", KILLS);
    let seed = number_of("HEADSTART_SEED", 1) as u64;
    let mut campaign = Campaign::new("packs", pool(DOCUMENTS, seed), arguments, seed);
    campaign.busy = BUSY;
    campaign.run(kills);
    campaign.check();
    let tally = &campaign.tally;
    let in_part = tally.answers.in_part;
    assert!(in_part * 4 > tally.answers.compared, "{tally:?}");
    assert!(tally.packs.packs > 0 && tally.packs.tokens > 0, "{tally:?}");
}

/// A folder filled with packs whose bytes are whole by their checksums, and those of other tokens.
#[test]
#[cfg_attr(not(feature = "ablations"), ignore = "needs --features ablations")]
fn packs_of_other_tokens_would_be_seen() {
    let scratch = Scratch::new("pack-control");
    let folder = scratch.0.join("kv");
    let pool = pool(4, 5);
    let server = Served::start(arguments(&folder));
    let packs = || {
        let metrics = server.metrics();
        let lines = metrics.lines();
        let mut lines = lines.filter(|line| line.starts_with("headstart_importance_packs{"));
        lines.any(|line| !line.ends_with(" 0"))
    };
    eventually("something is packed", || {
        pool.ask_all(&server.address).check("while packing");
        packs()
    });
    drop(server);
    let mut records = control::read(&folder);
    let answers = |name: &str, records: &control::Records| {
        let folder = scratch.0.join(name);
        control::write(&folder, records, Layout::Paged);
        let server = Served::start(arguments(&folder));
        let mut answers = pool.ask_all(&server.address);
        answers.add(&pool.ask_all(&server.address));
        assert!(answers.in_part > 0, "{answers:?}");
        answers
    };
    answers("right", &records).check("the right packs");
    let mut changed = 0;
    for (_, parts) in &mut records {
        if Description::of(&parts[0]).is_none() {
            continue;
        }
        changed += 1;
        // Each token is where the one a block behind it should be.
        for chunk in &mut parts[1..] {
            let block_bytes = chunk.len() * BLOCK_TOKENS / UNIT_TOKENS;
            chunk.rotate_right(block_bytes);
        }
    }
    assert!(changed > 0, "there are packs");
    let wrong = answers("wrong", &records).wrong;
    assert!(!wrong.is_empty(), "other tokens' bytes are seen");
}
