"""Small models of what a stack's model code builds on: tensors that have a shape and no contents, modules.

These files are not imported: the evaluator runs them, as source, in place of the few parts of torch that a
model's constructor and weight loading touch. So they are written in plain Python that the evaluator knows.
"""
