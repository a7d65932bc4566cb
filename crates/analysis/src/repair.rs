//! The worth of remedies: the log is rewritten with one more remedy at a time, and replayed.
//!
//! The replay is that of the savings of `headstart analyze`: requests in order of time, each to the
//! replica that holds most of its prompt, without service times.

use headstart_core::Progress;
use headstart_trace::format::request_log::LoggedRequest;

use crate::error::AnalysisError;
use crate::fix::computed_tokens;
use crate::fleet::UniformFleet;
use crate::remedy::{LogRewriter, Remedy};
use crate::results::Analysis;
use crate::traffic::{LogReaderSettings, LogSource, LoggedTraffic};

/// Remedies that are replayed, those of the findings with most tokens.
const REMEDIES_MAX: usize = 8;

/// Prompt tokens of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayedTokens {
    /// Prompt tokens.
    pub prompt: u64,
    /// Of these, computed.
    pub computed: u64,
}

/// One finding and the worth of its remedy behind those before it.
#[derive(Clone, Debug)]
pub struct RepairStep {
    /// The finding's index in the analysis.
    pub finding: usize,
    /// Its remedy.
    pub remedy: Remedy,
    /// Tokens of the replay with this remedy and those before it.
    pub after: ReplayedTokens,
    /// Whether it is applied: it saves tokens.
    pub is_applied: bool,
}

/// All remedies of a log, with their worth.
#[derive(Clone, Debug)]
pub struct Repair {
    /// Tokens of the replay of the log as it is.
    pub before: ReplayedTokens,
    /// The steps, in the order of the findings.
    pub steps: Vec<RepairStep>,
    /// Findings without a remedy, by their index.
    pub without_remedy: Vec<usize>,
}

impl ReplayedTokens {
    /// Cached tokens as a share of all.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        1.0 - self.computed as f64 / self.prompt.max(1) as f64
    }

    fn of(traffic: &LoggedTraffic, fleet: UniformFleet) -> Self {
        let settings = fleet.spread(traffic.info.block_tokens);
        let computed = computed_tokens(settings, traffic.requests.iter());
        let prompt = traffic.said.iter().map(|said| said.tokens.len() as u64).sum();
        Self { prompt, computed }
    }
}

impl Repair {
    /// Tries the remedies of an analysis on the requests that it was made of.
    ///
    /// # Errors
    /// When the rewritten log cannot be read, which is a defect.
    pub fn of(
        analysis: &Analysis,
        traffic: &LoggedTraffic,
        requests: &[LoggedRequest],
        reading: &LogReaderSettings<'_>,
        progress: &dyn Progress,
    ) -> Result<Self, AnalysisError> {
        let fleet =
            UniformFleet { replicas: analysis.replicas, capacity_blocks: analysis.capacity_blocks };
        let before = ReplayedTokens::of(traffic, fleet);
        let mut repair = Self { before, steps: Vec::new(), without_remedy: Vec::new() };
        for (finding, row) in analysis.findings.iter().enumerate() {
            let known = |remedy: &Remedy| repair.steps.iter().any(|step| step.remedy == *remedy);
            match &row.remedy {
                Some(remedy) if known(remedy) => {}
                Some(remedy) if repair.steps.len() < REMEDIES_MAX => {
                    progress.phase("replaying a remedy", None);
                    let mut remedies = repair.remedies();
                    remedies.push(remedy.clone());
                    let log = rewritten(remedies, requests);
                    let log = [LogSource::Made("the rewritten log", log)];
                    let fixed = LoggedTraffic::read(&log, reading, progress)?;
                    let after = ReplayedTokens::of(&fixed, fleet);
                    let is_applied = after.computed < repair.after().computed;
                    let remedy = remedy.clone();
                    repair.steps.push(RepairStep { finding, remedy, after, is_applied });
                }
                _ => repair.without_remedy.push(finding),
            }
        }
        progress.end();
        Ok(repair)
    }

    /// The remedies that save tokens.
    #[must_use]
    pub fn remedies(&self) -> Vec<Remedy> {
        self.applied().map(|step| step.remedy.clone()).collect()
    }

    /// Tokens of the replay with all of them.
    #[must_use]
    pub fn after(&self) -> ReplayedTokens {
        self.applied().last().map_or(self.before, |step| step.after)
    }

    fn applied(&self) -> impl Iterator<Item = &RepairStep> {
        self.steps.iter().filter(|step| step.is_applied)
    }
}

/// The log with `remedies`, as JSON lines.
#[must_use]
pub fn rewritten(remedies: Vec<Remedy>, requests: &[LoggedRequest]) -> Vec<u8> {
    let mut rewriter = LogRewriter::new(remedies, requests);
    let mut log = Vec::new();
    for request in requests {
        log.extend_from_slice(rewriter.line(request).to_string().as_bytes());
        log.push(b'\n');
    }
    log
}
