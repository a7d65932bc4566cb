//! Counted steps: a token for every running sequence, without writing it down.
//!
//! Most steps of an engine only add a token to each running sequence. Where answers are made up, as
//! in a simulation, all that such a step changes is known beforehand: the sequences whose block is
//! full, which then need another one, and those that end. A counted step looks at these alone; it
//! writes a sequence's tokens down when they are needed.
//!
//! ```text
//!  schedule_counted ──► Decode (how many, how deep) + Batch (prompts) ──► complete_counted
//! ```
//!
//! A counted step does what [`Scheduler::schedule`] and [`Scheduler::complete`] would do, to the
//! last event and in the same order; they are the reference, and a test compares them. Outputs
//! report the sequences that begin and end; [`Decode::sequences`] counts the tokens in between.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headstart_cache::PrefixCache;
use headstart_core::{Nanos, SeqId, TokenId};

use super::{Scheduler, SchedulerConfig};
use crate::batch::Batch;
use crate::sequence::Sequence;

/// The made-up token at a position of a sequence.
pub type MadeUp = fn(SeqId, usize) -> TokenId;

/// Sequences that compute one token each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decode {
    /// Number of sequences.
    pub sequences: usize,
    /// Their tokens that attention reads, the new ones included.
    pub kv_tokens: usize,
}

/// State of the decoding sequences.
#[derive(Debug)]
pub(super) struct Counter {
    answer: MadeUp,
    /// Number of the current step.
    step: u64,
    /// When which one, by its place, fills a block or ends.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    /// Places of the sequences that need another block in the current step.
    growing: Vec<u64>,
    decoding: usize,
    /// Tokens with keys and values of all that decode.
    computed: usize,
}

impl Counter {
    /// Takes over a sequence that has computed all its tokens but the last.
    fn enter(&mut self, sequence: &mut Sequence, from: u64, context: usize) {
        sequence.decoding_since = Some(from);
        self.decoding += 1;
        self.computed += sequence.computed;
        self.plan(sequence, from, context);
    }

    /// Notes when something happens to it again.
    fn plan(&mut self, sequence: &Sequence, from: u64, context: usize) {
        let block_size = sequence.block_size();
        let filled = sequence.computed % block_size;
        // Its next token begins a block, which the next step must allocate.
        if filled == 0 {
            self.growing.push(sequence.place);
        }
        let until_full = block_size - filled;
        let until_end = sequence.steps_to_end(context);
        let steps = until_full.min(until_end) as u64;
        // At least one step: a full block leaves a whole one to fill, and a sequence that ended has
        // left.
        self.due.push(Reverse((from + steps - 1, sequence.place)));
    }

    /// Writes down the tokens that a sequence computed before the current step.
    fn settle(&mut self, sequence: &mut Sequence, context: usize) {
        let since = sequence.decoding_since.expect("it decodes");
        sequence.decoding_since = Some(self.step);
        // A made-up token depends on sequence and position only, so it can be written down later.
        for _ in since..self.step {
            let token = (self.answer)(sequence.new.id, sequence.tokens.len());
            let end = sequence.push(token, context);
            assert!(end.is_none(), "an end is due");
            sequence.computed += 1;
        }
    }

    /// A sequence that may decode leaves; its tokens are written down.
    pub(super) fn leave(&mut self, sequence: &mut Sequence, context: usize) {
        if sequence.decoding_since.is_some() {
            self.settle(sequence, context);
            sequence.decoding_since = None;
            self.decoding -= 1;
            // Only after `settle` does the sequence's own count agree with its part of the sum.
            self.computed -= sequence.computed;
        }
    }

    /// Asserts that what is counted is what there is.
    pub(super) fn check(&self, running: &[Sequence]) {
        let computed = |sequence: &Sequence| {
            let since = sequence.decoding_since?;
            Some(sequence.computed + (self.step - since) as usize)
        };
        let decoding: Vec<usize> = running.iter().filter_map(computed).collect();
        assert_eq!(self.decoding, decoding.len(), "those that decode");
        assert_eq!(self.computed, decoding.iter().sum(), "what they computed");
    }
}

impl Scheduler {
    /// A scheduler whose steps are counted: [`Self::schedule_counted`] takes the place of
    /// [`Self::schedule`], and answers are what `answer` says.
    ///
    /// # Panics
    /// Like [`Self::new`], and when not all sequences that run fit one step.
    #[must_use]
    pub fn counted(config: SchedulerConfig, cache: PrefixCache, answer: MadeUp) -> Self {
        assert!(
            config.max_sequences <= config.max_batched_tokens,
            "all that run decode in one step"
        );
        let counter = Counter {
            answer,
            step: 0,
            due: BinaryHeap::new(),
            growing: Vec::new(),
            decoding: 0,
            computed: 0,
        };
        Self { counter: Some(counter), ..Self::new(config, cache) }
    }

    /// Decides the next step: those that decode, and a batch of prompts. Both are empty only when
    /// nothing runs and nothing can be admitted; otherwise [`Self::complete_counted`] must follow.
    ///
    /// # Panics
    /// When this scheduler does not count.
    pub fn schedule_counted(&mut self, now: Nanos) -> (Decode, Batch) {
        self.plan_loads(now);
        let before = self.preemptions;
        let mut growing = std::mem::take(&mut self.counter().growing);
        // By place, the order of admission: the reference grows the oldest first and preempts the
        // youngest.
        growing.sort_unstable();
        for place in growing {
            // A sequence that is gone was preempted or cancelled.
            if let Some(index) = self.running_at(place)
                && !self.make_room(index, 1, now)
            {
                // The sequence preempted itself as the youngest, so no later one runs.
                break;
            }
        }
        let counter = self.counter();
        let decode =
            Decode { sequences: counter.decoding, kv_tokens: counter.computed + counter.decoding };
        let mut batch = Batch::default();
        // `Self::counted` asserts that all that run fit the budget.
        let budget = self.config.max_batched_tokens - decode.sequences;
        // Those that decode are the first of `running`: budget goes to the oldest prompt until it
        // is done.
        let taken = self.schedule_running(decode.sequences, &mut batch, budget, now);
        if self.preemptions == before {
            self.admit_waiting(&mut batch, budget - taken, now);
        }
        self.announce_evictions(now);
        (decode, batch)
    }

    /// Takes a computed step, with the batch that was decided.
    ///
    /// # Panics
    /// When this scheduler does not count.
    pub fn complete_counted(&mut self, batch: &Batch, now: Nanos) {
        self.complete_arrivals(batch, now);
        let counter = self.counter();
        let step = counter.step;
        counter.computed += counter.decoding;
        while let Some(&Reverse((at, place))) = self.counter().due.peek()
            && at == step
        {
            self.counter().due.pop();
            // A sequence that left keeps its entry until that step; its place is not found any
            // more.
            if let Some(index) = self.running_at(place) {
                self.complete_decode(index, step, now);
            }
        }
        // Sequences that ended left `running` above, so the prompts begin right after those that
        // decode.
        let mut index = self.counter().decoding;
        for entry in &batch.entries {
            self.running[index].computed += entry.tokens.len();
            self.commit_full_blocks(index, now);
            let mut is_there = true;
            if entry.sampling.is_some() {
                is_there = self.append_made_up(index, now);
                if is_there {
                    self.enter(index, step + 1);
                }
            }
            index += usize::from(is_there);
        }
        self.counter().step += 1;
    }

    /// The sequence at `index` computed the token with which it fills a block or ends.
    fn complete_decode(&mut self, index: usize, step: u64, now: Nanos) {
        let context = self.context();
        let (counter, sequence) = self.decoding(index);
        counter.settle(sequence, context);
        sequence.computed += 1;
        self.commit_full_blocks(index, now);
        // Only the last token is an output; `Decode::sequences` counts those in between.
        if self.running[index].steps_to_end(context) == 1 {
            self.append_made_up(index, now);
            return;
        }
        let (counter, sequence) = self.decoding(index);
        let token = (counter.answer)(sequence.new.id, sequence.tokens.len());
        sequence.push(token, context);
        sequence.decoding_since = Some(step + 1);
        counter.plan(sequence, step + 1, context);
    }

    /// Appends a made-up token. Returns whether the sequence continues.
    fn append_made_up(&mut self, index: usize, now: Nanos) -> bool {
        let sequence = &self.running[index];
        let (id, position) = (sequence.new.id, sequence.tokens.len());
        let token = (self.counter().answer)(id, position);
        !self.append(index, token, now)
    }

    fn enter(&mut self, index: usize, from: u64) {
        let context = self.context();
        let (counter, sequence) = self.decoding(index);
        counter.enter(sequence, from, context);
    }

    /// Finds a running sequence by its place; they stand in the order of admission.
    fn running_at(&self, place: u64) -> Option<usize> {
        let found = self.running.binary_search_by_key(&place, |sequence| sequence.place);
        found.ok()
    }

    fn decoding(&mut self, index: usize) -> (&mut Counter, &mut Sequence) {
        let counter = self.counter.as_mut().expect("steps are counted");
        (counter, &mut self.running[index])
    }

    fn counter(&mut self) -> &mut Counter {
        self.counter.as_mut().expect("steps are counted")
    }
}
