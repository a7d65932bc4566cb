//! Text to tokens by the fastest implementation that agrees, tokens to text by the reference.
//!
//! `tokenizers` defines the ids. `fastokens` computes them several times faster, but supports
//! fewer kinds of tokenizer. So both are loaded, both encode the texts of the probe, and only
//! where every id is equal does the fast one serve:
//!
//! ```text
//! tokenizer.json ─┬─ tokenizers ─┬─ equal on the probe? ─ yes ─ encode: fastokens
//!                 └─ fastokens ──┘                     └─ no ── encode: tokenizers
//!                                                               decode: always tokenizers
//! ```
//!
//! A fast tokenizer that cannot load the file, fails or panics costs speed, never a request.
//! `fastokens` keeps a cache of words per thread, and spreads texts of 64 KiB and more over
//! threads of its own; neither changes what is returned.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use headstart_core::TokenId;

use crate::{PromptError, probe};

/// The tokenizer of one model; encodes and decodes from any number of threads.
pub struct Tokenizer {
    reference: tokenizers::Tokenizer,
    fast: Option<fastokens::Tokenizer>,
}

/// Handling of special tokens in encoding. Those spelled out in the text become their ids in either
/// case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokensIn {
    /// Nothing more: for chat prompts, whose template writes all of them.
    ParseOnly,
    /// Adds those that the model expects around any text: for plain completions.
    AddBosEos,
}

/// Handling of special tokens in decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokensOut {
    /// Spells them out.
    Keep,
    /// Leaves them out, as clients expect.
    Skip,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// [`PromptError::Unreadable`] or [`PromptError::Malformed`].
    pub fn from_file(path: &Path) -> Result<Self, PromptError> {
        let bytes = std::fs::read(path).map_err(|source| PromptError::Unreadable {
            path: path.to_owned(),
            source,
            advice: "Download tokenizer.json with the model; a model that has only tokenizer.model \
                     needs converting first (transformers: save_pretrained)",
        })?;
        Self::parse(&bytes, &path.display().to_string())
    }

    /// Reads the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// [`PromptError::Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PromptError> {
        Self::parse(bytes, "tokenizer.json")
    }

    fn parse(bytes: &[u8], file: &str) -> Result<Self, PromptError> {
        let malformed = |error: tokenizers::Error| PromptError::Malformed {
            file: file.to_owned(),
            reason: error.to_string(),
            advice: "Download it again; a Git LFS pointer in its place is a common cause",
        };
        let mut reference = tokenizers::Tokenizer::from_bytes(bytes).map_err(malformed)?;
        // Both are habits of training; a server must not shorten or fill up a prompt.
        reference.with_truncation(None).map_err(malformed)?;
        reference.with_padding(None);
        let fast = load_fast(bytes).filter(|fast| agree(fast, &reference));
        Ok(Self { reference, fast })
    }

    /// The tokens of `text`.
    ///
    /// # Errors
    /// [`PromptError::Tokenize`], only where a `tokenizer.json` contradicts itself.
    pub fn encode(
        &self,
        text: &str,
        special: SpecialTokensIn,
    ) -> Result<Vec<TokenId>, PromptError> {
        // A text on which the fast implementation fails is encoded by the reference.
        match self.fast.as_ref().and_then(|fast| encode_fast(fast, text, special)) {
            Some(tokens) => Ok(tokens),
            None => encode_reference(&self.reference, text, special),
        }
    }

    /// The text of `tokens`; ids outside the vocabulary are left out, and bytes that are no
    /// UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`PromptError::Tokenize`], only where a `tokenizer.json` contradicts itself.
    pub fn decode(
        &self,
        tokens: &[TokenId],
        special: SpecialTokensOut,
    ) -> Result<String, PromptError> {
        self.reference.decode(tokens, special == SpecialTokensOut::Skip).map_err(failed)
    }

    /// The id of a token by its spelling in the vocabulary, which for words is not its text.
    #[must_use]
    pub fn token_id(&self, token: &str) -> Option<TokenId> {
        self.reference.token_to_id(token)
    }

    /// Number of tokens, added ones included. Ids may have gaps, and models often have rows of
    /// embeddings beyond it.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.reference.get_vocab_size(true)
    }

    /// Returns the tokenizer of the reference implementation.
    pub(crate) fn reference(&self) -> &tokenizers::Tokenizer {
        &self.reference
    }

    /// Name of the implementation that encodes.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        match self.fast {
            Some(_) => "fastokens",
            None => "tokenizers",
        }
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("backend", &self.backend())
            .finish()
    }
}

fn load_fast(bytes: &[u8]) -> Option<fastokens::Tokenizer> {
    let json = serde_json::from_slice(bytes).ok()?;
    // A panic over a file costs speed, but the model still loads.
    let mut fast = catch_unwind(|| fastokens::Tokenizer::from_json(json).ok()).ok()??;
    fast.set_truncation(None);
    fast.set_padding(None);
    Some(fast)
}

/// Whether both give the same ids for all that the probe asks.
fn agree(fast: &fastokens::Tokenizer, reference: &tokenizers::Tokenizer) -> bool {
    let added = reference.get_added_tokens_decoder();
    let mut added: Vec<_> = added.iter().map(|(id, token)| (*id, token.content.as_str())).collect();
    // Sorted, because the probe takes only the first ones and the map has no order.
    added.sort_unstable();
    let texts = probe::texts(added.into_iter().map(|(_, content)| content));
    let ways = [SpecialTokensIn::ParseOnly, SpecialTokensIn::AddBosEos];
    texts.iter().all(|text| {
        ways.iter().all(|&special| {
            let expected = encode_reference(reference, text, special).ok();
            // Two failures are no agreement.
            expected.is_some() && encode_fast(fast, text, special) == expected
        })
    })
}

fn encode_fast(
    fast: &fastokens::Tokenizer,
    text: &str,
    special: SpecialTokensIn,
) -> Option<Vec<TokenId>> {
    let add = special == SpecialTokensIn::AddBosEos;
    // What a panic may leave behind are caches, whose entries are written whole.
    let encode = AssertUnwindSafe(|| fast.encode_with_special_tokens(text, add).ok());
    catch_unwind(encode).ok().flatten()
}

fn encode_reference(
    reference: &tokenizers::Tokenizer,
    text: &str,
    special: SpecialTokensIn,
) -> Result<Vec<TokenId>, PromptError> {
    let add = special == SpecialTokensIn::AddBosEos;
    let encoding = reference.encode_fast(text, add).map_err(failed)?;
    Ok(encoding.get_ids().to_vec())
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` wants")]
fn failed(error: tokenizers::Error) -> PromptError {
    PromptError::Tokenize { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PromptModel;
    use std::io::Read;

    /// Encoded text must have the same ids by either implementation.
    fn check(tokenizer: &Tokenizer, text: &str) {
        for special in [SpecialTokensIn::ParseOnly, SpecialTokensIn::AddBosEos] {
            let expected = encode_reference(&tokenizer.reference, text, special).unwrap();
            assert_eq!(tokenizer.encode(text, special).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn the_toy_tokenizer_is_fast_and_loses_nothing() {
        let tokenizer = PromptModel::toy().tokenizer;
        assert_eq!(tokenizer.backend(), "fastokens");
        assert_eq!(tokenizer.vocab_size(), 4096);
        let text = "<|im_start|>user\nПривет, 你好 🎉\t\n  x<|im_end|>";
        check(&tokenizer, text);
        let tokens = tokenizer.encode(text, SpecialTokensIn::ParseOnly).unwrap();
        assert_eq!(tokens[0], tokenizer.token_id("<|im_start|>").unwrap());
        assert_eq!(tokenizer.decode(&tokens, SpecialTokensOut::Keep).unwrap(), text);
        let bare = "user\nПривет, 你好 🎉\t\n  x";
        assert_eq!(tokenizer.decode(&tokens, SpecialTokensOut::Skip).unwrap(), bare);
    }

    /// Real conversations, 2 MB of them, some as one long text so that the fast implementation
    /// goes its parallel way.
    #[test]
    fn both_implementations_agree_on_real_chats() {
        let Some(lines) = real_chats() else {
            eprintln!("skipped: no shared/data/sharegpt-sample-1k beside the workspace");
            return;
        };
        let tokenizer = PromptModel::toy().tokenizer;
        let mut chats = Vec::new();
        for line in lines.lines() {
            // The last line may be cut.
            let Ok(chat) = serde_json::from_str::<serde_json::Value>(line) else {
                continue;
            };
            let turns = chat["turns"].as_array().unwrap();
            let turn = |turn: &serde_json::Value| {
                let (role, text) = (turn["role"].as_str(), turn["text"].as_str());
                format!("<|im_start|>{}\n{}<|im_end|>\n", role.unwrap(), text.unwrap())
            };
            chats.push(turns.iter().map(turn).collect::<String>());
        }
        assert!(chats.len() > 100);
        for chat in &chats {
            check(&tokenizer, chat);
        }
        check(&tokenizer, &chats[..chats.len() / 4].concat().replace("<|im_", ""));
    }

    fn real_chats() -> Option<String> {
        const BYTES: u64 = 2_000_000;
        let data = "../../../shared/data/sharegpt-sample-1k/conversations.jsonl.zst";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(data);
        let file = std::fs::File::open(path).ok()?;
        let decoder = ruzstd::decoding::StreamingDecoder::new(std::io::BufReader::new(file));
        let mut bytes = Vec::new();
        decoder.unwrap().take(BYTES).read_to_end(&mut bytes).unwrap();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    #[test]
    fn threads_share_one_tokenizer() {
        let tokenizer = PromptModel::toy().tokenizer;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let tokenizer = &tokenizer;
                scope.spawn(move || {
                    for round in 0..50 {
                        check(tokenizer, &format!("thread {thread} round {round} 你好\n"));
                    }
                });
            }
        });
    }

    /// A word-level tokenizer is outside what fastokens supports.
    #[test]
    fn what_the_fast_one_cannot_load_the_reference_serves() {
        let json = r#"{"added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
            "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2}, "unk_token": "?"}}"#;
        let tokenizer = Tokenizer::from_bytes(json.as_bytes()).unwrap();
        assert_eq!(tokenizer.backend(), "tokenizers");
        assert_eq!(tokenizer.encode("b a c", SpecialTokensIn::ParseOnly).unwrap(), [1, 0, 2]);
    }

    #[test]
    fn errors_name_the_file_and_the_remedy() {
        let missing = Tokenizer::from_file(Path::new("/nowhere/tokenizer.json"));
        let message = missing.unwrap_err().to_string();
        assert!(message.contains("/nowhere/tokenizer.json") && message.contains("Download"));
        let malformed = Tokenizer::from_bytes(b"version https://git-lfs").unwrap_err();
        assert!(malformed.to_string().contains("Git LFS"), "{malformed}");
    }
}
