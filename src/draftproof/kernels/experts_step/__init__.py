"""The experts of a device step: norm, gate and up with SiLU, down, weighted sum and residual in one op.

Each distinct expert's weights are read once for all rows of the step; the shared expert is one more of them.
"""
