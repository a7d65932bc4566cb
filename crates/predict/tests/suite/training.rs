//! A training from files, with a host that has no terminal and a clock of its own.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use headstart_core::{Nanos, NoProgress, Progress};
use headstart_predict::training::{
    self, EmbeddingsCache, StageWork, TrainingError, TrainingHost, TrainingParameters,
    WriteContents,
};
use headstart_trace::format::conversation;
use headstart_trace::synth::planted::PlantedConfig;

/// The date of the model, seconds since 1970.
const UNIX_S: u64 = 1_700_000_000;

/// A host whose clock advances by a second at each reading.
#[derive(Default)]
struct SilentHost {
    seconds: Cell<u32>,
    stages: RefCell<Vec<&'static str>>,
    notes: RefCell<Vec<String>>,
}

impl TrainingHost for SilentHost {
    fn begin(&self, stage: &'static str, _: StageWork) -> Box<dyn Progress> {
        self.stages.borrow_mut().push(stage);
        Box::new(NoProgress)
    }

    fn note(&self, text: &str) {
        self.notes.borrow_mut().push(text.to_owned());
    }

    fn now(&self) -> Nanos {
        self.seconds.set(self.seconds.get() + 1);
        Nanos::from_secs_f64(f64::from(self.seconds.get()))
    }

    fn unix_s(&self) -> u64 {
        UNIX_S
    }

    fn replace(&self, path: &Path, write: &mut WriteContents<'_>) -> io::Result<()> {
        write(&mut File::create(path)?)
    }
}

/// A folder that goes when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("headstart-training-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// Conversations whose words tell whether they go on.
    fn planted(&self) -> PathBuf {
        let path = self.0.join("planted.jsonl");
        let mut file = BufWriter::new(File::create(&path).expect("a file"));
        let config =
            PlantedConfig { conversations: 400, strength: 4.0, ..PlantedConfig::default() };
        for conversation in config.generate().expect("possible parameters") {
            conversation::write(&mut file, &conversation).expect("writes");
        }
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn parameters(inputs: Vec<PathBuf>, embeddings: EmbeddingsCache) -> TrainingParameters {
    TrainingParameters {
        inputs,
        test_on: Vec::new(),
        kind: None,
        conversations: None,
        output: Some(PathBuf::from("model.hsp")),
        encoder: None,
        window: None,
        answers: false,
        joined: false,
        behaviour: false,
        epochs: 2,
        seed: 0,
        seeds: 2,
        shuffle_labels: false,
        embeddings,
        curve: Some(1),
    }
}

#[test]
fn equal_inputs_give_equal_models_and_embed_no_text_twice() {
    let folder = Folder::new("equal");
    let file = folder.0.join("kept.embeddings");
    let parameters = parameters(vec![folder.planted()], EmbeddingsCache::File(file.clone()));
    let host = SilentHost::default();
    let first = training::run(&parameters, &host).expect("trains");
    let stages =
        ["reading", "embedding", "training", "training on parts", "training with other seeds"];
    assert_eq!(*host.stages.borrow(), stages);
    let model = first.model.expect("a model");
    assert_eq!(model.trained_at_s, UNIX_S);
    assert_eq!(first.report.inputs[0].conversations, 400);
    assert_eq!(first.report.model.as_deref(), Some("model.hsp"));
    assert_eq!(first.report.seeds.len(), 2);
    assert_eq!(first.report.times.texts_known, 0);
    assert_eq!(first.report.times.train_s, 1.0);

    let second = training::run(&parameters, &host).expect("trains again");
    assert_eq!(second.report.times.texts_known, second.report.times.texts);
    assert_eq!(second.model.expect("a model").to_bytes(), model.to_bytes());
    assert!(host.notes.borrow().is_empty());

    let mut damaged = fs::read(&file).expect("the embeddings");
    damaged.pop();
    fs::write(&file, damaged).expect("writes");
    training::run(&parameters, &host).expect("trains a third time");
    let [note] = &host.notes.borrow()[..] else {
        panic!("one note");
    };
    assert!(note.contains("is damaged") && note.ends_with("embedding everything again"), "{note}");
}

#[test]
fn unsuitable_inputs_are_errors_of_their_kind() {
    let folder = Folder::new("unsuitable");
    let write = |name: &str, contents: &str| {
        let path = folder.0.join(name);
        fs::write(&path, contents).expect("writes");
        path
    };
    let check = |inputs: &[PathBuf], is_expected: fn(&TrainingError) -> bool, part: &str| {
        let parameters = parameters(inputs.to_vec(), EmbeddingsCache::Off);
        let error = training::run(&parameters, &SilentHost::default()).expect_err("unsuitable");
        assert!(is_expected(&error) && error.to_string().contains(part), "{error:?}");
    };
    use TrainingError::{File, Trace, Unsuitable, Usage};
    let record = r#"{"turns": [{"role": "user", "text": "x"}]}"#;
    let chat = write("chat", record);
    let trace = write("trace", "{\"headstart_trace\": 1}\n");
    check(&[], |error| matches!(error, Usage(_)), "no file to train on");
    check(&[folder.0.join("absent")], |error| matches!(error, File { .. }), "cannot read");
    check(&[chat.clone(), trace], |error| matches!(error, Usage(_)), "inputs of one kind");
    check(&[write("bad", "{no JSON")], |error| matches!(error, Trace(_)), "line 1");
    check(&[chat], |error| matches!(error, Unsuitable(_)), "the conversation ends");
}
