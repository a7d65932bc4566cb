//! Storage of KV blocks in tiers, with verified transfers.
//!
//! | module | holds |
//! |---|---|
//! | [`arena`] | host memory in equal slots, for everything that is read or written |
//! | [`record`] | a chunk as it is stored: who it is, its parts, their checksums |
//! | [`backend`] | [`Backend`]: what every place for records does |
//! | [`disk`] | [`Disk`]: log-structured segments, direct I/O, group commit |
//! | [`rows`] | moves records between a backend and memory that another program owns |
//! | [`tiered`] | [`TieredStore`]: moves units between device, host memory and backends |
//! | [`inspect`] | inspection and maintenance of a context cache by its operator |
//! | [`shared`] | [`SharedBackend`]: one backend for several users |
//! | [`mod@line`] | a simulated line of limited bandwidth |
//! | [`remote`] | records in object storage, shared by all replicas |
//!
//! It does not know prompts, tokens or policies: which records it is given and which it must
//! forget is decided in `headstart-cache`. Its invariant: a [`Record`] was verified, every byte
//! of it, against its full name; what cannot be verified is not there.

// The files that unit tests share with the integration tests name this crate as those do.
#[cfg(test)]
extern crate self as headstart_store;

pub mod arena;
pub mod backend;
mod checksum;
#[cfg(test)]
#[path = "../tests/suite/conformance.rs"]
mod conformance;
pub mod disk;
#[cfg(test)]
mod faulty;
pub mod inspect;
pub mod line;
pub mod record;
#[cfg(test)]
#[path = "../tests/suite/reference.rs"]
mod reference;
pub mod remote;
pub mod rows;
pub mod shared;
pub mod tiered;
mod wire;

pub use arena::{Arena, Slot};
pub use backend::{Backend, Command, CommandOutcome, Report, Ticket};
pub use disk::{Disk, DiskOptions};
pub use record::{Draft, Meta, Record};
pub use shared::SharedBackend;
pub use tiered::TieredStore;
