"""Heads that are not planned tensor by tensor: found by their naming rule, judged by their siblings.

A head layer is a few special modules (`enorm`, `eh_proj`, ...) and a decoder block like those of the trunk.
The special ones are in the family table; the block must have every module of the most similar trunk layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from draftproof.architecture.families import Family
from draftproof.architecture.registry import MtpDeclaration, text_section
from draftproof.checkpoint.config import ConfigReader
from draftproof.checkpoint.precision import COMPANION_LEAVES, WEIGHT_LEAVES

LEAST_SIMILAR = 0.5
"""Share of its modules that a head's block must have in common with a trunk layer to be compared with it."""

_MODULE_LEAVES = frozenset((*WEIGHT_LEAVES, *COMPANION_LEAVES, "weight_scale_inv"))
_TRUNK_LAYER = re.compile(
    r"(?P<trunk>(?:model\.|language_model\.)*layers\.|backbone\.layers\.)(?P<layer>\d{1,5})\.(?P<rest>.+)"
)
_EXPERT = re.compile(r"(?:^|\.)experts\.(\d+)\.")


@dataclass(frozen=True)
class HeadSurvey:
    """What the naming rule of a family finds in a checkpoint.

    Attributes:
        family: whose rule it is.
        names: every tensor of the head, sorted.
        expected_layers: layers that the config declares, or that silent releases have.
        layers: numbers of the head's layers that have tensors, from 0.
        missing: modules (full names without `.weight`) that the family or the compared trunk layer has and
            the head lacks; a layer without any tensor is one entry ending in `*`.
        sibling: prefix of the trunk layer that the blocks were compared with; None when none is similar.
        looked_for: prefixes under which the expected layers should lie, as they are spelled on disk.
    """

    family: Family
    names: tuple[str, ...]
    expected_layers: int
    layers: tuple[int, ...]
    missing: tuple[str, ...]
    sibling: str | None
    looked_for: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Tensors are there, and nothing that is known to be needed is missing."""
        return bool(self.names) and not self.missing


def survey_head(declaration: MtpDeclaration, config: ConfigReader, names: Iterable[str]) -> HeadSurvey:
    """Finds a head by its family's naming rule.

    Args:
        declaration: what the config says about the head.
        config: config.json, for the number of layers.
        names: every tensor name that a load reads.

    Raises:
        ConfigError: the rule needs num_hidden_layers and the config has none.
    """
    family = declaration.family
    trunk = _Trunk(names)
    rule = _NamingRule(family, trunk.prefix, _trunk_layers(family, config))
    parts = {name: part for name in trunk.names if (part := rule.part(name)) is not None}
    expected = declaration.expected_layers * _sublayers(declaration)
    modules: dict[int, set[str]] = {}
    for index, suffix in parts.values():
        if index is not None:
            modules.setdefault(index, set()).add(_module(suffix))
    missing, sibling = [], None
    if parts:
        missing = _missing_specials(rule, modules, parts, expected)
        blocks_missing, sibling = _missing_of_blocks(rule, modules, trunk, _expert_limit(config))
        missing += blocks_missing
    return HeadSurvey(
        family,
        tuple(sorted(parts)),
        expected,
        tuple(sorted(modules)),
        tuple(dict.fromkeys(missing)),
        sibling,
        tuple(dict.fromkeys(rule.prefix(index) for index in range(max(expected, 1)))),
    )


class _Trunk:
    """All names, and the trunk's layers with the modules of each."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        by_prefix: dict[str, dict[int, set[str]]] = {}
        for name in self.names:
            if match := _TRUNK_LAYER.fullmatch(name):
                layers = by_prefix.setdefault(match["trunk"], {})
                layers.setdefault(int(match["layer"]), set()).add(_module(match["rest"]))
        self.prefix = max(by_prefix, key=lambda prefix: len(by_prefix[prefix]), default="model.layers.")
        self.layers: Mapping[int, set[str]] = by_prefix.get(self.prefix, {})


class _NamingRule:
    """A family's prefixes as regular expressions.

    Args:
        family: whose.
        trunk: prefix of the trunk's layers on disk.
        trunk_layers: number of them; 0 when the rule does not need it.
    """

    def __init__(self, family: Family, trunk: str, trunk_layers: int) -> None:
        self.family = family
        self.trunk_layers = trunk_layers
        self._templates = [template.replace("{trunk}", trunk) for template in family.prefixes]
        self._patterns = [
            (re.compile(re.escape(t).replace(r"\{layer\}", r"(\d{1,5})").replace(r"\{i\}", r"(\d{1,5})")), t)
            for t in self._templates
        ]

    def part(self, name: str) -> tuple[int | None, str] | None:
        """Layer number in the head and the rest of the name; None for a name outside the head."""
        for pattern, template in self._patterns:
            match = pattern.match(name)
            if match is None:
                continue
            number = int(match[1]) if match.groups() else None
            if number is not None and "{layer}" in template:
                number -= self.trunk_layers
                if number < 0:
                    continue
            return number, name[match.end() :]
        return None

    def prefix(self, index: int) -> str:
        """Where layer `index` of the head lies, by the first prefix that has a number."""
        template = next((t for t in self._templates if "{" in t), self._templates[0])
        return template.replace("{layer}", str(self.trunk_layers + index)).replace("{i}", str(index))

    def is_special(self, module: str) -> bool:
        """A module of the head layer that no trunk layer has."""
        return any(module == special or module.startswith(f"{special}.") for special in self.family.required)


def _missing_specials(
    rule: _NamingRule,
    modules: Mapping[int, set[str]],
    parts: Mapping[str, tuple[int | None, str]],
    expected: int,
) -> list[str]:
    full = {_module(name) for name in parts}
    missing = [name[1:] for name in rule.family.required if name.startswith("=") and name[1:] not in full]
    for index in range(expected):
        if index not in modules:
            # Heads without numbered layers are judged by their whole names alone.
            if modules:
                missing.append(f"{rule.prefix(index)}*")
            continue
        for special in rule.family.required:
            if not special.startswith("=") and special not in modules[index]:
                missing.append(f"{rule.prefix(index)}{special}")
    return missing


def _missing_of_blocks(
    rule: _NamingRule, modules: Mapping[int, set[str]], trunk: _Trunk, expert_limit: int | None
) -> tuple[list[str], str | None]:
    """Modules that the most similar trunk layer has and a head layer lacks."""
    missing: list[str] = []
    sibling = None
    for index, of_layer in sorted(modules.items()):
        block = {module.removeprefix(rule.family.block) for module in of_layer if not rule.is_special(module)}
        candidates = {
            layer: {module for module in members if _within(module, expert_limit)}
            for layer, members in trunk.layers.items()
            if not rule.trunk_layers or layer < rule.trunk_layers
        }
        closest = max(candidates, key=lambda layer: _similarity(block, candidates[layer]), default=None)
        if closest is None or _similarity(block, candidates[closest]) < LEAST_SIMILAR:
            continue
        sibling = f"{trunk.prefix}{closest}."
        lacking = sorted(candidates[closest] - block)
        missing += [f"{rule.prefix(index)}{rule.family.block}{module}" for module in lacking]
    return missing, sibling


def _similarity(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(len(one | other), 1)


def _within(module: str, expert_limit: int | None) -> bool:
    match = _EXPERT.search(f"{module}.") if expert_limit is not None else None
    return match is None or expert_limit is None or int(match[1]) < expert_limit


def _module(name: str) -> str:
    """The name without the part that depends on how the module is stored."""
    module, _, leaf = name.rpartition(".")
    return module if leaf in _MODULE_LEAVES and module else name


def _trunk_layers(family: Family, config: ConfigReader) -> int:
    if not any("{layer}" in prefix for prefix in family.prefixes):
        text = text_section(config)
        return text.integer("num_hidden_layers", 1, 4096) if text.has("num_hidden_layers") else 0
    return text_section(config).integer("num_hidden_layers", 1, 4096)


def _sublayers(declaration: MtpDeclaration) -> int:
    """Numbered layers on disk for one layer of the config: Nemotron-H splits it by a pattern such as '*E'."""
    for field in declaration.fields:
        key = field.json_path.rpartition(".")[2]
        if key == "mtp_hybrid_override_pattern" and isinstance(field.value, str):
            return max(len(field.value), 1)
        if key == "mtp_layers_block_type" and isinstance(field.value, str):
            return field.value.count(",") + 1
    return 1


def _expert_limit(config: ConfigReader) -> int | None:
    """Experts of a head that has another number of them than the trunk."""
    text = text_section(config)
    return text.integer("mtp_num_experts", 1, 2**16) if text.has("mtp_num_experts") else None
