//! A simulated line of limited bandwidth behind a latency, to measure what stands above it, and an
//! alarm for what is due.
//!
//! ```text
//! asked ──► waits for those before it ──► its bytes, at the rate ──► latency ──► due
//! ```
//!
//! No thread spins: the alarm's sleeps until the next time that is due and calls the waker.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headstart_core::Nanos;

use crate::backend::Waker;

/// Latency and bandwidth of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// From the last byte to the report.
    pub latency: Duration,
    /// Bytes a second, above 0; infinite where there is no limit.
    pub bytes_per_s: f64,
}

impl Rate {
    /// No limit.
    pub const UNLIMITED: Self = Self { latency: Duration::ZERO, bytes_per_s: f64::INFINITY };
}

/// One direction: bytes follow one another.
#[derive(Clone, Copy, Debug)]
pub struct ThroughputLine {
    rate: Rate,
    busy_until: Nanos,
}

impl ThroughputLine {
    /// An idle line.
    ///
    /// # Panics
    /// When its rate is not above 0.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        assert!(rate.bytes_per_s > 0.0, "a line carries something");
        Self { rate, busy_until: Nanos::default() }
    }

    /// When `bytes` that were asked for at `asked` are there. Called once for each.
    pub fn due(&mut self, asked: Nanos, bytes: usize) -> Nanos {
        let seconds = bytes as f64 / self.rate.bytes_per_s;
        let took = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        // An idle line starts when the bytes are asked for.
        self.busy_until = self.busy_until.max(asked) + took;
        self.busy_until + self.rate.latency
    }
}

/// Calls a waker at a time.
pub struct Alarm {
    shared: Arc<(Mutex<AlarmState>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct AlarmState {
    at: Option<Instant>,
    is_over: bool,
}

impl Alarm {
    /// Starts its thread; it rings first when it is set.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(waker: Waker) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::new(AlarmState::default()), Condvar::new()));
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("headstart-throttle".to_owned());
        let thread = thread.spawn(move || ring(&theirs, &waker))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Calls once at this time; what was set before is forgotten.
    pub fn set(&self, at: Option<Instant>) {
        let (setting, changed) = &*self.shared;
        let mut setting = setting.lock().unwrap_or_else(PoisonError::into_inner);
        // Every poll sets the alarm: the thread wakes only when the time changes.
        if setting.at != at {
            setting.at = at;
            changed.notify_one();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let (setting, changed) = &*self.shared;
        setting.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A waker that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

fn ring(shared: &(Mutex<AlarmState>, Condvar), waker: &Waker) {
    let (setting, changed) = shared;
    let mut held = setting.lock().unwrap_or_else(PoisonError::into_inner);
    while !held.is_over {
        let left = held.at.map(|at| at.saturating_duration_since(Instant::now()));
        held = match left {
            None => changed.wait(held).unwrap_or_else(PoisonError::into_inner),
            Some(Duration::ZERO) => {
                held.at = None;
                // Without the lock: `set` must not wait for the waker.
                drop(held);
                waker();
                setting.lock().unwrap_or_else(PoisonError::into_inner)
            }
            Some(left) => {
                let waited = changed.wait_timeout(held, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(millis: u64, bytes_per_s: f64) -> Rate {
        Rate { latency: Duration::from_millis(millis), bytes_per_s }
    }

    #[test]
    fn bytes_follow_one_another_behind_the_latency() {
        let mut line = ThroughputLine::new(rate(5, 1e6));
        let at = |millis: u64| Nanos(millis * 1_000_000);
        assert_eq!(line.due(at(0), 1_000), at(6));
        assert_eq!(line.due(at(0), 2_000), at(8));
        assert_eq!(line.due(at(10), 1_000), at(16));
        assert_eq!(line.due(at(10), 0), at(16));
        let mut free = ThroughputLine::new(Rate::UNLIMITED);
        assert_eq!(free.due(at(3), usize::MAX), at(3));
    }
}
