"""draftproof's own engine seen as a stack: the same questions, answered from its source tree."""
