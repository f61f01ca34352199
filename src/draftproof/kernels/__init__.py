"""Device operations. Each op is a folder: `__init__` says what it computes, `reference` defines it in
torch."""
