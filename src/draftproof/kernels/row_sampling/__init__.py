"""A token for every row of a device step, from its logits: `sampling`'s rule, on the device.

Which numbers a row goes by lies in tensors per slot, where the row stands lies in the step's geometry, so one
recorded graph serves every request. Logits that leave no token to choose (NaN, +inf, nothing but -inf) give
`NO_TOKEN`; nobody can choose it, so a draft of that kind is refused, and a window whose rows hold it is a
fault.
"""
