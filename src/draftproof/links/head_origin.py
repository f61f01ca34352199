"""Where a head's values come from: trained as a head, copied from the trunk, or converted twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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


def origin_items(examined: Examined, readers: int) -> Iterator[EvidenceItem]:
    """The head is no copy of a trunk layer; nothing to say when no matrix can be compared.

    Args:
        examined: the checkpoint.
        readers: reads at a time.
    """
    head = {leaf: entry for leaf in PROBES if (entry := _weight(examined, f"{_HEAD_LAYER}{leaf}"))}
    beginnings = {leaf: _beginning(examined, entry) for leaf, entry in head.items()}
    # Zeros are alike wherever they come from, and have a claim of their own.
    probes = {leaf: entry for leaf, entry in head.items() if beginnings[leaf].strip(b"\0")}

    def compare(layer: int) -> _Comparison:
        same: list[TensorEntry] = []
        for leaf, entry in probes.items():
            other = _weight(examined, f"{examined.spec.text_prefix}layers.{layer}.{leaf}")
            if other is None or (other.dtype, other.shape) != (entry.dtype, entry.shape):
                continue
            if _beginning(examined, other) != beginnings[leaf]:
                # In a copy every matrix is equal: one that differs settles it.
                return _Comparison(layer, True, ())
            same.append(other)
        return _Comparison(layer, bool(same), tuple(same))

    with ThreadPoolExecutor(max_workers=readers) as pool:
        made = [
            comparison
            for comparison in pool.map(compare, _full_attention_layers(examined))
            if comparison.made
        ]
    if made:
        yield _no_copy(examined, made, next(iter(probes.values())))


@dataclass(frozen=True)
class _Comparison:
    """The head's layer against one of the trunk.

    Attributes:
        layer: number of the trunk's layer.
        made: there was a matrix to compare.
        same: matrices that begin with the same bytes; empty when any differs.
    """

    layer: int
    made: bool
    same: tuple[TensorEntry, ...]


def _no_copy(examined: Examined, made: Sequence[_Comparison], shown: TensorEntry) -> EvidenceItem:
    copied = next((comparison for comparison in made if comparison.same), None)
    observed = f"compared with {count_text(len(made), 'layer')}, equal to none"
    if copied is not None:
        names = [entry.name.rpartition(f"layers.{copied.layer}.")[2] for entry in copied.same]
        observed = f"{_HEAD_LAYER}* equals layer {copied.layer} of the target: {listing(names)}"
    return EvidenceItem(
        check="head-own",
        claim="The head's layer is no copy of a layer of the target.",
        verdict=Verdict.PROVEN if copied is None else Verdict.DISPROVED,
        expected="other bytes than in any full-attention layer",
        observed=observed,
        where=tuple(place_of(entry) for entry in (copied.same if copied else ())),
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
