//! Dynamo's `ThreadPoolIndexer` with one thread that applies events, over its compressed
//! concurrent radix tree and over its positional index.
//!
//! Events go into the pool's queue and are applied over there, so these two indexes have a core
//! more than the others while they are written. Look-ups go to the index itself.

use std::collections::VecDeque;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use dynamo_kv_router::indexer::{KvIndexerInterface, SyncIndexer, ThreadPoolIndexer};
use dynamo_kv_router::protocols::{LocalBlockHash, RouterEvent};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, PositionalIndexer};
use headstart_core::TokenId;

use super::beside::two_threads;
use super::router_event::{by_replica, prompt_hashes, router_events};
use super::{Beside, Contender, FleetShape, Pace, time_all, time_each};
use crate::replay::Message;

/// The jump that the positional index's own documentation suggests.
const JUMP: usize = 32;

pub(super) struct Pooled<I: SyncIndexer> {
    pool: ThreadPoolIndexer<I>,
    prepared: VecDeque<Vec<RouterEvent>>,
    block_size: u32,
    prompts: Vec<Vec<LocalBlockHash>>,
}

impl Pooled<ConcurrentRadixTreeCompressed> {
    pub(super) fn compressed(fleet: FleetShape) -> Self {
        Self::new(ConcurrentRadixTreeCompressed::new(), fleet)
    }
}

impl Pooled<PositionalIndexer> {
    pub(super) fn positional(fleet: FleetShape) -> Self {
        Self::new(PositionalIndexer::new(JUMP), fleet)
    }
}

impl<I: SyncIndexer> Pooled<I> {
    fn new(index: I, fleet: FleetShape) -> Self {
        let pool = ThreadPoolIndexer::new(index, 1, fleet.block_size);
        // Its thread has started when it answers, and so counts for this index.
        flush(&pool);
        Self {
            pool,
            prepared: VecDeque::new(),
            block_size: fleet.block_size,
            prompts: Vec::new(),
        }
    }
}

fn ask<'a, I: SyncIndexer>(
    index: &'a I,
    prompts: &'a [Vec<LocalBlockHash>],
) -> impl FnMut(usize) + Send + 'a {
    move |prompt| {
        black_box(index.find_matches(&prompts[prompt], false));
    }
}

fn apply<I: SyncIndexer>(pool: &ThreadPoolIndexer<I>, events: Option<Vec<RouterEvent>>) {
    for event in events.into_iter().flatten() {
        pool.enqueue_event(event).expect("the pool's thread runs");
    }
}

fn flush<I: SyncIndexer>(pool: &ThreadPoolIndexer<I>) {
    block_on(pool.flush_and_wait()).expect("the pool's thread runs");
}

impl<I: SyncIndexer> Contender for Pooled<I> {
    fn prepare(&mut self, messages: &[Message]) {
        self.prepared.extend(messages.iter().map(router_events));
    }

    fn apply(&mut self, _: &Message) {
        apply(&self.pool, self.prepared.pop_front());
    }

    fn settle(&mut self) {
        flush(&self.pool);
    }

    fn hash(&mut self, prompts: &[&[TokenId]]) {
        let hashes = prompts
            .iter()
            .map(|tokens| prompt_hashes(tokens, self.block_size));
        self.prompts = hashes.collect();
    }

    fn look_up_all(&mut self) -> Duration {
        time_all(self.prompts.len(), ask(self.pool.backend(), &self.prompts))
    }

    fn look_up_each(&mut self, nanos: &mut Vec<u64>) {
        let look_up = ask(self.pool.backend(), &self.prompts);
        time_each(self.prompts.len(), nanos, look_up);
    }

    fn look_up_beside(&mut self, messages: &[Message], pace: Pace) -> Beside {
        let Self {
            pool,
            prepared,
            prompts,
            ..
        } = self;
        let look_up = ask(pool.backend(), prompts);
        two_threads(messages, pace, prompts.len(), look_up, |due| {
            for _ in due {
                apply(pool, prepared.pop_front());
            }
            flush(pool);
        })
    }

    fn num_prompts(&self) -> usize {
        self.prompts.len()
    }

    fn trim(&mut self) {
        self.prepared.shrink_to_fit();
    }

    fn overlaps(&mut self, prompt: usize) -> Vec<(u32, u32)> {
        by_replica(
            &self
                .pool
                .backend()
                .find_matches(&self.prompts[prompt], false),
        )
    }
}

impl<I: SyncIndexer> Drop for Pooled<I> {
    fn drop(&mut self) {
        self.pool.shutdown();
    }
}

/// Waits for a future that another thread completes.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
