//! Explanation of a divergence of two prompts by one of the named causes.

use std::ops::Range;

use super::cause;
use super::divergence::{PromptAlignment, PromptDivergence};
use super::sketch::Sketch;
use crate::Cause;

/// Words that must be lost for a joint to be told: the next question behind it.
const JOINT_WORDS: usize = 12;

/// The words that show a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The cause that the words show.
    pub cause: Cause,
    /// The bytes of the older prompt that changed; empty where something was added.
    pub old: Range<usize>,
    /// The bytes of the newer prompt that stand there instead; empty where something went.
    pub new: Range<usize>,
    /// Names the place: a keyed hash of the words in front, for causes that sit in one place.
    pub place: u64,
    /// Names the words that stand there now: a keyed hash of them.
    pub version: u64,
    /// The cause of a further change right behind, where the first one alone explains too little.
    pub also: Option<Cause>,
}

impl Evidence {
    /// The cause as the subject of a sentence: [`Cause::title`]. A date or time in only one of the
    /// prompts was inserted or removed.
    #[must_use]
    pub fn title(&self) -> &'static str {
        match (self.cause, self.old.is_empty(), self.new.is_empty()) {
            (Cause::Clock, true, false) => "a date or time was inserted",
            (Cause::Clock, false, true) => "a date or time was removed",
            _ => self.cause.title(),
        }
    }

    /// The suggested fix.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match (self.cause, self.old.is_empty() != self.new.is_empty()) {
            (Cause::Clock, true) => {
                "send the date or time in every prompt or in none, behind everything that stays \
                 the same"
            }
            _ => self.cause.fix(),
        }
    }
}

/// Differences of a prompt from an earlier one, and their cause where that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The differences.
    pub divergence: PromptDivergence,
    /// The cause. Nothing where too little was lost to look for one, or none explains it.
    pub evidence: Option<Evidence>,
}

/// Explains how the prompt `new` differs from the earlier `old`; nothing where one of both begins
/// with the other. `served_words` of the newer prompt's first words, white space among them, were
/// had anyway, from whichever earlier prompt.
///
/// White space comes first, then the causes in the order of `DETECTORS` in cause.rs; the first
/// that explains the first difference is taken. Between prompts of token ids it is a seam only.
/// Work grows with the prompts' words and is bounded. Both sketches must be by one secret.
#[must_use]
pub fn explain(old: &Sketch, new: &Sketch, served_words: usize) -> Option<Explanation> {
    let aligned = PromptAlignment::new(old, new)?;
    let divergence = aligned.divergence(served_words);
    // Ids say nothing of dates, tools or markup: only that they were joined in another way.
    let is_text = !old.is_of_tokens() && !new.is_of_tokens();
    let evidence = match divergence.is_loss() {
        true if is_text => cause::find(&aligned),
        _ if divergence.lost_words >= JOINT_WORDS => cause::find_joint(&aligned),
        _ => None,
    };
    Some(Explanation { divergence, evidence })
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use headstart_core::Rng;

    use super::*;
    use crate::text::testing::{prose, sketch};

    /// One part of a prompt; the same for the same form and seed.
    fn part(form: usize, seed: u64) -> String {
        let text = prose(seed, 8 + seed as usize % 60);
        let line = text.trim().replace('\n', " ");
        match form {
            0 => format!("\"key{seed}\": \"{line}\", "),
            1 => format!("\"key{seed}\": {{\"id\": {seed}, \"texts\": [\"{line}\"]}}, "),
            2 => format!("{{\"name\": \"tool_{seed}\", \"description\": \"{line}\"}},\n"),
            3 => format!("- {line}\n"),
            4 => format!("key{seed}: {seed}\n"),
            5 => format!("## Source {seed}.md\n{text}\n"),
            _ => format!("<|im_start|>user\n{text}<|im_end|>\n"),
        }
    }

    /// A prompt of the parts with these seeds.
    fn prompt(form: usize, seeds: &[u64], frame: (&str, &str), end: &str) -> String {
        let parts: String = seeds.iter().map(|seed| part(form, *seed)).collect();
        format!("Settings: {}{parts}{}{end}", frame.0, frame.1)
    }

    /// An older and a newer prompt: parts change places, come and go.
    fn pair(rng: &mut Rng) -> (String, String) {
        const FRAMES: [(&str, &str); 8] = [
            ("", ""),
            ("{", "}"),
            ("[", "]"),
            ("{\"all\": [{", "}]}"),
            // Brackets that do not match.
            ("{[", "}"),
            ("}", "{"),
            ("# Tools\n<tools>\n[", "]\n</tools>\n"),
            ("At 10:30, id 7f3a9c21: {", "}"),
        ];
        let form = rng.below(7);
        let old: Vec<u64> = (0..2 + rng.below(5) as u64).collect();
        let mut new = old.clone();
        for at in (1..new.len()).rev() {
            new.swap(at, rng.below(at + 1));
        }
        for _ in 0..rng.below(3) {
            let at = rng.below(new.len() + 1);
            new.insert(at, 10 + rng.below(40) as u64);
        }
        for _ in 0..rng.below(3) {
            if !new.is_empty() {
                new.remove(rng.below(new.len()));
            }
        }
        let end = prose(99, rng.below(2) * 60);
        let frame = FRAMES[rng.below(FRAMES.len())];
        // Now and then the frame or the end is another one, too.
        let other = if rng.below(4) == 0 { FRAMES[rng.below(FRAMES.len())] } else { frame };
        let other_end = if rng.below(4) == 0 { "" } else { &end };
        let (old, new) = (prompt(form, &old, frame, &end), prompt(form, &new, other, other_end));
        if rng.below(2) == 0 { (old, new) } else { (new, old) }
    }

    #[test]
    fn all_spans_lie_within_their_prompts() {
        let mut with_evidence = 0;
        for seed in 0..3_000 {
            let (old, new) = pair(&mut Rng::new(seed));
            let told = catch_unwind(|| explain(&sketch(&old), &sketch(&new), 0));
            let told = told.unwrap_or_else(|_| panic!("seed {seed}\n--- {old}\n--- {new}"));
            let Some(told) = told else {
                continue;
            };
            let changes = told.divergence.changes.into_iter();
            let mut spans: Vec<_> = changes.map(|change| (change.old, change.new)).collect();
            with_evidence += usize::from(told.evidence.is_some());
            spans.extend(told.evidence.map(|evidence| (evidence.old, evidence.new)));
            for (one, other) in spans {
                let is_within = old.get(one.clone()).is_some() && new.get(other.clone()).is_some();
                assert!(is_within, "seed {seed}: {one:?}, {other:?}\n--- {old}\n--- {new}");
            }
        }
        assert!(with_evidence > 500, "{with_evidence} pairs with a cause");
    }
}
