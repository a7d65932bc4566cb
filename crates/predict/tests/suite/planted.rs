//! The whole pipeline on text with a planted signal, of known strength, for a continuation.

use std::ops::ControlFlow;
use std::sync::Arc;

use headstart_predict::encoder::ngram::NgramEncoder;
use headstart_predict::{
    ContinuationModel, ConversationOutcome, Dataset, DatasetSplit, Definition, Encoder,
    EvaluationReport, Label, Predictor, Situation, SplitShares, TrainOptions, TrainingResult,
    train,
};
use headstart_trace::format::conversation::{Conversation, Role};
use headstart_trace::synth::PlantedConfig;

/// Prompts that the published window reaches.
const WINDOW: usize = 5;

/// One example for each user turn.
fn examples(number: usize, conversation: &Conversation) -> Vec<(Situation, Label)> {
    let users = conversation.turns.iter().filter(|turn| turn.role == Role::User);
    let prompts: Vec<String> = users.map(|turn| turn.text.clone()).collect();
    let outcome = |label: Option<bool>| match label {
        Some(true) => ConversationOutcome::Continued,
        Some(false) => ConversationOutcome::Ended,
        None => ConversationOutcome::Unknown,
    };
    let example = |(at, label): (usize, Option<bool>)| {
        let prompts = prompts[(at + 1).saturating_sub(WINDOW)..=at].to_vec();
        let turn = at as u16 + 1;
        let label = Label {
            outcome: outcome(label),
            turn,
            conversation: number as u64,
            group: number as u64,
            truth: Some(conversation.truth[at]),
        };
        (Situation { prompts, turn, ..Situation::default() }, label)
    };
    conversation.labels().into_iter().enumerate().map(example).collect()
}

fn corpus(conversations: u64, strength: f64) -> (Vec<Situation>, Vec<Label>) {
    let planted = PlantedConfig { conversations, strength, ..PlantedConfig::default() };
    let conversations = planted.generate().expect("possible parameters").enumerate();
    conversations.flat_map(|(number, conversation)| examples(number, &conversation)).unzip()
}

fn encode(encoder: &dyn Encoder, situations: &[Situation], labels: Vec<Label>) -> Dataset {
    let definition = Definition::new(encoder);
    let values = definition.rows(encoder, situations);
    Dataset::new(definition, values, labels).expect("numbers")
}

fn learn(data: &Dataset, shares: SplitShares, epochs: usize) -> TrainingResult {
    let split = DatasetSplit::new(&data.labels, shares, 1);
    let options = TrainOptions { epochs, ..TrainOptions::default() };
    train(data, &split, &options, 0, &mut |_| ControlFlow::Continue(())).expect("enough data")
}

#[test]
fn a_planted_signal_is_found_and_survives_the_file() {
    let encoder = NgramEncoder::new();
    let (situations, labels) = corpus(13_000, 1.5);
    let data = encode(&encoder, &situations, labels);
    let trained = learn(&data, SplitShares::default(), 8);
    let EvaluationReport { model, turn_only, .. } = &trained.report;
    let attainable = trained.report.attainable_mcc.expect("the truth is known");
    assert!(attainable > 0.55, "{attainable}");
    assert!(model.mcc >= 0.9 * attainable, "{} of {attainable}", model.mcc);
    assert!(turn_only.mcc < model.mcc - 0.2 && model.ece < 0.06, "{model:?}");

    let copy = ContinuationModel::from_bytes(&trained.model.to_bytes()).expect("just written");
    let predictor = Predictor::new(Arc::new(copy), Arc::new(encoder)).expect("its encoder");
    let direct = trained.model.predict_rows(&data.values[..200 * data.definition.width()]);
    for (said, direct) in predictor.predict(&situations[..200]).into_iter().zip(direct) {
        let (said, direct) = (said.expect("a number"), direct.expect("a number"));
        assert!((said.value() - direct.value()).abs() < 1e-5);
    }
}

#[test]
fn nothing_is_found_where_outcomes_are_shuffled_or_the_text_tells_nothing() {
    let encoder = NgramEncoder::new();
    let shares = SplitShares { train: 0.3, validation: 0.2 };
    for (strength, seed) in [(1.5, 1), (1.5, 2), (0.0, 3)] {
        let (situations, labels) = corpus(11_000, strength);
        let data = encode(&encoder, &situations, labels);
        let report = learn(&data.shuffled(seed), shares, 4).report;
        let tested = report.parts.test.samples;
        assert!(tested >= 10_000, "{tested}");
        let found = [report.model.mcc, report.turn_only.mcc];
        assert!(found.iter().all(|mcc| mcc.abs() < 0.03), "{strength} {seed}: {found:?}");
        assert!(report.model.log_loss < report.turn_only.log_loss + 0.005, "{report:?}");
    }
}
