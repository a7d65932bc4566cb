//! The grid of runs: the points of each sweep. A run is done once, even if several sweeps show it.

use crate::prediction::experiment::{Arm, CHARGE_TOKENS, PredictionSource};
use crate::prediction::noise::NoiseChannel;
use clap::ValueEnum;
use headstart_trace::synth::Gap;

use super::arms::{Predicting, arm};

/// Parameter that a sweep varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SweepAxis {
    /// Cache size, tokens
    Size,
    /// Mean gap between turns, seconds
    Lambda,
    /// Quality of the predictor, for each kind of noise
    Mcc,
    /// Memory of the predictor, GB of 40
    Charge,
}

/// All that the sweeps may vary, and what stands still while another thing varies.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    pub(crate) sizes: Vec<u32>,
    /// Sizes at which everything else is varied.
    pub(crate) at: Vec<u32>,
    /// The first one holds while others vary.
    pub(crate) gaps: Vec<Gap>,
    pub(crate) mccs: Vec<f64>,
    /// Multiples of 1 GB; of `charge` while others vary.
    pub(crate) charges: Vec<f64>,
    pub(crate) charge: f64,
    pub(crate) predictor: PredictionSource,
    pub(crate) arms: Vec<String>,
}

/// One arm at one point: as many runs as there are seeds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunGroup {
    /// Index into [`Axes::gaps`].
    pub(crate) gap: usize,
    pub(crate) size_tokens: u32,
    pub(crate) arm: Arm,
}

/// A group as one sweep shows it.
#[derive(Clone, Debug)]
pub(crate) struct SweepPoint {
    pub(crate) sweep: SweepAxis,
    /// Position on the sweep's axis.
    pub(crate) x: f64,
    /// The arm's name there.
    pub(crate) arm: String,
    /// Index of its group.
    pub(crate) group: usize,
    /// Groups of plain LRU and of the oracle with the same traffic and cache.
    pub(crate) lru: usize,
    pub(crate) oracle: usize,
}

/// Groups, and what is shown of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    pub(crate) groups: Vec<RunGroup>,
    pub(crate) shown: Vec<SweepPoint>,
}

/// Settings of one run of an arm.
#[derive(Clone, Copy)]
struct GridPoint {
    sweep: SweepAxis,
    x: f64,
    size_tokens: u32,
    gap: usize,
    predictor: PredictionSource,
    charge: f64,
}

impl Grid {
    /// All groups of `sweeps`.
    ///
    /// # Errors
    /// A sentence that says which arm is not known.
    pub(crate) fn new(axes: &Axes, sweeps: &[SweepAxis]) -> Result<Self, String> {
        let mut grid = Self::default();
        for &sweep in sweeps {
            for point in axes.points(sweep) {
                for name in axes.names(point) {
                    grid.add(axes, point, &name)?;
                }
            }
        }
        Ok(grid)
    }

    fn add(&mut self, axes: &Axes, point: GridPoint, name: &str) -> Result<(), String> {
        // Every point needs LRU and the oracle of its own traffic and cache, to compare with.
        let lru = self.group(axes, point, "lru")?;
        let oracle = self.group(axes, point, "oracle")?;
        let group = self.group(axes, point, name)?;
        self.shown.push(SweepPoint {
            sweep: point.sweep,
            x: point.x,
            arm: shown_name(point, name),
            group,
            lru,
            oracle,
        });
        Ok(())
    }

    fn group(&mut self, axes: &Axes, point: GridPoint, name: &str) -> Result<usize, String> {
        let predicting = Predicting {
            predictor: point.predictor,
            charge_tokens: (point.charge * f64::from(CHARGE_TOKENS)).round() as u32,
            interval_s: axes.gaps[point.gap].mean_s(),
        };
        let group = RunGroup {
            gap: point.gap,
            size_tokens: point.size_tokens,
            arm: arm(name, predicting)?,
        };
        // Sweeps share groups, and a group that is known is not run a second time.
        let known = self.groups.iter().position(|known| *known == group);
        Ok(known.unwrap_or_else(|| {
            self.groups.push(group);
            self.groups.len() - 1
        }))
    }
}

impl Axes {
    fn points(&self, sweep: SweepAxis) -> Vec<GridPoint> {
        let point = |x, size_tokens| GridPoint {
            sweep,
            x,
            size_tokens,
            gap: 0,
            predictor: self.predictor,
            charge: self.charge,
        };
        let at = |vary: &dyn Fn(GridPoint) -> Vec<GridPoint>| {
            let sizes = self.at.iter();
            sizes.flat_map(|&size| vary(point(0.0, size))).collect()
        };
        match sweep {
            SweepAxis::Size => {
                self.sizes.iter().map(|&size| point(f64::from(size), size)).collect()
            }
            SweepAxis::Lambda => at(&|point| {
                // The index selects the traffic; the mean is the place on the axis.
                let gap = |(gap, distribution): (usize, &Gap)| GridPoint {
                    x: distribution.mean_s(),
                    gap,
                    ..point
                };
                self.gaps.iter().enumerate().map(gap).collect()
            }),
            SweepAxis::Mcc => at(&|point| {
                let noisy = |channel, mcc| GridPoint {
                    x: mcc,
                    predictor: PredictionSource::Noisy { channel, mcc },
                    ..point
                };
                let channels = NoiseChannel::ALL.into_iter();
                channels
                    .flat_map(|channel| self.mccs.iter().map(move |&mcc| noisy(channel, mcc)))
                    .collect()
            }),
            SweepAxis::Charge => at(&|point| {
                let charged = |&charge: &f64| GridPoint { x: charge, charge, ..point };
                self.charges.iter().map(charged).collect()
            }),
        }
    }

    /// The arms of a point: all, or only what depends on what is varied.
    fn names(&self, point: GridPoint) -> Vec<String> {
        let depends = |name: &&String| match point.sweep {
            SweepAxis::Size | SweepAxis::Lambda => true,
            // Other policies read no predictions, so quality and memory of the predictor change
            // nothing.
            SweepAxis::Mcc | SweepAxis::Charge => *name == "lpc" || name.starts_with("lpc:"),
        };
        self.arms.iter().filter(depends).cloned().collect()
    }
}

/// The arm's name, with what the sweep's axis does not say.
fn shown_name(point: GridPoint, name: &str) -> String {
    match (point.sweep, point.predictor) {
        (SweepAxis::Mcc, PredictionSource::Noisy { channel, .. }) => {
            format!("{name} {} at {}", channel.name(), kilo(point.size_tokens))
        }
        // The axis is the size itself.
        (SweepAxis::Size, _) => name.to_owned(),
        _ => format!("{name} at {}", kilo(point.size_tokens)),
    }
}

/// `160000` as `160K`.
pub(crate) fn kilo(tokens: u32) -> String {
    if tokens.is_multiple_of(1_000) { format!("{}K", tokens / 1_000) } else { tokens.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Axes {
        Axes {
            sizes: vec![60_000, 160_000],
            at: vec![160_000],
            gaps: [100.0, 50.0].map(|mean_s| Gap::Exponential { mean_s }).to_vec(),
            mccs: vec![0.0, 0.5],
            charges: vec![0.0, 1.0],
            charge: 1.0,
            predictor: PredictionSource::Model,
            arms: ["lru", "lpc", "oracle"].map(str::to_owned).to_vec(),
        }
    }

    fn check(sweeps: &[SweepAxis], groups: usize, shown: usize) {
        let grid = Grid::new(&axes(), sweeps).expect("known arms");
        assert_eq!((grid.groups.len(), grid.shown.len()), (groups, shown));
        for shown in &grid.shown {
            let [group, lru, oracle] =
                [shown.group, shown.lru, shown.oracle].map(|index| &grid.groups[index]);
            assert_eq!(
                (&lru.arm.policy[..], oracle.arm.predictor),
                ("lru", PredictionSource::Truth)
            );
            for other in [lru, oracle] {
                assert_eq!((group.gap, group.size_tokens), (other.gap, other.size_tokens));
            }
        }
    }

    #[test]
    fn what_two_sweeps_show_is_run_once() {
        check(&[SweepAxis::Size], 6, 6);
        check(&[SweepAxis::Lambda], 6, 6);
        check(&[SweepAxis::Size, SweepAxis::Lambda], 9, 12);
        // The charge of 1 is the size sweep's own.
        check(&[SweepAxis::Size, SweepAxis::Charge], 7, 8);
        // LRU and the oracle stand beside, unseen.
        check(&[SweepAxis::Mcc], 8, 6);
    }
}
