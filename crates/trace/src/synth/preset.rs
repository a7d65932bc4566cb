//! Ready-made workloads. Those after the ATC'25 characterization are in [`atc25`].
//!
//! | preset | number | source |
//! |---|---|---|
//! | `chat` | follow-up 55 %, question 113, answer 305 tokens | ShareGPT as in LPC, table 1 |
//! | | later follow-ups 80 % | ATC'25 study |
//! | | gaps exponential, mean 100 s | LPC's experiments |
//! | `agents` | opening of 17,000 tokens | coding agents, as published |
//! | | user gaps log-normal, μ 4.82, σ 1.25 | SAECache's fit to Bailian |
//! | all else | | our choice |
//!
//! LPC: "Learned Prefix Caching", NeurIPS'25. SAECache: arXiv 2605.18825.

pub mod atc25;

use std::time::Duration;

use super::agents::{AgentTool, Agents};
use super::bursts::Bursts;
use super::conversations::{Conversations, Labels, RequestType, Step};
use super::draw::{Gap, Length};
use super::prompt::Opening;
use super::stream::Stream;
use super::workload::SynthWorkload;

/// A workload with a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Requests a second unless set otherwise.
    requests_per_s: f64,
    /// Length of the run unless set otherwise, seconds.
    duration_s: u64,
    streams: fn() -> Vec<Stream>,
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    preset("chat", "conversations under ten system prompts, exponential gaps", || vec![chat()]),
    preset("agents", "coding agents: tool steps, long user pauses, retries and sub-agents", || {
        vec![agents()]
    }),
    preset("agents-tools", "the same; each tool has its own pause, and its name is known", || {
        vec![agents_with_tools()]
    }),
    preset("api", "bursts of single-turn requests around one template, never used again", || {
        vec![api()]
    }),
    preset(
        "shared-prompts",
        "50 popular system prompts, 2,000 users with few questions each",
        || vec![shared_prompts()],
    ),
    preset("mixed", "a quarter of the requests from each of the above", mixed),
    Preset::atc25(
        "atc25-exponential",
        "to-consumer traffic after ATC'25; each (type, turn) class has its own exponential gap",
        || vec![atc25::consumer(Gap::exponential())],
    ),
    Preset::atc25("atc25-lognormal", "the same with log-normal gaps", || {
        vec![atc25::consumer(Gap::log_normal())]
    }),
    Preset::atc25(
        "atc25-drift",
        "the same with exponential gaps; classes exchange their behaviour four times",
        || vec![atc25::drifting()],
    ),
    Preset::atc25(
        "atc25-wrong-labels",
        "atc25-exponential, each request's type and turn drawn at random",
        || vec![atc25::labelled(Labels::Random)],
    ),
    Preset::atc25(
        "atc25-swapped-labels",
        "atc25-exponential, types and turns renamed halfway through",
        || vec![atc25::labelled(Labels::Swapped { at: 0.5 })],
    ),
    Preset::atc25(
        "atc25-api",
        "to-business traffic after ATC'25: bursts, hardly a conversation",
        atc25::business,
    ),
    Preset::atc25(
        "atc25-mixed",
        "half atc25-exponential, half atc25-api, in one cache",
        atc25::both,
    ),
];

const fn preset(name: &'static str, about: &'static str, streams: fn() -> Vec<Stream>) -> Preset {
    Preset { name, about, requests_per_s: 5.0, duration_s: 3_600, streams }
}

/// No preset has this name; says which there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no workload is named {name:?}; there are {known}")]
pub struct UnknownPreset {
    name: String,
    known: String,
}

impl Preset {
    /// Two hours, the length of the published traces. As sessions must first open, some 50,000
    /// of the 57,600 requests that the rate promises fall into them.
    const fn atc25(name: &'static str, about: &'static str, streams: fn() -> Vec<Stream>) -> Self {
        Self { name, about, requests_per_s: 8.0, duration_s: 7_200, streams }
    }

    /// The preset called `name`.
    ///
    /// # Errors
    /// When no preset has this name.
    pub fn by_name(name: &str) -> Result<Self, UnknownPreset> {
        let found = PRESETS.iter().find(|preset| preset.name == name);
        found.copied().ok_or_else(|| {
            let known: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
            UnknownPreset { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// The workload, with seed 1 and blocks of 16 tokens.
    #[must_use]
    pub fn workload(&self) -> SynthWorkload {
        let mut workload = SynthWorkload {
            seed: 1,
            block_tokens: 16,
            duration: Some(Duration::from_secs(self.duration_s)),
            requests: None,
            streams: (self.streams)(),
        };
        workload.set_rate(self.requests_per_s);
        workload
    }
}

/// Steps of probability and gap factor by turn, as the tables here are written.
fn steps(p_next: &[f64], gap_scale: &[f64]) -> Vec<Step> {
    let steps = p_next.iter().zip(gap_scale);
    let step = |(&p_next, &gap_scale)| Step { p_next, gap_scale };
    steps.map(step).collect()
}

/// Log-normal lengths whose spread is our choice: the 90th percentile is twice the mean.
fn around(mean: f64) -> Length {
    Length { mean, sigma: 0.8 }
}

/// Lengths of system prompts. They spread less: one popular prompt would shift all means.
fn system_prompt(mean: f64) -> Length {
    Length { mean, sigma: 0.3 }
}

fn chat() -> Stream {
    Stream::Conversations(Conversations {
        starts_per_s: 1.0,
        opening: Opening::prompts(10, 1.0, system_prompt(200.0)),
        types: vec![RequestType {
            name: "chat".to_owned(),
            weight: 1.0,
            question: around(113.0),
            follow_up: around(113.0),
            answer: around(305.0),
            rewrite: 0.05,
            repeat: 0.03,
            steps: steps(&[0.55, 0.8], &[1.0, 1.0]),
        }],
        gap: Gap::Exponential { mean_s: 100.0 },
        changes_at: Vec::new(),
        labels: Labels::True,
        context_tokens: 16_384,
    })
}

fn agents() -> Stream {
    Stream::Agents(coding_agents())
}

/// Tools with run times of their own: of most calls a fraction of a second, of tests a minute, and
/// one that waits for a person.
fn agents_with_tools() -> Stream {
    let tool = |name, weight, mu, sigma| {
        let gap = Gap::LogNormal { mu, sigma };
        AgentTool { name, weight, gap }
    };
    let tools = vec![
        tool("read_file", 40.0, -1.0, 0.5),
        tool("edit_file", 20.0, -0.5, 0.5),
        tool("run_command", 20.0, 1.4, 1.0),
        tool("run_tests", 8.0, 3.7, 0.8),
        tool("web_search", 7.0, 1.0, 0.6),
        tool("ask_user", 5.0, 4.82, 1.25),
    ];
    Stream::Agents(Agents { tools, ..coding_agents() })
}

fn coding_agents() -> Agents {
    Agents {
        starts_per_s: 1.0,
        opening: Opening::prompts(5, 0.8, system_prompt(17_000.0)),
        task: around(400.0),
        tool_result: around(1_200.0),
        answer: around(250.0),
        p_step: 0.9,
        p_turn: 0.75,
        p_fork: 0.03,
        retries: 0.3,
        tool_gap: Gap::LogNormal { mu: 1.4, sigma: 1.0 },
        tools: Vec::new(),
        user_gap: Gap::log_normal(),
        context_tokens: 200_000,
    }
}

fn api() -> Stream {
    Stream::Bursts(Bursts {
        starts_per_s: 1.0,
        size: 20.0,
        gap: Gap::Exponential { mean_s: 1.0 },
        template: around(1_500.0),
        payload: around(300.0),
        answer: around(150.0),
        context_tokens: 32_768,
    })
}

fn shared_prompts() -> Stream {
    let mut opening = Opening::prompts(50, 1.0, system_prompt(2_000.0));
    opening.users = 2_000;
    opening.profile = around(150.0);
    Stream::Conversations(Conversations {
        starts_per_s: 1.0,
        opening,
        types: vec![RequestType {
            name: "assistant".to_owned(),
            weight: 1.0,
            question: around(80.0),
            follow_up: around(80.0),
            answer: around(250.0),
            rewrite: 0.0,
            repeat: 0.03,
            steps: steps(&[0.3, 0.5], &[1.0, 1.0]),
        }],
        gap: Gap::Exponential { mean_s: 60.0 },
        changes_at: Vec::new(),
        labels: Labels::True,
        context_tokens: 32_768,
    })
}

fn mixed() -> Vec<Stream> {
    in_equal_parts(vec![chat(), agents(), api(), shared_prompts()])
}

/// The streams at one request a second each.
fn in_equal_parts(mut streams: Vec<Stream>) -> Vec<Stream> {
    for stream in &mut streams {
        stream.scale_rate(1.0 / stream.requests_per_s());
    }
    streams
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_found_and_can_be_generated() {
        for preset in PRESETS {
            let found = Preset::by_name(preset.name).expect("it is listed");
            let workload = found.workload();
            assert!((workload.requests_per_s() - preset.requests_per_s).abs() < 1e-9);
            let mut requests = workload.generate().expect("presets are valid");
            assert!(requests.next().is_some(), "{}", preset.name);
        }
        let unknown = Preset::by_name("chatt").expect_err("there is none");
        assert!(unknown.to_string().contains("chat, agents"), "{unknown}");
    }
}
