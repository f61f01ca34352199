"""Routed experts: for each row, the weighted sum of its experts' gated MLPs.

The weights of each distinct expert are read once for all rows of the batch.
"""
