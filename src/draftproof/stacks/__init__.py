"""What each serving stack accepts and does, read from its source: SGLang, vLLM, and our own engine."""
