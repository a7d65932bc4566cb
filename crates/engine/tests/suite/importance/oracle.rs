//! The engine against the obvious forward pass behind the tokens that the same decision chooses.

use std::sync::Arc;

use headstart_core::{BlockHash, Rng};
use headstart_engine::LanguageModel;
use headstart_engine::importance::{
    ImportanceConfig, PackCounts, PackingOptions, PartialLoadTally,
};
use headstart_engine::kv::Dtype;
use headstart_engine::model::constructed::tasks::{Document, Size};
use headstart_engine::model::constructed::words::Symbol;
use headstart_engine::model::constructed::{self, HeadLayout};
use headstart_selective::{Cover, Selection, Wish, fit, select};

use super::*;
use crate::reference::selective::ReferencePrefix;

/// The first token behind each question, by the reference.
fn expected(
    model: &Arc<LanguageModel>,
    importance: &ImportanceConfig,
    (document, questions): (&[TokenId], &[Vec<TokenId>]),
) -> Vec<TokenId> {
    let stored = document.len() / UNIT_TOKENS * UNIT_TOKENS;
    let (prefix, rest) = document.split_at(stored);
    let prefix = ReferencePrefix::compute(model, Dtype::F32, prefix);
    let answer = |question: &Vec<TokenId>| {
        let suffix = [rest, question].concat();
        let choose = |_: usize, importances: &[Vec<f32>]| {
            let slices: Vec<&[f32]> = importances.iter().map(Vec::as_slice).collect();
            let selection = select(&importance.selecting, &slices, suffix.len());
            let kept = kept(importance, (selection, &slices), stored);
            kept.into_iter().map(|token| token as usize).collect()
        };
        let asked = prefix.ask(model, &suffix, importance.probes.heads(), choose);
        let best = asked.logits.iter().enumerate().max_by(|one, other| one.1.total_cmp(other.1));
        best.expect("a vocabulary").0 as TokenId
    };
    questions.iter().map(answer).collect()
}

/// Returns the tokens kept of a selection from `stored` tokens, without packs.
fn kept(
    importance: &ImportanceConfig,
    (selection, importances): (Selection, &[&[f32]]),
    stored: usize,
) -> Vec<u32> {
    if selection.is_all || !importance.selecting.whole_parts {
        return selection.tokens;
    }
    let units: Vec<_> =
        (0..stored / UNIT_TOKENS).map(|unit| BlockHash::from_u64(unit as u64)).collect();
    let wish = Wish { selection: &selection, importances, spared: importance.selecting.spared };
    let cover = Cover {
        units: &units,
        skip: 0,
        unit_tokens: UNIT_TOKENS,
        part: 0,
        packs: &[],
        is_cached: &|_| false,
    };
    fit(&cover, &wish).tokens
}

fn first_tokens(answers: &[Answer]) -> Vec<TokenId> {
    answers[1..].iter().map(|answer| answer.tokens[0]).collect()
}

#[test]
fn what_is_chosen_is_what_is_seen() {
    for num_kv_heads in [8, 4, 1] {
        let model = model_of(num_kv_heads);
        for (seed, ratio, whole_parts) in
            [(1, 0.05, false), (2, 0.3, false), (3, 0.6, false), (4, 0.1, true), (5, 0.3, true)]
        {
            let (document, questions) = talk(seed);
            let mut importance = importance(&model, ratio, [0, 0]);
            importance.selecting.whole_parts = whole_parts;
            let expected = expected(&model, &importance, (&document, &questions));
            let (shelf, _) = Shelf::new(seed, 0, true);
            let mut engine = engine(&model, 200, Some(importance), shelf);
            let (answers, _) = converse(&mut engine, (&document, &questions), true);
            let place = format!("{num_kv_heads}, {ratio}, {whole_parts}");
            assert_eq!(first_tokens(&answers), expected, "{place}");
        }
    }
}

/// A document of the constructed model and questions about its facts, with their answers.
fn facts(seed: u64, count: usize) -> (Vec<TokenId>, Vec<Vec<TokenId>>, Vec<TokenId>) {
    let mut rng = Rng::new(seed);
    let document = Document::new(&mut rng, Size::of(16 * UNIT_TOKENS), Symbol::Loud);
    let questions: Vec<_> = (0..count).map(|_| document.ask_value(&mut rng, 24)).collect();
    let answers = questions.iter().map(|question| question.answer).collect();
    let questions = questions.into_iter().map(|question| question.tokens).collect();
    (document.tokens, questions, answers)
}

/// Results of questions about facts.
struct Told {
    /// All tokens that were generated, behind the document first.
    tokens: Vec<Vec<TokenId>>,
    tally: PartialLoadTally,
    packs: PackCounts,
}

/// Asks about facts, and expects the right answers.
fn tell(
    (document, questions, right): &(Vec<TokenId>, Vec<Vec<TokenId>>, Vec<TokenId>),
    (whole_parts, packs): (bool, bool),
    kept_bytes: [u64; 2],
) -> Told {
    let model = Arc::new(constructed::build(HeadLayout::Small, Dtype::F32));
    let mut importance = importance(&model, 0.25, kept_bytes);
    importance.selecting.falls_back = true;
    importance.selecting.whole_parts = whole_parts;
    importance.packing = packs.then(|| PackingOptions {
        nodes: headstart_selective::NodeOptions {
            unit_tokens: UNIT_TOKENS,
            interval: std::time::Duration::from_nanos(1),
            ..Default::default()
        },
        most_units: 1_000,
    });
    let (shelf, _) = Shelf::new(5, 0, true);
    let shelf = shelf.with_format(&model, &importance.probes);
    let mut engine = engine(&model, 400, Some(importance), shelf);
    let (answers, _) = converse(&mut engine, (document, questions), true);
    assert_eq!(&first_tokens(&answers), right, "{whole_parts} {kept_bytes:?}");
    let report = engine.importance().expect("it is on");
    assert_eq!(report.packs.made > 0, packs, "{:?}", report.packs);
    Told {
        tokens: answers.into_iter().map(|answer| answer.tokens).collect(),
        tally: report.tally,
        packs: report.packs,
    }
}

/// Packs are made, read, and change nothing but what is read.
#[test]
fn packs_bring_the_same_tokens_with_fewer_reads() {
    let facts = facts(5, 12);
    let told = [(false, 0), (true, 0), (true, 1 << 30)];
    let told = told.map(|(packs, kept)| tell(&facts, (false, packs), [0, kept]));
    let reads = told.each_ref().map(|run| run.tally.chunks);
    assert!(reads[1] * 5 < reads[0] * 4, "{reads:?} chunks");
    // What was kept before there were packs makes room for them.
    assert!(reads[2] * 20 <= reads[1] * 21, "{reads:?} chunks");
    assert!(told.iter().all(|run| run.tokens == told[0].tokens));
}

/// The configuration of `serve`: whole parts, and packs. Keeping parts in memory changes no answer.
#[test]
fn whole_parts_and_packs_bring_the_right_answers_with_fewest_reads() {
    let facts = facts(5, 12);
    let tokens = tell(&facts, (false, true), [0, 0]);
    let unpacked = tell(&facts, (true, false), [0, 0]);
    let whole = [[0, 0], [0, 1 << 30]].map(|kept| tell(&facts, (true, true), kept));
    for told in &whole {
        let reads = [told, &tokens, &unpacked].map(|run| run.tally.chunks);
        assert!(reads[0] < reads[1] && reads[0] < reads[2], "{reads:?} chunks");
        assert!(told.packs.packs > 0, "{:?}", told.packs);
        assert_eq!(told.tally.failed, 0);
    }
    assert!(whole[1].tally.parts[1] > 0, "some were kept in host memory");
    assert_eq!(whole[0].tokens, whole[1].tokens);
}

/// A guard that looks at every answer sees no harm in facts, and bars what needs everything.
#[test]
fn the_guard_bars_what_needs_all_of_it() {
    let model = Arc::new(constructed::build(HeadLayout::Small, Dtype::F32));
    for needs_all in [false, true] {
        let mut rng = Rng::new(9);
        let document = Document::new(&mut rng, Size::of(16 * UNIT_TOKENS), Symbol::Quiet);
        let mut ask = |_| {
            if needs_all {
                document.ask_majority(&mut rng, 24).tokens
            } else {
                document.ask_value(&mut rng, 24).tokens
            }
        };
        let questions: Vec<_> = (0..6).map(&mut ask).collect();
        let mut importance = importance(&model, 0.25, [0, 0]);
        // Whole chunks show enough of a document this small.
        importance.selecting.whole_parts = false;
        importance.guard = GuardOptions { sample: 1.0, ..GuardOptions::default() };
        let (shelf, _) = Shelf::new(6, 0, true);
        let mut engine = engine(&model, 400, Some(importance), shelf);
        let (answers, _) = converse(&mut engine, (&document.tokens, &questions), true);
        let guard = engine.importance().expect("it is on").guard;
        let partly = answers.iter().filter(|answer| answer.partly.is_some()).count();
        if needs_all {
            assert_eq!((guard.compared, guard.barred, partly), (1, 1, 1));
            let exact = answers[2..].iter().all(|answer| answer.partly.is_none());
            assert!(exact, "the others are answered from all of it");
        } else {
            assert_eq!((guard.compared, guard.agreed, guard.barred, partly), (6, 6, 0, 6));
        }
    }
}
