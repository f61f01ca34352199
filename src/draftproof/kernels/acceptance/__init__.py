"""How many drafts of each window the target agrees with.

Draft ``i`` is accepted when it and every draft before it equal the token that the target drew at the same
row.
"""
