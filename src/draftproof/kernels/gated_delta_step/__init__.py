"""One Gated DeltaNet layer's work on a window, between its projections: the fused decode op.

Replay the accepted rows of the last window, commit them, then run the new rows on top without writing
("lazy replay"): causal convolution, SiLU, key/query normalisation, gates, recurrence, gated norm.

State per sequence and layer (`RecurrentState`): the committed recurrent state, the last `conv_kernel - 1`
committed convolution inputs, and the *stash*: convolution inputs, log decays and betas of the newest
window's rows. Keys and values of stashed rows are functions of the stashed convolution inputs, so they are
not stored twice.
"""
