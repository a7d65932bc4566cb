//! Samples by size, the newest of each.

use super::PrefillSample;

/// Classes by uncached tokens, one for each doubling.
const SIZES: usize = 18;

/// Classes by share of cached tokens.
const SHARES: usize = 4;

/// Samples that a cell keeps.
const KEPT: usize = 32;

/// Rings of samples.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    cells: Vec<SampleCell>,
}

#[derive(Clone, Debug, Default)]
struct SampleCell {
    samples: Vec<PrefillSample>,
    /// Index of the sample that the next one replaces once the cell is full.
    next: usize,
}

impl Default for Cells {
    fn default() -> Self {
        Self { cells: vec![SampleCell::default(); SIZES * SHARES] }
    }
}

impl Cells {
    /// Keeps a sample, in place of the oldest of its cell where that is full.
    pub(super) fn add(&mut self, sample: PrefillSample) {
        let cell = &mut self.cells[place(&sample)];
        if cell.samples.len() < KEPT {
            cell.samples.push(sample);
            return;
        }
        cell.samples[cell.next] = sample;
        cell.next = (cell.next + 1) % KEPT;
    }

    /// All that are kept.
    pub(super) fn samples(&self) -> impl Iterator<Item = PrefillSample> + '_ {
        self.cells.iter().flat_map(|cell| cell.samples.iter().copied())
    }

    /// Of each cell the sample at the share `low` by seconds per uncached token.
    pub(super) fn low(&self, low: f64) -> Vec<PrefillSample> {
        let full = self.cells.iter().filter(|cell| !cell.samples.is_empty());
        let chosen = full.map(|cell| {
            let mut samples = cell.samples.clone();
            let pace = |sample: &PrefillSample| sample.seconds / f64::from(sample.uncached);
            // Samples have uncached tokens, so the pace is finite.
            samples.sort_by(|one, other| pace(one).total_cmp(&pace(other)));
            // `LOW` is below 1, so the index is inside.
            samples[(samples.len() as f64 * low) as usize]
        });
        chosen.collect()
    }
}

fn place(sample: &PrefillSample) -> usize {
    // Samples of 131,072 uncached tokens and more share the last class.
    let size = (sample.uncached.max(1).ilog2() as usize).min(SIZES - 1);
    let (cached, uncached) = (u64::from(sample.cached), u64::from(sample.uncached));
    let share = match cached {
        0 => 0,
        _ if cached <= uncached => 1,
        // In 64 bits: eight times 32 bits would not fit.
        _ if cached <= 8 * uncached => 2,
        _ => 3,
    };
    size * SHARES + share
}
