"""GPUs and what a model asks of them: memory, bytes per step, and the speed that follows. Arithmetic only."""
