//! Features of a request, known at its release, in small numbers.

use headstart_core::{Access, FinishKind, ToolClass};

use super::age::{log2, step};

/// Number of stages: tables of factors, each by another part of the features.
pub(super) const STAGES: usize = 10;

/// Values of each stage.
pub(super) const VALUES: [usize; STAGES] = [
    ENDS * LOGS,    // how the answer ended, with its tokens
    ENDS * GAPS,    // how it ended, with the mean gap of the lineage
    GAP_STEPS,      // the last gap
    LOGS,           // new blocks
    COUNTS,         // requests of the lineage so far
    COUNTS,         // turn
    TYPES,          // request type
    TYPES * COUNTS, // request type with turn
    LOGS,           // blocks
    TOOLS,          // called tools
];

const ENDS: usize = 6;
const LOGS: usize = 34;
const GAPS: usize = 21;
const GAP_STEPS: usize = 13;
const COUNTS: usize = 13;
const TYPES: usize = 32;
const TOOLS: usize = ToolClass::COUNT;

/// Weight of the last gap in a lineage's mean gap.
const LAST_GAP: f64 = 0.3;

/// The features of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    finish: u8,
    output: u8,
    gap: u8,
    new_blocks: u8,
    /// Requests of the lineage in the upper half, the turn in the lower one: at most 12 each.
    counts: u8,
    request_type: u8,
    blocks: u8,
    tool: u8,
    /// Mean of the binary logarithms of the lineage's gaps in seconds, in 1/256 from -3; 0 without
    /// a gap.
    log_gap: u16,
}

/// Options that hide a feature, in the order of the bits of [`HiddenFeatures`].
const HIDE: [&str; 10] = [
    "no-finish",
    "no-output",
    "no-gap",
    "no-mean-gap",
    "no-new-blocks",
    "no-lineage",
    "no-turn",
    "no-type",
    "no-blocks",
    "no-tool",
];

/// Features that are taken to be unknown, for ablations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HiddenFeatures(u16);

impl HiddenFeatures {
    /// Hides the features of which an option `is_set`.
    pub(super) fn read(mut is_set: impl FnMut(&'static str) -> bool) -> Self {
        let bits = HIDE.iter().enumerate().map(|(bit, name)| u16::from(is_set(name)) << bit);
        Self(bits.sum())
    }
}

/// The request that a request continues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Predecessor {
    pub(super) features: Features,
    /// From its release to the arrival of the next, seconds.
    pub(super) gap_s: f64,
}

impl Features {
    /// Of a request of `blocks` blocks, of which earlier requests had `known`.
    pub(super) fn new(
        access: &Access,
        blocks: u32,
        known: u32,
        continues: Option<Predecessor>,
    ) -> Self {
        let mut features = Self {
            finish: access.finish as u8,
            tool: access.tool.number(),
            output: access.output_tokens.map_or(0, |tokens| 1 + log_of(tokens)),
            new_blocks: log_of(blocks - known.min(blocks)),
            counts: access.turn.min(12) as u8,
            request_type: (access.request_type % TYPES as u16) as u8,
            blocks: log_of(blocks),
            ..Self::default()
        };
        if let Some(Predecessor { features: before, gap_s }) = continues {
            let last = log2(0.25 + gap_s);
            let mean = match before.log_gap {
                0 => last,
                old => (1.0 - LAST_GAP) * (f64::from(old) / 256.0 - 3.0) + LAST_GAP * last,
            };
            features.log_gap = ((mean + 3.0) * 256.0).clamp(1.0, 65_535.0) as u16;
            features.gap = 1 + (step(gap_s) / 4) as u8;
            features.counts |= (before.requests() + 1).min(12) << 4;
        }
        features
    }

    pub(super) fn finish(&self) -> FinishKind {
        FinishKind::ALL[usize::from(self.finish)]
    }

    /// Requests of the lineage before this one.
    fn requests(&self) -> u8 {
        self.counts >> 4
    }

    fn turn(&self) -> u8 {
        self.counts & 0x0f
    }

    /// The same with some of them unknown.
    pub(super) fn without(mut self, hidden: HiddenFeatures) -> Self {
        let is_hidden = |bit: usize| hidden.0 >> bit & 1 == 1;
        if is_hidden(3) {
            self.log_gap = 0;
        }
        if is_hidden(5) {
            self.counts &= 0x0f;
        }
        if is_hidden(6) {
            self.counts &= 0xf0;
        }
        let Self { finish, output, gap, new_blocks, request_type, blocks, tool, .. } = &mut self;
        let fields = [finish, output, gap, new_blocks, request_type, blocks, tool];
        for (field, bit) in fields.into_iter().zip([0, 1, 2, 4, 7, 8, 9]) {
            if is_hidden(bit) {
                *field = 0;
            }
        }
        self
    }

    /// Whether it is known which tools the answer called.
    pub(super) fn knows_tools(&self) -> bool {
        self.tool != 0
    }

    /// The logarithm of the lineage's mean gap, from 1; 0 without a gap.
    fn mean_gap(&self) -> usize {
        let octave = usize::from(self.log_gap >> 8);
        if self.log_gap == 0 { 0 } else { octave.clamp(1, GAPS - 1) }
    }

    /// The value of each stage, below its count in [`VALUES`].
    pub(super) fn values(&self) -> [usize; STAGES] {
        let number = usize::from;
        let request_type = number(self.request_type);
        [
            number(self.finish) * LOGS + number(self.output),
            number(self.finish) * GAPS + self.mean_gap(),
            number(self.gap),
            number(self.new_blocks),
            number(self.requests()),
            number(self.turn()),
            request_type,
            request_type * COUNTS + number(self.turn()),
            number(self.blocks),
            number(self.tool),
        ]
    }
}

/// The binary logarithm of a count plus one, rounded down: at most 32.
fn log_of(count: u32) -> u8 {
    (u64::from(count) + 1).ilog2() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_below_their_counts() {
        let access = Access {
            finish: FinishKind::Cancelled,
            output_tokens: Some(u32::MAX),
            turn: u16::MAX,
            request_type: u16::MAX,
            tool: ToolClass::from_number(63).expect("the last class"),
            ..Access::default()
        };
        for gap_s in [0.0, 1.0, 1e12] {
            let mut before = Features::default();
            for _ in 0..30 {
                let continues = Some(Predecessor { features: before, gap_s });
                before = Features::new(&access, u32::MAX, 0, continues);
                let values = before.values();
                assert!(values.iter().zip(VALUES).all(|(&value, count)| value < count));
            }
        }
    }

    #[test]
    fn each_option_hides_a_feature() {
        let access = Access {
            finish: FinishKind::Stop,
            output_tokens: Some(9),
            turn: 3,
            request_type: 4,
            tool: ToolClass::of_names(["bash"]),
            ..Access::default()
        };
        let continues = Some(Predecessor { features: Features::default(), gap_s: 30.0 });
        let features = Features::new(&access, 20, 5, continues);
        assert_eq!(features.without(HiddenFeatures::default()), features);
        let mut seen = vec![features];
        for hidden in HIDE {
            let without = features.without(HiddenFeatures::read(|name| name == hidden));
            assert!(!seen.contains(&without), "{hidden}");
            seen.push(without);
        }
        let none = features.without(HiddenFeatures::read(|_| true));
        assert_eq!(none, Features::default());
    }

    #[test]
    fn a_lineage_has_a_mean_gap() {
        let of = |features, gap_s| {
            let continues = Some(Predecessor { features, gap_s });
            Features::new(&Access::default(), 10, 5, continues)
        };
        let first = of(Features::default(), 7.75);
        assert_eq!((first.mean_gap(), first.requests()), (6, 1));
        // A mean of the logarithms 3 and 8, the last one weighted 0.3.
        let second = of(first, 255.75);
        assert_eq!((second.mean_gap(), second.requests()), (7, 2));
    }
}
