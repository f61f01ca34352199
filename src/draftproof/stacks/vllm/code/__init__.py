"""Link 3 for vLLM: registration, draft class, and the fate of every tensor, read from its source."""
