//! Backends over backends: slower, measured, or faulty on purpose.
//!
//! Each is an ordinary [`Backend`](crate::Backend): it takes commands, passes them on and hands
//! reports back, so that callers use it like the backend below. They may be stacked. They decide
//! nothing, and obey what any backend obeys ([`crate::conformance`]).

mod faulty;
mod metered;
mod throttled;

use crate::backend::Command;

pub use faulty::{FaultShares, Faulty, InjectedFaults};
pub use metered::{KindCounts, Meter, MeterCounts, MeteredBackend};
pub(crate) use throttled::{Alarm, ThroughputLine};
pub use throttled::{Rate, ThrottleRates, ThrottledBackend};

/// Kinds of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Command::Put`].
    Put,
    /// [`Command::Get`].
    Get,
    /// [`Command::GetPart`].
    GetPart,
    /// [`Command::Remove`].
    Remove,
    /// [`Command::Purge`].
    Purge,
}

impl Kind {
    /// Returns the kind of a command.
    #[must_use]
    pub fn of(command: &Command) -> Self {
        match command {
            Command::Put { .. } => Self::Put,
            Command::Get { .. } => Self::Get,
            Command::GetPart { .. } => Self::GetPart,
            Command::Remove { .. } => Self::Remove,
            Command::Purge { .. } => Self::Purge,
        }
    }
}
