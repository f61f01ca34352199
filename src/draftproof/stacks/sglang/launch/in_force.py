"""The values that kernels are chosen by, as they travel from a judged command to the link about kernels.

Link 4 carries them as words (`ResolvedLaunch.options`): the field's name, its value, and why. `exported`
writes them, `in_force` reads them again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from draftproof.stacks.evaluation import Unknown
from draftproof.stacks.launch_facts import ResolvedLaunch
from draftproof.stacks.place import Place
from draftproof.stacks.sglang.launch.resolution import InForce

FIELDS = (
    "attention_backend",
    "bf16_gemm_backend",
    "chunked_prefill_size",
    "decode_attention_backend",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "disable_shared_experts_fusion",
    "enable_deterministic_inference",
    "enable_dynamic_chunking",
    "enable_linear_replayssm",
    "enable_linear_replayssm_spec",
    "enable_multi_layer_eagle",
    "ep_size",
    "fp4_gemm_runner_backend",
    "fp8_gemm_runner_backend",
    "kv_cache_dtype",
    "linear_attn_backend",
    "linear_attn_decode_backend",
    "linear_attn_prefill_backend",
    "linear_attn_verify_backend",
    "linear_replayssm_cache_len",
    "mamba_backend",
    "mamba_full_memory_ratio",
    "mamba_radix_cache_strategy",
    "mamba_scheduler_strategy",
    "mamba_ssm_dtype",
    "max_mamba_cache_size",
    "max_running_requests",
    "mem_fraction_static",
    "moe_a2a_backend",
    "moe_runner_backend",
    "page_size",
    "prefill_attention_backend",
    "quantization",
    "speculative_adaptive",
    "speculative_algorithm",
    "speculative_attention_mode",
    "speculative_draft_attention_backend",
    "speculative_draft_model_quantization",
    "speculative_eagle_topk",
    "speculative_moe_a2a_backend",
    "speculative_moe_runner_backend",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "tp_size",
)
"""Server arguments that decide about kernels and states, in every version; a version has some of them."""

STATE_FIELD = "mamba_ssm_dtype"
STATE_VARIABLE = "SGLANG_MAMBA_SSM_DTYPE"
_UNSET = "unset"
_UNKNOWN = "not known"
_AT = re.compile(r"(\S+\.py):(\d+)")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True)
class ValuesInForce:
    """Server arguments after resolution.

    Attributes:
        values: by field; an `Unknown` where the resolution left it open. Fields that nobody resolved are
            missing.
        places: where the resolution set a field.
        variables: environment variables that the command sets.
    """

    values: Mapping[str, Any]
    places: Mapping[str, Place]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the command, and those that a server sets for itself by its arguments."""
        asked = self.text(STATE_FIELD)
        return {**self.variables, **({} if asked is None else {STATE_VARIABLE: asked})}

    def text(self, field: str) -> str | None:
        """A field's value when it is a word."""
        value = self.values.get(field)
        return value if isinstance(value, str) else None

    def number(self, field: str) -> int | None:
        """A field's value when it is an integer."""
        value = self.values.get(field)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def is_true(self, field: str) -> bool:
        """The field is known to be true."""
        return self.values.get(field) is True

    def at(self, field: str) -> tuple[Place, ...]:
        """Where a field was set; empty when it stands as given."""
        place = self.places.get(field)
        return () if place is None else (place,)


def exported(after: Mapping[str, InForce]) -> tuple[tuple[str, str, str], ...]:
    """The fields that the link about kernels needs, as name, value and reason.

    Args:
        after: every field after resolution.
    """
    return tuple(
        (name, _written(after[name].value), _reason(after[name].place)) for name in FIELDS if name in after
    )


def in_force(resolved: ResolvedLaunch) -> ValuesInForce:
    """The values that `exported` wrote."""
    values: dict[str, Any] = {}
    places: dict[str, Place] = {}
    for option, text, why in resolved.options:
        name = option.lstrip("-").replace("-", "_")
        values[name] = _read(name, text)
        match = _AT.search(why)
        if match is not None:
            places[name] = Place(match.group(1), int(match.group(2)))
    return ValuesInForce(values, places, dict(resolved.variables))


def _written(value: Any) -> str:
    if isinstance(value, Unknown):
        return _UNKNOWN
    if value is None:
        return _UNSET
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read(field: str, text: str) -> Any:
    if text == _UNKNOWN:
        return Unknown(f"server_args.{field}")
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return None if text == _UNSET else text


def _reason(place: Place | None) -> str:
    return "as given or by default" if place is None else f"set at {place}"
