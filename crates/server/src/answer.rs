//! One answer on its way from tokens to text.

use std::sync::Arc;

use headstart_core::TokenId;
use headstart_engine::FinishReason;
use headstart_prompt::{
    Detokenizer, PromptError, SpecialTokensOut, StopMatcher, StopOutcome, Tokenizer,
};

/// Detokenizes and looks for stop strings.
pub struct Answer {
    detokenizer: Detokenizer,
    stops: StopMatcher,
    stop_texts: Vec<String>,
    tokens: usize,
    is_wanted: bool,
}

/// Output of one token: the text to send, and the finish reason if the answer ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Text that is safe to send; often empty.
    pub text: String,
    /// Set when the answer is over.
    pub finish: Option<Finish>,
}

/// Why an answer is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    EndToken,
    /// It came to a stop string of the request.
    StopString(String),
    /// It reached its limit.
    Length,
}

impl Finish {
    /// OpenAI's word, which metrics use too.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::EndToken | Self::StopString(_) => "stop",
            Self::Length => "length",
        }
    }
}

impl Answer {
    /// An empty answer that ends before any of `stops`.
    #[must_use]
    pub fn new(tokenizer: Arc<Tokenizer>, stops: Vec<String>) -> Self {
        Self {
            detokenizer: Detokenizer::new(tokenizer, SpecialTokensOut::Skip),
            stops: StopMatcher::new(stops.clone()),
            stop_texts: stops,
            tokens: 0,
            is_wanted: true,
        }
    }

    /// An answer that stays empty, for a request that only prepares its prompt.
    #[must_use]
    pub fn unwanted(tokenizer: Arc<Tokenizer>) -> Self {
        Self { is_wanted: false, ..Self::new(tokenizer, Vec::new()) }
    }

    /// Tokens so far.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Takes the next token; `finish` is the engine's word on whether it is the last.
    ///
    /// # Errors
    /// When the tokenizer cannot decode it.
    pub fn push(
        &mut self,
        token: TokenId,
        finish: Option<FinishReason>,
    ) -> Result<Piece, PromptError> {
        // The token that the engine computed is neither shown nor counted.
        if !self.is_wanted {
            return Ok(Piece { text: String::new(), finish: finish.map(|_| Finish::Length) });
        }
        self.tokens += 1;
        let mut text = match finish {
            // The end token is no text.
            Some(FinishReason::Stop) => String::new(),
            Some(FinishReason::Length) | None => self.detokenizer.push(token)?,
        };
        if finish.is_some() {
            text.push_str(&self.detokenizer.finish()?);
        }
        let reason = finish.map(|reason| match reason {
            FinishReason::Stop => Finish::EndToken,
            FinishReason::Length => Finish::Length,
        });
        // Matched on text, because a stop string may span several tokens.
        Ok(match self.stops.push(&text) {
            StopOutcome::Stopped { text, which } => {
                Piece { text, finish: Some(Finish::StopString(self.stop_texts[which].clone())) }
            }
            StopOutcome::Continue(mut text) => {
                // Text that might have begun a stop string was held back until now.
                if reason.is_some() {
                    text.push_str(&self.stops.finish());
                }
                Piece { text, finish: reason }
            }
        })
    }
}
