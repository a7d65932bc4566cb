//! Documents, and questions about them.

use std::sync::Arc;

use anyhow::{Context, Result};
use headstart_core::{Rng, TokenId, UsageError};
use headstart_engine::LanguageModel;
use headstart_engine::kv::Dtype;
use headstart_engine::model::constructed::HeadLayout;
use headstart_engine::model::constructed::tasks::{Document, Size};
use headstart_engine::model::constructed::words::Symbol;

use super::ImportanceBench;
use headstart_prompt::tokenizer::SpecialTokensIn;

use headstart::parts::load_model;

/// Tokens of a question.
pub(super) const QUESTION_TOKENS: usize = 32;

/// Tokens of a document behind its last whole chunk at most: then a chunk is never lost to them.
const MOST_CHUNK: usize = 64;

/// A question to the model.
pub(super) struct BenchQuestion {
    /// About which document.
    pub(super) document: usize,
    pub(super) tokens: Vec<TokenId>,
    /// The right next token, where that is known.
    pub(super) answer: Option<TokenId>,
}

/// A model, documents, and the source of questions about them.
pub(super) struct DocumentWorkload {
    pub(super) name: String,
    pub(super) model: Arc<LanguageModel>,
    /// Whole chunks.
    pub(super) documents: Vec<Vec<TokenId>>,
    asks: Asks,
}

/// Source of the questions.
enum Asks {
    /// Of the constructed models: values, or the majority.
    Needle { documents: Vec<Document>, is_value: bool },
    /// The pieces of a text behind the documents.
    Text(Vec<Vec<TokenId>>),
    /// Noise from a vocabulary of this size.
    Noise(usize),
}

/// Loads the model, documents and questions of `bench`.
pub(super) fn load(bench: &ImportanceBench, dtype: Dtype) -> Result<DocumentWorkload> {
    let loaded = load_model(&bench.model, dtype)?;
    // Documents are whole chunks in every layout, so no tokens are left over.
    let tokens = bench.prefix / MOST_CHUNK * MOST_CHUNK;
    // The question and one answer token must fit the context as well.
    let most = loaded.model.config.max_context.saturating_sub(QUESTION_TOKENS + 1);
    if !(MOST_CHUNK..=most).contains(&tokens) {
        let (prefix, model) = (bench.prefix, &bench.model);
        let problem = format!("--prefix {prefix}: expected {MOST_CHUNK} to {most} for {model}");
        return Err(UsageError(problem).into());
    }
    refuse_ignored(bench)?;
    // The seed is fixed: every variant and every run gets the same documents.
    let mut rng = Rng::new(8);
    let (documents, asks) = match (HeadLayout::named(&bench.model), &bench.text) {
        (Some(_), _) => {
            let is_value = match &bench.task[..] {
                "value" => true,
                "majority" => false,
                other => {
                    let problem = format!("--task {other}: expected value or majority");
                    return Err(UsageError(problem).into());
                }
            };
            let size = Size::of(tokens);
            // Both in turn: who always says the same is right half of the time.
            let draw = |index: usize| {
                let majority = [Symbol::Loud, Symbol::Quiet][index % 2];
                Document::new(&mut rng, size, majority)
            };
            let documents: Vec<Document> = (0..bench.documents).map(draw).collect();
            let texts = documents.iter().map(|document| document.tokens.clone()).collect();
            (texts, Asks::Needle { documents, is_value })
        }
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            let encoded = loaded.prompt.tokenizer.encode(&text, SpecialTokensIn::AddBosEos)?;
            pieces(&encoded, bench.documents, tokens)?
        }
        (None, None) => {
            let vocab = loaded.model.config.vocab;
            let draw = |_| noise(&mut rng, tokens, vocab);
            let documents = (0..bench.documents).map(draw).collect();
            (documents, Asks::Noise(vocab))
        }
    };
    Ok(DocumentWorkload { name: loaded.name, model: loaded.model, documents, asks })
}

/// Refuses what would say nothing to this model.
fn refuse_ignored(bench: &ImportanceBench) -> Result<()> {
    let is_needle = HeadLayout::named(&bench.model).is_some();
    let problem = match (is_needle, &bench.text) {
        (true, Some(_)) => "--text has no effect on a needle model, which reads no text",
        (false, _) if bench.task != "value" => "--task needs a needle model",
        _ => return Ok(()),
    };
    Err(UsageError(problem.to_owned()).into())
}

/// A text as documents, one behind the other, and questions from what is left.
fn pieces(encoded: &[TokenId], count: usize, tokens: usize) -> Result<(Vec<Vec<TokenId>>, Asks)> {
    // One question at least must be left after the documents.
    let needed = count * tokens + QUESTION_TOKENS;
    if encoded.len() < needed {
        let found = encoded.len();
        let problem = format!("--text has {found} tokens, and {needed} are needed");
        return Err(UsageError(problem).into());
    }
    let (documents, rest) = encoded.split_at(count * tokens);
    let documents = documents.chunks_exact(tokens).map(<[_]>::to_vec).collect();
    let questions = rest.chunks_exact(QUESTION_TOKENS).map(<[_]>::to_vec);
    Ok((documents, Asks::Text(questions.collect())))
}

fn noise(rng: &mut Rng, len: usize, vocab: usize) -> Vec<TokenId> {
    (0..len).map(|_| rng.below(vocab) as TokenId).collect()
}

impl DocumentWorkload {
    /// Tokens of a document.
    pub(super) fn tokens(&self) -> usize {
        self.documents[0].len()
    }

    /// A question, which its number fixes, about any document.
    pub(super) fn question(&self, number: u64) -> BenchQuestion {
        let mut rng = Rng::new(number);
        // Each half as often as the one before it, the last as often as that one.
        let last = self.documents.len() - 1;
        let heads = std::iter::repeat_with(|| rng.below(2)).take_while(|&coin| coin == 0);
        let document = heads.take(last).count();
        self.question_about(document, &mut rng)
    }

    /// A question, which its number fixes, about one document.
    pub(super) fn about(&self, document: usize, number: u64) -> BenchQuestion {
        self.question_about(document, &mut Rng::new(number))
    }

    fn question_about(&self, document: usize, rng: &mut Rng) -> BenchQuestion {
        let (tokens, answer) = match &self.asks {
            Asks::Needle { documents, is_value } => {
                let asked = &documents[document];
                let question = if *is_value {
                    asked.ask_value(rng, QUESTION_TOKENS)
                } else {
                    asked.ask_majority(rng, QUESTION_TOKENS)
                };
                (question.tokens, Some(question.answer))
            }
            Asks::Text(pieces) => (pieces[rng.below(pieces.len())].clone(), None),
            Asks::Noise(vocab) => (noise(rng, QUESTION_TOKENS, *vocab), None),
        };
        BenchQuestion { document, tokens, answer }
    }
}
