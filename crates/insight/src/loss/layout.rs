//! The bucket of each token of a prompt that the engine does not serve.

use crate::{Bucket, BucketTokens};

use super::{ArrivingRequest, ServedTokens};

/// Consecutive tokens in one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketRun {
    /// One past its last token.
    pub(super) end: u32,
    pub(super) bucket: Bucket,
}

/// The prompt's tokens, from the first one to the last. What is known of blocks stays per block,
/// what is known of contents per token, behind the last block that is known.
#[derive(Debug)]
pub(super) struct PromptLayout {
    prompt: usize,
    /// Start of the part that is always computed, tokens.
    floor: usize,
    block_size: usize,
    /// Tokens that the chosen replica, and the best other one, are said to hold.
    predicted: usize,
    elsewhere: usize,
    /// Remembered bucket of each block in front of the floor.
    blocks: Vec<Option<Bucket>>,
    /// Ranges of known contents, in order, behind the known blocks.
    diverged: Vec<(usize, usize)>,
}

impl PromptLayout {
    pub(super) fn of(arrival: &ArrivingRequest<'_>, predicted: u32) -> Self {
        let prompt = arrival.prompt_tokens as usize;
        let block_size = arrival.block_size.max(1) as usize;
        // The last token is always computed, and with it the block that it is in.
        let floor = prompt.saturating_sub(1) / block_size * block_size;
        let others = arrival.overlaps.iter();
        let others = others.filter(|(replica, _)| *replica != arrival.replica);
        Self {
            prompt,
            floor,
            block_size,
            predicted: predicted as usize,
            elsewhere: others.map(|&(_, tokens)| tokens).max().unwrap_or(0) as usize,
            // A block without a key has no entry, so nothing can be known of it.
            blocks: vec![None; (floor / block_size).min(arrival.keys.len())],
            diverged: Vec::new(),
        }
    }

    /// Says what is known of a block. One behind it that is known makes it known, too: names
    /// cover all before.
    pub(super) fn remember(&mut self, block: usize, bucket: Option<Bucket>) {
        // Blocks from the floor on have no place here, and `None` must not erase what is known.
        if let (Some(place), Some(_)) = (self.blocks.get_mut(block), bucket) {
            *place = bucket;
        }
    }

    /// Returns the range of tokens without a known block that no replica is said to hold.
    pub(super) fn unknown(&self) -> (usize, usize) {
        let known = self.blocks.iter().rposition(Option::is_some);
        let known = known.map_or(0, |block| (block + 1) * self.block_size);
        let held = self.predicted.max(self.elsewhere);
        // A block that is held in part counts as held: overlaps are in tokens, this layout in
        // blocks.
        let from = known.max(held.div_ceil(self.block_size) * self.block_size);
        (from.min(self.floor), self.floor)
    }

    /// Says that the contents of these tokens are known. Ranges come in order.
    pub(super) fn diverged(&mut self, start: usize, end: usize) {
        self.diverged.push((start, end));
    }

    /// All tokens, as runs.
    pub(super) fn into_runs(mut self) -> Vec<BucketRun> {
        self.fill();
        let mut runs = Vec::new();
        let mut push = |end: usize, bucket: Bucket| {
            let end = end as u32;
            match runs.last_mut() {
                // A run that ends no later is covered: the first bucket that applies wins.
                Some(BucketRun { end: before, .. }) if *before >= end => {}
                Some(run) if run.bucket == bucket => run.end = end,
                _ if end > 0 => runs.push(BucketRun { end, bucket }),
                _ => {}
            }
        };
        // After `fill` the known blocks are the leading ones, up to the last that is known.
        let known = self.blocks.iter().take_while(|known| known.is_some()).count();
        for (block, bucket) in self.blocks[..known].iter().enumerate() {
            let start = block * self.block_size;
            // What is being computed comes before what is held, and that before what was.
            if *bucket != Some(Bucket::InFlight) {
                // Should the engine compute a token that the index promised, then the index was
                // wrong.
                push(self.predicted.min(start + self.block_size), Bucket::IndexWrong);
                push(self.elsewhere.min(start + self.block_size), Bucket::HeldElsewhere);
            }
            push(start + self.block_size, bucket.unwrap_or(Bucket::NeverSeen));
        }
        push(self.predicted.min(self.floor), Bucket::IndexWrong);
        push(self.elsewhere.min(self.floor), Bucket::HeldElsewhere);
        for &(start, end) in &self.diverged {
            push(start.min(self.floor), Bucket::NeverSeen);
            push(end.min(self.floor), Bucket::Diverged);
        }
        // Text after the last known range, up to the floor, is new.
        push(self.floor, Bucket::NeverSeen);
        push(self.prompt, Bucket::BlockFloor);
        runs
    }

    /// A block of which nothing is remembered, in front of one that is known, is like that one.
    fn fill(&mut self) {
        let mut behind = None;
        for block in self.blocks.iter_mut().rev() {
            behind = block.or(behind);
            *block = behind;
        }
    }
}

/// Overlays the front of `runs` with the served tokens; the rest keeps its buckets.
pub(super) fn overlay(prompt: u32, runs: &[BucketRun], served: &ServedTokens) -> BucketTokens {
    let mut split = BucketTokens::default();
    let mut at = 0;
    // Fills up to `end`, and never beyond the prompt.
    let mut fill = |bucket: Bucket, end: u32| {
        // An engine may report more than the prompt has, or tiers that overlap; the sum must not
        // change.
        let end = end.clamp(at, prompt);
        split.put(bucket, end - at);
        at = end;
    };
    let tiers = [Bucket::Device, Bucket::Host, Bucket::Disk, Bucket::Remote];
    let failed = (Bucket::LoadFailed, served.load_failed);
    let mut end = 0u32;
    for (bucket, tokens) in tiers.into_iter().zip(served.tiers).chain([failed]) {
        // The numbers come from an engine's answer and may be anything.
        end = end.saturating_add(tokens);
        fill(bucket, end);
    }
    for run in runs {
        fill(run.bucket, run.end);
    }
    // The runs end where the prompt ends, so this only guards the sum.
    fill(Bucket::NeverSeen, prompt);
    split
}
