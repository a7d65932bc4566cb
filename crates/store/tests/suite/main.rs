//! The integration tests of this crate: one binary, because each one costs time to link.
//!
//! `crash` has a binary of its own: while it starts a process, that process has a copy of every
//! open file, and a folder's lock among them lasts longer than its disk.

mod breaking;
// The unit tests of this crate use the rest.
#[allow(dead_code)]
mod conformance;
mod disk;
mod faults;
mod harm;
mod inspect;
mod packs;
mod s3;
// `crash` uses the rest.
#[allow(dead_code)]
mod support;
