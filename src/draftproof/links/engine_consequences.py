"""What serving engines are known to do when a config and the tensors disagree about precision.

Each row is a public report; the text names it, so that a reader can look up which versions it concerns.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.checkpoint.precision import ModulePrecision
from draftproof.checkpoint.quantization import QuantizationDeclaration


@dataclass(frozen=True)
class _Consequence:
    """One report.

    Attributes:
        methods: beginnings of `quant_method` that it is about; empty for every method.
        module: part of the module's name that it is about; empty for every module of the head.
        stored_plain: the tensors are plain and the config quantises them; False for the opposite.
        text: what happens.
    """

    methods: tuple[str, ...]
    module: str
    stored_plain: bool
    text: str


_CONSEQUENCES = (
    _Consequence(
        ("modelopt",),
        "mtp.fc",
        True,
        "vLLM without the fix of vllm#38832 builds mtp.fc packed and stops at start-up",
    ),
    _Consequence(
        ("modelopt",),
        "mtp.",
        True,
        "engines that follow the list build the head packed and stop with a width mismatch "
        "(sglang#36158, vllm#49187)",
    ),
    _Consequence(
        ("compressed-tensors",),
        "mtp.",
        True,
        "SGLang without the fix of sglang#35797 skips such tensors without a word: the accept length stays "
        "at 1.0; vLLM may stop with a KeyError (vllm#41994)",
    ),
    _Consequence(
        ("gptq", "intel/auto-round", "auto-round"),
        "mtp.",
        True,
        'loaders that follow the rules stop; a rule "-:.*mtp.*" is missing (vllm#47828)',
    ),
    _Consequence(
        ("quark",),
        "mtp.",
        True,
        "SGLang builds the head's experts packed and stops with a width mismatch (sglang#36158)",
    ),
    _Consequence((), "mtp.", True, "an engine that follows the config builds the head packed"),
    _Consequence(
        ("modelopt",),
        "mtp.",
        False,
        "SGLang forces the head of such a checkpoint to BF16 and cannot load packed tensors into it",
    ),
    _Consequence((), "mtp.", False, "an engine that follows the config builds the head unquantised"),
    _Consequence(
        (),
        "lm_head",
        False,
        "engines that follow the list build an unquantised lm_head (vllm#44081, vllm#45102)",
    ),
)


def known_consequence(declaration: QuantizationDeclaration, stored: ModulePrecision) -> str:
    """What is known to happen when this declaration is wrong about this module; empty when nothing is."""
    plain = stored.precision.is_plain
    for row in _CONSEQUENCES:
        of_method = not row.methods or declaration.method.lower().startswith(row.methods)
        if of_method and row.stored_plain is plain and stored.module.startswith(row.module):
            return row.text
    return ""
