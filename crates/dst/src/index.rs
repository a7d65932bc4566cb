//! The contract of the router's index, and the index that is obviously right.
//!
//! | module | holds |
//! |---|---|
//! | [`conformance`] | what any index must obey; run it on yours |
//! | [`ReferenceIndex`] | the same answers by definition, without keys that are kept |

pub mod conformance;
mod reference;

pub use reference::ReferenceIndex;
