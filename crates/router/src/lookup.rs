//! The hash map of this crate.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// A map whose hasher has no random key, so that two runs walk it in the same order.
pub(crate) type StableMap<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
