//! The sweep over prefixes, speeds and repetitions.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use headstart_cache::tiers::LoadWhen;
use headstart_engine::kv::{Dtype, KvStorageFormat};
use headstart_store::line::Rate;
use headstart_terminal::{Progress, TaskProgress};

use super::arm::{BenchPrompt, PromptMeasurement, TierArm, TierArmSettings};
use super::models::NamedModel;

/// Speeds beside the disk's own, over the one at which loading takes as long as computing.
const SHARES: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 8.0];

/// Requests before those that are measured: what is learned from them, a server has learned, too.
const WARM_UP: u64 = 4;

/// Arms of the comparison, in table order.
pub(super) const ARMS: [LoadWhen; 3] = [LoadWhen::Always, LoadWhen::Never, LoadWhen::Faster];

/// Parameters of the sweep.
#[derive(Clone, Copy)]
pub(super) struct TierSweepParameters<'a> {
    pub(super) folder: &'a Path,
    pub(super) dtype: Dtype,
    pub(super) stored: KvStorageFormat,
    pub(super) prefixes: &'a [usize],
    /// Empty: chosen for each prefix.
    pub(super) mb_per_s: &'a [f64],
    pub(super) latency: Duration,
    pub(super) rounds: usize,
}

/// One model, prefix and speed.
pub(super) struct TierSweepCell {
    pub(super) model: String,
    pub(super) prefix_tokens: usize,
    /// Bytes of the prefix, as they are stored.
    pub(super) prefix_bytes: u64,
    /// Bytes a second that the tier reads; infinite where it is the disk itself.
    pub(super) bytes_per_s: f64,
    /// Measured answers, in the order of [`ARMS`].
    pub(super) answers: [Vec<PromptMeasurement>; 3],
}

impl TierSweepCell {
    /// The median time to the first token of an arm.
    pub(super) fn ttft(&self, arm: usize) -> Duration {
        let mut ttfts: Vec<Duration> = self.answers[arm].iter().map(|answer| answer.ttft).collect();
        ttfts.sort_unstable();
        ttfts[ttfts.len() / 2]
    }

    /// Returns the ratio of the plan's TTFT to the better of both other arms.
    pub(super) fn ratio(&self) -> f64 {
        let [load, compute, ours] = [0, 1, 2].map(|arm| self.ttft(arm).as_secs_f64());
        ours / load.min(compute)
    }

    /// Share of the prefix that the plan loads, on average.
    pub(super) fn loaded_share(&self) -> f64 {
        let [.., ours] = &self.answers;
        let loaded: usize = ours.iter().map(|answer| answer.loaded_tokens).sum();
        loaded as f64 / (ours.len() * self.prefix_tokens) as f64
    }
}

/// Measures a model. Passes each cell to `tell` when it is done.
pub(super) fn run(
    model: &NamedModel,
    asked: &TierSweepParameters<'_>,
    mut tell: impl FnMut(TierSweepCell) -> Result<()>,
) -> Result<()> {
    for &prefix_tokens in asked.prefixes {
        let sweep = PrefixSweep { model, asked, prefix_tokens };
        let progress = TaskProgress::endless(format!("filling with {prefix_tokens} tokens"));
        let compute_s = sweep.fill()?.as_secs_f64();
        progress.end();
        let bytes = sweep.setting(0, Rate::UNLIMITED).prefix_bytes();
        let given = asked.mb_per_s.iter().map(|rate| rate * 1e6);
        // The break-even speed moves the prefix in the time in which it is computed.
        let chosen = SHARES.map(|share| share * bytes as f64 / compute_s);
        let chosen = chosen.into_iter().chain([f64::INFINITY]);
        let rates: Vec<f64> = match asked.mb_per_s {
            [] => chosen.collect(),
            _ => given.collect(),
        };
        let mut number = 1;
        let progress = format!("measuring {} with {prefix_tokens} tokens", model.name);
        let progress = TaskProgress::steps(progress, rates.len()).announced();
        for bytes_per_s in rates {
            let answers = sweep.cell(bytes_per_s, &mut number)?;
            progress.inc(1);
            tell(TierSweepCell {
                model: model.name.clone(),
                prefix_tokens,
                prefix_bytes: bytes,
                bytes_per_s,
                answers,
            })?;
        }
        // The next prefix must not find records of this one.
        for arm in 0..ARMS.len() {
            std::fs::remove_dir_all(sweep.folder(arm))?;
        }
    }
    Ok(())
}

/// One model and prefix.
struct PrefixSweep<'a> {
    model: &'a NamedModel,
    asked: &'a TierSweepParameters<'a>,
    prefix_tokens: usize,
}

impl PrefixSweep<'_> {
    fn folder(&self, arm: usize) -> std::path::PathBuf {
        self.asked.folder.join(format!("arm-{arm}"))
    }

    fn open(&self, arm: usize, reads: Rate) -> Result<TierArm> {
        let folder = self.folder(arm);
        let setting = TierArmSettings { folder: &folder, ..self.setting(arm, reads) };
        TierArm::open(&setting)
    }

    fn setting(&self, arm: usize, reads: Rate) -> TierArmSettings<'_> {
        TierArmSettings {
            model: &self.model.model,
            dtype: self.asked.dtype,
            stored: self.asked.stored,
            load: ARMS[arm],
            folder: self.asked.folder,
            prefix_tokens: self.prefix_tokens,
            reads,
        }
    }

    /// Stores the prefix for each arm; how long computing it took at least.
    fn fill(&self) -> Result<Duration> {
        let mut shortest = Duration::MAX;
        for arm in 0..ARMS.len() {
            // The first computation includes no load, because nothing is stored yet.
            let answer = self.open(arm, Rate::UNLIMITED)?.ask(BenchPrompt::Known(0))?;
            // The shortest of the three counts: noise only adds.
            shortest = shortest.min(answer.ttft);
        }
        Ok(shortest)
    }

    /// The three arms in turn, each with an engine that knows nothing yet but its warm-up.
    fn cell(&self, bytes_per_s: f64, number: &mut u64) -> Result<[Vec<PromptMeasurement>; 3]> {
        let reads = Rate { latency: self.asked.latency, bytes_per_s };
        let mut arms = Vec::new();
        for arm in 0..ARMS.len() {
            arms.push(self.open(arm, reads)?);
        }
        let mut next = || {
            *number += 1;
            *number
        };
        for (arm, load) in arms.iter_mut().zip(ARMS) {
            arm.ask(BenchPrompt::Known(next()))?;
            // Only the plan learns: it needs the cost of computing as well as that of loading.
            if load == LoadWhen::Faster {
                arm.ask(BenchPrompt::Unknown(next()))?;
                for _ in 2..WARM_UP {
                    arm.ask(BenchPrompt::Known(next()))?;
                }
            }
        }
        let mut answers = [const { Vec::new() }; 3];
        for round in 0..self.asked.rounds {
            for turn in 0..arms.len() {
                // The arms take turns, so drifts of the machine hit all alike.
                let arm = (round + turn) % arms.len();
                answers[arm].push(arms[arm].ask(BenchPrompt::Known(next()))?);
            }
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use headstart_engine::model::{GenerationDefaults, toy};

    use super::*;

    /// The arm that always loads reads from the disk, even after reopening. The arm that always
    /// computes does not. Both receive the expected number of prompts.
    #[test]
    fn each_arm_does_what_its_name_says() {
        let mut config = toy::config();
        (config.hidden, config.intermediate, config.num_layers) = (64, 96, 2);
        (config.num_heads, config.num_kv_heads, config.head_dim) = (4, 2, 16);
        config.vocab = 300;
        let model = toy::with_config(config, GenerationDefaults::default(), Dtype::F32);
        let named = NamedModel { name: "tiny".to_owned(), model: Arc::new(model) };
        let folder = tempfile::tempdir().expect("a folder");
        let asked = TierSweepParameters {
            folder: folder.path(),
            dtype: Dtype::F32,
            stored: KvStorageFormat::Same,
            prefixes: &[128],
            mb_per_s: &[50.0, 1_000.0],
            latency: Duration::from_millis(1),
            rounds: 2,
        };
        let mut cells = Vec::new();
        run(&named, &asked, |cell| {
            cells.push(cell);
            Ok(())
        })
        .expect("it runs");
        assert_eq!(cells.len(), 2);
        for cell in &cells {
            let loaded = |arm: usize| -> Vec<usize> {
                let answers = cell.answers[arm].iter();
                answers.map(|answer| answer.loaded_tokens).collect()
            };
            assert_eq!([loaded(0), loaded(1)], [[128; 2], [0; 2]]);
            assert_eq!(loaded(2).len(), 2);
            assert!((0.0..=1.0).contains(&cell.loaded_share()) && cell.ratio() > 0.0);
        }
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 0, "what was written is gone");
    }
}
