"""Parts for SGLang. `storage` needs SGLang and torch; the other modules import without them."""
