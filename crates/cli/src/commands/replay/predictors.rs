//! Predictors, and their predictions for each request before the replay begins.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use headstart_core::figures::counted;
use headstart_core::{Probability, SessionId, TraceRequest};
use headstart_predict::encoder::{self, Encoder};
use headstart_predict::{ContinuationModel, Predictor};
use headstart_terminal::{Progress, TaskProgress};

use super::texts::SessionConversations;
use super::turns;
use crate::exit::usage;
use crate::input::TraceInput;
use crate::predictor::read_model;
use headstart_predict::situations::num_prompts;

/// The encoder that needs no download, and with which most models are trained.
const BUILT_IN: &str = "ngram";

/// Situations that a model looks at together, to bound the memory of their texts.
const BATCH: usize = 64;

/// Source of predictions.
enum Who {
    /// The values that the requests carry.
    Trace,
    /// The turn count alone, learnt as the trace goes by.
    Turns,
    /// The true probability, from a generated conversation.
    Truth,
    /// A model that reads the conversation.
    Model(Box<Predictor>),
}

/// A predictor by the name that it has in the table.
pub(super) struct NamedPredictor {
    name: String,
    who: Who,
}

/// Predictions of one predictor.
pub(super) struct TracePredictions {
    /// Name in brackets after the policy's; `None` without `--predictor`.
    pub(super) name: Option<String>,
    /// One per request; `None` for what the requests carry.
    pub(super) values: Option<Vec<Option<Probability>>>,
}

impl NamedPredictor {
    /// The predictors `asked` for, each once. Models are read now, before a long trace is.
    ///
    /// # Errors
    /// When one is nothing that predicts, or has a name that another one has.
    pub(super) fn all(asked: &[String], encoders: &[PathBuf]) -> Result<Vec<Self>> {
        // The built-in encoder is always there: most models are trained with it.
        let mut open = vec![encoder(BUILT_IN)?];
        for folder in encoders {
            open.push(encoder(&folder.display().to_string())?);
        }
        let mut all: Vec<Self> = Vec::new();
        for text in asked {
            let named = Self::new(text, &open)?;
            // Two rows of the table would have one name.
            ensure!(
                all.iter().all(|other| other.name != named.name),
                usage(format!("--predictor: two are called `{}`", named.name))
            );
            all.push(named);
        }
        let is_model = |named: &Self| matches!(named.who, Who::Model(_));
        // An encoder without a model has no effect.
        if !encoders.is_empty() && !all.iter().any(is_model) {
            bail!(usage("--encoder is for models, and no --predictor is a model's file"));
        }
        Ok(all)
    }

    fn new(text: &str, encoders: &[Arc<dyn Encoder>]) -> Result<Self> {
        let (name, who) = match text {
            "trace" => (text.to_owned(), Who::Trace),
            "turns" => (text.to_owned(), Who::Turns),
            "truth" => (text.to_owned(), Who::Truth),
            file => {
                let name = Path::new(file).file_name().unwrap_or_default();
                let predictor = load(Path::new(file), encoders)
                    .map_err(|error| usage(format!("--predictor {file}: {error:#}")))?;
                let name = name.to_string_lossy().into_owned();
                (name, Who::Model(Box::new(predictor)))
            }
        };
        Ok(Self { name, who })
    }

    /// Whether it looks at what was said.
    pub(super) fn reads_text(&self) -> bool {
        matches!(self.who, Who::Truth | Who::Model(_))
    }

    /// Predicts for the requests, which are in order of arrival; calls `observe` for each.
    fn predict(
        &self,
        requests: &[TraceRequest],
        texts: Option<&SessionConversations>,
        observe: &dyn Fn(u64),
    ) -> Option<Vec<Option<Probability>>> {
        match (&self.who, texts) {
            (Who::Trace, _) => None,
            (Who::Turns, _) => Some(turns::predictions(requests)),
            (Who::Truth, texts) => {
                let truth = |request| texts.and_then(|texts| texts.truth(request));
                Some(requests.iter().map(truth).collect())
            }
            (Who::Model(model), Some(texts)) => Some(by_model(model, requests, texts, observe)),
            (Who::Model(_), None) => Some(vec![None; requests.len()]),
        }
    }
}

impl TracePredictions {
    /// Returns the predictions of all `predictors`, or the requests' own if there are none.
    /// `sessions` are those of the whole trace, from which requests may have been dropped.
    ///
    /// # Errors
    /// When a predictor reads text, and the input has none.
    pub(super) fn all(
        predictors: &[NamedPredictor],
        input: &TraceInput,
        requests: &[TraceRequest],
        sessions: &BTreeSet<SessionId>,
    ) -> Result<Vec<Self>> {
        // Without a predictor the requests keep what the trace carries, which may be nothing.
        if predictors.is_empty() {
            let (name, values) = (None, None);
            return Ok(vec![Self { name, values }]);
        }
        // Texts are read only if a predictor needs them, because they fill memory.
        let texts = if predictors.iter().any(NamedPredictor::reads_text) {
            Some(SessionConversations::new(sessions, input.conversations()?)?)
        } else {
            None
        };
        let num_models = predictors.iter().filter(|named| named.reads_text()).count();
        let progress = TaskProgress::steps("predicting", num_models * requests.len());
        let observe = |count| progress.inc(count);
        let said = predictors.iter().map(|named| Self {
            name: Some(named.name.clone()),
            values: named.predict(requests, texts.as_ref(), &observe),
        });
        let said = said.collect();
        progress.end();
        Ok(said)
    }

    /// Warns the reader of the table about the predictions; `None` if all is well.
    pub(super) fn remark(&self, requests: &[TraceRequest], seconds: f64) -> Option<String> {
        let num_said = match &self.values {
            Some(values) => values.iter().flatten().count(),
            None => requests.iter().filter(|one| one.p_continue.is_some()).count(),
        };
        let horizon_s = turns::HORIZON.as_secs();
        let who = match &self.name {
            None => "the trace".to_owned(),
            Some(name) => format!("--predictor {name}"),
        };
        match (num_said, self.name.as_deref()) {
            (_, Some("turns")) if seconds < turns::HORIZON.as_secs_f64() => Some(format!(
                "{who} learns what became of a request {horizon_s} s after it, and the trace is \
                 shorter, so lpc evicts as lru does"
            )),
            (0, None) => Some(
                "the trace carries no predictions (p_continue), so lpc evicts as lru does; \
                 --predictor turns predicts by the turn count"
                    .to_owned(),
            ),
            (0, _) => Some(format!("{who} makes no prediction, so lpc evicts like lru")),
            (said, _) if said < requests.len() => {
                let all = counted(requests.len() as u64, "request");
                Some(format!("{who} predicts for {said} of {all}; the others count as 50 %"))
            }
            _ => None,
        }
    }
}

fn by_model(
    model: &Predictor,
    requests: &[TraceRequest],
    texts: &SessionConversations,
    observe: &dyn Fn(u64),
) -> Vec<Option<Probability>> {
    let num_prompts = num_prompts(&model.model().definition);
    let mut predictions = Vec::with_capacity(requests.len());
    // Texts of all requests at once would not fit memory.
    for requests in requests.chunks(BATCH) {
        let situations: Vec<_> =
            requests.iter().map(|request| texts.situation(request, num_prompts)).collect();
        let known: Vec<_> = situations.iter().flatten().cloned().collect();
        let mut said = model.predict(&known).into_iter();
        // Predictions exist for known situations only, so they are dealt out in order.
        let said = situations.iter().map(|known| known.as_ref().and_then(|_| said.next()?));
        predictions.extend(said);
        observe(requests.len() as u64);
    }
    predictions
}

fn encoder(spec: &str) -> Result<Arc<dyn Encoder>> {
    let opened = encoder::open(spec);
    opened.map_err(|error| usage(format!("--encoder {spec}: {error}")))
}

/// The model in `file`, with that of the encoders with which it was trained.
fn load(file: &Path, encoders: &[Arc<dyn Encoder>]) -> Result<Predictor> {
    let known = "neither `trace`, `turns`, `truth` nor a file with a model";
    let bytes = read_model(file).map_err(|what| anyhow!("{known}: it {what}"))?;
    let model = Arc::new(ContinuationModel::from_bytes(&bytes)?);
    let is_its_own = |encoder: &&Arc<dyn Encoder>| encoder.identity() == model.definition.encoder;
    // Without its own encoder the model is opened with the first, whose error names the mismatch.
    let encoder = encoders.iter().find(is_its_own).unwrap_or(&encoders[0]);
    let predictor = Predictor::new(Arc::clone(&model), Arc::clone(encoder));
    predictor.context("name the folder of the encoder it was trained with by --encoder")
}
