"""Kernels against their definitions, on the weights that were loaded: one module a kind of work."""
