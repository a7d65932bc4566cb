//! The router's index in a folder, so that a restarted gateway need not learn it again.
//!
//! ```text
//! folder/lock       held while a gateway uses the folder
//!        secret     what the index's keys are made with; drawn once, for its owner's eyes
//!        index      what was held at the last save, sealed with that secret
//!        index.tmp  a save on its way; worth nothing until it is renamed
//! ```
//!
//! | module | does |
//! |---|---|
//! | `folder` | the files: one user, one secret, all of a save or nothing |
//! | `format` | an index to bytes and back, whatever the bytes are |
//! | `seal` | encrypts and authenticates them with the secret |
//! | `keeper` | restores at the start, saves every so often and at the end |
//!
//! Replicas are known again by the addresses of engine and events, because their numbers change
//! with the configuration. What is restored is doubtful from the time of the save on: what a
//! replica's stream says counts more, and [`DOUBT_TTL`](headstart_router::index::DOUBT_TTL) later
//! the rest is forgotten.
//!
//! No text and no tokens are in it. Keys are keyed hashes; engines' hashes, which may not be, are
//! sealed like all the rest. A process that can read the whole folder can test guesses of prompts,
//! as one that can read the gateway's memory could.
//!
//! Invariant: a file that is not what was saved, to the bit, with this secret for this model, is
//! refused, and the index is empty then. A fault here costs time, never a request.

mod folder;
mod format;
mod keeper;
mod seal;

pub use folder::{Folder, FolderError, drawn_secret};
pub use format::{FileError, SavedIndex, SavedReplica, VERSION};
pub use keeper::{Keeper, KnownReplicas, RestoredIndex, SaveError, Saving};
pub use seal::Seal;
