"""The vision tower's tensors: enough to account for every one of them; the tower is never run."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.architecture.spec import VisionSpec

VISION_PREFIX = "model.visual."


def vision_tensors(spec: VisionSpec) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Name, shape, and whether it is a matrix that may be stored quantised: 3 + 12 a block + 6 tensors."""
    hidden, merged = spec.hidden_size, spec.hidden_size * spec.spatial_merge_size**2
    patch = (hidden, spec.in_channels, spec.temporal_patch_size, spec.patch_size, spec.patch_size)
    yield f"{VISION_PREFIX}patch_embed.proj.weight", patch, False
    yield f"{VISION_PREFIX}patch_embed.proj.bias", (hidden,), False
    yield f"{VISION_PREFIX}pos_embed.weight", (spec.num_position_embeddings, hidden), False
    for index in range(spec.depth):
        prefix = f"{VISION_PREFIX}blocks.{index}."
        yield from _norm(f"{prefix}norm1", hidden)
        yield from _norm(f"{prefix}norm2", hidden)
        yield from _linear(f"{prefix}attn.qkv", 3 * hidden, hidden)
        yield from _linear(f"{prefix}attn.proj", hidden, hidden)
        yield from _linear(f"{prefix}mlp.linear_fc1", spec.intermediate_size, hidden)
        yield from _linear(f"{prefix}mlp.linear_fc2", hidden, spec.intermediate_size)
    yield from _norm(f"{VISION_PREFIX}merger.norm", hidden)
    yield from _linear(f"{VISION_PREFIX}merger.linear_fc1", merged, merged)
    yield from _linear(f"{VISION_PREFIX}merger.linear_fc2", spec.out_hidden_size, merged)


def _norm(module: str, width: int) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    yield f"{module}.weight", (width,), False
    yield f"{module}.bias", (width,), False


def _linear(module: str, rows: int, columns: int) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    yield f"{module}.weight", (rows, columns), True
    yield f"{module}.bias", (rows,), False
