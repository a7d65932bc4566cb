//! Texts as lengths and predictions.

use std::path::Path;
use std::sync::Arc;

use crate::prediction::chat::{Head, ScriptedConversation, ScriptedTurn};
use crate::prediction::experiment::UntimedConversation;
use anyhow::{Context, Result, anyhow};
use headstart_predict::{ContinuationModel, Predictor, Situation, encoder};
use headstart_prompt::{SpecialTokensIn, Tokenizer};
use headstart_trace::format::conversation::{self, Role};

use headstart::parts::read_model;
use headstart_predict::situations;

/// Bytes of a token where no tokenizer is named.
const BYTES_PER_TOKEN: usize = 4;

/// Conversations predicted at once.
const BATCH: usize = 64;

/// Settings for counting the tokens of texts.
pub(super) struct TokenCountOptions {
    pub(super) tokenizer: Option<Tokenizer>,
    /// Tokens that a template adds to each turn.
    pub(super) template_tokens: u32,
    /// Of an answer that is not there.
    pub(super) answer_tokens: u32,
    /// In front of every conversation.
    pub(super) shared_tokens: u32,
}

/// A user's message with what stood before it, and its answer.
struct MessageExchange {
    said: ExchangeText,
    answer: Option<ExchangeText>,
}

/// Text of one side of an exchange.
#[derive(Default)]
struct ExchangeText {
    here: String,
    /// Characters of what is withheld.
    withheld: usize,
}

impl ExchangeText {
    fn push(&mut self, turn: &conversation::Turn) {
        self.here.push_str(&turn.text);
        self.withheld += turn.withheld_chars.unwrap_or(0) as usize;
    }
}

/// Reads the tokenizer of a model's folder.
pub(super) fn tokenizer(folder: &Path) -> Result<Tokenizer> {
    let file = if folder.is_dir() { folder.join("tokenizer.json") } else { folder.to_owned() };
    Ok(Tokenizer::from_file(&file)?)
}

impl TokenCountOptions {
    /// Returns a conversation's lengths, with gaps still to be drawn and without predictions.
    pub(super) fn of(&self, conversation: &conversation::Conversation) -> UntimedConversation {
        let exchanges = exchanges(conversation);
        let turns = exchanges.iter().enumerate().map(|(index, exchange)| {
            // Only the first turn carries the shared prefix; later ones contain it already.
            let shared = if index == 0 { self.shared_tokens } else { 0 };
            let around = shared.saturating_add(self.template_tokens);
            let answer = exchange.answer.as_ref();
            ScriptedTurn {
                new_tokens: around.saturating_add(self.tokens(&exchange.said)),
                answer_tokens: answer
                    .map_or(self.answer_tokens, |answer| self.tokens(answer))
                    .max(1),
                gap_s: 0.0,
            }
        });
        let turns: Vec<ScriptedTurn> = turns.collect();
        UntimedConversation {
            told: vec![None; turns.len()],
            conversation: ScriptedConversation {
                turns,
                head: (self.shared_tokens > 0)
                    .then_some(Head { conversation: 0, tokens: self.shared_tokens }),
            },
        }
    }

    /// Counts tokens. Each withheld character counts as one byte.
    fn tokens(&self, text: &ExchangeText) -> u32 {
        let by_bytes = || text.here.len().div_ceil(BYTES_PER_TOKEN);
        let here = match &self.tokenizer {
            // A text that cannot be tokenized has a length all the same.
            Some(tokenizer) => tokenizer
                .encode(&text.here, SpecialTokensIn::ParseOnly)
                .map_or_else(|_| by_bytes(), |tokens| tokens.len()),
            None => by_bytes(),
        };
        let tokens = here + text.withheld.div_ceil(BYTES_PER_TOKEN);
        u32::try_from(tokens).unwrap_or(u32::MAX).max(1)
    }
}

/// Predicts after each turn, with the model in `file`, whether the conversation continues.
pub(super) fn predict(
    file: &Path,
    encoder: &str,
    conversations: &[conversation::Conversation],
    recorded: &mut [UntimedConversation],
) -> Result<()> {
    let name = || format!("--model {}", file.display());
    let bytes = read_model(file).map_err(|what| anyhow!("{}: {what}", name()))?;
    let model = ContinuationModel::from_bytes(&bytes).with_context(name)?;
    let predictor = Predictor::new(Arc::new(model), encoder::open(encoder)?).with_context(name)?;
    let num_prompts = situations::num_prompts(&predictor.model().definition);
    let known = |conversation| situations(conversation, num_prompts);
    for (spoken, recorded) in conversations.chunks(BATCH).zip(recorded.chunks_mut(BATCH)) {
        let known: Vec<Situation> = spoken.iter().flat_map(known).collect();
        let mut told = predictor.predict(&known).into_iter();
        // The predictions come in the order of conversations and turns.
        for recorded in recorded {
            recorded.told = told.by_ref().take(recorded.told.len()).collect();
        }
    }
    Ok(())
}

/// Returns the known features at each exchange of a conversation. No gaps are known, even if the
/// texts have times, because each seed draws new ones.
fn situations(conversation: &conversation::Conversation, num_prompts: usize) -> Vec<Situation> {
    let mut known = situations::of_requests(conversation, num_prompts);
    // Recorded gaps would tell the model of a time that the simulation does not have.
    known.iter_mut().for_each(|known| known.gap_s = None);
    known
}

/// User and assistant by turns; system messages belong to the user's that follows, and what one
/// side says in several messages is one.
fn exchanges(conversation: &conversation::Conversation) -> Vec<MessageExchange> {
    let mut exchanges: Vec<MessageExchange> = Vec::new();
    let (mut said, mut asks) = (ExchangeText::default(), false);
    for turn in &conversation.turns {
        match turn.role {
            // Only an answer to a question completes an exchange.
            Role::Assistant if asks => {
                let mut answer = ExchangeText::default();
                answer.push(turn);
                exchanges.push(MessageExchange {
                    said: std::mem::take(&mut said),
                    answer: Some(answer),
                });
                asks = false;
            }
            Role::Assistant => {
                // A second answer joins the exchange before; one before any question is dropped.
                let last = exchanges.last_mut().and_then(|exchange| exchange.answer.as_mut());
                if let Some(answer) = last {
                    answer.push(turn);
                }
            }
            // System messages are part of the next prompt and ask for nothing by themselves.
            role => {
                said.push(turn);
                asks |= role == Role::User;
            }
        }
    }
    // The last question has no answer in the record, but the simulation answers it.
    if asks {
        exchanges.push(MessageExchange { said, answer: None });
    }
    exchanges
}

#[cfg(test)]
mod tests {
    use headstart_core::Nanos;

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
        let lengths = TokenCountOptions {
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
        let turns: Vec<_> =
            turns.iter().map(|turn| (turn.new_tokens, turn.answer_tokens)).collect();
        assert_eq!(turns, [(100 + 5 + 3, 3), (5 + 2, 77)]);
        assert_eq!(recorded.told, [None, None]);
        let mut withheld = conversation(&[(Role::User, "1234"), (Role::Assistant, "")]);
        withheld.turns[1].withheld_chars = Some(41);
        let turns = lengths.of(&withheld).conversation.turns;
        assert_eq!(turns[0].answer_tokens, 11);
    }

    /// Turns as `U1 A1 …`, behind four others; expected: turn and prompts at each exchange.
    fn check(said: &str, expected: &[(u16, &str)]) {
        let turns = said.split_whitespace().map(|text| match text.as_bytes()[0] {
            b'S' => (Role::System, text),
            b'U' => (Role::User, text),
            _ => (Role::Assistant, text),
        });
        let mut spoken = conversation(&turns.collect::<Vec<_>>());
        spoken.first_turn = Some(4);
        for turn in &mut spoken.turns {
            turn.at = Some(Nanos(1));
        }
        let situations = situations(&spoken, 2);
        let got = situations.iter().map(|situation| (situation.turn, situation.prompts.join(" ")));
        let wanted = expected.iter().map(|&(turn, text)| (turn, text.to_owned()));
        assert!(got.eq(wanted), "{said}: {situations:?}");
        assert!(situations.iter().all(|situation| situation.gap_s.is_none()));
        assert_eq!(situations.len(), exchanges(&spoken).len(), "{said}");
    }

    #[test]
    fn an_exchange_is_known_by_its_last_prompt() {
        check("S U1 A1 U2 A2 U3", &[(5, "U1"), (6, "U1 U2"), (7, "U2 U3")]);
        check("A0 S U1 S U2 A2 A3 S", &[(6, "U1 U2")]);
        check("U1 A1 S A2 U2 S", &[(5, "U1"), (6, "U1 U2")]);
        check("S A0 U1 U2 U3 S A3 U4 U5", &[(7, "U2 U3"), (9, "U4 U5")]);
        check("A0 S", &[]);
    }
}
