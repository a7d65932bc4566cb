//! Reasons for which a server does not start.

use std::net::SocketAddr;

use headstart_index_sync::saved::FolderError;
use headstart_index_sync::shared::SharedIndexError;
use headstart_kv_events::{PublishError, RankError};

use crate::spans::SpansError;
use crate::upstream::UpstreamError;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not ours.
    #[error(
        "cannot listen on {address}: {source} (is another server running? --listen 127.0.0.1:0 \
         picks a free port)"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// An address that others can reach, without a key.
    #[error("{0} can be reached from other machines; give --api-key-file, or listen on 127.0.0.1")]
    Exposed(SocketAddr),
    /// The fleet is empty.
    #[error("at least one replica or upstream is needed")]
    NoReplica,
    /// An index that no events confirm is to be kept or shared.
    #[error(
        "strategy {0} guesses what replicas hold: --state-dir and --shared-index are for an index \
         that their events fill; leave them out, or use strategy precise"
    )]
    GuessedIndex(String),
    /// A state folder for replicas whose policy learns nothing.
    #[error(
        "--state-dir saves the index of --upstream engines and what the policy `hazard` has \
         learned; `{0}` learns nothing: leave --state-dir out, or use --policy hazard"
    )]
    NothingToKeep(String),
    /// An unknown eviction policy.
    #[error(transparent)]
    Policy(#[from] headstart_cache::policy::PolicyError),
    /// A limit of the engine that cannot be.
    #[error("{0}")]
    Engine(String),
    /// A replica's event sockets.
    #[error(
        "{0} for a replica's KV events; does another process listen there? Give another \
         --kv-events-port, or none for free ports"
    )]
    Events(#[from] PublishError),
    /// A replica's thread.
    #[error("cannot start a replica's thread: {0}")]
    Thread(#[from] std::io::Error),
    /// An upstream's address.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The address of an engine's events, or of those of a data-parallel rank.
    #[error(transparent)]
    Rank(#[from] RankError),
    /// The folder that the index is to be kept in.
    #[error(transparent)]
    State(#[from] FolderError),
    /// An index that cannot be shared.
    #[error(transparent)]
    Shared(#[from] SharedIndexError),
    /// Shadow mode that cannot be.
    #[error("--shadow: {0}")]
    Shadow(&'static str),
    /// The collector of spans.
    #[error(transparent)]
    Otlp(#[from] SpansError),
    /// An upstream's tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] headstart_prompt::PromptError),
}
