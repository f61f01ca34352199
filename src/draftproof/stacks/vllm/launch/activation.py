"""vLLM's own resolution of a speculative configuration, carried out on one checkpoint's config."""

from __future__ import annotations

import ast
import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.errors import SourceError
from draftproof.stacks.evaluation import Evaluator, Named, Outcome, RaisedError
from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.launch.options import SPECULATIVE, SpeculativeKeys

DRIVER = "draftproof_stand_ins/vllm_speculation.py"
_SUBSTITUTES = {
    "vllm.config.model.ModelConfig": "DraftModel",
    "vllm.config.ModelConfig": "DraftModel",
    "vllm.config.parallel.ParallelConfig": "Parallel",
    "vllm.config.ParallelConfig": "Parallel",
}

_OWN_GAPS = ("ImportError", "ModuleNotFoundError", "NameError")
"""Exceptions that tell of a library which is not at hand here, and nothing about the configuration."""
_OWN_FILES = "draftproof_stand_ins/"
_OWN_CLASSES = ("PlainConfig", "TargetModel", "DraftModel", "Parallel")
"""Classes of the driver: what they lack, vLLM's own may have."""


@dataclass(frozen=True)
class Activation:
    """What became of a speculative configuration.

    Attributes:
        method: in force; empty when the resolution ended with an error.
        draft_tokens: K in force; 0 when it ended with an error.
        draft_path: where the head's weights are read from.
        draft_architecture: the class that is asked for.
        draft_type: the model type after the rewriting.
        layers: the depth that K is compared with; None when none was found.
        error: the exception that ended it; None when it came to its end.
        log: what it wrote to its log, level first.
        places: lines that decided.
    """

    method: str
    draft_tokens: int
    draft_path: str
    draft_architecture: str
    draft_type: str
    layers: int | None
    error: RaisedError | None
    log: tuple[tuple[str, str, Place], ...]
    places: tuple[Place, ...]


def activation(
    tree: SourceTree,
    checkpoint: ServedCheckpoint,
    keys: SpeculativeKeys,
    values: Mapping[str, Any],
    ranks: int,
    length: int,
) -> Reading[Activation]:
    """What this version makes of the keys of a speculative configuration.

    Args:
        tree: the source.
        checkpoint: whose config is rewritten for the draft.
        keys: the fields of the class, for defaults.
        values: the keys that were given.
        ranks: tensor parallel size.
        length: tokens of context.
    """
    if not checkpoint.architecture:
        return not_understood(
            "the config names no architecture, which the rewriting for the draft begins with"
        )
    wanted = f"SpeculativeConfig.__post_init__ and _verify_args in {SPECULATIVE}, to be carried out"
    try:
        outcomes = _evaluate(tree, checkpoint, keys, values, ranks, length)
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    lost = next((gap for outcome in outcomes if (gap := _lost(outcome)) is not None), None)
    if lost is not None or not outcomes:
        reason, place = lost if lost is not None else ("no way through it", keys.place)
        return not_understood(f"looked for {wanted}: {reason}", _in_stack(place, keys.place))
    seen = {_summary(outcome) for outcome in outcomes}
    if len(seen) > 1:
        conditions = "; ".join(str(c) for o in outcomes for c in o.conditions[:1])
        return not_understood(f"what becomes of it depends on {conditions}", keys.place)
    result = _activation(outcomes[0], keys)
    return found(result, _sentence(result), *result.places)


def _evaluate(
    tree: SourceTree,
    checkpoint: ServedCheckpoint,
    keys: SpeculativeKeys,
    values: Mapping[str, Any],
    ranks: int,
    length: int,
) -> tuple[Outcome, ...]:
    folder = importlib.resources.files("draftproof.stacks.stand_ins")
    text = (folder / DRIVER.rpartition("/")[2]).read_text("utf-8")
    overlaid = OverlaidTree(tree, {DRIVER: text, "draftproof_stand_ins/__init__.py": ""})
    evaluator = Evaluator(overlaid, {name: Named(DRIVER, part) for name, part in _SUBSTITUTES.items()})
    fields = {**_defaults(keys), **values}
    return evaluator.call(
        DRIVER,
        "resolved",
        dict(checkpoint.config),
        fields,
        checkpoint.name,
        _quantisation(checkpoint),
        ranks,
        length,
    )


def _defaults(keys: SpeculativeKeys) -> dict[str, Any]:
    """Every field's default, as the source writes it."""
    defaults: dict[str, Any] = {}
    for field in keys.fields:
        try:
            defaults[field.name] = ast.literal_eval(field.default) if field.default else None
        except (ValueError, SyntaxError):
            defaults[field.name] = None
    return defaults


def _quantisation(checkpoint: ServedCheckpoint) -> str | None:
    """Some name when the checkpoint is quantised: only whether there is one matters here."""
    section = checkpoint.config.get("quantization_config")
    if isinstance(section, dict):
        return str(section.get("quant_method", "quantised"))
    return "modelopt" if checkpoint.hf_quant_config else None


def _lost(outcome: Outcome) -> tuple[str, Place] | None:
    """Why an outcome says nothing about the stack; None when it does."""
    if outcome.not_understood is not None:
        return outcome.not_understood.reason, outcome.not_understood.place
    raised = outcome.raised
    if raised is None:
        return None
    lacks = raised.type_name == "AttributeError" and any(
        f"'{name}'" in raised.message for name in _OWN_CLASSES
    )
    is_ours = lacks or raised.type_name in _OWN_GAPS or raised.place.file.startswith(_OWN_FILES)
    return (str(raised), raised.place) if is_ours else None


def _summary(outcome: Outcome) -> str:
    if outcome.raised is not None:
        return str(outcome.raised)
    result = outcome.returned
    return str([result.get(k) for k in ("method", "model", "num_speculative_tokens", "draft_architectures")])


def _activation(outcome: Outcome, keys: SpeculativeKeys) -> Activation:
    log = tuple((message.level, message.text, message.place) for message in outcome.log)
    if outcome.raised is not None:
        place = _in_stack(outcome.raised.place, keys.place)
        return Activation("", 0, "", "", "", None, outcome.raised, log, (place,))
    result = outcome.returned
    config = result["config"]
    places = tuple(
        dict.fromkeys(
            place
            for name in ("method", "model", "draft_model_config")
            if (place := config.place_of(name)) is not None and not place.file.startswith(_OWN_FILES)
        )
    )
    names = result["draft_architectures"] or [""]
    layers = result["layers"]
    return Activation(
        method=str(result["method"]),
        draft_tokens=int(result["num_speculative_tokens"]),
        draft_path=str(result["model"]),
        draft_architecture=str(names[0]),
        draft_type=str(result["draft_type"] or ""),
        layers=layers if isinstance(layers, int) else None,
        error=None,
        log=log,
        places=places or (keys.place,),
    )


def _in_stack(place: Place, otherwise: Place) -> Place:
    return otherwise if place.file.startswith(_OWN_FILES) else place


def _sentence(result: Activation) -> str:
    if result.error is not None:
        return f"the start ends with {result.error}"
    return (
        f"method {result.method}, {result.draft_tokens} drafts a pass, "
        f"{result.draft_architecture or 'no draft class'} from {result.draft_path}"
    )
