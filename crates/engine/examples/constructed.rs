//! Quality loss of a constructed model that sees only the important tokens of a prefix. By kept
//! ratio: the share kept, the agreement of probes, whether answers stayed right and how far the
//! next token's distribution moved.
//!
//! `cargo run -p headstart-engine --example constructed -- [TOKENS [QUESTIONS]]`

use std::sync::Arc;

use headstart_core::Rng;
use headstart_engine::LanguageModel;
use headstart_engine::kv::Dtype;
use headstart_engine::model::constructed::tasks::{Document, DocumentQuestion, Size};
use headstart_engine::model::constructed::words::Symbol;
use headstart_engine::model::constructed::{self, HeadLayout};
use reference::importance::{divergence, jaccard, likeliest, top_sets, union};
use reference::selective::ReferencePrefix;

#[path = "../tests/suite/reference/mod.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod reference;

/// Tokens of a question.
const QUESTION: usize = 16;

fn main() {
    let number = |nth, default| -> usize {
        let given = std::env::args().nth(nth).and_then(|text| text.parse().ok());
        given.unwrap_or(default)
    };
    let (tokens, questions) = (number(1, 1_000), number(2, 2));
    println!("prefix {tokens} tokens, {questions} questions of a kind, by forward passes of f64");
    println!(
        "{:<13} {:<12} {:>5} {:>6} {:>8} {:>7} {:>6} {:>9}",
        "model", "probes", "ratio", "kept", "jaccard", "needle", "most", "KL"
    );
    for shape in HeadLayout::ALL {
        let model = Arc::new(constructed::build(shape, Dtype::F32));
        let mut probes = vec![shape.probes()];
        if shape == HeadLayout::Gqa {
            // One of them in the local group; all of them in it.
            probes.extend([[0, 12, 24], [0, 1, 2]]);
        }
        let lots = lots(&model, tokens, questions);
        for probes in probes {
            for ratio in [0.05, 0.1, 0.25, 0.5] {
                let Row { kept, jaccard, needle, most, kl } = row(&model, &lots, &probes, ratio);
                println!(
                    "{:<13} {:<12} {ratio:>5} {kept:>6.3} {jaccard:>8.3} {needle:>7.2} {most:>6.2} \
                     {kl:>9.1e}",
                    shape.name(),
                    format!("{probes:?}"),
                );
            }
        }
    }
}

/// A prefix and what is asked behind it.
struct Lot {
    prefix: ReferencePrefix,
    value: DocumentQuestion,
    most: DocumentQuestion,
    /// Exact logits behind the first.
    exact: Vec<f32>,
}

fn lots(model: &Arc<LanguageModel>, tokens: usize, questions: usize) -> Vec<Lot> {
    let lot = |index: usize| {
        let mut rng = Rng::new(index as u64);
        let document = Document::new(&mut rng, Size::of(tokens), Symbol::ALL[index % 2]);
        let prefix = ReferencePrefix::compute(model, Dtype::F32, &document.tokens);
        let value = document.ask_value(&mut rng, QUESTION);
        let exact = prefix.ask_exactly(model, &value.tokens);
        Lot { prefix, value, most: document.ask_majority(&mut rng, QUESTION), exact }
    };
    (0..questions).map(lot).collect()
}

/// Means over questions, and over layers where that means something.
#[derive(Default)]
struct Row {
    kept: f64,
    jaccard: f64,
    needle: f64,
    most: f64,
    kl: f64,
}

fn row(model: &LanguageModel, lots: &[Lot], probes: &[usize], ratio: f64) -> Row {
    let mut row = Row::default();
    for lot in lots {
        let choose = |_: usize, importance: &[Vec<f32>]| union(&top_sets(importance, ratio));
        let ask =
            |question: &DocumentQuestion| lot.prefix.ask(model, &question.tokens, probes, choose);
        let right = |logits: &[f32], question: &DocumentQuestion| {
            f64::from(likeliest(logits) == question.answer as usize)
        };
        let (value, most) = (ask(&lot.value), ask(&lot.most));
        let share = 1.0 / lots.len() as f64;
        let of_layer = share / value.layers.len() as f64;
        for layer in &value.layers {
            let pairs = jaccard(&top_sets(&layer.importance, ratio));
            row.jaccard += of_layer * pairs.iter().sum::<f64>() / pairs.len() as f64;
            row.kept += of_layer * layer.kept.len() as f64 / lot.prefix.num_tokens as f64;
        }
        row.needle += share * right(&value.logits, &lot.value);
        row.most += share * right(&most.logits, &lot.most);
        row.kl += share * divergence(&lot.exact, &value.logits);
    }
    row
}
