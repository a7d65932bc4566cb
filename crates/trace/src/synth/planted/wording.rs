//! Text of prompts and answers, given the hidden state.

use headstart_core::Rng;

use super::grammar::{expand, sentence};
use super::signal::TurnState;
use super::vocabulary::{SUBJECTS, SubjectMatter, list};
use crate::synth::draw::chance;

/// Probability of the conversation's main topic where a slot asks for a topic; so for its things.
const TOPIC_SHARE: f64 = 0.7;

/// Share of the users who write without capitals.
const LOWER_CASE_SHARE: f64 = 0.2;

/// Share of the prompts without their final punctuation mark.
const NO_STOP_SHARE: f64 = 0.15;

/// The words of one conversation: its subject, and the topics and the thing that it is about.
pub(super) struct Wording {
    subject: &'static SubjectMatter,
    topic: &'static str,
    second_topic: &'static str,
    thing: &'static str,
    is_lower_case: bool,
}

fn pick(words: &[&'static str], rng: &mut Rng) -> &'static str {
    words[rng.below(words.len())]
}

/// One of `words` that is not among `taken`, or the first where all are.
fn pick_but(taken: &[&str], words: &[&'static str], rng: &mut Rng) -> &'static str {
    let free = || words.iter().filter(|word| !taken.contains(word));
    // `below` refuses a bound of 0, as when all words are taken.
    let count = free().count().max(1);
    free().nth(rng.below(count)).unwrap_or(&words[0])
}

fn words(text: &str) -> u32 {
    text.split_whitespace().count() as u32
}

impl Wording {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let subject = &SUBJECTS[rng.below(SUBJECTS.len())];
        let topic = pick(&subject.topics, rng);
        Self {
            subject,
            topic,
            second_topic: pick_but(&[topic], &subject.topics, rng),
            thing: pick(&subject.things, rng),
            is_lower_case: chance(rng, LOWER_CASE_SHARE),
        }
    }

    /// A prompt of about `length` words: what the state has to say, somewhere among context.
    pub(super) fn prompt(&self, state: TurnState, length: u32, rng: &mut Rng) -> String {
        let mut said = vec![self.one_of(list(state.intent.templates()), rng)];
        if let Some(templates) = state.cue.templates() {
            said.push(self.one_of(list(templates), rng));
        }
        let mut count: u32 = said.iter().map(|text| words(text)).sum();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        // Every sentence has words, so the count reaches any length.
        loop {
            let context = self.one_of(list("context"), rng);
            count += words(&context);
            if count > length {
                break;
            }
            let side = if chance(rng, 0.5) { &mut before } else { &mut after };
            side.push(context);
        }
        before.append(&mut said);
        before.append(&mut after);
        let mut prompt = before.join(" ");
        if self.is_lower_case {
            prompt.make_ascii_lowercase();
        }
        if chance(rng, NO_STOP_SHARE) {
            prompt.truncate(prompt.trim_end_matches(['.', '?', '!']).len());
        }
        prompt
    }

    /// An answer of about `length` words, which tells nothing.
    pub(super) fn answer(&self, length: u32, rng: &mut Rng) -> String {
        self.sentences(list("answer"), length, rng)
    }

    /// A system prompt of about `length` words.
    pub(super) fn system(&self, length: u32, rng: &mut Rng) -> String {
        self.sentences(list("instructions"), length, rng)
    }

    /// One sentence or more, until there are `length` words.
    fn sentences(&self, templates: &[&'static str], length: u32, rng: &mut Rng) -> String {
        let mut text = self.one_of(templates, rng);
        let mut count = words(&text);
        while count < length {
            let more = self.one_of(templates, rng);
            count += words(&more);
            text.push(' ');
            text.push_str(&more);
        }
        text
    }

    fn one_of(&self, templates: &[&'static str], rng: &mut Rng) -> String {
        let mut text = String::new();
        let template = pick(templates, rng);
        let mut slot = |name: &'static str, rng: &mut Rng, out: &mut String| {
            out.push_str(self.slot(name, rng));
        };
        expand(template, rng, &mut slot, &mut text);
        sentence(&text)
    }

    /// Returns the words for the slot `name`; an unknown name stands for itself.
    fn slot(&self, name: &'static str, rng: &mut Rng) -> &'static str {
        match name {
            "topic" if chance(rng, TOPIC_SHARE) => self.topic,
            "topic" => self.second_topic,
            "other" => pick_but(&[self.topic, self.second_topic], &self.subject.topics, rng),
            "thing" if chance(rng, TOPIC_SHARE) => self.thing,
            "thing" => pick(&self.subject.things, rng),
            "person" => pick(list("people"), rng),
            "number" => pick(list("numbers"), rng),
            "quality" => pick(list("qualities"), rng),
            name => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::grammar::forms;
    use super::super::signal::{Cue, Intent};
    use super::*;

    #[test]
    fn no_bracket_is_left_open_and_every_slot_is_known() {
        let mut rng = Rng::new(5);
        let cues = [Cue::More, Cue::Done].into_iter().filter_map(Cue::templates);
        let names = Intent::ALL.into_iter().map(Intent::templates).chain(cues);
        let names = names.chain(["context", "answer", "instructions"]);
        for &template in names.flat_map(list) {
            assert!(forms(template) > 0);
            for _ in 0..200 {
                let text = Wording::new(&mut rng).one_of(&[template], &mut rng);
                assert!(!text.contains(['[', ']', '{', '}', '|']), "{text}");
            }
            let slots = template.split('{').skip(1).filter_map(|rest| rest.split('}').next());
            for slot in slots {
                let known = ["topic", "other", "thing", "person", "number", "quality"];
                assert!(known.contains(&slot), "{slot} in {template}");
            }
        }
    }

    #[test]
    fn lengths_are_about_those_asked_for() {
        let mut rng = Rng::new(6);
        let state = TurnState { intent: Intent::Closing, cue: Cue::Silent };
        for length in [60, 200] {
            let wording = Wording::new(&mut rng);
            let prompt = words(&wording.prompt(state, length, &mut rng));
            assert!((length - 30..=length).contains(&prompt), "{prompt}");
            for text in [wording.answer(length, &mut rng), wording.system(length, &mut rng)] {
                let got = words(&text);
                assert!((length..length + 30).contains(&got), "{got}: {text}");
            }
        }
    }
}
