//! Dynamo's `RadixTree`: one thread owns it, so reader and writer take turns.
//!
//! A question is a vector that it takes for good; that one is made before the clock starts.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

use dynamo_kv_router::RadixTree;
use dynamo_kv_router::protocols::{LocalBlockHash, RouterEvent};
use headstart_core::TokenId;

use super::beside::{Step, one_thread};
use super::router_event::{by_replica, prompt_hashes, router_events};
use super::{Beside, Contender, FleetShape, Pace, time_all, time_each};
use crate::replay::Message;

pub(super) struct Owned {
    tree: RadixTree,
    prepared: VecDeque<Vec<RouterEvent>>,
    block_size: u32,
    prompts: Vec<Vec<LocalBlockHash>>,
    /// The prompts again, to be given away.
    questions: Vec<Vec<LocalBlockHash>>,
}

impl Owned {
    pub(super) fn new(fleet: FleetShape) -> Self {
        Self {
            tree: RadixTree::new(),
            prepared: VecDeque::new(),
            block_size: fleet.block_size,
            prompts: Vec::new(),
            questions: Vec::new(),
        }
    }
}

fn ask<'a>(
    tree: &'a RadixTree,
    questions: &'a mut [Vec<LocalBlockHash>],
) -> impl FnMut(usize) + 'a {
    move |prompt| {
        let question = std::mem::take(&mut questions[prompt]);
        black_box(tree.find_matches(question, false));
    }
}

/// Events that it refuses it has logged; the comparison of answers finds what they did.
fn apply(tree: &mut RadixTree, events: Option<Vec<RouterEvent>>) {
    for event in events.into_iter().flatten() {
        let _ = tree.apply_event(event);
    }
}

impl Contender for Owned {
    fn prepare(&mut self, messages: &[Message]) {
        self.prepared.extend(messages.iter().map(router_events));
    }

    fn apply(&mut self, _: &Message) {
        apply(&mut self.tree, self.prepared.pop_front());
    }

    fn hash(&mut self, prompts: &[&[TokenId]]) {
        let hashes = prompts
            .iter()
            .map(|tokens| prompt_hashes(tokens, self.block_size));
        self.prompts = hashes.collect();
    }

    fn ready(&mut self) {
        self.questions.clone_from(&self.prompts);
    }

    fn look_up_all(&mut self) -> Duration {
        time_all(self.prompts.len(), ask(&self.tree, &mut self.questions))
    }

    fn look_up_each(&mut self, nanos: &mut Vec<u64>) {
        let num_prompts = self.prompts.len();
        time_each(num_prompts, nanos, ask(&self.tree, &mut self.questions));
    }

    fn look_up_beside(&mut self, messages: &[Message], pace: Pace) -> Beside {
        let Self {
            tree,
            prepared,
            prompts,
            questions,
            ..
        } = self;
        one_thread(messages, pace, prompts.len(), |step| match step {
            Step::Ready(prompt) => questions[prompt].clone_from(&prompts[prompt]),
            Step::LookUp(prompt) => ask(tree, questions)(prompt),
            Step::Apply => apply(tree, prepared.pop_front()),
        })
    }

    fn num_prompts(&self) -> usize {
        self.prompts.len()
    }

    fn trim(&mut self) {
        self.prepared.shrink_to_fit();
    }

    fn overlaps(&mut self, prompt: usize) -> Vec<(u32, u32)> {
        by_replica(&self.tree.find_matches(self.prompts[prompt].clone(), false))
    }
}
