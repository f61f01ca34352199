"""Link 5 for SGLang: the kernels that its own selectors choose, and how it keeps state."""
