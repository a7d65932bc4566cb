"""Parts for vLLM. Every module imports without vLLM, torch or a GPU."""
