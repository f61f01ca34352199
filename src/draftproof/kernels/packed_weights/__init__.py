"""Weights in the order in which the GPU's matrix units read them: one copy for every kernel, from one row to
a prompt's chunk."""
