//! Prompts as chains of blocks that grow, are cut and are shared.
//!
//! A prompt is its length in tokens and the ids of its *full* blocks. What has been named stays
//! named: a longer prompt keeps the ids and gets new ones behind them. The partial last block of
//! a request has an id of its own that nothing ever continues, for the next prompt fills that
//! block with other tokens.

use headstart_core::{BlockRuns, Rng, Run, SessionId};

use super::draw::{Length, Zipf, is_size};

/// Most shared prompts or users of one stream; each may be held in memory.
const SHARED_MAX: usize = 1_000_000;

/// Hands out what must differ over the whole workload, whatever stream asks.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    block_tokens: u32,
    blocks: u64,
    sessions: u64,
}

impl Ids {
    /// Ids from 0, for blocks of `block_tokens`.
    pub(super) fn new(block_tokens: u32) -> Self {
        Self { block_tokens: block_tokens.max(1), blocks: 0, sessions: 0 }
    }

    /// Returns a new session id.
    pub(super) fn session(&mut self) -> SessionId {
        self.sessions += 1;
        SessionId(self.sessions - 1)
    }

    fn blocks(&mut self, count: u32) -> Run {
        let start = self.blocks;
        self.blocks += u64::from(count);
        Run { start, count }
    }
}

/// A prompt: its full blocks and its length.
#[derive(Clone, Debug, Default)]
pub(super) struct SynthPrompt {
    full: BlockRuns,
    tokens: u32,
}

impl SynthPrompt {
    /// Length in tokens.
    pub(super) fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Adds `more` tokens that no other prompt has.
    pub(super) fn extend(&mut self, more: u32, ids: &mut Ids) {
        self.tokens = self.tokens.saturating_add(more);
        let full = self.tokens / ids.block_tokens;
        // The full blocks never hold more than the tokens so far, so this cannot underflow.
        let new = full - self.full.len() as u32;
        self.full.push_run(ids.blocks(new));
    }

    /// Keeps the first `tokens`.
    pub(super) fn truncate(&mut self, tokens: u32, ids: &Ids) {
        self.tokens = self.tokens.min(tokens);
        let full = (self.tokens / ids.block_tokens) as usize;
        // A block that the cut divides loses its id, because its tokens will be others.
        if full < self.full.len() {
            self.full = self.full.prefix(full);
        }
    }

    /// The blocks of a request with this prompt: the full ones and a partial last one.
    pub(super) fn blocks(&self, ids: &mut Ids) -> BlockRuns {
        let mut blocks = self.full.clone();
        if !self.tokens.is_multiple_of(ids.block_tokens) {
            blocks.push_run(ids.blocks(1));
        }
        blocks
    }
}

/// Shared beginnings of a stream's sessions: one of a few system prompts and, if there are users,
/// the application's text about the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// System prompts; 0 for none.
    pub prompts: usize,
    /// Their popularity falls with rank to this power (Zipf); 0 for all alike.
    pub exponent: f64,
    /// Length of each.
    pub prompt: Length,
    /// Users, each with one system prompt; 0 for sessions without a user.
    pub users: usize,
    /// Length of the text about each user, behind the system prompt.
    pub profile: Length,
}

impl Opening {
    /// Sessions that share nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::prompts(0, 0.0, Length::fixed(0))
    }

    /// `prompts` system prompts of length `prompt`, popular after Zipf with `exponent`.
    #[must_use]
    pub fn prompts(prompts: usize, exponent: f64, prompt: Length) -> Self {
        Self { prompts, exponent, prompt, users: 0, profile: Length::fixed(0) }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.prompt.check()?;
        self.profile.check()?;
        if self.prompts > SHARED_MAX || self.users > SHARED_MAX {
            return Err(format!("at most {SHARED_MAX} shared prompts and users"));
        }
        if !is_size(self.exponent) {
            let exponent = self.exponent;
            return Err(format!("popularity exponent {exponent} must not be negative"));
        }
        Ok(())
    }
}

/// The shared beginnings of one stream. Each is named when it is first used.
#[derive(Clone, Debug)]
pub(super) struct Openings {
    config: Opening,
    popularity: Zipf,
    prompts: Vec<Option<SynthPrompt>>,
    users: Vec<Option<SynthPrompt>>,
    /// Longest opening, tokens: leaves the other half of the context for questions.
    limit: u32,
}

impl Openings {
    pub(super) fn new(config: &Opening, context_tokens: u32) -> Self {
        Self {
            popularity: Zipf::new(config.prompts, config.exponent),
            prompts: vec![None; config.prompts],
            users: vec![None; config.users],
            // A quarter for the system prompt and a quarter for the user's text.
            limit: context_tokens / 4,
            config: config.clone(),
        }
    }

    /// Returns the opening of the next session.
    pub(super) fn draw(&mut self, rng: &mut Rng, ids: &mut Ids) -> SynthPrompt {
        if self.users.is_empty() {
            return self.system_prompt(rng, ids);
        }
        let user = rng.below(self.users.len());
        if let Some(known) = &self.users[user] {
            return known.clone();
        }
        let mut opening = self.system_prompt(rng, ids);
        opening.extend(self.config.profile.draw(rng, self.limit), ids);
        self.users[user] = Some(opening.clone());
        opening
    }

    fn system_prompt(&mut self, rng: &mut Rng, ids: &mut Ids) -> SynthPrompt {
        if self.prompts.is_empty() {
            return SynthPrompt::default();
        }
        let rank = self.popularity.draw(rng);
        let prompt = self.prompts[rank].get_or_insert_with(|| {
            let mut prompt = SynthPrompt::default();
            prompt.extend(self.config.prompt.draw(rng, self.limit), ids);
            prompt
        });
        prompt.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_prompt_keeps_its_full_blocks_and_a_partial_one_is_its_own() {
        let mut ids = Ids::new(16);
        let mut prompt = SynthPrompt::default();
        prompt.extend(40, &mut ids);
        let first: Vec<u64> = prompt.blocks(&mut ids).iter().collect();
        assert_eq!(first, [0, 1, 2]);
        prompt.extend(24, &mut ids);
        let second: Vec<u64> = prompt.blocks(&mut ids).iter().collect();
        assert_eq!(second, [0, 1, 3, 4]);
        prompt.truncate(17, &ids);
        prompt.extend(16, &mut ids);
        let cut: Vec<u64> = prompt.blocks(&mut ids).iter().collect();
        assert_eq!((prompt.tokens(), cut), (33, vec![0, 5, 6]));
    }

    #[test]
    fn users_of_one_system_prompt_share_it_and_keep_their_own() {
        let mut config = Opening::prompts(1, 1.0, Length::fixed(32));
        config.users = 2;
        config.profile = Length::fixed(32);
        let mut openings = Openings::new(&config, 4096);
        let (mut rng, mut ids) = (Rng::new(1), Ids::new(16));
        let mut seen: Vec<Vec<u64>> = (0..50)
            .map(|_| openings.draw(&mut rng, &mut ids).blocks(&mut ids))
            .map(|blocks| blocks.iter().collect())
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [[0, 1, 2, 3], [0, 1, 4, 5]]);
    }
}
