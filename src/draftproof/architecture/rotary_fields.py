"""Rotary fields of a config: `rope_parameters`, or flat rope_theta, partial_rotary_factor, rope_scaling."""

from __future__ import annotations

from draftproof.architecture.spec import RotarySpec
from draftproof.checkpoint.config import ConfigReader

DEFAULT_THETA = 1e7
DEFAULT_PARTIAL_FACTOR = 0.25
KNOWN_SCALINGS = ("default", "linear", "yarn")
FIELDS_NOT_READ = ("mscale", "mscale_all_dim", "truncate")
"""Fields of YaRN in other families. They change the angles, so a config that has one is refused, not half
understood."""


def rotary_spec(text: ConfigReader, head_dim: int, max_position: int) -> RotarySpec:
    """The rotary embedding that a text config describes.

    Args:
        text: the object that describes the language model.
        head_dim: size of an attention head.
        max_position: native context, for scaled models that do not name another.

    Raises:
        ConfigError: a field makes no sense, or a scaling that is not known.
    """
    parameters = text.optional_section("rope_parameters")
    scaling = parameters or text.optional_section("rope_scaling")
    theta = _holder((parameters, text), "rope_theta").number("rope_theta", 1.0, 1e15, DEFAULT_THETA)
    holder = _holder((parameters, text), "partial_rotary_factor")
    partial = holder.number("partial_rotary_factor", 0.0, 1.0, DEFAULT_PARTIAL_FACTOR)
    dimensions = int(head_dim * partial)
    if dimensions < 2 or dimensions % 2:
        raise holder.refuse(
            "partial_rotary_factor", f"{partial:g} of {head_dim} dimensions is no even number to rotate"
        )
    if scaling is None:
        return RotarySpec(theta, dimensions)
    # Older files call the field `type`.
    key = "rope_type" if scaling.has("rope_type") else "type"
    kind = scaling.string(key, default="default")
    section = scaling.integers("mrope_section", 0, head_dim, 8) or None
    if kind == "mrope":
        kind = "default"
    if kind not in KNOWN_SCALINGS:
        raise scaling.refuse(key, f"expected one of {', '.join(KNOWN_SCALINGS)}, found {kind[:40]!r}")
    if kind == "default":
        return RotarySpec(theta, dimensions, mrope_section=section)
    for name in FIELDS_NOT_READ:
        if scaling.has(name):
            raise scaling.refuse(name, "changes the rotary embedding in a way that is not implemented")
    return RotarySpec(
        theta=theta,
        dimensions=dimensions,
        scaling=kind,
        factor=scaling.number("factor", 1.0, 1e6),
        original_max_position=scaling.integer(
            "original_max_position_embeddings", 1, 2**28, default=max_position
        ),
        beta_fast=scaling.number("beta_fast", 0.0, 1e6, default=32.0),
        beta_slow=scaling.number("beta_slow", 0.0, 1e6, default=1.0),
        attention_factor=scaling.number("attention_factor", 0.0, 1e6)
        if scaling.has("attention_factor")
        else None,
        mrope_section=section,
    )


def _holder(readers: tuple[ConfigReader | None, ConfigReader], key: str) -> ConfigReader:
    """The first object that has the field, else the last."""
    return next((reader for reader in readers if reader is not None and reader.has(key)), readers[1])
