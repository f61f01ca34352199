"""A step as one program of kernels over static device buffers: verify, sample, accept, draft, advance.

The same program runs on a CPU with every op's definition, and on a GPU eagerly or as one captured graph.
"""
