//! BERT sentence encoders on the CPU, from a Hugging Face folder.
//!
//! ```text
//! texts ─ tokenizer.json ─► ids ─ batches of some thousand tokens ─► layers ─► mean ─► length 1
//! ```
//!
//! The texts of a batch stand one after another: the products see one matrix of all tokens, and
//! attention stays inside each text, so nothing is spent on padding and a text's vector does not
//! depend on its neighbours but for rounding.
//!
//! Source: Devlin et al., "BERT", NAACL 2019; Reimers, Gurevych, "Sentence-BERT", EMNLP 2019;
//! Wang et al., "Multilingual E5 Text Embeddings", 2024 (the prefix).

mod attention;
mod config;
mod error;
mod forward;
mod ops;
mod product;
mod tokens;
mod weights;

use std::path::Path;

use rayon::prelude::*;

use super::Encoder;
use config::BertConfig;
pub use error::EncoderError;
use forward::{BertModel, TokenPooling};
use tokens::{TextSettings, TruncatingTokenizer};
use weights::Weights;

/// Tokens of a batch at most: 32 MB of activations in a model of 384 values.
const BATCH_TOKENS: usize = 2_048;

/// Texts whose tokens are held at once.
const TOKENIZED_TEXTS: usize = 1_024;

/// Settings that override the folder's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BertOptions {
    /// Prefix of each text. `None` takes it from the folder: its prompt named `query` or its
    /// default one (`config_sentence_transformers.json`). Without such a list it is `"query: "` if
    /// `config.json` or the folder's path calls the model E5, else empty.
    pub prefix: Option<String>,
}

/// A transformer that turns texts into vectors.
///
/// It computes on rayon's current pool, in f32.
pub struct BertEncoder {
    identity: String,
    tokens: TruncatingTokenizer,
    model: BertModel,
    pooling: TokenPooling,
}

impl BertEncoder {
    /// Reads `folder`: `config.json`, `tokenizer.json` (any kind that `tokenizers` reads) and
    /// `model.safetensors` (f32, f16 or bf16), and, where there are any, `modules.json`,
    /// `1_Pooling/config.json`, `sentence_bert_config.json` and
    /// `config_sentence_transformers.json`. Texts are cut at 512 tokens or the model's positions;
    /// a lower `max_seq_length` is not heeded.
    ///
    /// # Errors
    /// [`EncoderError`], saying which file or tensor and what is wrong.
    pub fn open(folder: &Path) -> Result<Self, EncoderError> {
        Self::open_with(folder, BertOptions::default())
    }

    /// [`Self::open`] with options.
    ///
    /// # Errors
    /// [`EncoderError`], saying which file or tensor and what is wrong.
    pub fn open_with(folder: &Path, options: BertOptions) -> Result<Self, EncoderError> {
        // First: an unsupported model is refused before hundreds of megabytes are read.
        let config = BertConfig::read(folder)?;
        let config_json = read(&folder.join("config.json"))?;
        let tokenizer_path = folder.join("tokenizer.json");
        let tokenizer = read(&tokenizer_path)?;
        let settings = TextSettings {
            prefix: options.prefix.unwrap_or_else(|| config.prefix.clone()),
            lowercase: config.lowercase,
            max_tokens: config.max_tokens(),
        };
        let weights_path = folder.join("model.safetensors");
        let weights = read(&weights_path)?;
        let identity = identity(&config, &settings, [&config_json, &tokenizer, &weights]);
        let model = Weights::new(&weights, &weights_path)?.model(&config)?;
        Ok(Self {
            identity,
            tokens: TruncatingTokenizer::new(&tokenizer, &tokenizer_path, config.vocab, settings)?,
            model,
            pooling: config.pooling,
        })
    }

    /// The token ids of `text` as the model sees them: behind the prefix, special ones included.
    #[must_use]
    pub fn token_ids(&self, text: &str) -> Vec<u32> {
        self.tokens.ids(text)
    }

    fn encode_texts(&self, texts: &[&str], vectors: &mut [f32]) {
        let windows = texts.chunks(TOKENIZED_TEXTS);
        let outs = vectors.chunks_mut(TOKENIZED_TEXTS * self.model.hidden);
        for (texts, mut vectors) in windows.zip(outs) {
            // Texts are independent, so they are tokenized in parallel before the batches run one
            // by one.
            let ids: Vec<Vec<u32>> = texts.par_iter().map(|text| self.token_ids(text)).collect();
            let ids: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
            let mut rest = &ids[..];
            while !rest.is_empty() {
                let (batch, others) = rest.split_at(batch_length(rest));
                let (out, others_out) = vectors.split_at_mut(batch.len() * self.model.hidden);
                self.model.run(batch, self.pooling, out);
                (rest, vectors) = (others, others_out);
            }
        }
    }
}

impl Encoder for BertEncoder {
    fn identity(&self) -> &str {
        &self.identity
    }

    fn dims(&self) -> usize {
        self.model.hidden
    }

    fn encode(&self, texts: &[&str]) -> Vec<f32> {
        let mut vectors = vec![0.0; texts.len() * self.dims()];
        // Inside the pool: a caller outside would wait for the pool at every product.
        rayon::scope(|_| self.encode_texts(texts, &mut vectors));
        vectors
    }
}

impl std::fmt::Debug for BertEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BertEncoder").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Texts of the next batch: at least one.
fn batch_length(texts: &[&[u32]]) -> usize {
    let mut tokens = 0;
    let fits = texts.iter().take_while(|text| {
        tokens += text.len();
        tokens <= BATCH_TOKENS
    });
    // An empty batch would never end the caller's loop.
    fits.count().max(1)
}

/// Kind, settings, and a hash of the configuration, the tokenizer and the weights.
fn identity(config: &BertConfig, settings: &TextSettings, files: [&[u8]; 3]) -> String {
    let mut hasher = blake3::Hasher::new();
    for file in files {
        // The lengths keep bytes from moving between files without another hash.
        hasher.update(&(file.len() as u64).to_le_bytes());
        hasher.update(file);
    }
    format!(
        "bert {} {} pooling, {} tokens{}, prefix {:?}",
        &hasher.finalize().to_hex()[..32],
        config.pooling.name(),
        settings.max_tokens,
        if settings.lowercase { ", lowercase" } else { "" },
        settings.prefix,
    )
}

fn read(path: &Path) -> Result<Vec<u8>, EncoderError> {
    std::fs::read(path).map_err(|source| EncoderError::Read { path: path.to_owned(), source })
}
