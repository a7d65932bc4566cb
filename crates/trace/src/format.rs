//! One file per trace format.

pub mod mooncake;
