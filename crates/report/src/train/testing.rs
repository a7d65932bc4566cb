//! A report made by hand.

use headstart_predict::metrics::Bin;
use headstart_predict::training::{InputFacts, Lift, PhaseTimes, SplitCounts, TrainReport};
use headstart_predict::{Counts, Definition, Epoch, LearningCurvePoint, Scores, encoder};

fn scores(mcc: f64) -> Scores {
    let bin = |from: f64, count| Bin {
        from,
        to: from + 0.5,
        count,
        mean_p: from + 0.25,
        share: from + 0.3,
    };
    Scores {
        samples: 600,
        base_rate: 0.55,
        threshold: 0.5,
        mcc,
        mcc_low: mcc - 0.05,
        mcc_high: mcc + 0.05,
        macro_f1: 0.6,
        auc: 0.7,
        ece: 0.03,
        log_loss: 0.6,
        brier: 0.2,
        bins: vec![bin(0.0, 100), bin(0.5, 500)],
    }
}

/// One point for each MCC, each with twice the conversations of the one before.
pub(super) fn curve(mccs: &[f64]) -> Vec<LearningCurvePoint> {
    let point = |(index, &mcc): (usize, &f64)| LearningCurvePoint {
        conversations: 500 << index,
        samples: 1_000 << index,
        scores: scores(mcc),
    };
    mccs.iter().enumerate().map(point).collect()
}

/// MCC 0.4, turn count alone 0.1, 300 conversations in the test part, no curve.
pub(super) fn report() -> TrainReport {
    let counts = Counts { samples: 600, conversations: 300, continued: 330 };
    let epoch =
        |epoch| Epoch { member: 1, epoch, train_loss: 0.7, validation_loss: 0.69, is_best: true };
    TrainReport {
        inputs: vec![InputFacts {
            file: "chats.jsonl".to_owned(),
            kind: "conversations",
            conversations: 2_000,
            groups: 1_990,
            turns: 4_010,
            unknown: 10,
            remarks: vec!["a remark".to_owned()],
        }],
        definition: Definition::new(&encoder::ngram::NgramEncoder::new()),
        fingerprint: "0123456789abcdef0123".to_owned(),
        model: Some("model.hsp".to_owned()),
        seed: 7,
        is_shuffled: false,
        parts: SplitCounts { train: counts, validation: counts, test: counts },
        unknown: 10,
        train: scores(0.5),
        validation: scores(0.42),
        test: scores(0.4),
        turn_only: scores(0.1),
        lift: Lift { mcc: 0.3, low: 0.2, high: 0.4 },
        attainable_mcc: None,
        curve: Vec::new(),
        epochs: vec![epoch(1), epoch(2)],
        seeds: Vec::new(),
        elsewhere: Vec::new(),
        times: PhaseTimes::default(),
    }
}
