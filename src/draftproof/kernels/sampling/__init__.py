"""One token for each row of logits, by the Gumbel-max rule with addressed noise.

``token = argmax(logits / temperature, truncated by top-k, then top-p, then min-p, + noise(seed, position,
token))``

is a draw from the softmax of the truncated logits, and is repeatable: nothing but the row's own logits and
numbers decides it. Truncation is by value, so equal logits are kept or dropped together:

* top-k keeps what is at least the k-th largest value (ties with it stay);
* top-p keeps what is at least the value at which the sorted probabilities of the tokens that top-k left first
  reach p;
* min-p keeps what is at least min_p times as likely as the most likely token.

Two tokens with the same score: the lower id wins.
"""
