//! Recovery of a fleet's hit rate after a fault.

use std::time::Duration;

use headstart_core::Nanos;
use headstart_core::stats::HitCount;

use super::config::Fault;

/// Seconds before a fault, and later ones after it, over which hit rates are taken.
const WINDOW: usize = 10;

/// Share of the hit rate before at which it counts as being back.
const BACK: f64 = 0.95;

/// Hit rates around a fault, in prompt tokens of requests by the second in which a replica began
/// with them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recovery {
    /// The fault of a replica or a gateway.
    pub fault: Fault,
    /// In the ten seconds before.
    pub before: HitCount,
    /// In the ten seconds after the end of the outage.
    pub after: HitCount,
    /// Seconds from then to the end of the first whole second with 95 % of the hit rate before;
    /// none where nothing had been asked before, or that never came.
    pub back_s: Option<f64>,
}

/// Hits by second.
#[derive(Clone, Debug, Default)]
pub(super) struct BySecond {
    seconds: Vec<HitCount>,
}

impl BySecond {
    pub(super) fn record(&mut self, at: Nanos, lookups: u32, hits: u32) {
        let second = second(at);
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, HitCount::default());
        }
        self.seconds[second].record(lookups as usize, hits as usize);
    }

    pub(super) fn recovery(&self, fault: Fault) -> Recovery {
        let (Fault::Crash { at, down, .. } | Fault::GatewayRestart { at, down, .. }) = fault;
        let died = second(Nanos(0) + at);
        // The first whole second with it.
        let up_at = at + down;
        let up = up_at.as_secs_f64().ceil() as usize;
        let before = self.sum(died.saturating_sub(WINDOW), died);
        let wanted = BACK * before.rate();
        let is_back = |second: &usize| {
            let hits = self.sum(*second, second + 1);
            // A second without requests says nothing about the hit rate.
            hits.lookups > 0 && hits.rate() >= wanted
        };
        let back = (up..self.seconds.len()).find(is_back);
        let back_s = |second: usize| (second + 1) as f64 - up_at.as_secs_f64();
        Recovery {
            fault,
            before,
            after: self.sum(up, up + WINDOW),
            back_s: back.filter(|_| before.lookups > 0).map(back_s),
        }
    }

    fn sum(&self, from: usize, to: usize) -> HitCount {
        let mut sum = HitCount::default();
        // A window may reach beyond the end of the run.
        let to = to.min(self.seconds.len());
        let within = self.seconds.get(from..to).unwrap_or_default();
        within.iter().for_each(|hits| sum.add(*hits));
        sum
    }
}

fn second(at: Nanos) -> usize {
    at.since(Nanos(0)).div_duration_f64(Duration::from_secs(1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rates: &[u32], fault: Fault, expected: (f64, f64, Option<f64>)) {
        let mut by_second = BySecond::default();
        for (second, &rate) in (0..).zip(rates) {
            let at = Nanos(0) + Duration::from_secs(second);
            by_second.record(at, 100, rate);
        }
        let found = by_second.recovery(fault);
        let found = (found.before.rate(), found.after.rate(), found.back_s);
        assert_eq!(found, expected);
    }

    #[test]
    fn the_hit_rate_is_back_when_it_is_nearly_what_it_was() {
        let restart = |at_ms, down_ms| Fault::GatewayRestart {
            gateway: 0,
            at: Duration::from_millis(at_ms),
            down: Duration::from_millis(down_ms),
        };
        let mut rates = vec![80; 40];
        (rates[20], rates[21], rates[22]) = (0, 40, 75);
        check(&rates, restart(20_000, 500), (0.8, 0.755, Some(3.5)));
        rates[22..].fill(75);
        check(&rates, restart(20_000, 500), (0.8, 0.715, None));
        let mut rates = vec![80; 40];
        rates[0] = 0;
        check(&rates, restart(500, 500), (0.0, 0.8, None));
        check(&[], restart(500, 500), (0.0, 0.0, None));
    }
}
