"""A projection of a step's few rows by a packed matrix, with the norm before it and the residual sum behind it."""
