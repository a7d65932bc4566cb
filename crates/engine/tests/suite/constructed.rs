//! The constructed models answer what they were constructed to answer, with all of a prefix; and
//! with its important tokens only they still find facts, and cannot count any more.

use std::sync::Arc;

use headstart_cache::policy::Lru;
use headstart_core::{BlockId, Nanos, Rng, SeqId, TokenId};
use headstart_engine::kv::{Dtype, KvStorageFormat};
use headstart_engine::model::constructed::tasks::{Document, DocumentQuestion, Size};
use headstart_engine::model::constructed::words::{Symbol, TokenMeaning};
use headstart_engine::model::constructed::{self, HeadLayout};
use headstart_engine::{CpuExecutor, LanguageModel, QueueOrder, Sampling, Submit};
use headstart_engine::{Engine, EngineConfig, Submission};
use headstart_scheduler::{Batch, Entry, Output};

use crate::reference::importance::{divergence, jaccard, likeliest, top_sets, union};
use crate::reference::selective::{ReferencePrefix, SuffixResult};

const BLOCK_SIZE: usize = 16;

/// Tokens of a long prefix, as in the published measurements.
const LONG: usize = 5_000;

/// Tokens of a question.
const QUESTION: usize = 24;

/// Kept by each probe.
const RATIO: f64 = 0.25;

fn model(shape: HeadLayout, dtype: Dtype) -> Arc<LanguageModel> {
    Arc::new(constructed::build(shape, dtype))
}

/// A prefix in the engine's own pool, and questions behind it, one over the other.
struct Exact {
    executor: CpuExecutor,
    start: usize,
}

impl Exact {
    fn new(model: &Arc<LanguageModel>, dtype: Dtype, prefix: &[TokenId]) -> Self {
        let num_blocks = (prefix.len() + QUESTION).div_ceil(BLOCK_SIZE);
        let mut exact = Self {
            executor: CpuExecutor::new(model.clone(), dtype, num_blocks, BLOCK_SIZE),
            start: 0,
        };
        exact.logits(prefix);
        exact.start = prefix.len();
        exact
    }

    fn logits(&mut self, tokens: &[TokenId]) -> Vec<f32> {
        let blocks = (0..(self.start + tokens.len()).div_ceil(BLOCK_SIZE) as u32).map(BlockId);
        let entry = Entry {
            seq: SeqId(1),
            tokens: tokens.to_vec(),
            start: self.start,
            blocks: blocks.collect(),
            sampling: Some(Sampling::default()),
            pruned: None,
        };
        self.executor.logits(&Batch { entries: vec![entry], ..Batch::default() })
    }

    fn answers(&mut self, question: &DocumentQuestion) -> bool {
        likeliest(&self.logits(&question.tokens)) == question.answer as usize
    }
}

/// Asks `facts` values and the majority behind a document; all must be right.
fn check(shape: HeadLayout, dtype: Dtype, tokens: usize, facts: usize, seed: u64) {
    let mut rng = Rng::new(seed);
    let majority = Symbol::ALL[seed as usize % 2];
    let document = Document::new(&mut rng, Size::of(tokens), majority);
    let model = model(shape, dtype);
    let mut exact = Exact::new(&model, dtype, &document.tokens);
    let case = format!("{shape:?}, {dtype:?}, {tokens} tokens, seed {seed}");
    for index in 0..facts {
        let question = document.ask_value(&mut rng, QUESTION);
        assert!(exact.answers(&question), "{case}: fact {index}");
    }
    let question = document.ask_majority(&mut rng, QUESTION);
    assert!(exact.answers(&question), "{case}: majority");
}

#[test]
fn every_question_behind_5000_tokens_is_answered_by_mha() {
    check(HeadLayout::Mha, Dtype::F32, LONG, 6, 1);
}

#[test]
fn every_question_behind_5000_tokens_is_answered_by_gqa() {
    check(HeadLayout::Gqa, Dtype::Bf16, LONG, 6, 3);
}

#[test]
fn every_question_behind_5000_tokens_is_answered_by_the_small_one() {
    for seed in 0..2 {
        check(HeadLayout::Small, Dtype::F32, LONG, 15, seed);
        check(HeadLayout::Small, Dtype::Bf16, LONG, 15, 2 + seed);
    }
    check(HeadLayout::Small, Dtype::Bf16, 8_000, 15, 7);
}

#[test]
fn every_question_behind_shorter_prefixes_is_answered() {
    for shape in HeadLayout::ALL {
        for (dtype, seed) in [(Dtype::F32, 0), (Dtype::F32, 1), (Dtype::Bf16, 2), (Dtype::Bf16, 3)]
        {
            check(shape, dtype, 120, 5, seed);
            check(shape, dtype, 900, 8, seed);
        }
    }
}

#[test]
fn the_engine_answers_with_the_value() {
    let config = EngineConfig {
        cache_blocks: 100,
        block_size: BLOCK_SIZE,
        kv_dtype: Dtype::Bf16,
        stored: KvStorageFormat::Same,
        max_batched_tokens: 512,
        max_sequences: 2,
        max_waiting: 2,
        order: QueueOrder::FirstCome,
    };
    let mut rng = Rng::new(11);
    let document = Document::new(&mut rng, Size::of(1_000), Symbol::Loud);
    for shape in HeadLayout::ALL {
        let model = model(shape, Dtype::Bf16);
        let mut engine = Engine::new(model, shape.name(), config, Box::new(Lru::new(100)));
        for id in 0..3 {
            let question = document.ask_value(&mut rng, QUESTION);
            let submission =
                Submission::greedy(SeqId(id), [&document.tokens[..], &question.tokens].concat(), 1);
            assert_eq!(engine.submit(submission, Nanos(0)), Submit::Queued);
            let mut answer = Vec::new();
            while !engine.is_idle() {
                for output in engine.step(Nanos(0)).outputs {
                    if let Output::Token { token, .. } = output {
                        answer.push(token);
                    }
                }
            }
            assert_eq!(answer, [question.answer], "{shape:?}, question {id}");
        }
    }
}

#[test]
fn the_selective_reference_with_everything_is_the_engine() {
    for (shape, dtype) in [
        (HeadLayout::Mha, Dtype::F32),
        (HeadLayout::Gqa, Dtype::F32),
        (HeadLayout::Small, Dtype::Bf16),
    ] {
        let model = model(shape, dtype);
        let mut rng = Rng::new(5);
        let document = Document::new(&mut rng, Size::of(1_000), Symbol::Quiet);
        let prefix = ReferencePrefix::compute(&model, dtype, &document.tokens);
        let mut exact = Exact::new(&model, dtype, &document.tokens);
        // A rounding of keys to bf16 is decided by differences of 1e-7.
        let tolerance = if dtype == Dtype::F32 { 2e-3 } else { 5e-2 };
        for question in
            [document.ask_value(&mut rng, QUESTION), document.ask_majority(&mut rng, QUESTION)]
        {
            let got = prefix.ask_exactly(&model, &question.tokens);
            let expected = exact.logits(&question.tokens);
            let errors = got.iter().zip(&expected).map(|(a, b)| (a - b).abs());
            let error = errors.fold(0.0, f32::max);
            assert!(error < tolerance, "{shape:?}, {dtype:?}: {error}");
        }
    }
}

/// Results of questions behind important tokens only.
#[derive(Default)]
struct Tally {
    asked: usize,
    /// Values answered as by the whole prefix, and rightly.
    values: usize,
    majorities: usize,
    /// Of pairs of probes, over all layers.
    jaccard: Vec<f64>,
    /// Share of the prefix that was seen, largest over layers and questions.
    kept: f64,
    divergence: f64,
}

/// Asks values and the majority behind `documents` documents, of each majority as many.
fn tally(shape: HeadLayout, probes: [usize; 3], documents: usize, values: usize) -> Tally {
    let model = model(shape, Dtype::F32);
    // The large ones compute forty times as much.
    let tokens = if shape == HeadLayout::Small { LONG } else { LONG / 2 };
    let mut tally = Tally::default();
    let choose = |_: usize, importance: &[Vec<f32>]| union(&top_sets(importance, RATIO));
    for seed in 0..documents {
        let mut rng = Rng::new(100 + seed as u64);
        let majority = Symbol::ALL[seed % 2];
        let document = Document::new(&mut rng, Size::of(tokens), majority);
        let prefix = ReferencePrefix::compute(&model, Dtype::F32, &document.tokens);
        let mut exact = Exact::new(&model, Dtype::F32, &document.tokens);
        let ask =
            |question: &DocumentQuestion| prefix.ask(&model, &question.tokens, &probes, choose);
        for _ in 0..values {
            let question = document.ask_value(&mut rng, QUESTION);
            let asked = ask(&question);
            let whole = exact.logits(&question.tokens);
            assert_eq!(likeliest(&whole), question.answer as usize, "{shape:?}, {seed}");
            tally.asked += 1;
            tally.values += usize::from(likeliest(&asked.logits) == question.answer as usize);
            tally.divergence += divergence(&whole, &asked.logits);
            tally.note(&asked, document.tokens.len());
            if probes == shape.probes() {
                sharp(&asked, place_of(&document, &question));
            }
        }
        let question = document.ask_majority(&mut rng, QUESTION);
        assert!(exact.answers(&question), "{shape:?}, {seed}");
        let answer = likeliest(&ask(&question).logits);
        tally.majorities += usize::from(answer == question.answer as usize);
    }
    println!("{shape:?} {probes:?}: {tally:?}");
    tally
}

/// Returns the position in the document of the answer to a question about a value.
fn place_of(document: &Document, question: &DocumentQuestion) -> usize {
    let key = question.tokens.last();
    let key = document.tokens.iter().position(|token| Some(token) == key);
    1 + key.expect("the key that is asked for is in the document")
}

/// Matching heads, which the probes are behind the first layer, look at the asked place alone.
fn sharp(asked: &SuffixResult, place: usize) {
    for layer in &asked.layers[1..] {
        for importance in &layer.importance {
            assert!(importance[place] > 0.9, "{}", importance[place]);
        }
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let least = self.jaccard.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.jaccard.iter().copied().fold(0.0, f64::max);
        let mean = self.jaccard.iter().sum::<f64>() / self.jaccard.len() as f64;
        write!(
            f,
            "{} of {} values, {} majorities, jaccard {least:.3} to {most:.3}, mean {mean:.3}, at \
             most {:.3} kept, divergence {:.1e}",
            self.values,
            self.asked,
            self.majorities,
            self.kept,
            self.divergence / self.asked as f64
        )
    }
}

impl Tally {
    fn note(&mut self, asked: &SuffixResult, tokens: usize) {
        for layer in &asked.layers {
            self.jaccard.extend(jaccard(&top_sets(&layer.importance, RATIO)));
            self.kept = self.kept.max(layer.kept.len() as f64 / tokens as f64);
        }
    }
}

/// Facts are found, the majority is not; probes agree, not entirely.
fn selective(shape: HeadLayout, documents: usize, values: usize) {
    let tally = tally(shape, shape.probes(), documents, values);
    assert_eq!(tally.values, tally.asked, "{tally:?}");
    // What is left of the symbols is mostly the loud one, whatever the majority.
    assert!(tally.majorities <= documents / 2, "{tally:?}");
    let within = |pair: &f64| (0.5..0.98).contains(pair);
    assert!(tally.jaccard.iter().all(within), "{tally:?}");
    assert!(tally.kept < 0.4, "{tally:?}");
    // Something was lost all the same.
    assert!(tally.divergence > 0.0, "{tally:?}");
}

#[test]
fn important_tokens_answer_for_facts_and_not_for_counts_in_mha() {
    selective(HeadLayout::Mha, 2, 1);
}

#[test]
fn important_tokens_answer_for_facts_and_not_for_counts_in_gqa() {
    selective(HeadLayout::Gqa, 2, 2);
}

#[test]
fn important_tokens_answer_for_facts_and_not_for_counts_in_the_small_one() {
    selective(HeadLayout::Small, 2, 8);
}

#[test]
fn probes_of_one_group_agree_on_the_wrong_tokens() {
    let tally = tally(HeadLayout::Gqa, [0, 1, 2], 1, 4);
    // They choose the most recent quarter, which holds a quarter of the facts.
    assert!(2 * tally.values <= tally.asked, "{tally:?}");
    assert!(tally.jaccard.iter().all(|pair| *pair > 0.9), "{tally:?}");
}

#[test]
fn ids_that_mean_nothing_are_filler() {
    let model = model(HeadLayout::Small, Dtype::F32);
    let all: Vec<TokenId> = (0..model.config.vocab as TokenId).collect();
    let mut exact = Exact::new(&model, Dtype::F32, &all);
    let logits = exact.logits(&[TokenMeaning::Most.token()]);
    assert!(logits.iter().all(|logit| logit.is_finite()));
}
