"""The end of a target's pass on the device: accept, end outputs, move every sequence on, and tell the host.

One launch reads the sampled tokens and the drafts, and leaves everything that the head's pass and the next
step need; a sequence that has ended stays where it is, so a step that was launched before the host knew
changes nothing of it.
"""
