//! One file per command.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod index;
pub(crate) mod replay;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod trace;
pub(crate) mod train;
