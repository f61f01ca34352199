"""What lies in a checkpoint, for ``draftproof inspect``: facts from config files and headers, no verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from draftproof.architecture.mtp_layout import HeadSurvey, survey_head
from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.registry import MtpDeclaration, mtp_declaration
from draftproof.architecture.spec import AttentionSpec, ModelSpec, MoeSpec
from draftproof.architecture.tensor_plan import ModelPart, PlannedTensor
from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import ModulePrecision, decide, group_by_module
from draftproof.checkpoint.quantization import QuantizationDeclaration, read_declarations
from draftproof.checkpoint.selection import looks_like_mtp
from draftproof.errors import ConfigError, UnknownArchitecture
from draftproof.evidence import EvidenceItem, Location, Note, Verdict, warning
from draftproof.evidence.inventory import HeadInventory, Inventory, ModuleGroup
from draftproof.evidence.quantities import count_text
from draftproof.links.completeness_claims import completeness_items, layout_words
from draftproof.links.config import check_config
from draftproof.links.examined import Examined, examine
from draftproof.links.file_claims import file_items
from draftproof.links.precision_claims import precision_items
from draftproof.links.subject import subject_of
from draftproof.links.value_reading import NOTHING
from draftproof.links.weights import check_weights

_PARTS = {ModelPart.TRUNK: "target", ModelPart.MTP: "head", ModelPart.VISION: "vision"}


def take_stock(checkpoint: Checkpoint) -> Inventory:
    """Describes an opened checkpoint; what cannot be told is left empty and named as an anomaly."""
    declaration = _declaration(checkpoint)
    examined = _examined(checkpoint)
    survey = None if examined else _survey(checkpoint, declaration)
    entries = checkpoint.inventory.tensors
    groups = _planned_groups(examined) if examined else _surveyed_groups(checkpoint, survey)
    content = checkpoint.config.config.content or {}
    return Inventory(
        subject=subject_of(checkpoint),
        family=declaration.family.title if declaration else "",
        model_type=str(content.get("model_type", ""))[:80],
        dimensions=tuple(_dimensions(examined)) if examined else (),
        head=_planned_head(examined, declaration)
        if examined
        else _surveyed_head(checkpoint, declaration, survey),
        layout=_trunk_layout(examined) if examined else "",
        quantization=tuple(_quantization(checkpoint)),
        groups=tuple(groups),
        files=len(checkpoint.inventory.files),
        tensors=len(entries),
        size=sum(file.size for file in checkpoint.inventory.files),
        anomalies=tuple(_anomalies(checkpoint, examined)),
    )


def _declaration(checkpoint: Checkpoint) -> MtpDeclaration | None:
    try:
        return mtp_declaration(checkpoint.config.config.require())
    except (ConfigError, UnknownArchitecture):
        return None


def _examined(checkpoint: Checkpoint) -> Examined | None:
    try:
        return examine(checkpoint, spec_from_config(checkpoint.config))
    except (ConfigError, UnknownArchitecture):
        return None


def _survey(checkpoint: Checkpoint, declaration: MtpDeclaration | None) -> HeadSurvey | None:
    if declaration is None:
        return None
    try:
        return survey_head(declaration, checkpoint.config.config.require(), checkpoint.inventory.tensors)
    except ConfigError:
        return None


def _dimensions(examined: Examined) -> Iterator[tuple[str, str]]:
    spec, plan = examined.spec, examined.found.plan
    full = sum(isinstance(layer.mixer, AttentionSpec) for layer in spec.layers)
    yield "layers", f"{len(spec.layers)}: {full} full attention, {len(spec.layers) - full} Gated DeltaNet"
    yield "width", f"{spec.hidden_size:,}, vocabulary {spec.vocab_size:,}, context {spec.max_position:,}"
    yield from _expert_dimension(spec)
    head = plan.parameters(ModelPart.MTP)
    yield "parameters", f"{_billions(plan.parameters())}, of which {_billions(head)} in the MTP head"


def _expert_dimension(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    moe = next((layer.mlp for layer in spec.layers if isinstance(layer.mlp, MoeSpec)), None)
    if moe is not None:
        shared = " and a shared one" if moe.shared_intermediate_size else ""
        yield "experts", f"{moe.num_experts}, {moe.experts_per_token} for a token{shared}"


def _billions(count: int) -> str:
    if count >= 10**9:
        return f"{count / 1e9:.2f} B"
    return f"{count / 1e6:.2f} M" if count >= 10**6 else f"{count:,}"


def _trunk_layout(examined: Examined) -> str:
    return layout_words(examined.found.plan.layouts.trunk, examined.spec)


def _planned_head(examined: Examined, declaration: MtpDeclaration | None) -> HeadInventory:
    planned = examined.found.plan.of(ModelPart.MTP)
    missing = sum(tensor.part is ModelPart.MTP for tensor in examined.found.missing)
    entries = [entry for entry in examined.checkpoint.inventory.tensors.values() if "mtp." in entry.name]
    words = layout_words(examined.found.plan.layouts.mtp, examined.spec) if entries else ""
    return _head(declaration, len(planned), len(planned) - missing, entries, words)


def _surveyed_head(
    checkpoint: Checkpoint, declaration: MtpDeclaration | None, survey: HeadSurvey | None
) -> HeadInventory:
    tensors = checkpoint.inventory.tensors
    names = survey.names if survey else tuple(name for name in tensors if looks_like_mtp(name))
    return _head(declaration, None, len(names), [tensors[name] for name in names], "")


def _head(
    declaration: MtpDeclaration | None,
    expected: int | None,
    present: int,
    entries: list[TensorEntry],
    layout: str,
) -> HeadInventory:
    path = declaration.json_path if declaration else None
    return HeadInventory(
        declared_layers=declaration.count if declaration else None,
        declared_at=Location("config.json", field=path) if path else None,
        expected=expected,
        present=present,
        tensors=len(entries),
        size=sum(entry.nbytes for entry in entries),
        layout=layout,
        files=tuple(sorted({entry.file for entry in entries})),
    )


def _planned_groups(examined: Examined) -> list[ModuleGroup]:
    """Planned tensors by what they do; then what has no place in the plan."""
    tally = _Tally()
    for planned in examined.found.plan.tensors:
        part, group = _PARTS[planned.part], planned.group.value
        stored = examined.found.modules.get(planned.module) if planned.is_linear else None
        if stored is not None:
            tally.add_module(part, group, stored)
        elif (entry := _plain(examined, planned)) is not None:
            tally.add(part, group, decide(planned.module, {"weight": entry}).precision.value, [entry])
    tally.add("target", "cache scales", "scales", examined.found.cache_scales)
    tally.add("other", "without a place", "any", examined.found.unexpected)
    return tally.groups()


def _plain(examined: Examined, planned: PlannedTensor) -> TensorEntry | None:
    return None if planned.is_linear else examined.checkpoint.inventory.tensors.get(planned.name)


def _surveyed_groups(checkpoint: Checkpoint, survey: HeadSurvey | None) -> list[ModuleGroup]:
    """Everything on disk by precision, head and target apart where the head's naming rule is known."""
    in_head = set(survey.names) if survey else set()
    tally = _Tally()
    for module, leaves in group_by_module(checkpoint.inventory.tensors.values()).items():
        stored = decide(module, leaves)
        cache = {"k_scale", "v_scale"}
        known = {stored.weight, *(entry for leaf, entry in stored.companions.items() if leaf not in cache)}
        part = "head" if any(entry.name in in_head for entry in leaves.values()) else "target"
        if stored.weight is not None:
            tally.add_module(part, "all modules", stored)
        tally.add(part, "other tensors", "any", [entry for entry in leaves.values() if entry not in known])
    return tally.groups()


class _Tally:
    """Counts tensors and bytes by part, module and precision, in the order of first sight."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], list[int]] = {}

    def add(self, part: str, module: str, precision: str, entries: Iterable[TensorEntry]) -> None:
        for entry in entries:
            count = self._counts.setdefault((part, module, precision), [0, 0])
            count[0] += 1
            count[1] += entry.nbytes

    def add_module(self, part: str, group: str, stored: ModulePrecision) -> None:
        scales = [entry for leaf, entry in stored.companions.items() if leaf not in ("k_scale", "v_scale")]
        entries = scales + ([stored.weight] if stored.weight else [])
        self.add(part, group, stored.precision.value, entries)

    def groups(self) -> list[ModuleGroup]:
        order = ["target", "head", "vision", "other"]
        found = [ModuleGroup(*key, tensors=count, size=size) for key, (count, size) in self._counts.items()]
        return sorted(found, key=lambda group: (order.index(group.part), -group.size))


def _quantization(checkpoint: Checkpoint) -> Iterator[str]:
    try:
        declarations = read_declarations(checkpoint.config)
    except ConfigError as error:
        yield error.message
        return
    for declaration in declarations:
        yield _declaration_text(declaration)


def _declaration_text(declaration: QuantizationDeclaration) -> str:
    parts = [f"{declaration.file}: {declaration.method} {declaration.algorithm}".rstrip()]
    if declaration.excludes:
        parts.append(f"{count_text(len(declaration.excludes), 'entry', 'entries')} not quantised")
    if declaration.cache_scheme:
        parts.append(f"key/value cache {declaration.cache_scheme}")
    return ", ".join(parts)


def _anomalies(checkpoint: Checkpoint, examined: Examined | None) -> Iterator[Note]:
    """What links 1 and 2 disprove, leave open or warn of, without reading a value."""
    for item in (*check_config(checkpoint).items, *_structure(checkpoint, examined)):
        if item.verdict is not Verdict.PROVEN:
            text = item.reason or f"{item.claim} Observed: {item.observed}"
            yield warning(text, *item.where, command=item.command)
        yield from item.warnings


def _structure(checkpoint: Checkpoint, examined: Examined | None) -> Iterator[EvidenceItem]:
    """Link 2 without values, on the comparison that is there already."""
    if examined is None:
        yield from check_weights(checkpoint, NOTHING).items
        return
    yield from file_items(checkpoint, examined.commands)
    yield from completeness_items(examined)
    yield from precision_items(examined)
