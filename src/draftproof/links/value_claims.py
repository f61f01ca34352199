"""Claims about the values that were read: finite, alive, sanely scaled, of plausible size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import Precision
from draftproof.evidence import EvidenceItem, Note, Verdict, information, warning
from draftproof.evidence.quantities import count_text, listing, size_text
from draftproof.links.examined import place_of
from draftproof.links.scalar_scales import ScalarScales
from draftproof.links.subject import commands_for
from draftproof.links.value_reading import ReadValues
from draftproof.links.weight_values import ModuleValues, StoredValues

LARGEST_RATIO = 1e4
"""By how much the magnitude of a weight may differ from that of plain weights beside it."""
LEAST_RMS, LARGEST_RMS = 1e-7, 1e3
"""Magnitudes that no trained weight has, whatever lies beside it."""
_PLACES = 20
_FEWEST_NEIGHBOURS = 3
_FEWEST_VALUES = 16
_GLOBAL_SCALES = ("weight_scale_2", "weight_global_scale")


def value_items(
    checkpoint: Checkpoint, values: ReadValues, scales: ScalarScales, notes: Iterable[Note] = ()
) -> Iterator[EvidenceItem]:
    """Four claims about what was read; none when nothing was.

    Args:
        checkpoint: what was read from.
        values: weights, and scales beside them.
        scales: all scales of one number.
        notes: what else is known about magnitudes.
    """
    if not values.all:
        return
    yield _finite(checkpoint, values)
    yield _alive(checkpoint, values)
    if scales.total or any(module.scales for module in values.all):
        yield _scales_sane(checkpoint, values, scales)
    comparable = [module for module in values.all if _is_comparable(module)]
    if comparable:
        yield _magnitudes(checkpoint, comparable, notes)


def reading_text(values: ReadValues) -> str:
    """What was read, in words: "785 of 785 modules of the head and 96 of 75,000 others, 140.00 MB"."""
    return (
        f"{len(values.head):,} of {values.head_total:,} modules of the head and {len(values.target):,} of "
        f"{values.target_total:,} others, {size_text(values.bytes_read)}"
    )


def _finite(checkpoint: Checkpoint, values: ReadValues) -> EvidenceItem:
    bad = [
        (module.stored.weight, module.weight.not_finite)
        for module in values.all
        if module.weight.not_finite and module.stored.weight and not _has_broken_scale(module)
    ]
    return _claim(
        checkpoint,
        check="values-finite",
        claim="No weight holds a NaN or an infinity.",
        expected="finite values only",
        sound=f"read {reading_text(values)}",
        bad=[(entry, f"{count_text(count, 'value')} not finite") for entry, count in bad],
        notes=tuple(warning(f"could not be read: {text}") for text in values.unreadable[:3]),
    )


def _alive(checkpoint: Checkpoint, values: ReadValues) -> EvidenceItem:
    bad = []
    for module in values.all:
        entry, figures = module.stored.weight, module.weight
        if (
            entry is None
            or figures.count < _FEWEST_VALUES
            or len(entry.shape) < 2
            or _has_broken_scale(module)
        ):
            continue
        extent = "" if module.complete else " in the rows that were read"
        if figures.all_zero:
            bad.append((entry, f"all zero{extent}"))
        elif figures.constant:
            bad.append((entry, f"{figures.minimum:.4g} everywhere{extent}"))
    return _claim(
        checkpoint,
        check="values-alive",
        claim="No matrix is all zero or constant.",
        expected="values that differ",
        sound=f"{count_text(len(values.all), 'module')} read, none of them dead",
        bad=bad,
    )


def _scales_sane(checkpoint: Checkpoint, values: ReadValues, scalars: ScalarScales) -> EvidenceItem:
    bad = {
        scale.entry: fault
        for module in values.all
        for scale in module.scales
        if (fault := _scale_fault(scale))
    }
    for entry, value in scalars.values.items():
        if _must_be_positive(entry) and not (math.isfinite(value) and value > 0):
            bad[entry] = f"scale of {value:g}"
    read = len({scale.entry for module in values.all for scale in module.scales} | scalars.values.keys())
    return _claim(
        checkpoint,
        check="scales-sane",
        claim="Every scale is finite and above zero.",
        expected="positive finite scales",
        sound=f"{count_text(read, 'scale')} read",
        bad=list(bad.items()),
        notes=(*_zero_block_notes(values), *_unequal_pair_notes(scalars)),
    )


def _has_broken_scale(module: ModuleValues) -> bool:
    """A weight that is zero or not finite because of its scale is the scale's fault, and told once."""
    return any(_scale_fault(scale) for scale in module.scales)


def _scale_fault(scale: StoredValues) -> str:
    """What is wrong with a scale; empty when nothing is. A few zero blocks are a note."""
    figures = scale.statistics
    if figures.not_finite:
        return f"{count_text(figures.not_finite, 'value')} not finite"
    if not _must_be_positive(scale.entry):
        return ""
    if figures.all_zero:
        return "scale of 0" if figures.count == 1 else "all zero"
    return count_text(figures.negative, "negative value") if figures.negative else ""


def _must_be_positive(entry: TensorEntry) -> bool:
    """GPTQ's and MLX's `scales` and AWQ's smoothing may have any sign."""
    return not entry.name.endswith((".scales", "pre_quant_scale"))


def _zero_block_notes(values: ReadValues) -> Iterator[Note]:
    dead = [
        scale
        for module in values.all
        for scale in module.scales
        if 0 < scale.statistics.zeros < scale.statistics.count
    ]
    if dead:
        blocks = sum(scale.statistics.zeros for scale in dead)
        yield warning(
            f"{count_text(blocks, 'block scale')} of {count_text(len(dead), 'tensor')} are 0: the weights of "
            "these blocks count for nothing",
            *(place_of(scale.entry) for scale in dead[:_PLACES]),
        )


def _unequal_pair_notes(scalars: ScalarScales) -> Iterator[Note]:
    """Kernels that take one global scale for a fused gate and up projection need equal ones."""
    by_name = {entry.name: value for entry, value in scalars.values.items()}
    pairs = unequal = 0
    for name, value in by_name.items():
        module, _, leaf = name.rpartition(".")
        if leaf in _GLOBAL_SCALES and module.endswith(".gate_proj"):
            other = by_name.get(f"{module.removesuffix('.gate_proj')}.up_proj.{leaf}")
            if other is not None:
                pairs += 1
                unequal += other != value
    if unequal:
        yield information(
            f"gate/up global scale differ in {unequal:,}/{pairs:,} pairs: a kernel that takes one for both "
            "must fold the difference into the block scales (vllm#54150)"
        )


def _magnitudes(
    checkpoint: Checkpoint, comparable: Sequence[ModuleValues], notes: Iterable[Note]
) -> EvidenceItem:
    plain = [module.weight.rms for module in comparable if module.stored.precision.is_plain]
    neighbours = plain if len(plain) >= _FEWEST_NEIGHBOURS else [m.weight.rms for m in comparable]
    middle = median(neighbours) if neighbours else math.nan
    bad = []
    for module in comparable:
        entry, rms = module.stored.weight, module.weight.rms
        ratio = rms / middle if middle else math.nan
        if entry and (not LEAST_RMS < rms < LARGEST_RMS or not 1 / LARGEST_RATIO < ratio < LARGEST_RATIO):
            bad.append((entry, _magnitude_text(module, ratio)))
    return _claim(
        checkpoint,
        check="magnitudes-plausible",
        claim="Weights have the magnitude of the weights beside them.",
        expected=f"a root mean square within a factor of {LARGEST_RATIO:,.0f} of {middle:.2g}",
        sound=f"{count_text(len(comparable), 'matrix', 'matrices')} compared",
        bad=bad,
        notes=tuple(notes),
    )


def _is_comparable(module: ModuleValues) -> bool:
    entry = module.stored.weight
    return (
        module.dequantised
        and entry is not None
        and len(entry.shape) >= 2
        and math.isfinite(module.weight.rms)
        and module.weight.rms > 0
        and not module.weight.not_finite
    )


def _magnitude_text(module: ModuleValues, ratio: float) -> str:
    hint = ""
    if module.stored.precision in (Precision.NVFP4_MODELOPT, Precision.NVFP4_COMPRESSED):
        hint = ", as if the global scale were stored as its reciprocal"
    return f"RMS {module.weight.rms:.1g}, {ratio:.0g} times its neighbours'{hint}"


def _claim(
    checkpoint: Checkpoint,
    check: str,
    claim: str,
    expected: str,
    sound: str,
    bad: Sequence[tuple[TensorEntry, str]],
    notes: Iterable[Note] = (),
) -> EvidenceItem:
    entries = [entry for entry, _ in bad]
    return EvidenceItem(
        check=check,
        claim=claim,
        verdict=Verdict.DISPROVED if bad else Verdict.PROVEN,
        expected=expected,
        observed=_grouped(bad) or sound,
        where=tuple(place_of(entry) for entry in entries[:_PLACES]),
        command=commands_for(checkpoint).values(entries[0].name if entries else _any_tensor(checkpoint)),
        notes=tuple(notes),
    )


def _grouped(bad: Sequence[tuple[TensorEntry, str]]) -> str:
    """Every fault once, with the first tensors that have it: "all zero: a, b, c and 12 more"."""
    groups: dict[str, list[str]] = {}
    for entry, fault in bad:
        groups.setdefault(fault, []).append(entry.name)
    shown = [f"{fault}: {listing(names, 3)}" for fault, names in groups.items()]
    return "; ".join(shown[:3]) + (f"; and {len(shown) - 3} more faults" if len(shown) > 3 else "")


def _any_tensor(checkpoint: Checkpoint) -> str:
    """A tensor worth showing when nothing is wrong: the projection of the head."""
    tensors = checkpoint.inventory.tensors
    return "mtp.fc.weight" if "mtp.fc.weight" in tensors else next(iter(tensors), "")
