//! Texts as lengths and predictions.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use headstart_core::Probability;
use headstart_predict::{Model, Predictor, Situation, encoder};
use headstart_prompt::{SpecialTokensIn, Tokenizer};
use headstart_sim::chat::{Conversation, Head, Turn};
use headstart_sim::experiment::Recorded;
use headstart_trace::format::conversation::{self, Role};

use crate::predictor::read_model;

/// Bytes of a token where no tokenizer is named.
const BYTES_PER_TOKEN: usize = 4;

/// Situations predicted at once.
const BATCH: usize = 256;

/// How long texts are.
pub(super) struct Lengths {
    pub(super) tokenizer: Option<Tokenizer>,
    /// Tokens that a template adds to each turn.
    pub(super) template_tokens: u32,
    /// Of an answer that is not there.
    pub(super) answer_tokens: u32,
    /// In front of every conversation.
    pub(super) shared_tokens: u32,
}

/// A user's message with what stood before it, and its answer.
struct Exchange {
    said: String,
    answer: Option<String>,
}

/// Reads the tokenizer of a model's folder.
pub(super) fn tokenizer(folder: &Path) -> Result<Tokenizer> {
    let file = match folder.is_dir() {
        true => folder.join("tokenizer.json"),
        false => folder.to_owned(),
    };
    Ok(Tokenizer::from_file(&file)?)
}

impl Lengths {
    /// A conversation's lengths; its gaps are yet to be drawn, and nobody has predicted.
    pub(super) fn of(&self, conversation: &conversation::Conversation) -> Recorded {
        let exchanges = exchanges(conversation);
        let turns = exchanges.iter().enumerate().map(|(index, exchange)| {
            let shared = if index == 0 { self.shared_tokens } else { 0 };
            let around = shared.saturating_add(self.template_tokens);
            let answer = exchange.answer.as_deref();
            Turn {
                new_tokens: around.saturating_add(self.tokens(&exchange.said)),
                answer_tokens: answer
                    .map_or(self.answer_tokens, |it| self.tokens(it))
                    .max(1),
                gap_s: 0.0,
            }
        });
        let turns: Vec<Turn> = turns.collect();
        Recorded {
            told: vec![None; turns.len()],
            conversation: Conversation {
                turns,
                head: (self.shared_tokens > 0).then_some(Head {
                    conversation: 0,
                    tokens: self.shared_tokens,
                }),
            },
        }
    }

    fn tokens(&self, text: &str) -> u32 {
        let by_bytes = || text.len().div_ceil(BYTES_PER_TOKEN);
        let tokens = match &self.tokenizer {
            // A text that cannot be tokenized has a length all the same.
            Some(tokenizer) => tokenizer
                .encode(text, SpecialTokensIn::ParseOnly)
                .map_or_else(|_| by_bytes(), |tokens| tokens.len()),
            None => by_bytes(),
        };
        u32::try_from(tokens).unwrap_or(u32::MAX).max(1)
    }
}

/// Lets the model in `file` say after each turn whether the conversation goes on.
pub(super) fn predict(
    file: &Path,
    encoder: &str,
    conversations: &[conversation::Conversation],
    recorded: &mut [Recorded],
) -> Result<()> {
    let name = || format!("--model {}", file.display());
    let bytes = read_model(file).map_err(|what| anyhow!("{}: {what}", name()))?;
    let model = Model::from_bytes(&bytes).with_context(name)?;
    let predictor = Predictor::new(Arc::new(model), encoder::open(encoder)?).with_context(name)?;
    let situations = conversations.iter().map(situations);
    let (counts, all): (Vec<usize>, Vec<Vec<Situation>>) =
        situations.map(|it| (it.len(), it)).unzip();
    let all: Vec<Situation> = all.into_iter().flatten().collect();
    let told = all.chunks(BATCH).flat_map(|batch| predictor.predict(batch));
    let mut told: std::vec::IntoIter<Option<Probability>> = told.collect::<Vec<_>>().into_iter();
    for (count, recorded) in counts.into_iter().zip(recorded) {
        recorded.told = told.by_ref().take(count).collect();
    }
    Ok(())
}

/// What is known at each of a conversation's turns.
fn situations(conversation: &conversation::Conversation) -> Vec<Situation> {
    let exchanges = exchanges(conversation);
    let texts = |upto: usize| exchanges[..upto].iter();
    let situation = |index: usize| Situation {
        prompts: texts(index + 1).map(|it| it.said.clone()).collect(),
        answers: texts(index)
            .map(|it| it.answer.clone().unwrap_or_default())
            .collect(),
        turn: u16::try_from(index + 1).unwrap_or(u16::MAX),
        answer_chars: index.checked_sub(1).and_then(|before| {
            let answer = exchanges[before].answer.as_ref()?;
            u32::try_from(answer.chars().count()).ok()
        }),
        gap_s: None,
    };
    (0..exchanges.len()).map(situation).collect()
}

/// User and assistant by turns; system messages belong to the user's that follows, and what one
/// side says in several messages is one.
fn exchanges(conversation: &conversation::Conversation) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    let (mut said, mut asks) = (String::new(), false);
    for turn in &conversation.turns {
        match turn.role {
            Role::Assistant if asks => {
                exchanges.push(Exchange {
                    said: std::mem::take(&mut said),
                    answer: Some(turn.text.clone()),
                });
                asks = false;
            }
            Role::Assistant => {
                let last = exchanges.last_mut().and_then(|it| it.answer.as_mut());
                if let Some(answer) = last {
                    answer.push_str(&turn.text);
                }
            }
            role => {
                said.push_str(&turn.text);
                asks |= role == Role::User;
            }
        }
    }
    if asks {
        exchanges.push(Exchange { said, answer: None });
    }
    exchanges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(turns: &[(Role, &str)]) -> conversation::Conversation {
        let turn = |&(role, text): &(Role, &str)| conversation::Turn::new(role, text.to_owned());
        conversation::Conversation {
            turns: turns.iter().map(turn).collect(),
            ..conversation::Conversation::default()
        }
    }

    #[test]
    fn texts_become_turns_with_lengths() {
        let lengths = Lengths {
            tokenizer: None,
            template_tokens: 5,
            answer_tokens: 77,
            shared_tokens: 100,
        };
        let spoken = conversation(&[
            (Role::System, "12345678"),
            (Role::User, "1234"),
            (Role::Assistant, "123456789"),
            (Role::User, "12345"),
        ]);
        let recorded = lengths.of(&spoken);
        let turns = recorded.conversation.turns;
        let turns: Vec<_> = turns
            .iter()
            .map(|it| (it.new_tokens, it.answer_tokens))
            .collect();
        assert_eq!(turns, [(100 + 5 + 3, 3), (5 + 2, 77)]);
        assert_eq!(recorded.told, [None, None]);
    }

    #[test]
    fn a_situation_knows_what_was_said_before() {
        let spoken = conversation(&[
            (Role::User, "one"),
            (Role::Assistant, "two"),
            (Role::User, "three"),
        ]);
        let situations = situations(&spoken);
        assert_eq!(situations[1].prompts, ["one", "three"]);
        assert_eq!(
            (situations[1].turn, situations[1].answer_chars),
            (2, Some(3))
        );
        assert_eq!((situations[0].turn, situations[0].answer_chars), (1, None));
    }
}
