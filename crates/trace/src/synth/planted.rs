//! Conversations as text whose words tell, with known strength, whether they go on.
//!
//! For each user turn a hidden intent is drawn (to say goodbye, to look up a fact, to begin a
//! project …) and, mostly, a side remark ("more follows", "that is all"). They give the true
//! probability of another turn, the outcome is drawn from it, and the text is one of many ways
//! to say it, among sentences that tell nothing. An intent mostly lasts until the next turn, so a
//! predictor that reads several prompts at once is not misled by the old ones.
//!
//! ```text
//! subject ───────────────────────┐
//! intent, remark ──► phrasings ──┴► text, all that a predictor sees
//!        │
//!        ├─ turn before, turn count (a little)
//!        ▼
//!   p = sigmoid(bias + strength · score) ──► outcome
//! ```
//!
//! So the best score of any predictor is known: that of the rule "continues if p is at least a
//! threshold" ([`Attainable`]). With the default share of 0.55 that rule has
//!
//! | strength | 0 | 0.25 | 0.5 | 1 | 2 | 4 |
//! |---|---|---|---|---|---|---|
//! | best attainable MCC | 0 | 0.22 | 0.41 | 0.64 | 0.74 | 0.74 |
//!
//! Subjects are drawn without regard to intents and tell nothing. Not drawn from any corpus: it
//! tests that a pipeline finds what is there, and says nothing of how much real text tells.
//!
//! Equal parameters give equal bytes on every machine. What happens and how it is worded are
//! drawn separately, so other lengths or wordings leave turns and outcomes as they are.

mod attainable;
mod grammar;
mod signal;
mod vocabulary;
mod wording;

use headstart_core::{Probability, Rng};

use super::draw::{Length, chance};
use crate::format::conversation::{Conversation, Role, Turn};
pub use attainable::Attainable;
use signal::{Signal, TurnState};
use wording::Wording;

/// Most turns of a conversation; the longest recorded ones have some hundred.
const TURNS_MAX: u32 = 1000;

/// Most words that a prompt or an answer is drawn with: a novel's chapter.
const WORDS_MAX: u32 = 10_000;

/// Most system prompts; all are in memory.
const SYSTEM_PROMPTS_MAX: usize = 1000;

/// Beyond this strength all probabilities are 0 or 1.
const STRENGTH_MAX: f64 = 20.0;

/// Parameters of the conversations to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct PlantedConfig {
    /// Conversations.
    pub conversations: u64,
    /// All randomness comes from it.
    pub seed: u64,
    /// Strength of the signal in the text: 0 for none, 1 for an MCC of at most 0.64, up to 20.
    pub strength: f64,
    /// Share of the turns that are followed by another.
    pub base: f64,
    /// A conversation that would have more user turns is cut here, and says so.
    pub max_turns: u32,
    /// Length of a prompt in words. What the intent needs is said in any case, and sentences are
    /// not cut.
    pub prompt: Length,
    /// Length of an answer in words; sentences are not cut.
    pub answer: Length,
    /// System prompts, of which each conversation begins with one; 0 for none.
    pub system_prompts: usize,
    /// Length of each in words.
    pub system: Length,
}

impl Default for PlantedConfig {
    /// 5,000 conversations of which 0.55 go on at each turn, as in ShareGPT, with prompts of 14
    /// words and answers of 100 on average. The lengths are our choice.
    fn default() -> Self {
        let length = |mean| Length { mean, sigma: 0.5 };
        Self {
            conversations: 5000,
            seed: 1,
            strength: 1.0,
            base: 0.55,
            max_turns: 20,
            prompt: length(14.0),
            answer: length(100.0),
            system_prompts: 0,
            system: length(150.0),
        }
    }
}

/// Parameters that cannot be; says what must change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these conversations cannot be generated: {0}")]
pub struct InvalidPlanted(String);

impl PlantedConfig {
    /// The conversations, one at a time. Each has a probability in `truth` per user turn, and
    /// says that it was cut where it reached the longest length and would have gone on.
    ///
    /// # Errors
    /// When a parameter is impossible.
    pub fn generate(&self) -> Result<Generator, InvalidPlanted> {
        self.check().map_err(InvalidPlanted)?;
        let mut rng = Rng::new(self.seed);
        let prompts = (0..self.system_prompts).map(|_| {
            // A wording of its own, so that system prompts differ in their subjects.
            let words = self.system.draw(&mut rng, WORDS_MAX);
            Wording::new(&mut rng).system(words, &mut rng)
        });
        let system_prompts = prompts.collect();
        Ok(Generator {
            signal: Signal::new(self.strength, self.base, self.max_turns),
            system_prompts,
            config: self.clone(),
            done: 0,
        })
    }

    fn check(&self) -> Result<(), String> {
        let Self { strength, base, max_turns, system_prompts, .. } = *self;
        [self.prompt, self.answer, self.system].iter().try_for_each(Length::check)?;
        if !(0.0..=STRENGTH_MAX).contains(&strength) {
            return Err(format!("strength {strength}: expected 0 to {STRENGTH_MAX}"));
        }
        if !(0.001..=0.999).contains(&base) {
            return Err(format!("base {base}: expected a share from 0.001 to 0.999"));
        }
        if !(1..=TURNS_MAX).contains(&max_turns) {
            return Err(format!("max_turns {max_turns}: expected 1 to {TURNS_MAX}"));
        }
        if system_prompts > SYSTEM_PROMPTS_MAX {
            return Err(format!("more than {SYSTEM_PROMPTS_MAX} system prompts"));
        }
        Ok(())
    }
}

/// Planted conversations, one at a time; holds nothing of what it has given out.
#[derive(Clone, Debug)]
pub struct Generator {
    config: PlantedConfig,
    signal: Signal,
    system_prompts: Vec<String>,
    done: u64,
}

impl Iterator for Generator {
    type Item = Conversation;

    fn next(&mut self) -> Option<Conversation> {
        if self.done == self.config.conversations {
            return None;
        }
        // From 1, as number 0 would share the seed of the system prompts.
        self.done += 1;
        // Each conversation draws on its own: more of them leave the first ones as they were.
        let mut rng = Rng::new(self.config.seed ^ self.done.rotate_left(32));
        // A second source, so other lengths and wordings leave the outcomes as they are.
        let mut words = Rng::new(rng.next_u64());
        let mut conversation = Conversation {
            id: format!("planted-{}-{}", self.config.seed, self.done),
            ..Conversation::default()
        };
        if !self.system_prompts.is_empty() {
            let prompt = &self.system_prompts[rng.below(self.system_prompts.len())];
            conversation.turns.push(Turn::new(Role::System, prompt.clone()));
        }
        self.talk(&mut conversation, &mut rng, &mut words);
        Some(conversation)
    }
}

impl Generator {
    /// Adds turns until one is not followed by another.
    fn talk(&self, conversation: &mut Conversation, rng: &mut Rng, words: &mut Rng) {
        let wording = Wording::new(words);
        let mut before: Option<TurnState> = None;
        for turn in 1.. {
            let state = TurnState::draw(before, rng);
            let p = self.signal.p(state, before, turn);
            let p = Probability::new(p).unwrap_or(Probability::EVEN);
            let length = self.config.prompt.draw(words, WORDS_MAX);
            let prompt = wording.prompt(state, length, words);
            let length = self.config.answer.draw(words, WORDS_MAX);
            let answer = wording.answer(length, words);
            conversation.turns.push(Turn::new(Role::User, prompt));
            conversation.turns.push(Turn::new(Role::Assistant, answer));
            conversation.truth.push(p);
            let goes_on = chance(rng, p.value());
            // The outcome says that another turn followed, so this is a cut and no end.
            conversation.is_truncated = goes_on && turn == self.config.max_turns;
            if !goes_on || conversation.is_truncated {
                return;
            }
            before = Some(state);
        }
    }
}
