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
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};

use headstart_core::stats::HitCount;
use headstart_core::{Nanos, TokenId};
use headstart_router::Profile;
use serde::Serialize;

use crate::lock::lock;
use arm::{ShadowArm, ShadowPrompt};
use worker::Message;

/// Most messages in the queue; more are dropped. A busy gateway fills it in a second.
const QUEUE: usize = 4096;

/// Bytes of prompts among it; more is left out. Sixteen prompts of a million tokens.
const QUEUE_BYTES: usize = 64 << 20;

/// For so long arms are called cold, seconds: what is asked about is an hour.
const HOUR_S: f64 = 3600.0;

/// Size of the simulated fleets.
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
        Self { replicas: 4, blocks: 20_000, block_size: 16 }
    }
}

/// Strategies that are played at the configured size.
const STRATEGIES: [&str; 7] =
    ["random", "round-robin", "load", "session", "approximate", "precise", "cost"];

/// Sizes at which one strategy is played, relative to the configured one: numerators over 4.
const QUARTERS: [usize; 4] = [2, 5, 8, 16];

/// The strategy that is played at other sizes.
const SIZED: &str = "precise";

/// Shadow mode, as requests see it.
pub struct Shadow {
    queue: SyncSender<Message>,
    state: Arc<ShadowState>,
    next: AtomicU64,
}

/// State shared by the thread and its readers.
#[derive(Default)]
struct ShadowState {
    report: Mutex<ShadowReport>,
    /// Requests that never came to the arms.
    left_out: AtomicU64,
    /// Requests that came to them, and whose beginning was lost.
    never_began: AtomicU64,
    /// Bytes of the prompts in the queue.
    queued_bytes: AtomicUsize,
    /// Requests whose end found the queue full; each once, so that there are no more than run.
    late_ends: Mutex<Vec<u64>>,
}

/// Results of shadow mode so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShadowReport {
    /// Replicas of each arm.
    pub replicas: usize,
    /// Requests that were played.
    pub requests: u64,
    /// Requests that were not, because the queue was full, when they came or when their answer
    /// began, or because their prompt is not known as tokens.
    pub left_out: u64,
    /// Seconds between the first and the last of them.
    pub seconds: f64,
    /// `seconds` as a share of an hour, 1 at most. Below 1, caches that began empty distort the
    /// figures.
    pub share_of_hour: f64,
    /// Requests that are being played.
    pub running: usize,
    /// Hits that the upstream reported, over the requests with such a report.
    pub upstream: ShadowHits,
    /// One per strategy and size.
    pub arms: Vec<ArmReport>,
}

/// Simulated hits of one arm.
#[derive(Clone, Debug, Serialize)]
pub struct ArmReport {
    /// Its strategy.
    pub strategy: String,
    /// Blocks that each of its replicas holds.
    pub blocks: usize,
    /// Prompt tokens, and simulated hits among them.
    #[serde(flatten)]
    pub found: ShadowHits,
}

/// Prompt tokens, and those of them that were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ShadowHits {
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Cached tokens among `prompt_tokens`.
    pub cached_tokens: u64,
    /// Their share; `None` without prompt tokens.
    pub hit_rate: Option<f64>,
}

impl ShadowHits {
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
        let state = Arc::new(ShadowState {
            report: Mutex::new(ShadowReport {
                replicas: config.replicas,
                ..ShadowReport::default()
            }),
            ..ShadowState::default()
        });
        let (arms, told) = (arms(config), state.clone());
        let block_size = config.block_size;
        std::thread::Builder::new()
            .name("shadow".to_owned())
            .spawn(move || worker::play(arms, block_size, &messages, &told))?;
        Ok(Self { queue, state, next: AtomicU64::new(0) })
    }

    /// Plays a request that arrived. A prompt without tokens cannot be played and is left out.
    #[must_use]
    pub fn request(self: &Arc<Self>, arrived: ShadowArrival<'_>, now: Nanos) -> ShadowGuard {
        let id = self.next.fetch_add(1, Relaxed);
        let is_played = arrived.tokens.is_some_and(|tokens| {
            let prompt = ShadowPrompt {
                id,
                tokens: tokens.into(),
                chain: Arc::default(),
                salt: arrived.salt.map(Into::into),
                session: arrived.session.map(Into::into),
            };
            self.enqueue(Message::Arrived { prompt, now })
        });
        if !is_played {
            self.state.left_out.fetch_add(1, Relaxed);
        }
        ShadowGuard { of: is_played.then(|| (self.clone(), id)) }
    }

    /// Returns the results so far.
    #[must_use]
    pub fn report(&self) -> ShadowReport {
        self.state.report()
    }

    /// Whether there is room for a prompt.
    fn enqueue(&self, message: Message) -> bool {
        let bytes = message.bytes();
        // Reserved before the check, so that requests at the same time cannot pass it together.
        let before = self.state.queued_bytes.fetch_add(bytes, Relaxed);
        let is_taken = before + bytes <= QUEUE_BYTES && self.queue.try_send(message).is_ok();
        if !is_taken {
            self.state.queued_bytes.fetch_sub(bytes, Relaxed);
        }
        is_taken
    }

    /// Sends a message without waiting, which would hold up an answer. If the queue is full, an end
    /// is delivered later, so that no request stays behind; a request whose beginning is lost
    /// counts for no arm.
    fn tell(&self, message: Message) {
        match self.queue.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(Message::Ended { id })) => self.state.late_ends().push(id),
            Err(TrySendError::Full(Message::Began { .. })) => {
                self.state.never_began.fetch_add(1, Relaxed);
            }
            // A figure less, or a thread that is gone.
            Err(_) => {}
        }
    }
}

impl ShadowState {
    /// Returns the results so far. A request whose beginning was lost counts as left out, although
    /// its arrival was played.
    fn report(&self) -> ShadowReport {
        let mut report = self.lock().clone();
        // Its arrival may still be in the queue.
        let never_began = self.never_began.load(Relaxed).min(report.requests);
        report.requests -= never_began;
        report.left_out = self.left_out.load(Relaxed) + never_began;
        report
    }

    /// A message left the queue.
    fn taken(&self, message: &Message) {
        self.queued_bytes.fetch_sub(message.bytes(), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, ShadowReport> {
        lock(&self.report)
    }

    fn late_ends(&self) -> MutexGuard<'_, Vec<u64>> {
        lock(&self.late_ends)
    }
}

/// Facts about a request that are known at its arrival.
#[derive(Clone, Copy, Debug)]
pub struct ShadowArrival<'a> {
    /// Its prompt, where a tokenizer was given.
    pub tokens: Option<&'a [TokenId]>,
    /// Its tenant's salt.
    pub salt: Option<&'a str>,
    /// The client's id of the conversation.
    pub session: Option<&'a str>,
}

/// A request that is played; its end is the end of the request.
#[derive(Default)]
pub struct ShadowGuard {
    of: Option<(Arc<Shadow>, u64)>,
}

impl ShadowGuard {
    /// Its answer began.
    pub fn began(&self, now: Nanos) {
        if let Some((shadow, id)) = &self.of {
            shadow.tell(Message::Began { id: *id, now });
        }
    }

    /// Notes the cached tokens that the engine reports for its prompt.
    pub fn found(&self, prompt_tokens: usize, cached_tokens: usize) {
        if let Some((shadow, _)) = &self.of {
            shadow.tell(Message::Found { prompt_tokens, cached_tokens });
        }
    }
}

impl Drop for ShadowGuard {
    fn drop(&mut self) {
        if let Some((shadow, id)) = self.of.take() {
            shadow.tell(Message::Ended { id });
        }
    }
}

/// The arms: each strategy at the configured size, one at others.
fn arms(config: &ShadowConfig) -> Vec<ShadowArm> {
    let known = |name: &str| Profile::find(name, &BTreeMap::new()).ok();
    let at_size = STRATEGIES.into_iter().filter_map(known);
    let at_size = at_size.map(|profile| ShadowArm::new(profile, config));
    let sized = QUARTERS.into_iter().filter_map(|quarters| {
        let blocks = (config.blocks * quarters / 4).max(1);
        let config = ShadowConfig { blocks, ..config.clone() };
        Some(ShadowArm::new(known(SIZED)?, &config))
    });
    at_size.chain(sized).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shadow whose thread does not read.
    fn stuck() -> (Arc<Shadow>, std::sync::mpsc::Receiver<Message>) {
        let (queue, messages) = sync_channel(2);
        let state = Arc::new(ShadowState::default());
        let next = AtomicU64::new(0);
        (Arc::new(Shadow { queue, state, next }), messages)
    }

    fn request(shadow: &Arc<Shadow>, tokens: usize) -> ShadowGuard {
        let tokens = vec![7; tokens];
        let arrived = ShadowArrival { tokens: Some(&tokens), salt: None, session: None };
        shadow.request(arrived, Nanos(0))
    }

    #[test]
    fn what_waits_is_bounded_in_bytes_too() {
        let (shadow, messages) = stuck();
        let tokens = QUEUE_BYTES / size_of::<TokenId>();
        drop(request(&shadow, tokens + 1));
        assert_eq!(shadow.report().left_out, 1, "it alone is too large");
        let _first = request(&shadow, tokens);
        let _second = request(&shadow, 1);
        assert_eq!(shadow.report().left_out, 2, "there is no more room");
        shadow.state.taken(&messages.recv().expect("the first"));
        let _third = request(&shadow, 1);
        assert_eq!(shadow.report().left_out, 2);
    }

    #[test]
    fn an_end_that_the_queue_does_not_take_is_not_forgotten() {
        let (shadow, messages) = stuck();
        let (one, other) = (request(&shadow, 1), request(&shadow, 1));
        one.began(Nanos(1));
        drop(one);
        drop(other);
        assert_eq!(*shadow.state.late_ends(), [0, 1]);
        drop(request(&shadow, 1));
        assert_eq!(shadow.report().left_out, 1, "the third, which never came to the arms");
        let (state, config) = (shadow.state.clone(), ShadowConfig::default());
        drop(shadow);
        worker::play(arms(&config), config.block_size, &messages, &state);
        assert!(state.late_ends().is_empty());
        assert_eq!(state.lock().running, 0);
        let report = state.report();
        assert_eq!(report.requests, 1, "the second, whose beginning nobody told");
        assert_eq!(report.left_out, 2, "the third, and the first, whose beginning was lost");
        assert_eq!(state.queued_bytes.load(Relaxed), 0);
    }
}
