//! Stored prefixes of which only parts are loaded: when that promises more than loading or
//! computing all, and what stays meanwhile.
//!
//! The engine chooses the parts themselves layer by layer, by importance; here it is only decided
//! whether to begin. Parts come from one tier, the disk.

use std::time::Duration;

use headstart_core::cost::Work;
use headstart_core::{BlockHash, BlockId, Nanos, Tier};

use super::plan::{LoadWhen, Plan};
use super::{Shelf, Tiers};

/// The tier whose units are read part by part.
pub const PARTS_FROM: Tier = Tier::Disk;

/// Share of the time that loading parts must save: it changes answers, and noise is no reason to.
const LEAST_GAIN: f64 = 0.1;

/// Factor by which a partial load may exceed its predicted time.
const PATIENCE: f64 = 4.0;

/// Added to that, seconds.
const GRACE_S: f64 = 1.0;

/// A prompt whose stored prefix might be loaded in part.
#[derive(Clone, Copy, Debug)]
pub struct PartlyQuestion<'a> {
    /// All its units, in order.
    pub names: &'a [BlockHash],
    /// Tokens that the device holds.
    pub device_tokens: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// The shortest stored prefix, behind those of the device, for which it is tried, tokens.
    pub least_tokens: usize,
    /// The longest rest of a prompt, behind the stored prefix, for which it is tried, tokens.
    pub most_rest: usize,
    /// Share of the bytes that is expected to be loaded.
    pub share: f64,
    /// Other work of each step, beside this prompt.
    pub beside: Work,
}

/// A prefix that is loaded in part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartlyPlan {
    /// The first unit that is not wholly on the device.
    pub from: usize,
    /// The unit behind the last one.
    pub to: usize,
    /// Seconds until the prompt is computed.
    pub total_s: f64,
}

/// Keeps a unit, and so all before it, in the tier whose parts are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    slot: BlockId,
}

impl Tiers {
    /// Whether to load parts of a prompt's stored prefix instead of following `plan`, which loads
    /// or computes all of it. Changes nothing.
    #[must_use]
    pub fn partly(&self, question: &PartlyQuestion<'_>, plan: &Plan) -> Option<PartlyPlan> {
        let unit_tokens = self.unit_tokens();
        let shelf = self.shelves.iter().find(|shelf| shelf.tier == PARTS_FROM)?;
        // A unit that the device holds in part is read whole.
        let from = question.device_tokens / unit_tokens;
        let behind = question.names.get(from..).unwrap_or_default();
        let units = behind.iter().take_while(|name| shelf.level.holds(**name));
        let to = from + units.count();
        let end = to * unit_tokens;
        let is_long = end >= question.device_tokens + question.least_tokens;
        if !is_long || question.prompt_tokens > end + question.most_rest {
            return None;
        }
        let bytes = ((to - from) as u64 * self.config.unit_bytes) as f64;
        let engine = &self.config.engine;
        let rest = question.prompt_tokens - end;
        let load_s = question.share * bytes / shelf.speed.bytes_per_s() + shelf.speed.seconds(0);
        let total_s = load_s + engine.prefill_steps_s(end, rest, question.beside);
        let is_better = match self.config.load {
            LoadWhen::Faster => total_s < plan.total_s * (1.0 - LEAST_GAIN),
            LoadWhen::Always => true,
            LoadWhen::Never => false,
        };
        is_better.then_some(PartlyPlan { from, to, total_s })
    }

    /// Returns the longest wait for a partly loaded prompt, from its start.
    #[must_use]
    pub fn partly_patience(&self, partly: &PartlyPlan) -> Duration {
        self.wait(partly.total_s * PATIENCE + GRACE_S)
    }

    /// Keeps the unit called `tail` and all before it where parts are read from: a unit with a
    /// child there is no victim. `None` where it is gone.
    pub fn hold(&mut self, tail: BlockHash) -> Option<Hold> {
        let slot = self.parts_shelf()?.level.pin(tail)?;
        Some(Hold { slot })
    }

    /// Gives back what was held.
    pub fn let_go(&mut self, hold: Hold) {
        if let Some(shelf) = self.parts_shelf() {
            shelf.level.unpin(hold.slot);
        }
    }

    /// Some bytes of parts were asked for.
    pub fn part_asked(&mut self, bytes: u64, now: Nanos) {
        if let Some(shelf) = self.parts_shelf() {
            shelf.speed.asked(bytes, now);
        }
    }

    /// They are there since `now`, or will not come.
    pub fn part_arrived(&mut self, bytes: u64, asked_at: Nanos, now: Option<Nanos>) {
        let Some(shelf) = self.parts_shelf() else {
            return;
        };
        match now {
            Some(now) => shelf.speed.arrived(bytes, asked_at, now),
            None => shelf.speed.left(bytes),
        }
    }

    fn parts_shelf(&mut self) -> Option<&mut Shelf> {
        self.shelf(PARTS_FROM)
    }
}
