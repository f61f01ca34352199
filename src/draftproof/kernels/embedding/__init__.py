"""Rows that enter a stack of layers: embeddings of a step's tokens, and the head's pairs of embedding and
hidden state."""
