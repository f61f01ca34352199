"""A smaller output head for drafts: chosen rows of the target's, kept as they are or quantised.

It can change how many drafts are accepted, never the text.
"""
