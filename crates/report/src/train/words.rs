//! Interpretation of the figures in sentences, which claim no more than the figures show.

use headstart_core::figures::{counted, thousands};
use headstart_predict::Scores;
use headstart_predict::training::{Lift, OfSeed, TrainReport};

use super::spread;

/// With fewer conversations in the test part its figures say little.
const TEST_CONVERSATIONS_MIN: usize = 200;

/// Shuffled labels beyond this are an error of the pipeline (or of a corpus too small).
const SHUFFLED_MCC_MAX: f64 = 0.03;

/// Sentences, one a line.
pub fn words(report: &TrainReport) -> Vec<String> {
    let mut words = vec![if report.is_shuffled {
        on_shuffled(report)
    } else {
        format!("On the test part, the model {}.", verdict(&report.test, report.lift))
    }];
    words.extend(on_seeds(report));
    words.extend(on_curve(report));
    words.extend(on_attainable(report));
    words.extend(on_size(report));
    for other in &report.elsewhere {
        let verdict = verdict(&other.model, other.lift);
        let (file, mcc) = (&other.input.file, other.model.mcc);
        words.push(format!("On the unseen part of {file}: MCC {mcc:.3}; the model {verdict}."));
        let seen = match other.seen_before {
            1 => "1 conversation".to_owned(),
            seen => format!("{} conversations", thousands(seen as u64)),
        };
        if other.seen_before > 0 {
            words.push(format!(
                "{seen} of {file} left out there, because training used them or their first prompt."
            ));
        }
    }
    words
}

/// `predicts no better than the turn count: …`
fn verdict(scores: &Scores, lift: Lift) -> String {
    let Lift { mcc, low, high } = lift;
    let lifted = format!("the 95 % interval of the lift, {low:.3} to {high:.3},");
    let (own_low, own_high) = (scores.mcc_low, scores.mcc_high);
    let is_guess = own_low <= 0.0;
    match (low > 0.0, high < 0.0) {
        // The turn count may do worse than a guess; to be better than that is no merit.
        (true, _) if is_guess => format!(
            "is no better than guessing: the 95 % interval of its MCC, {own_low:.3} to \
             {own_high:.3}, includes 0 (the turn count alone did worse, by {mcc:.3})"
        ),
        (true, _) => {
            format!("predicts better than the turn count: {mcc:+.3} MCC, and {lifted} is above 0")
        }
        (_, true) => {
            format!("predicts worse than the turn count: {mcc:+.3} MCC, and {lifted} is below 0")
        }
        _ => format!("predicts no better than the turn count: {lifted} includes 0"),
    }
}

/// The mean over seeds, where there are several; their test parts overlap, so their spread says
/// how much a single split may err, and is no interval of the mean.
fn on_seeds(report: &TrainReport) -> Option<String> {
    let seeds = &report.seeds;
    if seeds.len() < 2 {
        return None;
    }
    let told = |figure: fn(&OfSeed) -> f64| {
        let (mean, deviation) = spread(seeds, figure);
        format!("{mean:.3} ± {deviation:.3}")
    };
    let better = seeds.iter().filter(|seed| seed.lift_mcc > 0.0).count();
    Some(format!(
        "Over {} seeds, mean ± standard deviation: MCC {}, turn count only {}, lift {} (above 0 \
         in {better}); ROC-AUC {}, turn count only {}; macro F1 {}, turn count \
         only {}.",
        seeds.len(),
        told(|seed| seed.mcc),
        told(|seed| seed.turn_only_mcc),
        told(|seed| seed.lift_mcc),
        told(|seed| seed.auc),
        told(|seed| seed.turn_only_auc),
        told(|seed| seed.macro_f1),
        told(|seed| seed.turn_only_macro_f1),
    ))
}

fn on_shuffled(report: &TrainReport) -> String {
    let (mcc, low, high) = (report.test.mcc, report.test.mcc_low, report.test.mcc_high);
    let found = format!("MCC {mcc:.3}, 95 % interval {low:.3} to {high:.3}");
    if mcc.abs() < SHUFFLED_MCC_MAX || (low <= 0.0 && high >= 0.0) {
        format!("The labels were shuffled, and the model learns nothing, as expected: {found}.")
    } else {
        format!(
            "The labels were shuffled, and the model still learns something: {found}. One corpus \
             in twenty does this by chance; if another --seed does too, labels leak."
        )
    }
}

/// Whether more conversations helped, as far as two intervals can tell.
fn on_curve(report: &TrainReport) -> Option<String> {
    let [.., half, all] = &report.curve[..] else {
        return None;
    };
    let (from, to) = (half.scores.mcc, all.scores.mcc);
    let steps = format!(
        "from {} to {} conversations, the MCC changes from {from:.3} to {to:.3}",
        thousands(half.conversations as u64),
        thousands(all.conversations as u64)
    );
    let is_apart = all.scores.mcc_low > from || all.scores.mcc_high < from;
    Some(if is_apart && to > from {
        format!("The learning curve still rises: {steps}. More of them may help.")
    } else {
        format!("The learning curve does not rise at its end, within its intervals: {steps}.")
    })
}

fn on_attainable(report: &TrainReport) -> Option<String> {
    let best = report.attainable_mcc.filter(|&best| best > 0.0)?;
    let share = 100.0 * report.test.mcc / best;
    // The best is the mean over what the corpus might have drawn; what it drew may be kinder.
    let of_it = if share > 100.0 {
        "and the model is as good as that, within chance".to_owned()
    } else {
        format!("of which the model has {share:.0} %")
    };
    Some(format!(
        "The corpus has its true probabilities: the best attainable MCC is {best:.3}, {of_it}."
    ))
}

fn on_size(report: &TrainReport) -> Option<String> {
    let conversations = report.parts.test.conversations;
    (conversations < TEST_CONVERSATIONS_MIN).then(|| {
        format!(
            "Caution: the test part has {}, fewer than \
             {TEST_CONVERSATIONS_MIN}; another --seed may give another result (try --seeds 10).",
            counted(conversations as u64, "conversation")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    /// `(mcc, low, high)` of the model and of the lift; what is said first.
    fn check(model: [f64; 3], lift: [f64; 3], expected: &str) {
        let mut report = testing::report();
        let test = &mut report.test;
        [test.mcc, test.mcc_low, test.mcc_high] = model;
        let [mcc, low, high] = lift;
        report.lift = Lift { mcc, low, high };
        let words = words(&report);
        assert!(words[0].contains(expected), "{words:?} lacks {expected}");
    }

    #[test]
    fn what_is_claimed_is_what_the_intervals_show() {
        check([0.3, 0.2, 0.4], [0.1, 0.02, 0.2], "predicts better than the turn count: +0.100");
        check([0.3, 0.2, 0.4], [0.1, -0.02, 0.2], "predicts no better than the turn count");
        check([0.3, 0.2, 0.4], [-0.1, -0.2, -0.02], "predicts worse than the turn count");
        check([0.02, -0.1, 0.1], [0.1, 0.02, 0.2], "is no better than guessing");
        check([0.02, -0.1, 0.1], [0.1, -0.02, 0.2], "predicts no better");
    }

    #[test]
    fn few_test_conversations_are_cautioned_about() {
        let cautions = |conversations: usize| {
            let mut report = testing::report();
            report.parts.test.conversations = conversations;
            let words = words(&report);
            words.iter().filter(|said| said.starts_with("Caution")).count()
        };
        assert_eq!((cautions(199), cautions(200)), (1, 0));
    }

    #[test]
    fn a_share_of_the_best_attainable_is_at_most_all_of_it() {
        let said = |best: f64| {
            let mut report = testing::report();
            report.test.mcc = 0.5;
            report.attainable_mcc = Some(best);
            words(&report).join(" ")
        };
        assert!(said(1.0).contains("of which the model has 50 %."));
        assert!(said(0.49).contains("as good as that, within chance."));
    }

    #[test]
    fn several_seeds_are_told_by_mean_and_spread() {
        let mut report = testing::report();
        let of_seed = |seed: u64, mcc: f64| OfSeed {
            seed,
            mcc,
            turn_only_mcc: 0.2,
            lift_mcc: mcc - 0.2,
            macro_f1: 0.6,
            turn_only_macro_f1: 0.5,
            auc: 0.7,
            turn_only_auc: 0.6,
            ece: 0.05,
        };
        report.seeds = vec![of_seed(7, 0.1), of_seed(8, 0.3), of_seed(9, 0.5)];
        let said = &words(&report)[1];
        let expected = "MCC 0.300 ± 0.200, turn count only 0.200 ± 0.000, lift 0.100 ± 0.200 \
            (above 0 in 2)";
        assert!(said.contains(expected), "{said}");
        let expected = "macro F1 0.600 ± 0.000, turn count only 0.500 ± 0.000.";
        assert!(said.contains(expected), "{said}");
    }

    #[test]
    fn a_curve_rises_only_where_its_interval_says_so() {
        let said = |mccs: [f64; 2], low: f64| {
            let mut report = testing::report();
            report.curve = testing::curve(&mccs);
            report.curve[1].scores.mcc_low = low;
            words(&report)[1].clone()
        };
        assert!(said([0.1, 0.3], 0.2).contains("still rises"));
        assert!(said([0.1, 0.3], 0.05).contains("does not rise"));
        assert!(said([0.3, 0.1], 0.05).contains("does not rise"));
    }

    #[test]
    fn shuffled_labels_must_find_nothing() {
        let said = |mcc: f64, low: f64, high: f64| {
            let mut report = testing::report();
            report.is_shuffled = true;
            let test = &mut report.test;
            [test.mcc, test.mcc_low, test.mcc_high] = [mcc, low, high];
            words(&report)[0].clone()
        };
        assert!(said(0.01, 0.005, 0.02).contains("learns nothing, as expected"));
        assert!(said(0.08, -0.01, 0.2).contains("learns nothing, as expected"));
        assert!(said(0.2, 0.1, 0.3).contains("labels leak"));
    }
}
