"""Where a head's values come from: trained as a head, copied from the trunk, or converted twice."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from draftproof.architecture.spec import AttentionSpec
from draftproof.checkpoint.header import TensorEntry
from draftproof.errors import CheckpointError, EnvironmentProblem
from draftproof.evidence import EvidenceItem, Note, Verdict, warning
from draftproof.evidence.quantities import count_text, listing
from draftproof.links.examined import Examined, place_of
from draftproof.links.value_reading import ReadValues

PROBES = ("self_attn.o_proj", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
"""Matrices of the head's first layer that are compared with those of every full-attention layer."""
PROBE_BYTES = 4096
_HEAD_LAYER = "mtp.layers.0."
_LAYER_NORMS = ("input_layernorm", "post_attention_layernorm")
_NEAREST_TO_ONE = 0.5


def origin_items(examined: Examined) -> Iterator[EvidenceItem]:
    """The head is no copy of a trunk layer; nothing to say when no matrix can be compared."""
    head = {leaf: entry for leaf in PROBES if (entry := _weight(examined, f"{_HEAD_LAYER}{leaf}"))}
    if not head:
        return
    compared = 0
    copied: dict[int, list[TensorEntry]] = {}
    first_bytes = {leaf: _beginning(examined, entry) for leaf, entry in head.items()}
    for index in _full_attention_layers(examined):
        for leaf, entry in head.items():
            other = _weight(examined, f"{examined.spec.text_prefix}layers.{index}.{leaf}")
            if other is None or (other.dtype, other.shape) != (entry.dtype, entry.shape):
                continue
            beginning = first_bytes[leaf]
            # Zeros are alike wherever they come from, and have a claim of their own.
            if beginning.strip(b"\0"):
                compared += 1
                if beginning == _beginning(examined, other):
                    copied.setdefault(index, []).append(other)
    if not compared:
        return
    yield _no_copy(examined, compared, copied, next(iter(head.values())))


def _no_copy(
    examined: Examined, compared: int, copied: dict[int, list[TensorEntry]], shown: TensorEntry
) -> EvidenceItem:
    layer, same = next(iter(copied.items()), (0, []))
    names = [entry.name.rpartition(f"layers.{layer}.")[2] for entry in same]
    return EvidenceItem(
        check="head-own",
        claim="The head's layer is no copy of a layer of the target.",
        verdict=Verdict.DISPROVED if copied else Verdict.PROVEN,
        expected="other bytes than in any full-attention layer",
        observed=f"{_HEAD_LAYER}* equals layer {layer} of the target: {listing(names)}"
        if copied
        else f"{count_text(compared, 'comparison')}, none equal",
        where=tuple(place_of(entry) for entry in same),
        command=examined.commands.values(shown.name),
    )


def norm_convention_notes(examined: Examined, values: ReadValues) -> Iterator[Note]:
    """Layer norms of the head against those of the target.

    Stored weights are offsets from 1; converters for other engines add the 1. When only the head's were
    converted (or converted twice), its means differ from the target's by about 1. Both layer norms must say
    so: single norms, and above all those before `mtp.fc`, lie anywhere.
    """
    means = {module.stored.module: module.weight.mean for module in values.all}
    shifts = []
    for leaf in _LAYER_NORMS:
        own = means.get(f"{_HEAD_LAYER}{leaf}")
        others = [
            mean for name, mean in means.items() if name.endswith(f".{leaf}") and not name.startswith("mtp.")
        ]
        if own is None or not others:
            return
        shifts.append(own - median(others))
    if all(shift > _NEAREST_TO_ONE for shift in shifts) or all(shift < -_NEAREST_TO_ONE for shift in shifts):
        by = ", ".join(f"{shift:+.2f}" for shift in shifts)
        entries = [_weight(examined, f"{_HEAD_LAYER}{leaf}") for leaf in _LAYER_NORMS]
        yield warning(
            f"mixed norm convention: the head's layer norms differ from the target's by {by} on average, as "
            "if a converter had added 1 to one side only",
            *(place_of(entry) for entry in entries if entry),
        )


def _full_attention_layers(examined: Examined) -> Iterator[int]:
    for index, layer in enumerate(examined.spec.layers):
        if isinstance(layer.mixer, AttentionSpec):
            yield index


def _weight(examined: Examined, module: str) -> TensorEntry | None:
    stored = examined.found.modules.get(module)
    if stored is not None:
        return stored.weight
    return examined.checkpoint.inventory.tensors.get(f"{module}.weight")


def _beginning(examined: Examined, entry: TensorEntry) -> bytes:
    """The first bytes of a tensor; nothing when its file is cut off before."""
    length = min(PROBE_BYTES, entry.nbytes)
    try:
        return examined.checkpoint.source.read_range(entry.file, entry.start, length)
    except EnvironmentProblem:
        raise
    except CheckpointError:
        return b""
