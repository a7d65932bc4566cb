//! A model learnt from planted conversations: prompts with `go` continue, prompts with `halt` end.

use std::ops::ControlFlow;

use headstart_core::Rng;
use headstart_predict::encoder::ngram::NgramEncoder;
use headstart_predict::{
    ContinuationModel, ConversationOutcome, Dataset, DatasetSplit, Definition, Label, Situation,
    SplitShares, TrainOptions, train,
};

const WORDS: [&str; 12] = [
    "river", "stone", "cloud", "paper", "green", "seven", "table", "music", "bread", "glass",
    "north", "chair",
];

/// A prompt that says what follows.
pub(super) fn prompt(continues: bool, rng: &mut Rng) -> String {
    let mut words: Vec<_> = (0..6).map(|_| WORDS[rng.below(WORDS.len())]).collect();
    words[rng.below(6)] = if continues { "go" } else { "halt" };
    words.join(" ")
}

/// A model that knows; another `seed`, another file.
pub(super) fn model(seed: u64) -> ContinuationModel {
    let mut rng = Rng::new(seed);
    let example = |conversation: u64| {
        let continues = rng.below(2) == 0;
        let situation = Situation {
            prompts: vec![prompt(continues, &mut rng)],
            turn: 1,
            ..Situation::default()
        };
        let label = Label {
            outcome: if continues {
                ConversationOutcome::Continued
            } else {
                ConversationOutcome::Ended
            },
            turn: 1,
            conversation,
            group: conversation,
            truth: None,
        };
        (situation, label)
    };
    let (situations, labels): (Vec<_>, Vec<_>) = (0..600).map(example).unzip();
    let encoder = NgramEncoder::new();
    let definition = Definition::new(&encoder);
    let values = definition.rows(&encoder, &situations);
    let data = Dataset::new(definition, values, labels).expect("finite rows");
    let split = DatasetSplit::new(&data.labels, SplitShares::default(), seed);
    let options =
        TrainOptions { seed, batch: 32, learning_rate: 3e-3, epochs: 8, ..TrainOptions::default() };
    let trained = train(&data, &split, &options, 0, &mut |_| ControlFlow::Continue(()));
    let trained = trained.expect("there is enough to learn from");
    let mcc = trained.report.model.mcc;
    assert!(mcc > 0.9, "it learnt what was planted: MCC {mcc}");
    trained.model
}
