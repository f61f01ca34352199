"""A projection of a step's few rows by a packed matrix, the norm before it and the residual sum behind it."""
