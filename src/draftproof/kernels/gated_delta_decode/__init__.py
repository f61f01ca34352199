"""One Gated DeltaNet layer's work on a device step, between its projections.

The same mathematics as `gated_delta_step`, which is its definition, for windows whose geometry lies on the
device: how many stashed rows each sequence replays, its slot, and which side of the double-buffered pools
holds its newest window.
"""
