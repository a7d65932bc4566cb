//! One file per command, and what several need.

pub(crate) mod analyze;
pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod calibrate;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod fix;
pub(crate) mod fleet_engine;
pub(crate) mod index;
pub(crate) mod lint;
pub(crate) mod plan;
pub(crate) mod replay;
pub(crate) mod savings;
pub(crate) mod serve;
pub(crate) mod shadow;
pub(crate) mod simulate;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod train;
pub(crate) mod validate;
pub(crate) mod vllm_args;
pub(crate) mod why;
