//! Request types, as eviction policies see them.

/// A request with messages.
pub(crate) const CHAT: u16 = 1;

/// A request with a prompt.
pub(crate) const COMPLETION: u16 = 2;
