"""Link 3 for SGLang: registration, draft class, and the fate of every tensor, read from its source."""
