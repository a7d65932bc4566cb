//! Tokens to text while they arrive.
//!
//! Two things stand between one token and its text. A character may span tokens, so text whose
//! end may still change is held back. And a token's text may depend on its neighbours:
//! SentencePiece decoders drop the space in front of the first word. So each token is decoded
//! behind those of the previous piece, and the new text is what comes after theirs:
//!
//! ```text
//! tokens    ▁I  ▁like  <0xF0> <0x9F> <0x8D> <0x8E>
//! pieces    I   " like"                  "🍎"
//!               ╰ decode(▁I ▁like) without decode(▁I)
//! ```
//!
//! Invariant: the pieces, joined, are the text of all tokens. The exception is a decoder that
//! takes text back, as SentencePiece's does when a byte that is no UTF-8 follows a character
//! written in bytes: that character was sent, and stays.
//!
//! Source: the streaming of Hugging Face's text-generation-inference (prefix and read offsets);
//! here only the tokens since the previous piece are kept, and what is held back has a limit.

use std::sync::Arc;

use headstart_core::TokenId;

use crate::{PromptError, SpecialTokensOut, Tokenizer};

/// Tokens held back at most. A character has four bytes, so more than a handful of tokens
/// without an end in sight are no text; the bound keeps such an answer linear and flowing.
const HELD_TOKENS_MAX: usize = 64;

/// Character that a decoder writes for bytes that are no character, or not yet one.
const REPLACEMENT: char = '\u{fffd}';

/// The text of one answer, token by token.
#[derive(Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    special: SpecialTokensOut,
    /// Tokens of the previous piece, then those held back.
    window: Vec<TokenId>,
    /// Number of tokens in `window` that belong to the previous piece.
    num_context: usize,
    /// The text of those.
    context: String,
}

impl Detokenizer {
    /// A detokenizer at the start of a text.
    #[must_use]
    pub fn new(tokenizer: Arc<Tokenizer>, special: SpecialTokensOut) -> Self {
        Self { tokenizer, special, window: Vec::new(), num_context: 0, context: String::new() }
    }

    /// Takes the next token; returns the text that is now certain, often none.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn push(&mut self, token: TokenId) -> Result<String, PromptError> {
        self.window.push(token);
        let text = self.tokenizer.decode(&self.window, self.special)?;
        // Text that is no longer than the context has nothing new, such as a special token left
        // out.
        let is_settled = !text.ends_with(REPLACEMENT) && text.len() > self.context.len();
        if is_settled || self.window.len() - self.num_context >= HELD_TOKENS_MAX {
            self.release(&text)
        } else {
            Ok(String::new())
        }
    }

    /// The text of what is held back. The detokenizer is at the start of a text again.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn finish(&mut self) -> Result<String, PromptError> {
        let text = self.tokenizer.decode(&self.window, self.special)?;
        let piece = self.piece(&text)?;
        self.window.clear();
        self.num_context = 0;
        self.context.clear();
        Ok(piece)
    }

    /// Sends what is held back: `text`, that of the window, without the context's.
    fn release(&mut self, text: &str) -> Result<String, PromptError> {
        let piece = self.piece(text)?;
        if piece.is_empty() {
            // Special tokens that are left out: no context for what follows.
            self.window.truncate(self.num_context);
            return Ok(piece);
        }
        self.window.drain(..self.num_context);
        self.num_context = self.window.len();
        // Decoded again, because the text of the window began with the old context.
        self.context = self.tokenizer.decode(&self.window, self.special)?;
        Ok(piece)
    }

    fn piece(&self, text: &str) -> Result<String, PromptError> {
        match text.strip_prefix(&self.context) {
            Some(piece) => Ok(piece.to_owned()),
            // The decoder took back what was sent: go on from there.
            None => (self.tokenizer).decode(&self.window[self.num_context..], self.special),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PromptModel;
    use headstart_core::Rng;

    /// Random texts per vocabulary.
    const RUNS: usize = 400;

    /// The pieces, joined, must be the text of all tokens.
    fn check(
        tokenizer: &Arc<Tokenizer>,
        special: SpecialTokensOut,
        tokens: &[TokenId],
    ) -> Vec<String> {
        let mut detokenizer = Detokenizer::new(tokenizer.clone(), special);
        let mut pieces: Vec<String> =
            (tokens.iter()).map(|&token| detokenizer.push(token).unwrap()).collect();
        pieces.push(detokenizer.finish().unwrap());
        let expected = tokenizer.decode(tokens, special).unwrap();
        assert_eq!(pieces.concat(), expected, "{tokens:?}");
        pieces
    }

    fn check_random(tokenizer: &Arc<Tokenizer>, seed: u64, vocabulary: &[TokenId]) {
        let mut rng = Rng::new(seed);
        for run in 0..RUNS {
            let special = [SpecialTokensOut::Keep, SpecialTokensOut::Skip][run % 2];
            let length = rng.below(48);
            let tokens: Vec<_> =
                (0..length).map(|_| vocabulary[rng.below(vocabulary.len())]).collect();
            check(tokenizer, special, &tokens);
        }
    }

    #[test]
    fn any_tokens_give_their_text() {
        let tokenizer = PromptModel::toy().tokenizer;
        check_random(&tokenizer, 1, &(0..4096).collect::<Vec<_>>());
    }

    /// Single bytes: most are no UTF-8, some happen to be. Special tokens between them.
    #[test]
    fn any_bytes_give_their_text() {
        let tokenizer = PromptModel::toy().tokenizer;
        let bytes: Vec<_> = (0..256).chain(4093..4096).collect();
        check_random(&tokenizer, 2, &bytes);
    }

    #[test]
    fn characters_arrive_whole_and_at_once() {
        let tokenizer = PromptModel::toy().tokenizer;
        let text = "né 你好 👩‍👧 end";
        let tokens = tokenizer.encode(text, crate::SpecialTokensIn::ParseOnly).unwrap();
        let pieces = check(&tokenizer, SpecialTokensOut::Keep, &tokens);
        assert!(pieces.iter().all(|piece| !piece.contains(REPLACEMENT)), "{pieces:?}");
        assert_eq!(pieces.last().unwrap(), "", "nothing was left to flush");
    }

    #[test]
    fn a_text_that_breaks_off_is_flushed() {
        let tokenizer = PromptModel::toy().tokenizer;
        let mut tokens = tokenizer.encode("a🎉", crate::SpecialTokensIn::ParseOnly).unwrap();
        tokens.pop();
        let pieces = check(&tokenizer, SpecialTokensOut::Keep, &tokens);
        assert_eq!(pieces.last().unwrap(), "\u{fffd}");
    }

    #[test]
    fn garbage_flows_in_bounded_pieces() {
        let tokenizer = PromptModel::toy().tokenizer;
        let byte = tokenizer.token_id("ÿ").unwrap();
        let pieces = check(&tokenizer, SpecialTokensOut::Keep, &vec![byte; 1000]);
        let longest = pieces.iter().map(|piece| piece.chars().count()).max();
        assert!(longest <= Some(HELD_TOKENS_MAX), "{longest:?}");
    }

    /// SentencePiece's conventions: `▁` for a space, bytes as `<0xNN>`, no leading space.
    fn sentence_piece() -> Arc<Tokenizer> {
        let json = r#"{"added_tokens": [{"id": 0, "content": "</s>", "special": true,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "merges": [], "byte_fallback": true, "vocab": {"</s>": 0,
                "▁I": 1, "▁": 2, "▁like": 3, "s": 4, "é": 5,
                "<0xE4>": 6, "<0xBD>": 7, "<0xA0>": 8, "<0xF0>": 9, "<0xFF>": 10}}}"#;
        Arc::new(Tokenizer::from_bytes(json.as_bytes()).unwrap())
    }

    #[test]
    fn sentence_piece_keeps_spaces_between_words() {
        let tokenizer = sentence_piece();
        check_random(&tokenizer, 3, &[0, 1, 2, 3, 4, 5]);
        let pieces = check(&tokenizer, SpecialTokensOut::Skip, &[1, 0, 3, 6, 7, 8, 6, 7, 8, 4]);
        assert_eq!(pieces, ["I", "", " like", "", "", "你", "", "", "你", "s", ""]);
    }

    /// The exception of the module's invariant: what was sent stays, nothing is lost after it.
    #[test]
    fn text_taken_back_stays_sent() {
        let mut detokenizer = Detokenizer::new(sentence_piece(), SpecialTokensOut::Keep);
        let pieces: Vec<_> =
            [6, 7, 8, 10, 10, 3, 4].map(|token| detokenizer.push(token).unwrap()).into();
        assert_eq!(pieces.concat(), "你\u{fffd}\u{fffd} likes");
        assert_eq!(detokenizer.finish().unwrap(), "");
    }
}
