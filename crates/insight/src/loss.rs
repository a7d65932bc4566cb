//! Which bucket each token of a request lands in.
