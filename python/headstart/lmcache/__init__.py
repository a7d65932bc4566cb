"""Parts for LMCache. Only the module `adapter` imports it."""
