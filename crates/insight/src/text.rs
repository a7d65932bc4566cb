//! Prompts as sketches of keyed hashes, nearest neighbours, and what made two prompts diverge.
