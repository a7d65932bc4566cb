//! A log's prompts, one after the other, each compared with those before.
//!
//! Texts are in memory as long as their sketches are, and no longer; nothing is written.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::rc::Rc;

use headstart_insight::Cause;
use headstart_insight::text::{
    Divergence, Evidence, Finding, Findings, Limits, Loss, Neighbours, Sketch, Sketcher,
};
use headstart_trace::format::request_log::LoggedRequest;
use serde_json::{Value, json};

use crate::logged::Rendering;

use super::shown::Shown;

/// The secret of hashes that never leave the process: always the same, so that the same log tells
/// the same each time.
const SECRET: [u8; 32] = *b"headstart why, never leaves here";

/// Prompts from which on a cause must have cost something more than once to be told: one stray
/// request among many breaks no prefix.
const MANY_PROMPTS: u64 = 50;

/// A prompt of the log.
#[derive(Debug)]
pub(crate) struct Prompt {
    /// The request's id, or the number of its line.
    pub(crate) name: String,
    /// As the model reads it.
    pub(crate) text: String,
    /// Its length in tokens as the log has it.
    pub(crate) logged_tokens: Option<u32>,
}

/// Two prompts that part.
#[derive(Debug)]
pub(crate) struct Parted {
    /// The earlier one.
    pub(crate) old: Rc<Prompt>,
    /// How they differ.
    pub(crate) divergence: Divergence,
    /// Why, where that has a name.
    pub(crate) evidence: Option<Evidence>,
    /// Tokens that were known behind the difference.
    pub(crate) lost_tokens: u64,
}

/// What is known of a request.
#[derive(Debug)]
pub(crate) struct Told {
    /// Its prompt.
    pub(crate) prompt: Rc<Prompt>,
    /// The earlier prompt that it is compared with.
    pub(crate) near: Option<Rc<Prompt>>,
    /// Tokens that both have in common from the start.
    pub(crate) shared_tokens: u64,
    /// How both differ; nothing where one begins with the other.
    pub(crate) parted: Option<Parted>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No earlier prompt is near.
    Alone,
    /// It goes on from an earlier one, or is the beginning of it.
    GoesOn,
    /// It parts from an earlier one.
    Parts,
}

/// The worst case of a finding.
#[derive(Debug)]
pub(crate) struct Example {
    old: Rc<Prompt>,
    new: Rc<Prompt>,
    spans: (Range<usize>, Range<usize>),
}

/// Goes through a log.
pub(crate) struct Walk<'a> {
    rendering: &'a Rendering,
    sketcher: Sketcher,
    neighbours: Neighbours<Rc<Prompt>>,
    findings: Findings<Example>,
    prompts: u64,
}

/// All findings among so many prompts, most tokens lost first; without those of a single request
/// among many. Another template costs each prefix once, and stays; a wording that is new each time
/// is none.
pub(crate) fn told_findings<E>(findings: Findings<E>, prompts: u64) -> Vec<Finding<E>> {
    let mut findings = findings.sorted();
    let is_many = prompts >= MANY_PROMPTS;
    findings.retain(|it| {
        let is_template = it.cause == Cause::Template;
        let is_own = is_template && it.place != 0 && it.is_new_each_time();
        !is_own && (!is_many || it.requests > 1 || is_template)
    });
    findings
}

impl Parted {
    /// What changed, in bytes of the older and of the newer prompt: the evidence, or the first
    /// region.
    pub(crate) fn spans(&self) -> (Range<usize>, Range<usize>) {
        if let Some(evidence) = &self.evidence {
            return (evidence.old.clone(), evidence.new.clone());
        }
        match self.divergence.changes.first() {
            Some(change) => (change.old.clone(), change.new.clone()),
            None => {
                let (old, new) = (self.divergence.old_byte, self.divergence.new_byte);
                (old..old, new..new)
            }
        }
    }

    /// As the example of a finding about `prompt`.
    pub(crate) fn example(&self, prompt: &Rc<Prompt>) -> Example {
        Example {
            old: Rc::clone(&self.old),
            new: Rc::clone(prompt),
            spans: self.spans(),
        }
    }
}

impl Told {
    /// What became of it, in short.
    pub(crate) fn outcome(&self) -> Outcome {
        match (&self.near, &self.parted) {
            (None, _) => Outcome::Alone,
            (Some(_), None) => Outcome::GoesOn,
            (Some(_), Some(_)) => Outcome::Parts,
        }
    }
}

impl<'a> Walk<'a> {
    /// At the start of a log whose prompts `rendering` renders.
    pub(crate) fn new(rendering: &'a Rendering) -> Self {
        Self {
            rendering,
            sketcher: Sketcher::new(&SECRET),
            neighbours: Neighbours::new(Limits::default()),
            findings: Findings::default(),
            prompts: 0,
        }
    }

    /// Remembers a request that nothing is asked about.
    pub(crate) fn remember(&mut self, request: &LoggedRequest) {
        let text = self.rendering.text(&request.prompt);
        let sketch = self.sketcher.sketch(&text);
        let prompt = Rc::new(Prompt::new(request, text));
        self.neighbours.insert(namespace(request), prompt, sketch);
    }

    /// What is known of a request; it is not remembered.
    pub(crate) fn tell(&self, request: &LoggedRequest) -> Told {
        let text = self.rendering.text(&request.prompt);
        let sketch = self.sketcher.sketch(&text);
        self.told(request, text, &sketch)
    }

    /// Adds a request to the findings, and remembers it.
    pub(crate) fn add(&mut self, request: &LoggedRequest) -> Told {
        let text = self.rendering.text(&request.prompt);
        let sketch = self.sketcher.sketch(&text);
        let told = self.told(request, text, &sketch);
        self.prompts += 1;
        if let Some(parted) = &told.parted
            && let Some(evidence) = &parted.evidence
        {
            let loss = Loss::new(evidence, parted.lost_tokens);
            self.findings.add(loss, || parted.example(&told.prompt));
        }
        let prompt = Rc::clone(&told.prompt);
        self.neighbours.insert(namespace(request), prompt, sketch);
        told
    }

    /// All findings, most tokens lost first; without those of a single request among many.
    pub(crate) fn findings(self) -> Vec<Finding<Example>> {
        told_findings(self.findings, self.prompts)
    }

    fn told(&self, request: &LoggedRequest, text: String, sketch: &Sketch) -> Told {
        let prompt = Rc::new(Prompt::new(request, text));
        let Some(told) = self.neighbours.tell(namespace(request), sketch) else {
            return Told {
                prompt,
                near: None,
                shared_tokens: 0,
                parted: None,
            };
        };
        let near = Rc::clone(told.near.name);
        let parted = told.explanation.map(|explanation| Parted {
            lost_tokens: prompt.tokens_in(explanation.divergence.lost_bytes, self.rendering),
            divergence: explanation.divergence,
            evidence: explanation.evidence,
            old: Rc::clone(&near),
        });
        Told {
            shared_tokens: shared_tokens(self.rendering, &near, &prompt),
            prompt,
            near: Some(near),
            parted,
        }
    }
}

impl Prompt {
    fn new(request: &LoggedRequest, text: String) -> Self {
        Self {
            name: request.name(),
            text,
            logged_tokens: request.prompt_tokens,
        }
    }

    /// Its length in tokens: the log's own count, or the tokenizer's.
    pub(crate) fn tokens(&self, rendering: &Rendering) -> u64 {
        let counted = || count(rendering, &self.text);
        self.logged_tokens.map_or_else(counted, u64::from)
    }

    /// Tokens in so many bytes of it, by its average.
    fn tokens_in(&self, bytes: usize, rendering: &Rendering) -> u64 {
        let share = bytes as f64 / self.text.len().max(1) as f64;
        (self.tokens(rendering) as f64 * share).round() as u64
    }
}

impl Example {
    /// The request that lost, and the one that it is compared with.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.new.name, &self.old.name)
    }

    /// The texts around the change.
    pub(crate) fn shown(&self) -> Shown {
        Shown::of(&self.old, &self.new, self.spans.clone())
    }

    /// As JSON, with texts only if they are to be shown.
    pub(crate) fn json(&self, rendering: &Rendering, show_text: bool) -> Value {
        let shown = self.shown();
        let text = |text: &str| match show_text {
            true => json!(text),
            false => Value::Null,
        };
        json!({
            "request": self.new.name,
            "neighbour": self.old.name,
            "token": shared_tokens(rendering, &self.old, &self.new),
            "before": text(&shown.before),
            "old": text(&shown.old),
            "new": text(&shown.new),
        })
    }
}

/// Tokens of a text; four bytes each where the tokenizer has none.
pub(crate) fn count(rendering: &Rendering, text: &str) -> u64 {
    let by_bytes = text.len().div_ceil(4);
    rendering
        .tokens(text)
        .map_or(by_bytes, |tokens| tokens.len()) as u64
}

/// Tokens that `new` has in common with `old` from the start, as the log counts tokens if it does.
pub(crate) fn shared_tokens(rendering: &Rendering, old: &Prompt, new: &Prompt) -> u64 {
    let (one, other) = (&old.text, &new.text);
    let (shared, all) = match (rendering.tokens(one), rendering.tokens(other)) {
        (Ok(one), Ok(other)) => {
            let pairs = one.iter().zip(&other);
            let shared = pairs.take_while(|(one, other)| one == other).count();
            (shared as u64, other.len() as u64)
        }
        _ => {
            let pairs = one.bytes().zip(other.bytes());
            let shared = pairs.take_while(|(one, other)| one == other).count();
            (shared as u64 / 4, count(rendering, other))
        }
    };
    match new.logged_tokens.map(u64::from) {
        Some(logged) if logged != all => in_counting(shared, all, logged),
        _ => shared,
    }
}

/// `shared` of `all` tokens, where another tokenizer counts `logged`: the same share of them.
fn in_counting(shared: u64, all: u64, logged: u64) -> u64 {
    let share = shared as f64 / all.max(1) as f64;
    ((share * logged as f64).round() as u64).min(logged)
}

/// Requests share a cache if they ask the same model under the same salt.
fn namespace(request: &LoggedRequest) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&request.model, &request.cache_salt).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_one_counting() {
        assert_eq!(in_counting(311, 311, 310), 310);
        assert_eq!(in_counting(100, 200, 310), 155);
        assert_eq!(in_counting(0, 0, 310), 0);
    }
}
