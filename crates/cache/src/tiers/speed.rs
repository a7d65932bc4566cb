//! Speed of a tier, learned from its transfers.
//!
//! A transfer takes the tier's latency plus its bytes over the tier's rate, after what was asked
//! for before it. Both are learned: the rate while several transfers are under way, the latency
//! from those that found nothing before them. The weight of old measurements halves every
//! [`MEMORY`] transfers, because disks and networks are shared.

use headstart_core::Nanos;

/// Transfers after which what was measured counts half.
const MEMORY: f64 = 64.0;

/// Time without a request after which a tier's speed may have changed, seconds.
const STALE_S: f64 = 60.0;

/// Assumed speed of a tier before the first measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AssumedSpeed {
    /// Seconds until the first byte.
    pub latency_s: f64,
    /// Bytes a second after that.
    pub bytes_per_s: f64,
}

/// Learned speed of one tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// Decayed sums of what was measured; the assumption counts as one transfer.
    bytes: f64,
    seconds: f64,
    latency_s: f64,
    /// Transfers that told of it.
    lone: u32,
    /// Bytes asked for and not there yet.
    outstanding: u64,
    transfers: u64,
    last: Nanos,
    assumed: AssumedSpeed,
    /// Whether what arrived last told of the latency: what arrives with it tells nothing.
    told_latency: bool,
}

impl Speed {
    /// Starts from the assumed speed, for transfers of `transfer_bytes` bytes.
    pub(super) fn new(assumed: AssumedSpeed, transfer_bytes: u64) -> Self {
        // A tenth of a second at most: a tier that is much faster shows that soon, too.
        let seconds = (transfer_bytes as f64 / assumed.bytes_per_s).min(0.1);
        Self {
            bytes: assumed.bytes_per_s * seconds,
            seconds,
            latency_s: assumed.latency_s,
            lone: 0,
            outstanding: 0,
            transfers: 0,
            last: Nanos(0),
            assumed,
            told_latency: false,
        }
    }

    /// Seconds until `bytes` more are there if they are asked for now.
    pub(super) fn seconds(&self, bytes: u64) -> f64 {
        let ahead = (self.outstanding + bytes) as f64;
        self.latency_s + ahead / self.bytes_per_s()
    }

    /// Bytes a second.
    pub(super) fn bytes_per_s(&self) -> f64 {
        // At least 1, because times are computed by dividing by it.
        (self.bytes / self.seconds).max(1.0)
    }

    #[cfg(test)]
    fn latency_s(&self) -> f64 {
        self.latency_s
    }

    /// Bytes were asked for.
    pub(super) fn asked(&mut self, bytes: u64, now: Nanos) {
        if self.transfers == 0 {
            // The tier was idle. That time is no transfer time, so the next measurement starts now.
            if now.since(self.last).as_secs_f64() > STALE_S {
                self.forget_half();
            }
            self.last = now;
        }
        self.transfers += 1;
        self.outstanding += bytes;
    }

    /// They are there; `asked_at` is when they were asked for.
    pub(super) fn arrived(&mut self, bytes: u64, asked_at: Nanos, now: Nanos) {
        // `last` is the latest arrival, or the start of this busy period.
        let had_nothing_before = self.last <= asked_at;
        // Until the later of the two, the tier worked for other transfers.
        let since = now.since(self.last.max(asked_at)).as_secs_f64();
        self.last = self.last.max(now);
        self.left(bytes);
        // To first order, a factor whose power of `MEMORY` is one half.
        let keep = 1.0 - std::f64::consts::LN_2 / MEMORY;
        let rate_s = bytes as f64 / self.bytes_per_s();
        if had_nothing_before {
            let latency_s = (since - rate_s).max(0.0);
            // The mean of the first, with what was assumed; then the last few count most.
            let weight = (1.0 / (f64::from(self.lone) + 2.0)).max((1.0 - keep) * 8.0);
            self.latency_s += weight * (latency_s - self.latency_s);
            self.lone = self.lone.saturating_add(1);
        }
        self.told_latency = had_nothing_before || self.told_latency && since == 0.0;
        // Alone, and sooner than the rate says: the rate is better than that.
        if !self.told_latency || since > 0.0 && since < rate_s {
            self.bytes = self.bytes * keep + bytes as f64;
            self.seconds = self.seconds * keep + since;
        }
    }

    /// Nothing was asked for in a while: what was assumed counts as much as what was measured, so
    /// that a tier that was slow once is tried again.
    fn forget_half(&mut self) {
        // One half of the seconds keeps the measured rate, the other gets the assumed one.
        self.seconds /= 2.0;
        self.bytes = self.bytes / 2.0 + self.assumed.bytes_per_s * self.seconds;
        self.seconds *= 2.0;
        self.latency_s = f64::midpoint(self.latency_s, self.assumed.latency_s);
    }

    /// They will not come.
    pub(super) fn left(&mut self, bytes: u64) {
        self.transfers = self.transfers.saturating_sub(1);
        self.outstanding = self.outstanding.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// Asks for eight megabytes at once, again and again, of a tier that takes 5 ms and 1 ms each.
    fn learn(speed: &mut Speed, rounds: usize) {
        let mut now = 0;
        for _ in 0..rounds {
            let asked_at = Nanos(now);
            (0..8).for_each(|_| speed.asked(MB, asked_at));
            now += 5_000_000;
            for _ in 0..8 {
                now += 1_000_000;
                speed.arrived(MB, asked_at, Nanos(now));
            }
            now += 50_000_000;
        }
    }

    #[test]
    fn rate_and_latency_are_learned() {
        let assumed = AssumedSpeed { latency_s: 0.0, bytes_per_s: 1e6 };
        let mut speed = Speed::new(assumed, MB);
        assert!((speed.seconds(MB) - 1.0).abs() < 1e-9);
        learn(&mut speed, 200);
        assert!((speed.bytes_per_s() / 1e9 - 1.0).abs() < 0.01, "{speed:?}");
        assert!((speed.latency_s() - 0.005).abs() < 2e-4, "{speed:?}");
        assert!((speed.seconds(8 * MB) - 0.013).abs() < 5e-4);
    }

    /// A tier that is a hundredth as fast as assumed is known after the first request, though
    /// little was read of it: later requests do not wait for it again.
    #[test]
    fn a_slow_tier_is_known_soon() {
        let assumed = AssumedSpeed { latency_s: 1e-3, bytes_per_s: 1e9 };
        let mut speed = Speed::new(assumed, MB / 2);
        let asked_at = Nanos(0);
        (0..4).for_each(|_| speed.asked(MB / 2, asked_at));
        for arrival in 1..=4 {
            speed.arrived(MB / 2, asked_at, Nanos(arrival * 50_000_000));
        }
        assert!(speed.bytes_per_s() < 1.5e7, "{speed:?}");
    }

    #[test]
    fn what_arrives_at_once_is_not_infinitely_fast_and_slowness_is_forgotten() {
        let assumed = AssumedSpeed { latency_s: 0.0, bytes_per_s: 1e9 };
        let mut speed = Speed::new(assumed, MB);
        let mut now = 0;
        for _ in 0..1_000 {
            let asked_at = Nanos(now);
            (0..8).for_each(|_| speed.asked(MB, asked_at));
            now += 20_000_000;
            (0..8).for_each(|_| speed.arrived(MB, asked_at, Nanos(now)));
        }
        assert!(speed.bytes_per_s() < 2e9, "{speed:?}");
        // One stall of ten seconds amid others.
        let asked_at = Nanos(now);
        (0..2).for_each(|_| speed.asked(MB, asked_at));
        speed.arrived(MB, asked_at, Nanos(now + 1));
        now += 10_000_000_000;
        speed.arrived(MB, asked_at, Nanos(now));
        assert!(speed.bytes_per_s() < 1e8, "{speed:?}");
        for _ in 0..8 {
            now += 61_000_000_000;
            speed.asked(MB, Nanos(now));
            now += 1_000_000;
            speed.arrived(MB, Nanos(now - 1_000_000), Nanos(now));
        }
        assert!(speed.bytes_per_s() > 5e8, "{speed:?}");
    }

    #[test]
    fn what_is_asked_for_waits_behind_what_was() {
        let assumed = AssumedSpeed { latency_s: 0.0, bytes_per_s: 1e6 };
        let mut speed = Speed::new(assumed, MB);
        speed.asked(3 * MB, Nanos(0));
        assert!((speed.seconds(MB) - 4.0).abs() < 1e-9);
        speed.left(3 * MB);
        assert!((speed.seconds(MB) - 1.0).abs() < 1e-9);
    }
}
