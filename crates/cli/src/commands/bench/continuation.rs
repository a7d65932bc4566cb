//! What a server's predictor says of the conversations that it is about to be sent.
//!
//! Servers do not tell clients what they predict. The same model reads the same texts here, so
//! that a record can hold the numbers in place of the texts.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use headstart_core::Probability;
use headstart_loadgen::ChatBench;
use headstart_loadgen::script::exchanges;
use headstart_predict::{Model, Predictor, Situation, encoder};
use headstart_trace::format::conversation::{Conversation, Role};

use crate::predictor::read_model;

/// Probabilities that another request follows, by conversation and turn.
#[derive(Debug, Default)]
pub(super) struct Continuations(Vec<Vec<Option<Probability>>>);

impl Continuations {
    /// What the model in `file` says over `encoder`, the default one where none is named.
    ///
    /// Nothing of a model that reads answers, which nobody knows before they are given; that is
    /// said on standard error.
    ///
    /// # Errors
    /// When file or encoder cannot be read, or do not belong together.
    pub(super) fn of(
        file: &Path,
        encoder: Option<&str>,
        conversations: &[Conversation],
        bench: &ChatBench,
    ) -> Result<Self> {
        let wrong = || format!("cannot use the predictor {}", file.display());
        let bytes = read_model(file).map_err(|what| anyhow!("{}: it {what}", wrong()))?;
        let model = Model::from_bytes(&bytes).with_context(wrong)?;
        let encoder = encoder::open(encoder.unwrap_or("ngram")).context("--encoder")?;
        let predictor = Predictor::new(Arc::new(model), encoder).with_context(wrong)?;
        let definition = &predictor.model().definition;
        if definition.behaviour || definition.text.answers {
            eprintln!(
                "{} reads answers: the record says no probability",
                file.display()
            );
            return Ok(Self::default());
        }
        let reach = definition.text.window + 1;
        let of = |(number, conversation)| {
            predictor.predict(&situations(number, conversation, bench, reach))
        };
        Ok(Self(conversations.iter().enumerate().map(of).collect()))
    }

    /// Of conversation `number` (from 0) at `turn` (from 1).
    pub(super) fn get(&self, number: usize, turn: usize) -> Option<Probability> {
        *self.0.get(number)?.get(turn.checked_sub(1)?)?
    }
}

/// What is known of `conversation` at each of its requests: its `reach` latest prompts.
fn situations(
    number: usize,
    conversation: &Conversation,
    bench: &ChatBench,
    reach: usize,
) -> Vec<Situation> {
    let mut prompts: Vec<String> = Vec::new();
    let mut turn = 0u16;
    let situation = |(request, exchange): (usize, headstart_loadgen::script::Exchange)| {
        for said in exchange
            .added
            .into_iter()
            .filter(|said| said.role == Role::User)
        {
            turn = turn.saturating_add(1);
            prompts.push(said.text);
        }
        prompts.drain(..prompts.len().saturating_sub(reach));
        let think = bench.think.draw(bench.seed, number, request);
        Situation {
            prompts: prompts.clone(),
            turn,
            gap_s: (request > 1).then_some(think.as_secs_f32()),
            ..Situation::default()
        }
    };
    let most = bench.max_turns.unwrap_or(usize::MAX);
    let exchanges = exchanges(conversation).into_iter().take(most);
    (1..).zip(exchanges).map(situation).collect()
}

#[cfg(test)]
mod tests {
    use headstart_loadgen::{Answers, Starts, Think};
    use headstart_trace::format::conversation::Turn;

    use super::*;

    const BENCH: ChatBench = ChatBench {
        active: 1,
        starts: Starts::Spaced,
        think: Think::Fixed { seconds: 2.0 },
        seed: 1,
        duration: None,
        max_tokens: 1,
        answers: Answers::Generated,
        max_turns: None,
        max_prompt_tokens: None,
    };

    /// Turns as `U1 A1 …`; expected: the prompts that each request lets the model read.
    fn check(said: &str, bench: &ChatBench, expected: &[(u16, &str)]) {
        let turns = said.split_whitespace().map(|text| {
            let role = match text.as_bytes()[0] {
                b'U' => Role::User,
                b'S' => Role::System,
                _ => Role::Assistant,
            };
            Turn::new(role, text.to_owned())
        });
        let conversation = Conversation {
            turns: turns.collect(),
            ..Conversation::default()
        };
        let situations = situations(0, &conversation, bench, 2);
        let got: Vec<_> = situations
            .iter()
            .map(|situation| (situation.turn, situation.prompts.join(" ")))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|&(turn, prompts)| (turn, prompts.to_owned()))
            .collect();
        assert_eq!(got, expected);
        let gaps: Vec<_> = situations.iter().map(|situation| situation.gap_s).collect();
        assert!(gaps.iter().skip(1).all(|&gap| gap == Some(2.0)), "{gaps:?}");
        assert_eq!(gaps.first(), Some(&None));
    }

    #[test]
    fn a_model_reads_the_latest_prompts() {
        let three = [(1, "U1"), (2, "U1 U2"), (3, "U2 U3")];
        check("S U1 A1 U2 A2 U3 A3", &BENCH, &three);
        check("U1 S U2 A2 U3", &BENCH, &[(2, "U1 U2"), (3, "U2 U3")]);
        let short = ChatBench {
            max_turns: Some(1),
            ..BENCH
        };
        check("U1 A1 U2", &short, &three[..1]);
    }

    #[test]
    fn what_was_not_asked_is_not_known() {
        let p = Probability::new(0.25);
        let predicted = Continuations(vec![vec![p, None]]);
        assert_eq!(predicted.get(0, 1), p);
        for (number, turn) in [(0, 0), (0, 2), (0, 3), (1, 1)] {
            assert_eq!(predicted.get(number, turn), None);
        }
    }
}
