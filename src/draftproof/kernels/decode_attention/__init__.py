"""Attention of a device step: norm and rotate a window's queries and keys, write keys and values into pages,
attend over pages, gate.

Everything that is known only while the step runs (lengths, pages, the row that a draft pass asks for) is read
from tensors, so that one CUDA graph serves every length.
"""
