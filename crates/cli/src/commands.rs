//! One file per command.

pub(crate) mod bench;
pub(crate) mod replay;
pub(crate) mod serve;
pub(crate) mod trace;
