"""What the recurrent state is kept in: the version's own rule, carried out on the checkpoint's config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.stacks.evaluation import Instance, Symbol, pretrained_config
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.sglang.backend.selector import Selectors, choosing_places
from draftproof.stacks.sglang.launch.in_force import STATE_FIELD

RULE_FILE = "sglang/srt/configs/mamba_utils.py"
RULE = "mamba2_state_dtype"
FIELD = STATE_FIELD
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def state_type(selectors: Selectors, config: Mapping[str, Any]) -> Reading[str]:
    """The type of one element: "float32", "bfloat16".

    Args:
        selectors: of the version.
        config: content of config.json.
    """
    answer = selectors.call(RULE_FILE, RULE, pretrained_config(config, "hf_config"))
    kind = answer.value.attributes.get("temporal") if isinstance(answer.value, Instance) else None
    name = kind.name.rpartition(".")[2] if isinstance(kind, Symbol) else None
    if name is None:
        reason = answer.lost or (str(answer.raised) if answer.raised else "no type")
        return not_understood(f"looked for the state's type by {RULE} in {RULE_FILE}: {reason}")
    places = (*choosing_places(selectors.tree, RULE_FILE, RULE, name), *selectors.values.at(FIELD))
    return found(name, f"{RULE} gives {name}, by {_source(selectors, config)}", *places)


def is_set_by_option(selectors: Selectors) -> bool:
    """The option was given."""
    return selectors.values.text(FIELD) is not None


def declared_type(config: Mapping[str, Any]) -> str | None:
    """What the checkpoint's config asks for."""
    text = config.get("text_config")
    section = text if isinstance(text, Mapping) else config
    value = section.get("mamba_ssm_dtype")
    return value if isinstance(value, str) else None


def _source(selectors: Selectors, config: Mapping[str, Any]) -> str:
    if is_set_by_option(selectors):
        return "the option"
    return "the checkpoint" if declared_type(config) else "default"


def torch_type(name: str) -> Symbol:
    """The same as the evaluator knows it."""
    return Symbol(f"torch.{name}")
