//! Compared variants: published ways to load a prefix, and ours with each part switched off.
//!
//! All of them are settings of the same code, so that nothing but the setting differs. *Full* is
//! AttentionStore's way: all of it, layer by layer beside computing, with LRU. *H2O* reads all
//! heads' keys, sums what all heads look at, and reads the values of what matters most. IMPRESS's
//! three parts are probes instead of all keys, packs, and scores. *Chunks* is what `serve` does:
//! IMPRESS, and whole chunks instead of tokens. *Units* alone is other code: what `serve` does
//! without `--importance`, whole units through the tiers.

use headstart_engine::ModelConfig;
use headstart_engine::kv::Probes;
use headstart_selective::{Merge, Selecting};

/// A way to load a stored prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Variant {
    Recompute,
    Full,
    Units,
    H2oLru,
    H2oLfu,
    Impress,
    ImpressNoProbe,
    ImpressNoReorder,
    ImpressNoScore,
    ImpressBlind,
    Chunks,
    ChunksNoReorder,
}

impl Variant {
    const ALL: [Self; 12] = [
        Self::Recompute,
        Self::Full,
        Self::Units,
        Self::H2oLru,
        Self::H2oLfu,
        Self::ImpressNoProbe,
        Self::ImpressNoReorder,
        Self::ImpressNoScore,
        Self::Impress,
        Self::ImpressBlind,
        Self::ChunksNoReorder,
        Self::Chunks,
    ];

    /// Returns the variants that make sense for `model`: without groups no probe is blind.
    pub(super) fn all(model: &ModelConfig) -> Vec<Self> {
        let all = Self::ALL.into_iter();
        // Without groups each head has keys of its own, and every probe sees its own keys.
        let says_something = |variant: &Self| *variant != Self::ImpressBlind || model.group() > 1;
        all.filter(says_something).collect()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Recompute => "recompute",
            Self::Full => "full",
            Self::Units => "units",
            Self::H2oLru => "h2o-lru",
            Self::H2oLfu => "h2o-lfu",
            Self::Impress => "impress",
            Self::ImpressNoProbe => "impress-no-probe",
            Self::ImpressNoReorder => "impress-no-reorder",
            Self::ImpressNoScore => "impress-no-score",
            Self::ImpressBlind => "impress-blind",
            Self::Chunks => "chunks",
            Self::ChunksNoReorder => "chunks-no-reorder",
        }
    }

    /// Whether the kept ratio changes it.
    pub(super) fn has_ratio(self) -> bool {
        !matches!(self, Self::Recompute | Self::Full | Self::Units)
    }

    /// Whether it loads by importance at all.
    pub(super) fn is_partly(self) -> bool {
        self != Self::Units
    }

    /// Returns the name of the storage layout. Variants with the same layout can read each other's
    /// records.
    pub(super) fn layout(self) -> &'static str {
        // Records can be read only in the layout in which they were written.
        match self {
            Self::Units => "units",
            Self::ImpressBlind => "blind",
            _ if self.reads_all_keys() => "keys",
            _ => "probes",
        }
    }

    /// Whether it reads all heads' keys.
    fn reads_all_keys(self) -> bool {
        matches!(self, Self::H2oLru | Self::H2oLfu | Self::ImpressNoProbe)
    }

    pub(super) fn probes(self, model: &ModelConfig) -> Probes {
        match self {
            _ if self.reads_all_keys() => Probes::all(model),
            Self::ImpressBlind => {
                // The first heads may all share one key head, which is what makes the probe blind.
                let heads: Vec<usize> = (0..3.min(model.num_heads)).collect();
                Probes::new(&heads, model).expect("a model has its first heads")
            }
            _ => Probes::of(model),
        }
    }

    pub(super) fn selecting(self, ratio: f64, spared: f64, merge: Merge) -> Selecting {
        let is_h2o = self.reads_all_keys();
        Selecting {
            ratio: if self == Self::Full { 1.0 } else { ratio },
            spared,
            whole_parts: matches!(self, Self::Chunks | Self::ChunksNoReorder),
            // H2O sums the attention of all heads.
            merge: if is_h2o { Merge::Sum } else { merge },
            // H2O has no probes that could disagree.
            falls_back: !is_h2o,
            ..Selecting::default()
        }
    }

    pub(super) fn packs(self) -> bool {
        match self {
            Self::Impress | Self::ImpressNoProbe | Self::ImpressNoScore | Self::ImpressBlind => {
                true
            }
            it => it == Self::Chunks,
        }
    }

    /// The policy of what stays in memory.
    pub(super) fn policy(self) -> &'static str {
        match self {
            Self::Recompute | Self::Full | Self::Units | Self::H2oLru | Self::ImpressNoScore => {
                "lru"
            }
            Self::H2oLfu => "lfu",
            _ => "importance",
        }
    }
}
