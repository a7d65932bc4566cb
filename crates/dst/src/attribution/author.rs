//! Prompts of which it is known where each token was written first.
//!
//! Conversations begin with one of some system prompts and carry their whole history along. Some
//! put a new stamp near the front of every prompt, so that what follows is known and its prefix is
//! not; some belong to tenants whose salt keeps their blocks apart, or ask an adapter; some quote a
//! document; some are sent several times at once.

use headstart_core::block::Namespace;
use headstart_core::{Rng, TokenId};

/// A token, and the number of its writing: copies share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenToken {
    /// The token.
    pub token: TokenId,
    /// When it was written, in tokens.
    pub birth: u64,
}

/// Salt and adapter of a prompt, which separate its blocks from others of the same tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The tenant's salt.
    pub salt: Option<&'static str>,
    /// The adapter that is asked.
    pub adapter: Option<&'static str>,
}

impl Space {
    /// As a router names it.
    #[must_use]
    pub fn namespace(self) -> Namespace<'static> {
        Namespace { adapter: self.adapter, salt: self.salt }
    }

    /// A number that stands for it.
    #[must_use]
    pub fn number(self) -> u64 {
        let first = |name: Option<&str>| name.and_then(|name| name.bytes().next());
        let [salt, adapter] =
            // All names differ in their first byte, so a byte each tells them apart.
            [self.salt, self.adapter].map(|name| first(name).map_or(0, u64::from));
        salt | adapter << 8
    }
}

/// One request to come.
#[derive(Clone, Debug)]
pub struct RequestDraft {
    /// The prompt.
    pub prompt: Vec<WrittenToken>,
    /// Salt and adapter of the prompt.
    pub space: Space,
    /// The conversation.
    pub session: usize,
    /// Number of copies sent at once.
    pub copies: usize,
}

/// Composition of the traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AuthorConfig {
    /// System prompts.
    pub systems: usize,
    /// Documents that conversations quote.
    pub documents: usize,
    /// Share of conversations with a stamp near the front of every prompt.
    pub stamped: f64,
    /// Share of conversations of tenants with a salt.
    pub salted: f64,
    /// Share of conversations with an adapter.
    pub adapted: f64,
    /// Share of first prompts that are sent several times at once.
    pub bursts: f64,
}

impl Default for AuthorConfig {
    fn default() -> Self {
        Self {
            systems: 12,
            documents: 60,
            stamped: 0.08,
            salted: 0.15,
            adapted: 0.06,
            bursts: 0.12,
        }
    }
}

/// Tokens of the vocabulary: enough that windows of a few do not repeat by chance.
const VOCABULARY: usize = 50_000;

/// Position of a stamp from the start and its length, both in tokens.
const STAMP_AT: usize = 40;
const STAMP: usize = 9;

const SALTS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

const ADAPTERS: [&str; 2] = ["x", "y"];

/// Writes conversations.
#[derive(Debug)]
pub struct Author {
    rng: Rng,
    config: AuthorConfig,
    written: u64,
    systems: Vec<Vec<WrittenToken>>,
    documents: Vec<Vec<WrittenToken>>,
    sessions: Vec<AuthorSession>,
}

#[derive(Debug)]
struct AuthorSession {
    /// All that was said, without stamps.
    history: Vec<WrittenToken>,
    space: Space,
    is_stamped: bool,
    turns_left: usize,
}

impl Author {
    /// An author who writes the same for the same seed.
    #[must_use]
    pub fn new(config: AuthorConfig, seed: u64) -> Self {
        let mut author = Self {
            rng: Rng::new(seed),
            config,
            written: 0,
            systems: Vec::new(),
            documents: Vec::new(),
            sessions: Vec::new(),
        };
        author.systems = author.library(config.systems, 200, 1_000);
        author.documents = author.library(config.documents, 300, 1_500);
        author
    }

    /// A new conversation's first request.
    pub fn begin(&mut self) -> RequestDraft {
        let system = self.popular(self.systems.len());
        let mut history = self.systems[system].clone();
        if self.chance(0.4) {
            let document = self.popular(self.documents.len());
            history.extend(&self.documents[document]);
        }
        let salt = self.chance(self.config.salted);
        let salt = salt.then(|| SALTS[self.rng.below(SALTS.len())]);
        let adapter = self.chance(self.config.adapted);
        let adapter = adapter.then(|| ADAPTERS[self.rng.below(ADAPTERS.len())]);
        let is_stamped = self.chance(self.config.stamped);
        let turns_left = 1 + self.rng.below(6);
        self.sessions.push(AuthorSession {
            history,
            space: Space { salt, adapter },
            is_stamped,
            turns_left,
        });
        let is_burst = self.chance(self.config.bursts);
        let copies = if is_burst { 2 + self.rng.below(3) } else { 1 };
        self.ask(self.sessions.len() - 1, copies)
    }

    /// Returns the conversation's next request; `None` after its last turn.
    pub fn go_on(&mut self, session: usize) -> Option<RequestDraft> {
        let left = &mut self.sessions[session].turns_left;
        // The first turn was asked at the beginning, so a conversation of one turn ends here.
        *left = left.checked_sub(1)?;
        Some(self.ask(session, 1))
    }

    /// An answer's tokens, which become part of the conversation where `is_kept`.
    pub fn answer(&mut self, session: usize, is_kept: bool) -> Vec<WrittenToken> {
        let answer = self.write(20, 150);
        if is_kept {
            self.sessions[session].history.extend(&answer);
        }
        answer
    }

    fn ask(&mut self, session: usize, copies: usize) -> RequestDraft {
        let question = self.write(20, 300);
        // Written even where it is not used, so that stamps do not change later draws.
        let stamp = self.write(STAMP, STAMP + 1);
        let AuthorSession { history, space, is_stamped, .. } = &mut self.sessions[session];
        history.extend(question);
        let mut prompt = history.clone();
        if *is_stamped {
            let at = STAMP_AT.min(prompt.len());
            // The history stays without stamps: each prompt has one that was never seen.
            prompt.splice(at..at, stamp);
        }
        RequestDraft { prompt, space: *space, session, copies }
    }

    fn library(&mut self, count: usize, from: usize, to: usize) -> Vec<Vec<WrittenToken>> {
        (0..count).map(|_| self.write(from, to)).collect()
    }

    /// New text of `from` to `to` tokens.
    fn write(&mut self, from: usize, to: usize) -> Vec<WrittenToken> {
        let len = from + self.rng.below(to - from);
        let mut write = || {
            self.written += 1;
            WrittenToken { token: self.rng.below(VOCABULARY) as TokenId, birth: self.written }
        };
        (0..len).map(|_| write()).collect()
    }

    /// One of `count`, the first ones more often.
    fn popular(&mut self, count: usize) -> usize {
        let share = self.rng.next_f64().powi(2);
        // Rounding may give `count` itself.
        ((share * count as f64) as usize).min(count - 1)
    }

    fn chance(&mut self, share: f64) -> bool {
        self.rng.next_f64() < share
    }
}
