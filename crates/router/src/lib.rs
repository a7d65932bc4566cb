//! Choice of the replica that serves a request: a pure state machine.
//!
//! ```text
//!                     ┌──────────────── route ─────────────────────────────┐
//! tokens, session ──► │ overlaps ─► filter ─► score ─► pick ─► reserve     │ ──► Decision
//!                     └────▲───────────────────────────────────────│───────┘
//!            CacheEvent ───┤ index           Load ◄── first_token, finish, report
//!                          └──── assume (the chosen one will hold the prompt) ◄┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`router`] | [`Router`]: membership, health, [`Router::route`] and a request's later life |
//! | [`request`] | what is asked and answered: [`RouteRequest`], [`Decision`], [`NoReplica`] |
//! | [`index`] | [`PrefixIndex`]: who holds which prefix; [`RunIndex`] learns it from events |
//! | [`load`] | what a replica is busy with: own reservations and its own report |
//! | [`backlog`] | seconds of prompts in front of one more |
//! | [`placed`] | what was sent to a replica lately |
//! | [`view`] | a replica as filters, scorers and pickers see it |
//! | [`filter`], [`score`], [`pick`] | the three steps of a choice, each a one-method trait |
//! | [`pipeline`] | the three put together |
//! | [`profile`] | combinations by name: the published ones, ours, and a configuration's |
//! | [`stream`] | order and completeness of one event stream |
//!
//! It does not know text, HTTP, sockets or clocks, and an engine's block hashes are opaque to it.
//! Its answers are hints: a wrong one costs time, never correctness, because the replica matches
//! the prompt again.
//!
//! ```
//! use headstart_core::{Nanos, ReplicaId};
//! use headstart_router::{Profile, RouteRequest, Router, RouterConfig};
//!
//! let mut router = Router::new(RouterConfig {
//!     model: "tiny".to_owned(),
//!     profile: Profile::precise(),
//!     seed: 1,
//! });
//! router.add_replica(ReplicaId(0), Some(16), Nanos(0));
//! router.add_replica(ReplicaId(1), Some(16), Nanos(0));
//!
//! let tokens: Vec<u32> = (0..64).collect();
//! let request = RouteRequest { tokens: Some(&tokens), ..RouteRequest::default() };
//! let first = router.route(&request).unwrap();
//! router.finish(first.reservation, Nanos(0));
//!
//! // A second later the same prompt goes where its keys and values were computed.
//! let later = RouteRequest { now: Nanos::from_secs_f64(1.0), ..request };
//! let second = router.route(&later).unwrap();
//! assert_eq!((second.replica, second.overlap_tokens), (first.replica, 64));
//! ```

pub mod backlog;
pub mod filter;
mod homes;
pub mod index;
pub mod load;
mod lookup;
pub mod pick;
pub mod pipeline;
pub mod placed;
pub mod profile;
pub mod request;
mod reservations;
pub mod router;
pub mod score;
pub mod stream;
pub mod view;

pub use index::{IndexStats, Overlap, Overlaps, PrefixIndex, Prompt, PromptKeys, RunIndex};
pub use load::ReportedLoad;
pub use profile::Profile;
pub use request::{Candidate, Decision, NoReplica, ReservationId, RouteRequest};
pub use router::{ReplicaStatus, Router, RouterConfig, RouterStats};
pub use view::Health;
