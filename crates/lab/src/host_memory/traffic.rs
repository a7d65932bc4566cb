//! The evaluation's traffic, drawn after the study's characterization.

use std::time::Duration;

use headstart_core::{Nanos, TraceRequest};
use headstart_trace::synth;

use headstart_sim::wild::WildModel;

use super::load;

/// Tokens a block, in the study and here.
pub(crate) const BLOCK_TOKENS: u32 = 16;

/// Requests a second with which the workload is drawn to see how much it asks.
const PILOT_PER_S: f64 = 2.0;

/// Seed of that draw.
const PILOT_SEED: u64 = 0;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WildTraffic {
    /// Its name.
    pub(crate) name: &'static str,
    /// A short description.
    pub(crate) about: &'static str,
    /// The workload of [`synth`] that it is.
    workload: &'static str,
}

/// Load and length of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LoadTarget {
    /// Seconds of prefill a second, in the part that counts.
    pub(crate) load: f64,
    /// Length of the run.
    pub(crate) seconds: f64,
    /// Warm-up, seconds; less than `seconds`. Earlier arrivals do not count.
    pub(crate) warm_up_s: f64,
}

impl WildTraffic {
    /// Trace A and trace B of the study.
    pub(crate) const ALL: [Self; 2] = [
        Self {
            name: "wild-consumer",
            about: "to-consumer conversations after the study's trace A",
            workload: "atc25-exponential",
        },
        Self {
            name: "wild-business",
            about: "to-business bursts after the study's trace B",
            workload: "atc25-api",
        },
    ];

    /// The one of this name.
    #[must_use]
    pub(crate) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|traffic| traffic.name == name)
    }

    /// The name of the workload that it is.
    #[must_use]
    pub(crate) fn workload(&self) -> &'static str {
        self.workload
    }

    /// Requests that ask as much of `model` as is wanted. Sessions must first open, so the rate is
    /// chosen by what the part that counts asks. `None` where that part is too short for it:
    /// nothing arrives.
    #[must_use]
    pub(crate) fn draw(
        &self,
        model: &WildModel,
        asked: &LoadTarget,
        seed: u64,
    ) -> Option<Vec<TraceRequest>> {
        // A fixed seed, so that the rate depends on the load alone and not on the run's seed.
        let pilot = self.at(PILOT_PER_S, asked.seconds, PILOT_SEED);
        let pilot_load = counted_load(&pilot, model, asked);
        let rate = PILOT_PER_S * asked.load / pilot_load;
        // Drawn from the same workload at the rate that gives the wanted load.
        (pilot_load > 0.0).then(|| self.at(rate, asked.seconds, seed))
    }

    fn at(&self, per_s: f64, seconds: f64, seed: u64) -> Vec<TraceRequest> {
        let preset = synth::Preset::by_name(self.workload).expect("a known workload");
        let mut workload = preset.workload();
        workload.seed = seed;
        workload.duration = Some(Duration::from_secs_f64(seconds));
        workload.set_rate(per_s);
        workload.generate().expect("presets are valid").collect()
    }
}

/// Seconds of prefill a second that arrive in the part that counts.
#[must_use]
pub(crate) fn counted_load(
    requests: &[TraceRequest],
    model: &WildModel,
    asked: &LoadTarget,
) -> f64 {
    let from = Nanos::from_secs_f64(asked.warm_up_s);
    let until = Nanos::from_secs_f64(asked.seconds);
    // Requests are in order of arrival, so the part that counts is one slice.
    let first = requests.partition_point(|request| request.arrival < from);
    let end = requests.partition_point(|request| request.arrival < until);
    let counted = &requests[first..end];
    let each_s = load::prefill_s(counted, &model.engine(), BLOCK_TOKENS);
    each_s * counted.len() as f64 / (asked.seconds - asked.warm_up_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_asked_as_much_as_was_wanted() {
        let asked = LoadTarget { load: 1.2, seconds: 3_600.0, warm_up_s: 1_800.0 };
        for traffic in WildTraffic::ALL {
            for model in WildModel::ALL {
                let requests = traffic.draw(&model, &asked, 1).expect("it is long enough");
                let load = counted_load(&requests, &model, &asked);
                let name = (traffic.name, model.shape.name);
                assert!((1.0..1.45).contains(&load), "{name:?}: {load}");
            }
        }
        let short = LoadTarget { warm_up_s: 0.3, seconds: 0.6, ..asked };
        let drawn = WildTraffic::ALL[0].draw(&WildModel::ALL[0], &short, 1);
        assert_eq!(drawn, None, "nothing arrives");
        assert_eq!(WildTraffic::find("wild-agents"), None);
    }
}
