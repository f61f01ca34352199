"""Link 5 for vLLM: the kernels that its own selectors choose, and how it keeps state."""
