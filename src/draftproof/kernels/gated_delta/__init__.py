"""The gated delta rule over a run of rows (Gated DeltaNet, arXiv 2412.06464).

Per value head, with a state S of shape (key_head_dim, value_head_dim), row t does::

    S <- exp(log_decay_t) * S
    S <- S + outer(key_t, beta_t * (value_t - S^T key_t))
    output_t = S^T query_t

A row with ``beta = 0`` and ``log_decay = 0`` leaves the state as it is: padding and rejected rows are such
rows.
"""
