//! The reuse probe: what a cached prefix is worth, prompt by prompt.
//!
//! One request at a time, so nothing queues. A round is a fresh conversation:
//!
//! ```text
//! turn 1     U1                → A1       under one salt: fills the cache
//! cached     U1 A1 U2          → time     under the same salt: finds U1 A1
//! uncached   U1 A1 U2          → time     under a fresh salt: finds nothing
//! ```
//!
//! The last two send identical messages, in alternating order from round to round, so that
//! warming up, frequency changes and noise of the machine fall on both alike. A round in which
//! the server did not find what it should, or found what it should not, is reported as invalid
//! and enters no figure. Salts are unique per run: a second run finds nothing of the first.
//!
//! It needs a server that honours `cache_salt` and reports `cached_tokens`; without them every
//! round is invalid, and says so.

mod caching;
mod report;
mod words;

use std::time::{SystemTime, UNIX_EPOCH};

use headstart_trace::format::conversation::{Role, Turn};

pub use caching::CachingProbe;
pub use report::{InvalidRound, ProbeOrder, ProbeReport, ProbeRound};
use words::TextGenerator;

use crate::{ApiClient, ChatApiRequest, Completion, LoadgenError};

/// Words of the first calibration: few, so that it fits any context even at one token a letter.
const CALIBRATION_WORDS: usize = 32;

/// Requests to find the text's length. The second is right but for the chat template's share of
/// the first; the others are for tokenizers that treat long text differently.
const CALIBRATION_LIMIT: usize = 5;

/// Words tried per token wanted: common words take a token or more each, so a server that counts
/// fewer does not count, and the text must not grow without end.
const WORDS_PER_TOKEN_LIMIT: f64 = 2.0;

/// Text beyond what calibration found: the words of a round are others, with lengths that add up
/// to within 1 % of its; this is several times that.
const LENGTH_MARGIN: f64 = 1.03;

/// Least share of the repeated prompt that the server must find, so that a round is valid: at a
/// `new_share` of 0.1, eight tenths of the prompt. The rest is for a last block that is not full
/// and for answers that do not come back as the same tokens.
const FOUND_SHARE: f64 = 8.0 / 9.0;

/// Options of the reuse probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReuseProbe {
    /// Pairs measured.
    pub rounds: usize,
    /// Length of the measured prompts at least, tokens.
    pub prompt_tokens: u32,
    /// Share of a measured prompt that its first turn did not have, in `0.0..1.0`.
    pub new_share: f64,
    /// Longest answer, tokens.
    pub max_tokens: u32,
    /// Seed of the texts.
    pub seed: u64,
}

impl Default for ReuseProbe {
    fn default() -> Self {
        Self { rounds: 20, prompt_tokens: 2000, new_share: 0.1, max_tokens: 8, seed: 1 }
    }
}

/// Runs the probe; calls `progress` after each round with the number of rounds done.
///
/// # Errors
/// When the length of the prompts cannot be found. Later failures make a round invalid.
///
/// # Panics
/// When `new_share` is outside `0.0..1.0`.
pub async fn run(
    client: &ApiClient,
    probe: &ReuseProbe,
    progress: impl Fn(usize),
) -> Result<ProbeReport, LoadgenError> {
    // At 1 the calibration would divide by zero.
    assert!((0.0..1.0).contains(&probe.new_share), "a share below one");
    let mut words = TextGenerator::new(probe.seed);
    let lengths = calibrate(client, probe, &mut words).await?;
    let run_id = run_id();
    let mut rounds = Vec::new();
    for number in 0..probe.rounds {
        let round = Round {
            client,
            probe,
            order: ProbeOrder::of_round(number),
            // Unique per run and per round: no round finds the blocks of another.
            salt: format!("probe-{run_id:x}-{number}"),
        };
        let texts = [lengths.first, lengths.added].map(|count| words.text(count));
        rounds.push(round.measure(texts).await);
        progress(number + 1);
    }
    Ok(ProbeReport::of(&rounds))
}

/// Sizes of a round's texts.
#[derive(Clone, Copy)]
struct TextLengths {
    /// Words of the first user turn.
    first: usize,
    /// Words of the second.
    added: usize,
}

/// Grows a text until the server counts enough tokens in it.
async fn calibrate(
    client: &ApiClient,
    probe: &ReuseProbe,
    words: &mut TextGenerator,
) -> Result<TextLengths, LoadgenError> {
    // The first turn alone: the second one adds the `new_share` to it.
    let wanted = f64::from(probe.prompt_tokens) * (1.0 - probe.new_share) * LENGTH_MARGIN;
    let mut first = CALIBRATION_WORDS;
    let mut reached = 0;
    for _ in 0..CALIBRATION_LIMIT {
        let messages = [said(Role::User, words.text(first))];
        // Only the prompt's count matters here, so the shortest answer will do.
        let request = ChatApiRequest { messages: &messages, max_tokens: 1, cache_salt: None };
        reached = client.chat(&request).await?.prompt_tokens;
        let words_per_token = first as f64 / f64::from(reached.max(1));
        if f64::from(reached) >= wanted {
            // The two turns are to each other as `1 - new_share` to `new_share`.
            let new_tokens = f64::from(reached) * probe.new_share / (1.0 - probe.new_share);
            let added = ((new_tokens * words_per_token) as usize).max(1);
            return Ok(TextLengths { first, added });
        }
        // One word more than the ratio says, so that each attempt asks for more than the last.
        first = (wanted * words_per_token.min(WORDS_PER_TOKEN_LIMIT)) as usize + 1;
    }
    Err(LoadgenError::Calibration { wanted: wanted as u32, reached })
}

/// One conversation and its two measurements.
struct Round<'a> {
    client: &'a ApiClient,
    probe: &'a ReuseProbe,
    order: ProbeOrder,
    salt: String,
}

impl Round<'_> {
    /// Measures; in words, why not, when the round is invalid.
    async fn measure(&self, [first, added]: [String; 2]) -> Result<ProbeRound, String> {
        let mut messages = vec![said(Role::User, first)];
        // Under the cached request's salt, so that only that one can find these blocks.
        let answer = self.ask(&messages, "kept").await;
        let answer = answer.map_err(|error| format!("turn 1: {error}"))?;
        // The answer as generated: any other text would differ from the blocks in the cache.
        messages.push(said(Role::Assistant, answer.text));
        messages.push(said(Role::User, added));
        // One request at a time in either order: a concurrent pair would share the engine's steps.
        let pair = match self.order {
            ProbeOrder::CachedFirst => {
                let cached = self.ask(&messages, "kept").await;
                (cached, self.ask(&messages, "fresh").await)
            }
            ProbeOrder::UncachedFirst => {
                let uncached = self.ask(&messages, "fresh").await;
                (self.ask(&messages, "kept").await, uncached)
            }
        };
        let cached = pair.0.map_err(|error| format!("cached: {error}"))?;
        let uncached = pair.1.map_err(|error| format!("uncached: {error}"))?;
        self.accept(&cached, &uncached)
    }

    async fn ask(&self, messages: &[Turn], salt: &str) -> Result<Completion, LoadgenError> {
        let salt = format!("{}-{salt}", self.salt);
        let request =
            ChatApiRequest { messages, max_tokens: self.probe.max_tokens, cache_salt: Some(&salt) };
        self.client.chat(&request).await
    }

    fn accept(&self, cached: &Completion, uncached: &Completion) -> Result<ProbeRound, String> {
        let (prompt_tokens, found) = (cached.prompt_tokens, cached.cached_tokens);
        if uncached.prompt_tokens != prompt_tokens {
            let other = uncached.prompt_tokens;
            return Err(format!("equal messages gave {prompt_tokens} and {other} tokens"));
        }
        if prompt_tokens < self.probe.prompt_tokens {
            let wanted = self.probe.prompt_tokens;
            return Err(format!("the prompt has {prompt_tokens} tokens, not {wanted}"));
        }
        // A hit here would shorten the time that is to show no reuse.
        if uncached.cached_tokens > 0 {
            let found = uncached.cached_tokens;
            return Err(format!(
                "{found} tokens were found under a fresh salt; does the server honour `cache_salt`?"
            ));
        }
        let repeated = f64::from(prompt_tokens) * (1.0 - self.probe.new_share);
        // The tokens found include the answer of turn 1, hence a share and no exact count.
        if f64::from(found) <= repeated * FOUND_SHARE {
            return Err(format!(
                "only {found} of {prompt_tokens} prompt tokens were cached; does the server \
                 report them, and did turn 2 reach the replica of turn 1?"
            ));
        }
        Ok(ProbeRound {
            order: self.order,
            prompt_tokens,
            cached_tokens: found,
            ttft_ms_cached: cached.ttft.as_secs_f64() * 1e3,
            ttft_ms_uncached: uncached.ttft.as_secs_f64() * 1e3,
        })
    }
}

fn said(role: Role, text: String) -> Turn {
    Turn::new(role, text)
}

/// Sets this run's salts apart from those of all others.
fn run_id() -> u128 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 repeats the salts of earlier such runs. Hits under the fresh salt then
    // make the rounds invalid.
    since_epoch.map_or(0, |time| time.as_nanos())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn completion(prompt_tokens: u32, cached_tokens: u32) -> Completion {
        Completion {
            text: String::new(),
            ttft: Duration::from_millis(1),
            e2e: Duration::from_millis(2),
            ended: Instant::now(),
            prompt_tokens,
            cached_tokens,
            output_tokens: 1,
            finish_reason: "stop".to_owned(),
            replica: None,
        }
    }

    /// (prompt, cached) tokens of both requests; `expected`: a part of the reason, if invalid.
    fn check(cached: (u32, u32), uncached: (u32, u32), expected: Option<&str>) {
        let client = ApiClient::new("http://localhost", "m", None).expect("an address");
        let round = Round {
            client: &client,
            probe: &ReuseProbe::default(),
            order: ProbeOrder::CachedFirst,
            salt: String::new(),
        };
        let got =
            round.accept(&completion(cached.0, cached.1), &completion(uncached.0, uncached.1));
        match (got, expected) {
            (Ok(_), None) => {}
            (Err(reason), Some(part)) => assert!(reason.contains(part), "{reason}"),
            (got, expected) => panic!("{got:?} against {expected:?}"),
        }
    }

    #[test]
    fn only_a_clean_pair_is_valid() {
        check((2000, 1808), (2000, 0), None);
        check((2000, 1600), (2000, 0), Some("only 1600 of 2000"));
        check((2000, 1808), (2000, 16), Some("16 tokens were found"));
        check((2000, 1808), (2001, 0), Some("2000 and 2001"));
        check((1999, 1808), (1999, 0), Some("1999 tokens, not 2000"));
    }
}
