"""Bodies of requests as pydantic models: what a field may be is said here once, and OpenAPI says the same."""
