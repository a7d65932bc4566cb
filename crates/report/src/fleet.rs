//! Report of a fleet run, in several formats.

mod agreement;
mod html;
mod json;
mod table;
mod winner;

use headstart_core::figures::{counted, thousands};
use headstart_sim::fleet::replica::ReplicaSpec;
use headstart_sim::fleet::{Fault, FleetConfig, FleetOutcome, FleetPreset, RungOutcome};

pub use html::page;
pub use json::json_lines;
pub use table::table;

/// Source of the published figures.
const SOURCE: &str = "llm-d-kv-cache, benchmarking/73-capacity and 37-capacity, September 2025";

/// Strategies on the same requests.
#[derive(Debug)]
pub struct FleetReport {
    /// Parameters of the run.
    pub asked: RunParameters,
    /// Description of the fleet as far as it is known, in sentences.
    pub engine: Vec<String>,
    /// One run per strategy.
    pub runs: Vec<StrategyRun>,
}

/// Parameters of the run.
#[derive(Debug)]
pub struct RunParameters {
    /// The preset, or the trace.
    pub name: String,
    /// In a sentence.
    told: String,
    /// Preset with published figures beside ours, if any.
    published: Option<FleetPreset>,
}

impl RunParameters {
    /// The ladder of a published run.
    pub fn preset(preset: FleetPreset) -> Self {
        let ladder = preset.ladder();
        let told = format!(
            "{}: {} of {} tokens, each with {} of {} tokens, answers of {} tokens; the first step \
             is the warm-up",
            preset.name(),
            counted(ladder.groups as u64, "system prompt"),
            ladder.system_tokens,
            counted(ladder.prompts as u64, "question"),
            ladder.question_tokens,
            ladder.answer_tokens,
        );
        Self {
            name: preset.name().to_owned(),
            told,
            published: Some(preset).filter(|preset| !preset.published().is_empty()),
        }
    }

    /// The same of another engine, beside which nothing was published.
    pub fn of_another_engine(self) -> Self {
        Self { published: None, ..self }
    }

    /// The same, with another sentence.
    pub fn also(mut self, told: &str) -> Self {
        self.told += "; ";
        self.told += told;
        self
    }

    /// A trace.
    pub fn trace(name: String, told: String) -> Self {
        Self { name, told, published: None }
    }
}

/// One strategy.
#[derive(Debug)]
pub struct StrategyRun {
    /// Name of the strategy, unique in the report.
    pub name: String,
    /// Origin of its figures.
    pub origin: FigureOrigin,
    /// Measurements of the strategy.
    pub outcome: FleetOutcome,
}

/// Origin of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureOrigin {
    /// Virtual time.
    Simulated,
    /// Requests that were sent and answered.
    Measured,
}

impl FigureOrigin {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Measured => "measured",
        }
    }
}

impl StrategyRun {
    /// The strategy, and where its figures are from unless they are simulated.
    fn label(&self) -> String {
        match self.origin {
            FigureOrigin::Simulated => self.name.clone(),
            FigureOrigin::Measured => format!("{}, measured", self.name),
        }
    }

    /// Describes the recovery from each fault.
    fn recoveries(&self) -> impl Iterator<Item = String> {
        self.outcome.recoveries.iter().map(|recovery| {
            let (what, at) = match recovery.fault {
                Fault::Crash { replica, at, .. } => (format!("replica {replica} died"), at),
                Fault::GatewayRestart { gateway, at, .. } => {
                    (format!("gateway {gateway} restarted"), at)
                }
            };
            let back = match recovery.back_s {
                Some(back_s) => format!("back to 95 % of it {back_s:.1} s after its return"),
                None if recovery.before.lookups == 0 => "no requests before it".to_owned(),
                None => "never back to 95 % of it".to_owned(),
            };
            format!(
                "{what} at {:.0} s: hit rate {:.1} % before, {:.1} % in the ten seconds after its \
                 return; {back}",
                at.as_secs_f64(),
                recovery.before.rate() * 100.0,
                recovery.after.rate() * 100.0,
            )
        })
    }

    /// Rungs, and all of them but the first together.
    fn rungs(&self) -> impl Iterator<Item = &RungOutcome> {
        self.outcome.rungs.iter()
    }
}

impl FleetReport {
    /// Output tokens/s and TTFT p90 that were published of a strategy at a rate.
    fn published(&self, strategy: &str, rate: f64) -> Option<(f64, f64)> {
        let order = ["llm-d-precise", "llm-d-approximate", "llm-d-load", "random"];
        let column = order.iter().position(|name| *name == strategy)?;
        let rows = self.asked.published?.published().iter();
        let row = rows.into_iter().find(|row| row.rate == rate)?;
        Some(row.figures[column])
    }

    /// Whether the first rung only fills the caches.
    fn warm_up(&self) -> usize {
        usize::from(self.runs[0].outcome.rungs.len() > 1)
    }

    /// Returns the facts needed to read the figures.
    fn facts(&self) -> Vec<String> {
        let mut facts = vec![self.asked.told.clone()];
        facts.extend(self.engine.clone());
        if self.asked.published.is_some() {
            facts.push(format!("published: {SOURCE}"));
        }
        facts
    }
}

/// Describes `fleet` for the reader of its figures; `origin` is the source of its cost model.
pub fn told(fleet: &FleetConfig, origin: &str) -> Vec<String> {
    let spec = &fleet.replicas[0];
    let cost = &spec.cost;
    let memory = |replica: &ReplicaSpec| {
        replica.capacity_blocks as u64 * replica.scheduler.block_size as u64
    };
    let all = || fleet.replicas.iter().map(memory);
    let tokens = match (all().min(), all().max()) {
        (Some(least), Some(most)) if least < most => {
            format!("{} to {}", thousands(least), thousands(most))
        }
        _ => thousands(memory(spec)),
    };
    let of_first = if fleet.replicas.iter().any(|replica| replica.cost != *cost) {
        " of the first replica (others are faster or slower)"
    } else {
        ""
    };
    vec![
        format!(
            "{} with {tokens} tokens of KV memory each, in blocks of {}; {}",
            counted(fleet.replicas.len() as u64, "replica"),
            spec.scheduler.block_size,
            counted(fleet.gateways as u64, "gateway"),
        ),
        format!(
            "an engine step{of_first} takes {:.2} ms, plus the larger of {:.2} ms and {:.1} µs per \
             token for layers, plus the larger of {:.2} ns per token pair and {:.1} ns per cached \
             token for attention; a request takes {:.0} ms outside the engine; {origin}",
            cost.overhead_s * 1e3,
            cost.weights_s * 1e3,
            cost.token_s * 1e6,
            cost.pair_s * 1e9,
            cost.kv_token_s * 1e9,
            fleet.network.request_latency.as_secs_f64() * 1e3,
        ),
    ]
}
