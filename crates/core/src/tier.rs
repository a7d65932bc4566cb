//! Storage tiers of a block's bytes.

/// A storage tier, nearest to the computation first. Moving down is *demote*, up is *promote*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// The memory that the model computes from (GPU memory; on a CPU engine, its KV pool).
    Device,
    /// Host memory.
    Host,
    /// Local disk.
    Disk,
    /// Object storage or another machine.
    Remote,
}

impl Tier {
    /// Its name, as in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Host => "host",
            Self::Disk => "disk",
            Self::Remote => "remote",
        }
    }
}
