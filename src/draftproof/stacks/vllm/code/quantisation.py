"""The quantisation that vLLM recognises in a config: its own rules decide, run by the evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.stacks.evaluation import (
    Evaluator,
    Given,
    Missing,
    Named,
    RaisedError,
    pretrained_config,
    single,
)
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.vllm.code.draft_mapping import with_quantisation
from draftproof.stacks.vllm.code.surroundings import DRIVER

MODEL_CONFIG = "vllm/config/model.py"
CONVERTOR = "vllm/transformers_utils/model_arch_config_convertor.py"
_VERIFY = "ModelConfig._verify_quantization"


@dataclass(frozen=True)
class Quantisation:
    """The quantisation that vLLM recognises.

    Attributes:
        method: vLLM's name: "modelopt_fp4".
        section: what vLLM makes its configuration from.
        refusal: the exception that the start ends with, because vLLM does not know the quantisation; None
            when it does.
    """

    method: str
    section: Mapping[str, Any]
    refusal: RaisedError | None = None


def quantisation(evaluator: Evaluator, checkpoint: ServedCheckpoint) -> Reading[Quantisation]:
    """The quantisation of a checkpoint; absent when it has none.

    Args:
        evaluator: of the stack's source with its stand-ins.
        checkpoint: what is served.
    """
    place = Place(MODEL_CONFIG, 1)
    config = pretrained_config(with_quantisation(checkpoint), "hf_config")
    text = config.attributes.get("text_config")
    model_config = Given(
        "model_config",
        {
            "hf_config": config,
            "hf_text_config": text if isinstance(text, Given) else config,
            "quantization": None,
            "allow_deprecated_quantization": False,
        },
        missing=Missing.NONE,
    )
    outcomes = evaluator.call(
        DRIVER,
        "recognise",
        Named(CONVERTOR, "ModelArchConfigConvertorBase"),
        Named(MODEL_CONFIG, _VERIFY),
        model_config,
    )
    outcome = single(outcomes)
    if outcome is None:
        problem = outcomes[0].not_understood
        reason = problem.reason if problem is not None else "several ways"
        where = problem.place if problem is not None else place
        return not_understood(f"ran {_VERIFY}: {reason}", where)
    if outcome.raised is not None:
        sentence = f"the start ends with {outcome.raised}"
        return found(Quantisation("", {}, outcome.raised), sentence, outcome.raised.place)
    method, section = outcome.returned
    if method is None:
        return absent("the config declares no quantisation", place)
    if not isinstance(method, str) or not isinstance(section, dict):
        return not_understood(f"ran {_VERIFY}: {method!r} is no name", place)
    if method == "modelopt_mixed" and "quantized_layers" not in section and checkpoint.hf_quant_config:
        section = dict(checkpoint.hf_quant_config)
    return found(Quantisation(method, section), f"vLLM calls the quantisation {method}", place)
