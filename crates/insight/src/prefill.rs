//! Seconds for uncached tokens, fitted to observed times to the first token.
