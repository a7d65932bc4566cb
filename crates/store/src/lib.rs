//! Storage of KV blocks in tiers, with verified transfers.
//!
//! | module | holds |
//! |---|---|
//! | [`arena`] | host memory in equal slots, for everything that is read or written |
//! | [`record`] | a chunk as it is stored: who it is, its parts, their checksums |
//! | [`backend`] | [`Backend`]: what every place for records does |
//! | [`disk`] | [`Disk`]: log-structured segments, direct I/O, group commit |
//! | [`tiered`] | [`TieredStore`]: moves units between device, host memory and backends |
//! | [`inspect`] | inspection and maintenance of a context cache by its operator |
//! | [`shared`] | [`SharedBackend`]: one backend for several users |
//! | [`decorate`] | backends over backends: slower, measured, or faulty on purpose |
//! | [`conformance`] | what any backend must obey; run it on yours |
//! | [`remote`] | records in object storage, shared by all replicas |
//! | [`mod@reference`] | the obvious backend, for the tests |
//!
//! It does not know prompts, tokens or policies: which records it is given and which it must
//! forget is decided in `headstart-cache`. Its invariant: a [`Record`] was verified, every byte
//! of it, against its full name; what cannot be verified is not there.

pub mod arena;
pub mod backend;
mod checksum;
pub mod conformance;
pub mod decorate;
pub mod disk;
pub mod inspect;
pub mod record;
pub mod reference;
pub mod remote;
pub mod shared;
pub mod tiered;
mod wire;

pub use arena::{Arena, Slot};
pub use backend::{Backend, Command, CommandOutcome, Report, Ticket};
pub use disk::{Disk, DiskOptions};
pub use record::{Draft, Meta, Record};
pub use shared::SharedBackend;
pub use tiered::TieredStore;
