use std::path::Path;
use std::sync::OnceLock;

use headstart_core::{Rng, SessionId, UsageError};
use headstart_predict::{ContinuationModel, log as outcome_log};
use headstart_server::prediction::{Said, TurnId};

use super::*;

#[path = "../../tests/suite/planted/mod.rs"]
mod planted;

fn model() -> &'static ContinuationModel {
    static MODEL: OnceLock<ContinuationModel> = OnceLock::new();
    MODEL.get_or_init(|| planted::model(1))
}

/// A folder that goes with its test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = format!("headstart-predictor-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("writes");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn question(id: u64, prompt: &str) -> TurnQuestion {
    TurnQuestion {
        id: TurnId(id),
        conversation: SessionId(id),
        is_repeat: false,
        turn: 1,
        gap: None,
        said: Said { prompts: vec![prompt.to_owned()], ..Said::default() },
    }
}

fn outcome(id: u64, continued: bool) -> TurnOutcome {
    TurnOutcome {
        id: TurnId(id),
        turn: 1,
        became: if continued { Became::Continued } else { Became::Ended },
    }
}

fn open(model: Option<&Path>, log: Option<&Path>) -> Arc<LivePredictor> {
    let options = ServeOptions {
        predictor: model.map(Path::to_owned),
        prediction_log: log.map(Path::to_owned),
        ..ServeOptions::default()
    };
    LivePredictor::open(&options).expect("it opens")
}

#[test]
fn without_a_model_the_turn_count_is_learnt_and_no_text_is_asked_for() {
    let live = open(None, None);
    assert_eq!(live.reads(), Reads::default());
    assert_eq!(live.predict(&[question(1, "go")]), [None]);
    let before = live.prior(1).value();
    let ended: Vec<_> = (0..50).map(|id| outcome(id, false)).collect();
    live.learn(&ended);
    assert!(before == 0.5 && live.prior(1).value() < 0.2);
    assert_eq!(live.status(), PredictorStatus::default());
}

#[test]
fn a_model_that_is_wrong_is_not_believed_until_it_is_right_again() {
    let scratch = Scratch::new("drift");
    let file = scratch.file("model", &model().to_bytes());
    let live = open(Some(&file), None);
    let mut rng = Rng::new(7);
    // As many outcomes as the drift's window holds, told truly or the other way around.
    let mut live_through = |first: u64, is_true: bool| {
        for id in first..first + 1000 {
            let continues = id % 2 == 0;
            let prompt = planted::prompt(continues, &mut rng);
            live.predict(&[question(id, &prompt)]);
            live.learn(&[outcome(id, continues == is_true)]);
        }
        live.predict(&[question(first + 1000, "river go stone")])[0]
    };
    let believed = live_through(0, true);
    assert!(believed.is_some_and(|p| p.value() > 0.7), "{believed:?}");
    let calibration = live.status().calibration.expect("enough outcomes");
    assert!(calibration.error < 0.2 && calibration.excess_log_loss < -0.3);
    assert_eq!(live_through(2000, false), None);
    assert!(live.status().is_fallback);
    assert!(live_through(4000, true).is_some() && !live.status().is_fallback);
    // A repeated turn counts once: its second question leaves nothing that waits.
    let repeat = TurnQuestion { is_repeat: true, ..question(9_000, "go") };
    live.predict(&[repeat]);
    assert_eq!(lock(&live.learning).pending.take(TurnId(9_000)), None);
}

#[test]
fn a_new_model_is_scored_by_its_own_answers_only() {
    let scratch = Scratch::new("swap");
    let file = scratch.file("model", &model().to_bytes());
    let live = open(Some(&file), None);
    for id in 0..300 {
        live.predict(&[question(id, "go")]);
    }
    let again = || {
        let file = ModelFile::new(file.clone());
        file.load(&live.encoder).expect("it loads")
    };
    live.swap(again());
    // The old one said that all would go on.
    let ended: Vec<_> = (0..300).map(|id| outcome(id, false)).collect();
    live.learn(&ended);
    assert!(!live.status().is_fallback);
    assert_eq!((live.status().swaps, live.status().calibration), (1, None));
    // What is known of a model goes with it.
    for id in 1000..1300 {
        live.predict(&[question(id, "go")]);
        live.learn(&[outcome(id, false)]);
    }
    let status = live.status();
    assert!(status.is_fallback && status.calibration.is_some());
    live.swap(again());
    let status = live.status();
    assert_eq!((status.is_fallback, status.calibration), (false, None));
}

#[test]
fn the_log_can_be_trained_on_and_goes_on_after_a_restart() {
    let scratch = Scratch::new("log");
    let path = scratch.0.join("outcomes.jsonl");
    let mut rng = Rng::new(3);
    let mut said = Vec::new();
    for first in [0, 40] {
        let live = open(None, Some(&path));
        assert_eq!(live.reads().prompts, 5, "the published window and the prompt");
        for id in first..first + 40 {
            said.push(planted::prompt(id % 2 == 0, &mut rng));
            live.predict(&[question(id, said.last().expect("one"))]);
        }
        let outcomes: Vec<_> = (first..first + 39).map(|id| outcome(id, id % 2 == 0)).collect();
        live.learn(&outcomes);
        assert_eq!(live.status().log_records, 39);
        // A crash cuts the next record off.
        let mut bytes = std::fs::read(&path).expect("reads");
        bytes.extend_from_slice(b"{\"conversation\":5");
        std::fs::write(&path, bytes).expect("writes");
    }
    let bytes = std::fs::read(&path).expect("reads");
    let read = outcome_log::read(&bytes[..], 1000).expect("a log");
    assert_eq!((read.dataset.labels.len(), read.skipped), (78, 2));
    let conversations: std::collections::HashSet<_> =
        read.dataset.labels.iter().map(|label| label.conversation).collect();
    assert_eq!(conversations.len(), 78, "two runs share no conversation");
    let text = String::from_utf8(bytes).expect("text");
    for word in said.iter().flat_map(|prompt| prompt.split(' ')) {
        assert!(!text.contains(&format!("{word} ")), "{word}");
    }
    // Only its owner can read it.
    let mode = std::fs::metadata(&path).expect("it is there").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o077, 0);
}

#[test]
fn a_full_log_and_a_foreign_one_are_left_alone() {
    let scratch = Scratch::new("full");
    let path = scratch.0.join("outcomes.jsonl");
    let live = open(None, Some(&path));
    let size = || std::fs::metadata(&path).expect("it is there").len();
    let live_through = |id: u64| {
        live.predict(&[question(id, "go")]);
        live.learn(&[outcome(id, true)]);
    };
    let header = size();
    live_through(0);
    let (one, limit) = (size() - header, size() + (size() - header) / 2);
    if let Some(log) = &mut *lock(&live.log) {
        log.limit(limit);
    }
    (1..5).for_each(live_through);
    assert_eq!((live.status().log_records, size()), (1, header + one));
    for foreign in ["{\"id\": 1, \"turns\": []}\n", "\u{fffd}\n", "x"] {
        let path = scratch.file("other.jsonl", foreign.as_bytes());
        let options =
            ServeOptions { prediction_log: Some(path.clone()), ..ServeOptions::default() };
        let error = LivePredictor::open(&options).err().expect("refused");
        assert!(error.to_string().contains("name another file"), "{error}");
        assert_eq!(std::fs::read(path).expect("reads"), foreign.as_bytes());
    }
}

#[test]
fn options_that_say_nothing_are_refused() {
    let check = |options: ServeOptions, expected: &str| {
        let Err(error) = config(&options) else {
            panic!("{options:?} is refused");
        };
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.downcast_ref::<UsageError>().is_some());
    };
    let nothing = ServeOptions::default();
    assert!(config(&nothing).expect("it is fine").is_none());
    let encoder = ServeOptions { encoder: Some("ngram".to_owned()), ..nothing.clone() };
    check(encoder, "--encoder has no effect");
    let horizon = ServeOptions { prediction_horizon: Some(5), ..nothing };
    check(horizon.clone(), "--prediction-horizon has no effect");
    let lpc = ServeOptions { policy: Some("lpc:interval=30".to_owned()), ..horizon };
    let made = config(&lpc).expect("it is fine").expect("there is one");
    assert_eq!(made.horizon, Duration::from_secs(5));
    assert!(note(&lpc).is_some_and(|note| note.contains("turn count")));
    let zero = ServeOptions { prediction_horizon: Some(0), ..lpc };
    check(zero, "at least 1 second");
}
