//! Storage formats of KV blocks in lower tiers.
//!
//! ```text
//! same   keys, values                                   as they are in memory
//! fp8    codes of keys, codes of values, 2 exponents    each [kv_head][…], see `fp8`
//!        for each head: its keys', its values'
//! ```
//!
//! A group of fp8 is what a head has of a block: its keys, or its values.

use std::borrow::Cow;

use super::{Dtype, fp8};
use crate::ModelConfig;

/// Storage format of KV blocks in lower tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvStorageFormat {
    /// As it is: what is loaded is what was computed.
    #[default]
    Same,
    /// As FP8: a byte for each number, and another answer behind what is loaded. All that is
    /// computed or stored beside it has names of its own.
    Fp8,
}

impl KvStorageFormat {
    const ALL: [Self; 2] = [Self::Same, Self::Fp8];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Fp8 => "fp8",
        }
    }

    /// Bytes of a layer of a block in a lower tier.
    #[must_use]
    pub fn layer_bytes(self, config: &ModelConfig, dtype: Dtype, block_size: usize) -> usize {
        self.bytes(dtype, config.num_kv_heads, config.head_dim * block_size)
    }

    /// Stored bytes of `num_kv_heads` heads with `numbers` numbers of keys, and as many of values,
    /// each.
    pub(super) fn bytes(self, dtype: Dtype, num_kv_heads: usize, numbers: usize) -> usize {
        let group_bytes = match self {
            Self::Same => numbers * dtype.bytes(),
            // A byte for each number, and the exponent of the group.
            Self::Fp8 => numbers + 1,
        };
        2 * num_kv_heads * group_bytes
    }

    /// The element type in a block's identity. Behind a lossy prefix all is lossy, so that it is
    /// not only what was stored that has another name.
    #[must_use]
    pub fn kv_dtype(self, dtype: Dtype) -> Cow<'static, str> {
        match self {
            Self::Same => Cow::Borrowed(dtype.name()),
            Self::Fp8 => Cow::Owned(format!("{}/{}", dtype.name(), fp8::FORMAT)),
        }
    }
}

impl std::str::FromStr for KvStorageFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        let known = Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("`{text}` is not known; known: {known}"))
    }
}
