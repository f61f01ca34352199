"""The quantization that a version finds in a checkpoint where the command names none, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.hardware.gpu import Gpu
from draftproof.stacks.evaluation import ClassValue
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.launch.model_view import MODEL, MODEL_CONFIG
from draftproof.stacks.sglang.launch.resolution import Resolver

METHODS = "sglang/srt/layers/quantization/__init__.py"
_DETECTION = "_verify_quantization"
_CLASS_OF = "get_quantization_config"
_FROM_CONFIG = "from_config"
MODELOPT_FP4 = "modelopt_fp4"


def is_modelopt_fp4(checkpoint: ServedCheckpoint) -> bool:
    """The config declares ModelOpt's FP4, which older versions have to be told of."""
    section = checkpoint.config.get("quantization_config")
    if not isinstance(section, dict) or section.get("quant_method") != "modelopt":
        return False
    return "FP4" in str(section.get("quant_algo", ""))


def found_quantization(
    resolver: Resolver,
    checkpoint: ServedCheckpoint,
    in_force: str | None,
    environment: Mapping[str, str],
    gpu: Gpu,
) -> Reading[str]:
    """The method that is found without an option.

    Absent when the class of that method refuses the checkpoint's own section: the start then ends with an
    error, unless the command names another method.

    Args:
        resolver: asks the version about the model.
        checkpoint: the model.
        in_force: what the version's own resolution sets; None when it leaves the option alone.
        environment: variables that the command sets.
        gpu: every GPU of the machine.
    """
    looked = f"carried out ModelConfig.{_DETECTION} of {MODEL_CONFIG}, then {_CLASS_OF} of {METHODS}"
    section = checkpoint.config.get("quantization_config")
    checked = resolver.model_check(_DETECTION, {"quantization": in_force}, environment, gpu)
    if checked is None or not checked.has_returned or not isinstance(section, Mapping):
        return not_understood(f"{looked}; no method was found")
    method = checked.given[MODEL].attributes.get("quantization") if MODEL in checked.given else None
    if not isinstance(method, str):
        return not_understood(f"{looked}; no method was found")
    chosen = resolver.carried_out(METHODS, _CLASS_OF, environment, gpu, method)
    cls = chosen.returned if chosen is not None else None
    if not isinstance(cls, ClassValue):
        return not_understood(f"{looked}; the class of {method} is not known")
    own = (cls.place,) if cls.place is not None else ()
    file = f"{cls.module.replace('.', '/')}.py"
    made = resolver.carried_out(file, f"{cls.name}.{_FROM_CONFIG}", environment, gpu, dict(section))
    if made is None or not (made.has_returned or made.raised is not None):
        return not_understood(f"{looked}; {cls.name}.{_FROM_CONFIG} could not be followed", *own)
    if made.raised is not None:
        words = f"finds the method {method}, whose {cls.name} refuses the checkpoint: {made.raised.message}"
        return absent(words, made.raised.place, *own)
    return found(method, f"finds the method {method}", *own)
