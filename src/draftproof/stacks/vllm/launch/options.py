"""The options of one version of vLLM, and of its speculative configuration."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.errors import SourceError
from draftproof.stacks.launch_facts import OptionTable
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.launch.config_fields import ConfigField, config_fields
from draftproof.stacks.vllm.launch.field_types import literal_values
from draftproof.stacks.vllm.launch.option_reading import read_options

SPECULATIVE = "vllm/config/speculative.py"
SPECULATIVE_CLASS = "SpeculativeConfig"
METHODS = "SpeculativeMethod"
HEAD_TYPES = "MTPModelTypes"


@dataclass(frozen=True)
class SpeculativeKeys:
    """What the JSON after `--speculative-config` may hold.

    Attributes:
        fields: the keys.
        methods: values of `method`.
        head_names: those of them that mean a head of the checkpoint itself.
        place: of the class.
    """

    fields: tuple[ConfigField, ...]
    methods: tuple[str, ...]
    head_names: tuple[str, ...]
    place: Place

    def get(self, key: str) -> ConfigField | None:
        """The field of that name."""
        return next((field for field in self.fields if field.name == key), None)


def option_table(tree: SourceTree) -> Reading[OptionTable]:
    """Every option of `vllm serve` in this version."""
    options = read_options(tree)
    if options.value is None:
        return not_understood(options.sentence, *options.places)
    return found(options.value.table, options.sentence, *options.places)


def speculative_keys(tree: SourceTree) -> Reading[SpeculativeKeys]:
    """The keys of the speculative configuration, with types, choices and defaults."""
    wanted = f"class {SPECULATIVE_CLASS}, and the literals {METHODS} and {HEAD_TYPES}, in {SPECULATIVE}"
    try:
        fields = config_fields(tree, SPECULATIVE, SPECULATIVE_CLASS)
        methods = tuple(str(name) for name in literal_values(tree, SPECULATIVE, METHODS))
        names = tuple(str(name) for name in literal_values(tree, SPECULATIVE, HEAD_TYPES))
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    if not fields or not methods or not names:
        return not_understood(f"looked for {wanted}; not all of them are there", Place(SPECULATIVE, 1))
    if not any(field.name == "method" for field in fields):
        return absent(f"{SPECULATIVE_CLASS} has no field `method`", fields[0].place)
    keys = SpeculativeKeys(fields, methods, names, fields[0].place)
    return found(keys, f"{len(fields)} keys, {len(methods)} methods", keys.place)
