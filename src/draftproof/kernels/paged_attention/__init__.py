"""Causal attention of a window's rows over paged keys and values.

Row t of sequence b stands at position ``starts[b] + t`` and sees positions 0 to its own. Position p of a
sequence lies in page ``page_table[b, p // page_size]`` at offset ``p % page_size``. Page 0 belongs to
nobody: padded rows are written there.
"""
