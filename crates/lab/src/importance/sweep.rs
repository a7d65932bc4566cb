//! The sweep over variants, ratios, speeds and repetitions.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use headstart_engine::importance::PartialLoadTally;
use headstart_engine::kv::Dtype;
use headstart_selective::{Merge, bound};
use headstart_store::line::Rate;
use headstart_terminal::{Progress, TaskProgress};

use super::arm::{AnswerMeasurement, FullComputeComparison, ImportanceArm, ImportanceArmSettings};
use super::state::DiskStateFolder;
use super::variants::Variant;
use super::workload::DocumentWorkload;
use headstart::parts::UNIT_TOKENS;

/// Questions for which all is computed: it takes long, and always the same.
const RECOMPUTED: usize = 3;

/// Full loads by which the speed of everything but the disk is measured; the median counts.
const CALIBRATIONS: u64 = 5;

/// Parameters of the sweep.
pub(super) struct ImportanceSweepParameters<'a> {
    pub(super) folder: &'a Path,
    pub(super) dtype: Dtype,
    pub(super) chunk_tokens: usize,
    pub(super) ratios: &'a [f64],
    pub(super) spared: f64,
    pub(super) merge: Merge,
    pub(super) variants: Vec<Variant>,
    pub(super) io_shares: &'a [f64],
    pub(super) bytes_per_s: Option<f64>,
    pub(super) latency: Duration,
    /// Times by which host memory is faster.
    pub(super) host_speed: f64,
    pub(super) kept: [f64; 2],
    pub(super) questions: usize,
    pub(super) warm_up: usize,
}

/// One variant at one ratio and speed.
pub(super) struct ImportanceRow {
    pub(super) variant: Variant,
    /// `None` where it changes nothing.
    pub(super) ratio: Option<f64>,
    pub(super) bytes_per_s: f64,
    pub(super) answers: Vec<AnswerMeasurement>,
    /// Of the answers, those that are known to be right or wrong, and those that are right.
    pub(super) known: usize,
    pub(super) right: usize,
    /// Counts of partial loads over all answers.
    pub(super) tally: PartialLoadTally,
    /// Against a full computation.
    pub(super) compared: FullComputeComparison,
    /// Tokens of a chunk.
    pub(super) chunk_tokens: usize,
    /// Bytes that are stored of what a question is about.
    pub(super) document_bytes: u64,
    /// Share of the bytes that are its probes' keys.
    pub(super) probe_share: f64,
    /// Packs that there were.
    pub(super) packs: usize,
    /// The full load's row that was measured beside it: medians of its TTFT and its I/O.
    pub(super) full: Option<(Duration, Duration)>,
}

impl ImportanceRow {
    /// The median time to the first token.
    pub(super) fn ttft(&self) -> Duration {
        median(self.answers.iter().map(|answer| answer.ttft))
    }

    /// The median time that was spent waiting for what was loaded.
    pub(super) fn io(&self) -> Duration {
        median(self.answers.iter().map(|answer| answer.io))
    }

    /// Whether anything was loaded by importance.
    pub(super) fn is_partly(&self) -> bool {
        self.tally.layers > 0
    }

    /// Bytes that were loaded, wherever from; where no tally is kept, those that the disk read.
    pub(super) fn loaded_bytes(&self) -> u64 {
        if self.is_partly() { self.tally.loaded_bytes() } else { self.disk_bytes() }
    }

    /// Bytes that the disk read, whole pages and headers.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.answers.iter().map(|answer| answer.disk_bytes).sum()
    }

    /// Bytes that are stored of what was asked about.
    pub(super) fn whole_bytes(&self) -> u64 {
        self.document_bytes * self.answers.len() as u64
    }

    /// Share of the stored bytes that were loaded, wherever from.
    pub(super) fn loaded_share(&self) -> f64 {
        self.loaded_bytes() as f64 / self.whole_bytes().max(1) as f64
    }

    /// The same of the bytes that the disk read.
    pub(super) fn disk_share(&self) -> f64 {
        self.disk_bytes() as f64 / self.whole_bytes().max(1) as f64
    }

    /// Share of the tokens that were selected, over all layers.
    pub(super) fn selected_share(&self, document_tokens: usize) -> f64 {
        let all = self.tally.layers * document_tokens as u64;
        self.tally.selected_tokens as f64 / all.max(1) as f64
    }

    /// Returns the speedups of TTFT and of I/O wait over a full load, if one was measured.
    pub(super) fn gain(&self) -> Option<(f64, f64)> {
        let (ttft, io) = self.full?;
        let times = |full: Duration, ours: Duration| full.as_secs_f64() / ours.as_secs_f64();
        Some((times(ttft, self.ttft()), times(io, self.io())))
    }

    /// The share that the probes' keys and as many tokens as were selected come to. Whole chunks
    /// may bring the same attention with fewer.
    pub(super) fn bound(&self, document_tokens: usize) -> f64 {
        bound(self.probe_share, self.selected_share(document_tokens), 1.0)
    }
}

/// Of an even number, the mean of the two in the middle.
pub(super) fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let upper = times.get(times.len() / 2).copied().unwrap_or_default();
    match times.len() {
        0 => Duration::ZERO,
        len if len % 2 == 1 => upper,
        len => (times[len / 2 - 1] + upper) / 2,
    }
}

/// Measures the whole sweep. Passes each row to `tell` when it is done.
pub(super) fn run(
    workload: &DocumentWorkload,
    asked: &ImportanceSweepParameters<'_>,
    mut tell: impl FnMut(ImportanceRow) -> Result<()>,
) -> Result<()> {
    let sweep = ImportanceSweep { workload, asked, num_states: Cell::new(0) };
    let speeds = match asked.bytes_per_s {
        Some(bytes_per_s) => vec![bytes_per_s],
        None => sweep.speeds()?,
    };
    for bytes_per_s in speeds {
        for (index, &ratio) in asked.ratios.iter().enumerate() {
            let variants = turn(&asked.variants, index == 0);
            let rows = sweep.rows(&variants, ratio, bytes_per_s)?;
            // The full load of the same ratio, measured in turn with the others.
            let full = rows.iter().find(|row| row.variant == Variant::Full);
            let full = full.map(|row| (row.ttft(), row.io()));
            for mut row in rows {
                row.full = full;
                tell(row)?;
            }
        }
    }
    Ok(())
}

/// The variants that are asked in turn at one ratio, those first that it does not change. Of these
/// only the full load is measured again at further ratios, so that what is compared with it was
/// measured beside it.
fn turn(variants: &[Variant], is_first: bool) -> Vec<Variant> {
    let (chosen, plain): (Vec<_>, Vec<_>) =
        variants.iter().partition(|variant| variant.has_ratio());
    let is_due = |variant: &Variant| is_first || (*variant == Variant::Full && !chosen.is_empty());
    let plain = plain.into_iter().filter(is_due);
    plain.chain(chosen.iter().copied()).collect()
}

struct ImportanceSweep<'a> {
    workload: &'a DocumentWorkload,
    asked: &'a ImportanceSweepParameters<'a>,
    num_states: Cell<u64>,
}

impl ImportanceSweep<'_> {
    fn setting<'b>(&'b self, variant: Variant, folder: &'b Path) -> ImportanceArmSettings<'b> {
        ImportanceArmSettings {
            variant,
            ratio: 1.0,
            spared: self.asked.spared,
            merge: self.asked.merge,
            model: &self.workload.model,
            dtype: self.asked.dtype,
            folder,
            // Units are not read in chunks.
            chunk_tokens: if variant.is_partly() { self.asked.chunk_tokens } else { UNIT_TOKENS },
            document_tokens: self.workload.tokens(),
            documents: self.workload.documents.len(),
            disk: Rate::UNLIMITED,
            host: Rate::UNLIMITED,
            kept: [0.0, 0.0],
            is_checked: false,
        }
    }

    /// Copies the stored state for a variant: all documents in its layout, and nothing else.
    /// Documents are computed once per layout.
    fn state(&self, variant: Variant) -> Result<DiskStateFolder> {
        let stored = self.asked.folder.join(variant.layout());
        // The layout is filled once; each arm then gets its own copy.
        if !stored.exists() {
            let mut arm = ImportanceArm::open(&self.setting(variant, &stored))?;
            let documents = self.workload.documents.iter();
            documents.cloned().try_for_each(|document| arm.warm(document))?;
        }
        // Each copy has a number of its own: two arms of one variant must not share a folder.
        let number = self.num_states.get();
        self.num_states.set(number + 1);
        DiskStateFolder::copied(&stored, self.asked.folder.join(format!("state-{number}")))
    }

    /// Speeds of the disk at which a full load's I/O has the shares that were asked for.
    fn speeds(&self) -> Result<Vec<f64>> {
        let state = self.state(Variant::Full)?;
        let setting = self.setting(Variant::Full, state.folder());
        let mut arm = ImportanceArm::open(&setting)?;
        let mut computing = Vec::new();
        for number in 0..CALIBRATIONS {
            let answer = arm.ask(self.prompt(number))?;
            // Waiting is subtracted: only computing is wanted here.
            computing.push(answer.ttft.saturating_sub(answer.io));
        }
        let computing_s = median(computing.into_iter()).as_secs_f64();
        let bytes = setting.document_bytes() as f64;
        // Solved for the speed at which loading takes the wanted share of the whole time.
        let speed = |share: &f64| bytes * (1.0 - share) / (share * computing_s);
        Ok(self.asked.io_shares.iter().map(speed).collect())
    }

    fn prompt(&self, number: u64) -> Vec<headstart_core::TokenId> {
        let question = self.workload.question(number);
        [&self.workload.documents[question.document][..], &question.tokens].concat()
    }

    /// The variants in turn, question by question.
    fn rows(
        &self,
        variants: &[Variant],
        ratio: f64,
        bytes_per_s: f64,
    ) -> Result<Vec<ImportanceRow>> {
        let mut arms = Vec::new();
        let total = variants.len() * (self.warm_ups() + self.asked.questions);
        let progress = TaskProgress::steps(format!("measuring ratio {ratio}"), total);
        for &variant in variants {
            arms.push((variant, self.warm(variant, ratio, bytes_per_s, &progress)?));
        }
        let mut rows: Vec<ImportanceRow> =
            arms.iter().map(|(variant, _)| self.row(*variant, ratio, bytes_per_s)).collect();
        for number in 0..self.asked.questions {
            // Questions of the warm-up have other numbers, so none is asked twice.
            let question = self.workload.question(1_000_000 + number as u64);
            let prompt = [&self.workload.documents[question.document][..], &question.tokens];
            // The order rotates with each question, so drifts of the machine hit all variants
            // alike.
            for turn in 0..arms.len() {
                let index = (number + turn) % arms.len();
                let (variant, (arm, _)) = &mut arms[index];
                progress.inc(1);
                // A full computation is slow and always takes the same time; the first few are
                // enough.
                if *variant == Variant::Recompute && number >= RECOMPUTED {
                    continue;
                }
                let answer = arm.ask(prompt.concat())?;
                let row = &mut rows[index];
                row.known += usize::from(question.answer.is_some());
                row.right += usize::from(question.answer == Some(answer.token));
                row.tally.add(&answer.tally);
                row.compared.add(&answer.compared);
                row.answers.push(answer);
            }
        }
        progress.end();
        // Packs are counted at the end: they grow while questions are asked.
        for (row, (_, (arm, _))) in rows.iter_mut().zip(&arms) {
            row.packs = arm.packs().0;
        }
        Ok(rows)
    }

    fn warm_ups(&self) -> usize {
        self.asked.warm_up * self.workload.documents.len()
    }

    /// An arm that has answered questions about each document, and its folder, which goes after it.
    fn warm(
        &self,
        variant: Variant,
        ratio: f64,
        bytes_per_s: f64,
        progress: &TaskProgress,
    ) -> Result<(ImportanceArm, DiskStateFolder)> {
        let state = self.state(variant)?;
        let rate = |bytes_per_s| Rate { latency: self.asked.latency, bytes_per_s };
        let setting = ImportanceArmSettings {
            ratio,
            disk: rate(bytes_per_s),
            host: rate(bytes_per_s * self.asked.host_speed),
            kept: self.asked.kept,
            // A full computation compared with itself would show nothing.
            is_checked: variant != Variant::Recompute,
            ..self.setting(variant, state.folder())
        };
        let mut arm = ImportanceArm::open(&setting)
            .with_context(|| format!("cannot open {}", variant.name()))?;
        // Nothing is loaded, so there is nothing to warm.
        if variant == Variant::Recompute {
            progress.inc(self.warm_ups() as u64);
            return Ok((arm, state));
        }
        for round in 0..self.asked.warm_up {
            for (document, text) in self.workload.documents.iter().enumerate() {
                let number = (round * self.workload.documents.len() + document) as u64;
                let question = self.workload.about(document, 2_000_000 + number);
                arm.warm([&text[..], &question.tokens].concat())?;
                progress.inc(1);
            }
        }
        Ok((arm, state))
    }

    fn row(&self, variant: Variant, ratio: f64, bytes_per_s: f64) -> ImportanceRow {
        let setting = self.setting(variant, self.asked.folder);
        ImportanceRow {
            variant,
            ratio: variant.has_ratio().then_some(ratio),
            bytes_per_s,
            answers: Vec::new(),
            known: 0,
            right: 0,
            tally: PartialLoadTally::default(),
            compared: FullComputeComparison::default(),
            chunk_tokens: setting.chunk_tokens,
            document_bytes: setting.document_bytes(),
            probe_share: variant.probes(&self.workload.model.config).share(),
            packs: 0,
            full: None,
        }
    }
}
