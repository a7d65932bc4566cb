//! A policy hears how answers end: by themselves, at a limit, or with a call of a tool.

use std::sync::{Arc, Mutex};

use headstart_cache::policy::{Lru, Newcomer};
use headstart_cache::{Policy, PrefixCache};
use headstart_core::{
    Access, BlockHash, BlockHasher, BlockId, BlockIdentity, FinishKind, Nanos, SeqId, TokenId,
};
use headstart_scheduler::{QueueOrder, Scheduler, SchedulerConfig, Submission};

const CALL: TokenId = 70;
const STOP: TokenId = 71;

/// LRU that notes the ends of answers.
struct Noting(Lru, Arc<Mutex<Vec<FinishKind>>>);

impl Policy for Noting {
    fn insert(&mut self, block: BlockId, hash: BlockHash, access: &Access) {
        self.0.insert(block, hash, access);
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        self.1.lock().expect("no holder panics").push(access.finish);
        self.0.release(blocks, access);
    }

    fn offer(&mut self, block: BlockId) {
        self.0.offer(block);
    }

    fn withdraw(&mut self, block: BlockId) {
        self.0.withdraw(block);
    }

    fn victim(&mut self, now: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        self.0.victim(now, newcomer)
    }

    fn remove(&mut self, block: BlockId, hash: BlockHash) {
        self.0.remove(block, hash);
    }

    fn forget(&mut self, block: BlockId, hash: BlockHash) {
        self.0.forget(block, hash);
    }
}

/// The end of an answer of these tokens, as the policy hears it.
fn end(recorded: FinishKind, answer: &[TokenId]) -> FinishKind {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let config = SchedulerConfig {
        max_batched_tokens: 64,
        max_sequences: 1,
        max_waiting: 1,
        max_context: 64,
        block_size: 4,
        order: QueueOrder::FirstCome,
    };
    let cache = PrefixCache::new(16, Box::new(Noting(Lru::new(16), ends.clone())));
    let mut scheduler = Scheduler::new(config, cache);
    let identity = BlockIdentity {
        model: "ends",
        weights_revision: "",
        kv_dtype: "",
        kv_layout: "",
        adapter: None,
        salt: None,
        block_size: 4,
    };
    let hasher = Arc::new(BlockHasher::new(&identity));
    let submission = Submission {
        stop_tokens: [STOP].into(),
        tool_tokens: [CALL].into(),
        access: Access { finish: recorded, ..Access::default() },
        // A call in the prompt is one of an earlier answer.
        ..Submission::greedy(SeqId(1), vec![1, 2, CALL, 4, 5], 4)
    };
    scheduler.submit(submission, hasher, Nanos(0));
    for &token in answer {
        let batch = scheduler.schedule(Nanos(0));
        scheduler.complete(&batch, &[token], Nanos(0));
    }
    assert!(scheduler.is_idle());
    let ends = ends.lock().expect("no holder panics");
    *ends.last().expect("one was released")
}

#[test]
fn a_policy_hears_how_answers_end() {
    let unknown = FinishKind::Unknown;
    assert_eq!(end(unknown, &[8, STOP]), FinishKind::Stop);
    assert_eq!(end(unknown, &[CALL, 8, STOP]), FinishKind::ToolCalls);
    assert_eq!(end(unknown, &[8, 8, 8, 8]), FinishKind::Length);
    assert_eq!(end(FinishKind::Stop, &[CALL, STOP]), FinishKind::Stop, "as recorded");
}
