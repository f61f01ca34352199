"""What vLLM makes of a checkpoint's config for the draft: it runs the override of the source at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.errors import SourceError
from draftproof.stacks.evaluation import Evaluator, pretrained_config
from draftproof.stacks.evaluation.outcomes import Outcome
from draftproof.stacks.evaluation.values import Instance, LiteralType
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.code.source_search import function_node, place_of

SPECULATIVE = "vllm/config/speculative.py"
OVERRIDE = "SpeculativeConfig.hf_config_override"
METHODS = "MTPModelTypes"


@dataclass(frozen=True)
class DraftMapping:
    """The draft's config.

    Attributes:
        architecture: the draft architecture.
        model_type: what the override makes of `model_type`.
        depth: `n_predict`: K above it must be a multiple of it; None when the config does not say.
        config: the config as the override leaves it, as plain values.
        place: where the override gives the model type.
    """

    architecture: str
    model_type: str
    depth: int | None
    config: Mapping[str, Any]
    place: Place


def draft_mapping(
    tree: SourceTree, evaluator: Evaluator, checkpoint: ServedCheckpoint
) -> Reading[DraftMapping]:
    """The draft that the method "mtp" leads to; absent when vLLM has none for this config.

    Args:
        tree: the source.
        evaluator: of that source.
        checkpoint: what is served.
    """
    try:
        definition = function_node(tree, SPECULATIVE, OVERRIDE)
    except SourceError as error:
        return not_understood(f"looked for {OVERRIDE}: {error}", Place(SPECULATIVE, error.line or 1))
    if definition is None:
        return not_understood(f"looked for {OVERRIDE} in {SPECULATIVE}", Place(SPECULATIVE, 1))
    start = place_of(SPECULATIVE, definition)
    accepted = mtp_model_types(tree, evaluator)
    if accepted.value is None:
        return not_understood(accepted.sentence, *accepted.places)
    if not checkpoint.architecture:
        return not_understood(f"config.json names no architecture, which {OVERRIDE} asks for", start)
    config = pretrained_config(with_quantisation(checkpoint), "hf_config")
    outcomes = evaluator.call(SPECULATIVE, OVERRIDE, config)
    if len(outcomes) != 1 or outcomes[0].not_understood is not None or outcomes[0].conditions:
        return _unclear(outcomes, start)
    outcome = outcomes[0]
    if outcome.raised is not None:
        return absent(f"the config's override ends with {outcome.raised}", outcome.raised.place, start)
    return _judged(outcome, accepted, start)


def mtp_model_types(tree: SourceTree, evaluator: Evaluator) -> Reading[frozenset[str]]:
    """The model types that count as MTP after the override."""
    wanted = f"{METHODS} = Literal[…] in {SPECULATIVE}"
    outcomes = evaluator.value(SPECULATIVE, METHODS)
    value = outcomes[0].returned if len(outcomes) == 1 and outcomes[0].has_returned else None
    if not isinstance(value, LiteralType):
        return not_understood(f"looked for {wanted}", Place(SPECULATIVE, 1))
    names = frozenset(name for name in value.values if isinstance(name, str))
    return found(names, f"{len(names)} model types", Place(SPECULATIVE, _line_of(tree)))


def _line_of(tree: SourceTree) -> int:
    for node in tree.syntax(SPECULATIVE).body:
        targets = getattr(node, "targets", [])
        if any(getattr(target, "id", "") == METHODS for target in targets):
            return node.lineno
    return 1


def _judged(outcome: Outcome, accepted: Reading[frozenset[str]], start: Place) -> Reading[DraftMapping]:
    config = outcome.returned
    if not isinstance(config, Instance) or accepted.value is None:
        return not_understood(f"{OVERRIDE} returned no config", start)
    model_type = config.attributes.get("model_type")
    architectures = config.attributes.get("architectures")
    depth = config.attributes.get("n_predict")
    if not isinstance(model_type, str) or not isinstance(architectures, list) or not architectures:
        return not_understood(f"{OVERRIDE} left no model_type or architectures", start)
    place = config.place_of("model_type") or start
    if model_type not in accepted.value:
        sentence = f"no rule of {OVERRIDE} knows {architectures[0]} (model_type {model_type})"
        return absent(f"{sentence}: Unsupported speculative method: 'mtp'", start, *accepted.places)
    mapping = DraftMapping(
        str(architectures[0]),
        model_type,
        depth if isinstance(depth, int) else None,
        plain(config),
        place,
    )
    sentence = f"{architectures[0]}, model_type {model_type}, n_predict {depth}"
    return found(mapping, sentence, place)


def plain(config: Instance) -> dict[str, Any]:
    """A config object as plain values."""
    return {name: _plain(value) for name, value in config.attributes.items()}


def _plain(value: Any) -> Any:
    return plain(value) if isinstance(value, Instance) else value


def with_quantisation(checkpoint: ServedCheckpoint) -> dict[str, Any]:
    """The config as vLLM's reader makes it: a quantisation in a file of its own is put into it."""
    config = dict(checkpoint.config)
    if config.get("quantization_config") is None and checkpoint.hf_quant_config is not None:
        config["quantization_config"] = dict(checkpoint.hf_quant_config)
    return config


def _unclear(outcomes: tuple[Outcome, ...], start: Place) -> Reading[DraftMapping]:
    for outcome in outcomes:
        if outcome.not_understood is not None:
            problem = outcome.not_understood
            return not_understood(f"ran {OVERRIDE}: {problem.reason}", problem.place, start)
    asked = "; ".join(str(condition) for outcome in outcomes for condition in outcome.conditions[:1])
    return not_understood(f"ran {OVERRIDE}: the answer depends on {asked}", start)
