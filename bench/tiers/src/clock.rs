//! Time and CPU time of a phase.

use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Runs from when it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    cpu_s: f64,
    who: UsageWho,
}

/// Time and CPU time of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Time.
    pub(crate) wall: Duration,
    /// CPU time of all threads, in user and kernel mode, seconds.
    pub(crate) cpu_s: f64,
}

impl Clock {
    /// Counts the CPU time of all threads of this process, the kernel's for its rings included.
    pub(crate) fn of_process() -> Result<Self> {
        Self::start(UsageWho::RUSAGE_SELF)
    }

    /// Counts the CPU time of child processes that have ended.
    pub(crate) fn of_children() -> Result<Self> {
        Self::start(UsageWho::RUSAGE_CHILDREN)
    }

    fn start(who: UsageWho) -> Result<Self> {
        Ok(Self {
            cpu_s: cpu_s(who)?,
            start: Instant::now(),
            who,
        })
    }

    /// Returns the time and CPU time until now; the clock keeps running.
    pub(crate) fn spent(&self) -> Result<Spent> {
        Ok(Spent {
            wall: self.start.elapsed(),
            cpu_s: cpu_s(self.who)? - self.cpu_s,
        })
    }
}

fn cpu_s(who: UsageWho) -> Result<f64> {
    let usage = getrusage(who)?;
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}
