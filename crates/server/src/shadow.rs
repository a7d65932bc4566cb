//! Shadow mode: what other strategies and sizes would have found of the prompts that go by.
//!
//! Requests go to one upstream unchanged. Beside it, on a thread of its own, *arms* play what
//! fleets would have done with the same requests at the same times: each has the router that
//! serves, under one strategy, and replicas that are the cache that serves, without an engine.
//!
//! ```text
//! request ─┬─► upstream, unchanged ─► answer: cached tokens, as the engine says
//!          └─► queue ─► arm: random, 4 × 20,000 blocks ─► route, match, admit, evict
//!                       arm: precise, 4 × 20,000 blocks        …
//!                       arm: precise, 4 × 40,000 blocks        …
//! ```
//!
//! A prompt counts, and its blocks can be matched, from when the real answer began; its place is
//! given back when the real answer ends, so arms know the load that there was. They do not know how
//! much faster they would have been. Requests never wait for them: what the queue does not take is
//! left out, and counted.

mod arm;
mod worker;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use headstart_core::stats::HitCount;
use headstart_core::{Nanos, TokenId};
use headstart_router::Profile;
use serde::Serialize;

use arm::Arm;
use worker::Message;

/// What is still to be played; more is left out. A second of a busy gateway.
const QUEUE: usize = 4096;

/// What shadow mode plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowConfig {
    /// Replicas of each arm.
    pub replicas: usize,
    /// Blocks that each replica holds.
    pub blocks: usize,
    /// Tokens of a block.
    pub block_size: usize,
}

impl Default for ShadowConfig {
    /// Four replicas of 320,000 tokens: an 8-billion-parameter model on one 80 GB GPU each.
    fn default() -> Self {
        Self {
            replicas: 4,
            blocks: 20_000,
            block_size: 16,
        }
    }
}

/// Strategies that are played at the configured size.
const STRATEGIES: [&str; 7] = [
    "random",
    "round-robin",
    "load",
    "session",
    "approximate",
    "precise",
    "cost",
];

/// Sizes at which one strategy is played, relative to the configured one: numerators over 4.
const QUARTERS: [usize; 4] = [2, 5, 8, 16];

/// The strategy that is played at other sizes.
const SIZED: &str = "precise";

/// Shadow mode, as requests see it.
pub struct Shadow {
    queue: SyncSender<Message>,
    state: Arc<State>,
    next: AtomicU64,
}

/// What the thread and its readers share.
struct State {
    report: Mutex<ShadowReport>,
    left_out: AtomicU64,
}

/// What was played so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShadowReport {
    /// Replicas of each arm.
    pub replicas: usize,
    /// Requests that were played.
    pub requests: u64,
    /// Requests that were not, because the queue was full or their prompt is not known as tokens.
    pub left_out: u64,
    /// What the upstream itself says of the requests that it reported on.
    pub upstream: Found,
    /// One per strategy and size.
    pub arms: Vec<ArmReport>,
}

/// What one arm would have found.
#[derive(Clone, Debug, Serialize)]
pub struct ArmReport {
    /// Its strategy.
    pub strategy: String,
    /// Blocks that each of its replicas holds.
    pub blocks: usize,
    /// What it would have found.
    #[serde(flatten)]
    pub found: Found,
}

/// Prompt tokens, and those of them that were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Found {
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Those that were cached.
    pub cached_tokens: u64,
    /// Their share; `None` of none.
    pub hit_rate: Option<f64>,
}

impl Found {
    fn of(count: HitCount) -> Self {
        Self {
            prompt_tokens: count.lookups,
            cached_tokens: count.hits,
            hit_rate: (count.lookups > 0).then(|| count.rate()),
        }
    }
}

impl Shadow {
    /// Starts the thread that plays.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(config: &ShadowConfig) -> std::io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUE);
        let state = Arc::new(State {
            report: Mutex::new(ShadowReport {
                replicas: config.replicas,
                ..ShadowReport::default()
            }),
            left_out: AtomicU64::new(0),
        });
        let (arms, told) = (arms(config), state.clone());
        let block_size = config.block_size;
        std::thread::Builder::new()
            .name("shadow".to_owned())
            .spawn(move || worker::play(arms, block_size, &messages, &told))?;
        Ok(Self {
            queue,
            state,
            next: AtomicU64::new(0),
        })
    }

    /// A request arrived. Of a prompt that nobody tokenized nothing can be played.
    #[must_use]
    pub fn request(self: &Arc<Self>, arrived: Arrived<'_>, now: Nanos) -> Shadowed {
        let id = self.next.fetch_add(1, Relaxed);
        let message = arrived.tokens.map(|tokens| Message::Arrived {
            id,
            tokens: tokens.into(),
            salt: arrived.salt.map(Into::into),
            session: arrived.session.map(Into::into),
            now,
        });
        let is_played = message.is_some_and(|message| self.queue.try_send(message).is_ok());
        if !is_played {
            self.state.left_out.fetch_add(1, Relaxed);
        }
        Shadowed {
            of: is_played.then(|| (self.clone(), id)),
        }
    }

    /// What was played so far.
    #[must_use]
    pub fn report(&self) -> ShadowReport {
        let mut report = self.state.lock().clone();
        report.left_out = self.state.left_out.load(Relaxed);
        report
    }

    fn tell(&self, message: Message) {
        // Waiting would hold up an answer; what is not told is found by the thread's own limits.
        let _ = self.queue.try_send(message);
    }
}

impl State {
    fn lock(&self) -> std::sync::MutexGuard<'_, ShadowReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of a request when it comes.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Its prompt, where a tokenizer was given.
    pub tokens: Option<&'a [TokenId]>,
    /// Its tenant's salt.
    pub salt: Option<&'a str>,
    /// What its client calls the conversation.
    pub session: Option<&'a str>,
}

/// A request that is played; its end is the end of the request.
#[derive(Default)]
pub struct Shadowed {
    of: Option<(Arc<Shadow>, u64)>,
}

impl Shadowed {
    /// Its answer began.
    pub fn began(&self, now: Nanos) {
        if let Some((shadow, id)) = &self.of {
            shadow.tell(Message::Began { id: *id, now });
        }
    }

    /// The engine says that it found so many of its prompt tokens.
    pub fn found(&self, prompt_tokens: usize, cached_tokens: usize) {
        if let Some((shadow, _)) = &self.of {
            shadow.tell(Message::Found {
                prompt_tokens,
                cached_tokens,
            });
        }
    }
}

impl Drop for Shadowed {
    fn drop(&mut self) {
        if let Some((shadow, id)) = self.of.take() {
            shadow.tell(Message::Ended { id });
        }
    }
}

/// The arms: each strategy at the configured size, one at others.
fn arms(config: &ShadowConfig) -> Vec<Arm> {
    let known = |name: &str| Profile::find(name, &BTreeMap::new()).ok();
    let at_size = STRATEGIES.into_iter().filter_map(known);
    let at_size = at_size.map(|profile| Arm::new(profile, config));
    let sized = QUARTERS.into_iter().filter_map(|quarters| {
        let blocks = (config.blocks * quarters / 4).max(1);
        let config = ShadowConfig {
            blocks,
            ..config.clone()
        };
        Some(Arm::new(known(SIZED)?, &config))
    });
    at_size.chain(sized).collect()
}
