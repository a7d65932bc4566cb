//! Prompt tokens sent to one replica lately, which later prompts are likely to repeat.

use std::time::Duration;

use headstart_core::Nanos;

/// It fades by a factor e in this time: minutes, as prefixes last.
const LATELY: Duration = Duration::from_secs(300);

/// Prompt tokens that were sent to one replica lately; older ones count less.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlacedTokens {
    /// Of all prompts: how much it is asked.
    tokens: f64,
    /// Of prompts that were mostly new to it: how much has its home there.
    new_tokens: f64,
    /// When both were so.
    at: Nanos,
}

impl PlacedTokens {
    /// A prompt of `tokens` tokens is sent, of which the replica holds `held`.
    pub fn add(&mut self, tokens: usize, held: usize, now: Nanos) {
        *self = self.as_of(now);
        self.tokens += tokens as f64;
        if 2 * held < tokens {
            self.new_tokens += tokens as f64;
        }
    }

    /// A prompt that was sent is not going to be computed.
    pub fn take_back(&mut self, tokens: usize, held: usize, now: Nanos) {
        *self = self.as_of(now);
        // Tokens faded between `add` and now, so the full amount may be more than is left.
        self.tokens = (self.tokens - tokens as f64).max(0.0);
        if 2 * held < tokens {
            self.new_tokens = (self.new_tokens - tokens as f64).max(0.0);
        }
    }

    /// Tokens of all prompts.
    #[must_use]
    pub fn tokens(&self, now: Nanos) -> f64 {
        self.as_of(now).tokens
    }

    /// Tokens of the prompts of which less than half was held.
    #[must_use]
    pub fn new_tokens(&self, now: Nanos) -> f64 {
        self.as_of(now).new_tokens
    }

    fn as_of(&self, now: Nanos) -> Self {
        let left = (-now.since(self.at).div_duration_f64(LATELY)).exp();
        Self {
            tokens: self.tokens * left,
            new_tokens: self.new_tokens * left,
            // A call with an earlier time must not make later ones fade twice.
            at: now.max(self.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fades_and_tells_new_prompts_from_known_ones() {
        let mut placed = PlacedTokens::default();
        let at = Nanos::from_secs_f64;
        placed.add(1_000, 499, at(0.0));
        placed.add(1_000, 500, at(0.0));
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9);
        let later = LATELY.as_secs_f64();
        close(placed.tokens(at(later)), 2_000.0 * (-1.0_f64).exp());
        close(placed.new_tokens(at(later)), 1_000.0 * (-1.0_f64).exp());
        placed.add(10, 0, at(later));
        close(placed.new_tokens(at(later)), 1_000.0 * (-1.0_f64).exp() + 10.0);
        placed.take_back(10, 0, at(later));
        close(placed.new_tokens(at(later)), 1_000.0 * (-1.0_f64).exp());
        // A clock that goes back makes nothing more.
        close(placed.tokens(at(0.0)), placed.tokens(at(later)));
    }
}
