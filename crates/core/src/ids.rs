//! Identifiers. Newtypes, so that an index, a count and a size never mix.

/// A token of a model's vocabulary.
///
/// An alias, not a newtype: slices of it cross the tokenizer's and the kernels' borders, where
/// a wrapper would only force copies.
pub type TokenId = u32;

/// A slot of one tier of one replica, below that tier's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The slot as an index into per-slot arrays.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One engine instance as the router sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicaId(pub u32);

impl std::fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One request while an engine runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub u64);

/// A conversation: what stays the same over its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);
