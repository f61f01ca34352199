"""Claims about how the tensors are stored, read from the tensors and compared with what the configs say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from draftproof.architecture.tensor_plan import ModelPart, PlannedTensor
from draftproof.checkpoint.precision import ModulePrecision, Precision
from draftproof.checkpoint.quantization import QuantizationDeclaration, disagreement, read_declarations
from draftproof.errors import ConfigError
from draftproof.evidence import EvidenceItem, Location, Note, Verdict, information, warning
from draftproof.evidence.quantities import count_text, listing
from draftproof.links.engine_consequences import known_consequence
from draftproof.links.examined import Examined, place_of

_PLACES = 20
_FEW_BITS = 4


def precision_items(examined: Examined) -> Iterator[EvidenceItem]:
    """Precision of head and target, and the scales that it needs."""
    declarations, problem = _declarations(examined)
    if examined.checkpoint.inventory.tensors:
        yield _precision_known(examined, declarations, problem)
    if _is_quantised(examined):
        yield _scales_there(examined, declarations)


def _declarations(examined: Examined) -> tuple[tuple[QuantizationDeclaration, ...], tuple[Note, ...]]:
    try:
        return read_declarations(examined.checkpoint.config), ()
    except ConfigError as error:
        return (), (warning(f"{error.message}: what the config says about precision is not compared"),)


def _is_quantised(examined: Examined) -> bool:
    return any(not stored.precision.is_plain for stored in examined.found.modules.values())


def _precision_known(
    examined: Examined, declarations: Sequence[QuantizationDeclaration], problem: tuple[Note, ...]
) -> EvidenceItem:
    head, others = _modules(examined, head=True), _modules(examined, head=False)
    unknown = [
        m for m in (*head, *others) if m.precision is Precision.UNKNOWN and m.weight and not m.companions
    ]
    # FP8 without a scale is unknown too, and is the next claim's matter.
    unknown = [m for m in unknown if m.weight and not m.weight.dtype.startswith("F8")]
    parts = [f"MTP head: {_counts(head)}"] if head else []
    parts.append(f"target: {_counts(others)}")
    shown = (unknown or head or others)[:1]
    weight = shown[0].weight if shown else None
    return EvidenceItem(
        check="precision-known",
        claim="The precision of every matrix can be read from its tensors.",
        verdict=Verdict.UNKNOWN if unknown else Verdict.PROVEN,
        expected="a dtype and scales of a known scheme for every matrix",
        observed="; ".join(parts),
        where=tuple(place_of(m.weight) for m in (unknown or head)[:_PLACES] if m.weight),
        command=examined.commands.header(weight.file, weight.name) if weight else "",
        reason=f"{listing([problem for m in unknown for problem in m.problems], 3)}" if unknown else "",
        notes=(
            *problem,
            *_disagreement_notes(examined, declarations),
            *_few_bits_notes(head),
            *_not_loaded_notes((*head, *others)),
        ),
    )


def _modules(examined: Examined, head: bool) -> list[ModulePrecision]:
    return [
        examined.found.modules[planned.module]
        for planned in _matrices(examined)
        if (planned.part is ModelPart.MTP) is head
    ]


def _matrices(examined: Examined) -> list[PlannedTensor]:
    """Planned matrices that are there."""
    modules = examined.found.modules
    return [
        planned for planned in examined.found.plan.tensors if planned.is_linear and planned.module in modules
    ]


def _counts(modules: Sequence[ModulePrecision]) -> str:
    counts = Counter(module.precision.value for module in modules)
    return ", ".join(f"{name} ({count:,})" for name, count in counts.most_common()) or "no matrix"


def _few_bits_notes(head: Sequence[ModulePrecision]) -> Iterator[Note]:
    few = [module for module in head if module.precision.bits == _FEW_BITS]
    if few:
        yield information(
            f"{count_text(len(few), 'matrix', 'matrices')} of the head in 4 bits: if few drafts are accepted"
            ", compare with a head of 8 or 16 bits"
        )


def _not_loaded_notes(modules: Sequence[ModulePrecision]) -> Iterator[Note]:
    names = sorted({m.precision.value for m in modules if not m.precision.is_loaded and m.precision.bits})
    if names:
        yield information(f"{listing(names)} is recognised; draftproof's own engine does not load it")


@dataclass(frozen=True)
class _Disagreement:
    """One module about which a declaration is wrong."""

    module: ModulePrecision
    text: str
    consequence: str


def _disagreement_notes(
    examined: Examined, declarations: Sequence[QuantizationDeclaration]
) -> Iterator[Note]:
    """One note for every set of modules with one consequence, the head's first, whichever files are wrong."""
    groups: dict[tuple[bool, str, tuple[str, ...]], list[tuple[QuantizationDeclaration, _Disagreement]]] = {}
    for declaration in declarations:
        for members in _disagreements(examined, declaration):
            modules = tuple(one.module.module for one in members)
            key = (not modules[0].startswith("mtp."), members[0].consequence, modules)
            groups.setdefault(key, []).append((declaration, members[0]))
    for (_, consequence, modules), files in sorted(groups.items(), key=lambda item: item[0][0]):
        yield _disagreement_note(examined, files, modules, consequence)
    for declaration in declarations:
        if declaration.refused:
            yield warning(
                f"{declaration.file}: entries that cannot be applied: {listing(declaration.refused, 3)}",
                Location(declaration.file, field=declaration.exclude_path or declaration.json_path),
            )


def _disagreements(
    examined: Examined, declaration: QuantizationDeclaration
) -> Iterator[Sequence[_Disagreement]]:
    """Modules about which one declaration is wrong, together where the same is known to follow."""
    groups: dict[tuple[bool, str], list[_Disagreement]] = {}
    for stored in examined.found.modules.values():
        text = disagreement(declaration.declared(stored.module), stored) or _block_text(declaration, stored)
        if text:
            one = _Disagreement(stored, text, known_consequence(declaration, stored))
            groups.setdefault((stored.module.startswith("mtp."), one.consequence), []).append(one)
    return iter(groups.values())


def _disagreement_note(
    examined: Examined,
    files: Sequence[tuple[QuantizationDeclaration, _Disagreement]],
    modules: Sequence[str],
    consequence: str,
) -> Note:
    declaration, first = files[0]
    names = " and ".join(each.file for each, _ in files)
    more = f", and {len(modules) - 1:,} more modules likewise" if len(modules) > 1 else ""
    then = f". Known to follow: {consequence}" if consequence else ""
    weights = [examined.found.modules[module].weight for module in modules[: _PLACES - 2]]
    return warning(
        f"{names} {'disagree' if len(files) > 1 else 'disagrees'} with the tensors: {first.text}{more}{then}",
        *(Location(each.file, field=each.exclude_path or each.json_path) for each, _ in files),
        *(place_of(weight) for weight in weights if weight),
        command=examined.commands.field(declaration.file, declaration.exclude_path or "quant_method"),
    )


def _block_text(declaration: QuantizationDeclaration, stored: ModulePrecision) -> str:
    """How scales fail to cover a weight in the declared blocks; empty when they do."""
    scale = stored.companions.get("weight_scale_inv")
    if declaration.block is None or scale is None or stored.weight is None or stored.block is None:
        return ""
    expected = tuple(
        -(-size // side) for size, side in zip(stored.weight.shape[-2:], declaration.block, strict=True)
    )
    if scale.shape[-2:] == expected:
        return ""
    return (
        f"{scale.name} has shape {list(scale.shape)}, blocks of {list(declaration.block)} "
        f"would give {list(expected)}"
    )


def _scales_there(examined: Examined, declarations: Sequence[QuantizationDeclaration]) -> EvidenceItem:
    broken = [
        examined.found.modules[planned.module]
        for planned in _matrices(examined)
        if examined.found.modules[planned.module].problems
    ]
    problems = [problem for module in broken for problem in module.problems]
    quantised = [m for m in examined.found.modules.values() if not m.precision.is_plain]
    weights = [module.weight for module in broken if module.weight]
    scales = sum(len(module.companions) for module in quantised)
    shown = weights[0] if weights else next((m.weight for m in quantised if m.weight), None)
    return EvidenceItem(
        check="scales-there",
        claim="Every quantised weight has the scales that it needs, in the right shape.",
        verdict=Verdict.DISPROVED if problems else Verdict.PROVEN,
        expected="the scales of its scheme beside every weight",
        observed=listing(problems, 3)
        or f"{count_text(scales, 'scale')} beside {count_text(len(quantised), 'matrix', 'matrices')}",
        where=tuple(place_of(weight) for weight in weights[:_PLACES]),
        command=examined.commands.header(shown.file, shown.name.rpartition(".")[0]) if shown else "",
        notes=tuple(_cache_notes(examined, declarations)),
    )


def _cache_notes(examined: Examined, declarations: Sequence[QuantizationDeclaration]) -> Iterator[Note]:
    declared = next((each for each in declarations if each.cache_scheme), None)
    scales = examined.found.cache_scales
    if declared is not None and not scales:
        key = "kv_cache_quant_algo" if declared.file != "config.json" else "kv_cache_scheme"
        yield warning(
            f"{declared.file} asks for a scaled key/value cache ({declared.cache_scheme}) and there is no "
            "k_scale or v_scale: engines use 1.0",
            Location(declared.file, field=f"{declared.json_path}.{key}"),
            command=examined.commands.field(declared.file, key),
        )
    elif scales and examined.spec.mtp and not any(entry.name.startswith("mtp.") for entry in scales):
        yield information(
            f"{count_text(len(scales), 'key/value cache scale')} for the target, none for the head: its "
            "cache uses the default 1.0",
            place_of(scales[0]),
        )
