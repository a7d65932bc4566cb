//! Sources of conversations: a published data set, texts, or a recorded run.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::prediction::chat::Pacing;
use crate::prediction::chat::script::CONVERSATIONS_MAX;
use crate::prediction::experiment::{SECONDS, SLOTS, Traffic, UntimedConversation};
use crate::prediction::workload::{ChatWorkload, Seeds, WORKLOADS};
use anyhow::{Context, Result, bail};
use clap::Args;
use headstart_core::figures::counted;
use headstart_core::{Probability, UsageError};
use headstart_predict::TurnPrior;
use headstart_trace::format::conversation;
use headstart_trace::synth::Gap;

use super::{record, texts};

/// Prefix of the presets' names.
const PRESET: &str = "lpc-";

/// Most open conversations at once.
const SLOTS_MAX: usize = 1 << 20;

/// Length of an answer that is not there, tokens.
const ANSWER_TOKENS: u32 = 200;

/// Most tokens that all conversations may share.
const SHARED_MAX: u32 = 1 << 20;

/// Options of the traffic.
#[derive(Args, Debug)]
pub(super) struct TrafficOptions {
    /// Published workload: lpc-lmsys, lpc-sharegpt or lpc-arena
    #[arg(long, value_name = "NAME", help_heading = "Traffic",
        required_unless_present_any = ["conversations", "record"])]
    preset: Option<String>,
    /// Conversations as JSON lines, drawn with replacement
    ///
    /// Each draw is a new conversation.
    #[arg(long, value_name = "FILE", help_heading = "Traffic", conflicts_with = "preset")]
    conversations: Option<PathBuf>,
    /// Maximum conversations to read
    #[arg(long, value_name = "N", help_heading = "Traffic")]
    limit: Option<usize>,
    /// Folder with a tokenizer.json [default: four bytes per token]
    #[arg(long, value_name = "DIR", help_heading = "Traffic")]
    tokenizer: Option<PathBuf>,
    /// Tokens per turn of the chat template [default: 0]
    ///
    /// For --conversations.
    #[arg(long, value_name = "N", help_heading = "Traffic")]
    template_tokens: Option<u32>,
    /// Length of missing answers, tokens [default: 200]
    ///
    /// For --conversations.
    #[arg(long, value_name = "N", help_heading = "Traffic")]
    answer_tokens: Option<u32>,
    /// Model of `headstart train` that predicts for lpc
    ///
    /// For --conversations. Use a model that was not trained on that file.
    #[arg(long, value_name = "FILE", help_heading = "Traffic")]
    model: Option<PathBuf>,
    /// Encoder of the model: ngram, or a folder
    #[arg(
        long,
        value_name = "ENCODER",
        help_heading = "Traffic",
        default_value = "ngram",
        requires = "model"
    )]
    encoder: String,
    /// Recorded run to repeat, of `bench chat --record`
    #[arg(long, value_name = "FILE", help_heading = "Traffic",
        conflicts_with_all = ["preset", "conversations"])]
    record: Option<PathBuf>,
    /// Open conversations, if answers took no time
    #[arg(long, value_name = "N", help_heading = "Traffic", default_value_t = SLOTS,
        conflicts_with = "record")]
    slots: usize,
    /// Assumed time per answer token, to space starts, ms
    #[arg(
        long,
        value_name = "MS",
        help_heading = "Traffic",
        default_value_t = 0.0,
        conflicts_with = "record"
    )]
    answer_ms: f64,
    /// Length of a prefix that all conversations share, tokens
    #[arg(
        long,
        value_name = "N",
        help_heading = "Traffic",
        default_value_t = 0,
        conflicts_with = "record"
    )]
    shared_tokens: u32,
}

/// Source of the simulated conversations.
#[derive(Debug)]
pub(super) enum TrafficSource {
    /// A published data set, with what all conversations share.
    Published(ChatWorkload, u32),
    /// Texts, as lengths and predictions.
    Texts { name: String, recorded: Vec<UntimedConversation>, is_predicted: bool },
    /// A run.
    Record { name: String, run: record::RecordedRun },
}

impl TrafficOptions {
    /// Returns the input files of the options.
    pub(super) fn files(&self) -> Vec<&Path> {
        let files = [&self.conversations, &self.model, &self.record];
        files.into_iter().filter_map(Option::as_deref).collect()
    }

    /// Reads what is to be read.
    pub(super) fn source(&self) -> Result<TrafficSource> {
        // Options that contradict each other are reported before a file is read.
        self.check()?;
        if let Some(file) = &self.record {
            let run = record::read(file)?;
            return Ok(TrafficSource::Record { name: shown(file), run });
        }
        if let Some(file) = &self.conversations {
            return self.texts(file);
        }
        let preset = self.preset.as_deref().unwrap_or_default();
        let workload = preset.strip_prefix(PRESET).and_then(ChatWorkload::named);
        let Some(workload) = workload else {
            let names = WORKLOADS.map(|workload| format!("{PRESET}{}", workload.name));
            let message = format!("--preset {preset}: known are {}", names.join(", "));
            return Err(UsageError(message).into());
        };
        Ok(TrafficSource::Published(workload, self.shared_tokens))
    }

    fn check(&self) -> Result<()> {
        let (slots, answer_ms) = (self.slots, self.answer_ms);
        let wrong = if !(1..=SLOTS_MAX).contains(&slots) {
            format!("--slots {slots}: expected 1 to {SLOTS_MAX}")
        } else if !(0.0..=60_000.0).contains(&answer_ms) {
            format!("--answer-ms {answer_ms:?}: expected milliseconds, up to 60000")
        } else if self.shared_tokens > SHARED_MAX {
            format!("--shared-tokens: at most {SHARED_MAX}")
        } else if let Some(name) = self.misplaced() {
            format!(
                "{name} is for texts: give it with --conversations FILE; a preset and a record \
                 have none"
            )
        } else {
            return Ok(());
        };
        Err(UsageError(wrong).into())
    }

    /// An option that says nothing without `--conversations`. Not clap's `requires`, which asks for
    /// nothing that conflicts with what is there.
    fn misplaced(&self) -> Option<&'static str> {
        let given = [
            ("--model", self.model.is_some()),
            ("--limit", self.limit.is_some()),
            ("--tokenizer", self.tokenizer.is_some()),
            ("--template-tokens", self.template_tokens.is_some()),
            ("--answer-tokens", self.answer_tokens.is_some()),
        ];
        let given = given.into_iter().find(|(_, is_given)| *is_given);
        given.filter(|_| self.conversations.is_none()).map(|(name, _)| name)
    }

    fn texts(&self, file: &Path) -> Result<TrafficSource> {
        let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        let read = conversation::read(file.display().to_string(), opened, self.limit)?;
        let lengths = texts::TokenCountOptions {
            tokenizer: self.tokenizer.as_deref().map(texts::tokenizer).transpose()?,
            template_tokens: self.template_tokens.unwrap_or(0),
            answer_tokens: self.answer_tokens.unwrap_or(ANSWER_TOKENS),
            shared_tokens: self.shared_tokens,
        };
        let mut recorded: Vec<UntimedConversation> =
            read.iter().map(|conversation| lengths.of(conversation)).collect();
        if let Some(model) = &self.model {
            texts::predict(model, &self.encoder, &read, &mut recorded)?;
        }
        // A conversation without a user message never sends a request.
        recorded.retain(|recorded| !recorded.conversation.turns.is_empty());
        if recorded.is_empty() {
            bail!("{} has no conversation with a user message", file.display());
        }
        let goes_on = |recorded: &UntimedConversation| recorded.conversation.turns.len() > 1;
        // Starts are spaced by the length of conversations; without gaps and answer times all are
        // zero.
        if self.answer_ms == 0.0 && !recorded.iter().any(goes_on) {
            let message = format!(
                "--conversations {}: all have one turn, so nothing spaces their starts; say by \
                 --answer-ms how long an answer's token takes",
                file.display()
            );
            return Err(UsageError(message).into());
        }
        Ok(TrafficSource::Texts { name: shown(file), recorded, is_predicted: self.model.is_some() })
    }

    /// Returns the pacing of conversations with a mean gap of `mean_gap_s`.
    pub(super) fn pacing(&self, mean_gap_s: f64) -> Pacing {
        Pacing {
            slots: self.slots,
            ramp_s: mean_gap_s,
            answer_token_s: self.answer_ms / 1e3,
            seconds: SECONDS,
        }
    }
}

impl TrafficSource {
    /// The conversations of one seed. A record is always the same; only noise has a seed there.
    pub(super) fn traffic(&self, gap: &Gap, pacing: Pacing, seeds: Seeds) -> Traffic {
        match self {
            Self::Published(workload, shared) => {
                Traffic::of_workload(*workload, *shared, gap, pacing, seeds, &turn_shares)
            }
            Self::Texts { recorded, .. } => {
                Traffic::of_recorded(recorded, gap, pacing, seeds, &turn_shares)
            }
            Self::Record { run, .. } => {
                let (script, told) = (run.script.clone(), run.told.clone());
                Traffic::of_script(script, told, seeds.corpus, &turn_shares)
            }
        }
    }

    pub(super) fn seeds(&self, asked: usize) -> Vec<u64> {
        match self {
            // A record repeats one run, so more seeds would repeat it exactly.
            Self::Record { .. } => vec![1],
            _ => (1..=asked as u64).collect(),
        }
    }

    /// Whether gaps and starts are drawn.
    pub(super) fn is_drawn(&self) -> bool {
        !matches!(self, Self::Record { .. })
    }

    /// The published data set.
    pub(super) fn workload(&self) -> Option<ChatWorkload> {
        match self {
            Self::Published(workload, _) => Some(*workload),
            _ => None,
        }
    }

    /// Whether a model's predictions came along.
    pub(super) fn has_predictions(&self) -> bool {
        match self {
            Self::Published(..) => false,
            Self::Texts { is_predicted, .. } => *is_predicted,
            Self::Record { run, .. } => !run.told.is_empty(),
        }
    }

    /// Returns the default quality of the noisy oracle: as published, or the middle of that.
    pub(super) fn mcc(&self) -> f64 {
        self.workload().map_or(0.3, |workload| workload.predictor_mcc)
    }

    /// Returns the default charge for lpc: 1 GB on the study's engine, else nothing.
    pub(super) fn charge(&self) -> f64 {
        match self {
            Self::Published(..) => 1.0,
            _ => 0.0,
        }
    }

    /// A sentence about it.
    pub(super) fn told(&self, first: &Traffic) -> String {
        let script = first.script();
        let (conversations, turns) = (script.conversations().len(), script.turns().count());
        let name = match self {
            Self::Published(workload, _) => format!("{PRESET}{}", workload.name),
            Self::Texts { name, recorded, .. } => {
                let conversations = counted(recorded.len() as u64, "conversation");
                format!("{name}, {conversations} drawn with replacement")
            }
            Self::Record { name, .. } => format!("{name}, repeated"),
        };
        let drawn = drawn(conversations as u64, turns as u64);
        format!("{name}: {drawn}")
    }
}

/// Returns the predictions from the turn count alone, learnt as in `train`.
fn turn_shares(turns: &mut dyn Iterator<Item = (u16, bool)>) -> Vec<Probability> {
    let mut prior = TurnPrior::new();
    turns.for_each(|(turn, goes_on)| prior.observe(turn, goes_on));
    (1..=TurnPrior::LAST_TURN).map(|turn| prior.p(turn)).collect()
}

/// Describes the size of a script, and warns if it is truncated.
fn drawn(conversations: u64, turns: u64) -> String {
    let (said, turns) = (counted(conversations, "conversation"), counted(turns, "turn"));
    let mut text = format!("{said}, {turns} with the first seed");
    // At the limit the run ends early, and its figures are of a shorter time.
    if conversations >= CONVERSATIONS_MAX as u64 {
        text += "; that is the maximum, and it is reached before the run ends: no conversation \
                 starts after it. Fewer minutes or slots, or --answer-ms, need fewer";
    }
    text
}

/// Returns a file's name without its folder, which stays private.
fn shown(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_was_cut_says_so() {
        let check = |conversations, turns, expected: &str| {
            let told = drawn(conversations, turns);
            assert!(told.starts_with(expected), "{told}");
        };
        check(1, 1, "1 conversation, 1 turn with");
        check(2, 30, "2 conversations, 30 turns with");
        let most = CONVERSATIONS_MAX as u64;
        assert!(drawn(most, most).contains("that is the maximum"));
        assert!(!drawn(most - 1, most).contains("the maximum"));
    }
}
