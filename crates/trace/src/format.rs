//! One file per trace format.

pub mod conversation;
pub mod mooncake;
