"""Which experts each row goes to: router, softmax, top-k, and the list of distinct experts."""
