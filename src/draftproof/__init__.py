"""draftproof: multi-token-prediction serving that is proven at every layer."""

__version__ = "0.1.0"
