"""Known defects of SGLang's choice of kernels, each with the query that finds it in a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from draftproof.stacks.defect import Defect, DefectLink, Harm
from draftproof.stacks.evaluation import Unknown
from draftproof.stacks.reading import Reading
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.backend import backend_defect_queries as asks
from draftproof.stacks.sglang.backend.selector import Selectors
from draftproof.stacks.sglang.backend.state_types import FIELD, declared_type
from draftproof.stacks.sglang.defect_conditions import method_of, quantisation_of
from draftproof.stacks.sglang.launch.in_force import ValuesInForce
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree

_ALL = ("0.5.9", "0.5.12", "0.5.23")
_WORKSTATION = (120, 121)
_DATACENTRE = (100, 103)


def _packed_on(capabilities: tuple[int, ...], situation: Situation, checkpoint: ServedCheckpoint) -> bool:
    algorithm = str(quantisation_of(checkpoint).get("quant_algo", "")).upper()
    is_packed = method_of(checkpoint).startswith("modelopt") and "FP4" in algorithm
    return is_packed and situation.gpu is not None and situation.gpu.capability in capabilities


def _packed_on_workstation(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    return _packed_on(_WORKSTATION, situation, checkpoint)


def _packed_on_datacentre(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    return _packed_on(_DATACENTRE, situation, checkpoint)


def _blocks_on_workstation(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    has_blocks = bool(quantisation_of(checkpoint).get("weight_block_size"))
    return has_blocks and _is_workstation(situation)


def _hybrid_on_workstation(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    return _is_hybrid(checkpoint) and _is_workstation(situation)


def _short_state_on_datacentre(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    is_datacentre = situation.gpu is not None and situation.gpu.capability in _DATACENTRE
    return is_datacentre and _is_hybrid(checkpoint) and declared_type(checkpoint.config) == "bfloat16"


def _is_workstation(situation: Situation) -> bool:
    return situation.gpu is not None and situation.gpu.capability in _WORKSTATION


def _is_hybrid(checkpoint: ServedCheckpoint) -> bool:
    text = checkpoint.config.get("text_config")
    section = text if isinstance(text, Mapping) else checkpoint.config
    return isinstance(section.get("linear_num_value_heads"), int)


def _in_source(look: Callable[[Selectors], Reading[bool]]) -> Callable[[SourceTree], Reading[bool]]:
    return lambda tree: look(asks.selectors_of(tree))


@dataclass(frozen=True)
class BackendDefect:
    """A defect, and the values in force under which it shows.

    Attributes:
        defect: the rule.
        look: its query, for selectors that are there already.
        field: server argument that avoids it when it has another value.
        values: of that argument, with which it shows.
    """

    defect: Defect
    look: Callable[[Selectors], Reading[bool]]
    field: str
    values: tuple[object, ...]


BACKEND_DEFECTS = (
    BackendDefect(
        Defect(
            "sglang-packed-experts-without-kernels",
            DefectLink.BACKEND,
            Harm.WEAKENS,
            "Experts in NVFP4 get TRT-LLM's kernels on SM120 unless the quantization is named",
            "none known",
            ("0.5.23",),
            "the runner that the class of NVFP4 experts chooses on SM120 when none is named",
            _in_source(asks.packed_experts_without_kernels),
            _packed_on_workstation,
            "the first forward pass ends with an error, or with a kernel that the GPU cannot run",
            "--moe-runner-backend flashinfer_cutlass, or --quantization modelopt_fp4",
        ),
        asks.packed_experts_without_kernels,
        "moe_runner_backend",
        ("auto",),
    ),
    BackendDefect(
        Defect(
            "sglang-packed-experts-in-another-layout",
            DefectLink.BACKEND,
            Harm.WEAKENS,
            "Experts in NVFP4 are run by TRT-LLM and laid out for CUTLASS where no rule named a runner",
            "none known",
            ("0.5.23",),
            "runner and layout that the class of NVFP4 experts chooses on SM100 when none is named",
            _in_source(asks.packed_experts_in_another_layout),
            _packed_on_datacentre,
            "the first forward pass misses a scale; it concerns architectures without a rule of their own",
            "--moe-runner-backend flashinfer_trtllm",
        ),
        asks.packed_experts_in_another_layout,
        "moe_runner_backend",
        ("auto",),
    ),
    BackendDefect(
        Defect(
            "sglang-runner-accepted-without-kernels",
            DefectLink.BACKEND,
            Harm.WEAKENS,
            "TRT-LLM's expert kernels are accepted on SM120, where there are none",
            "sgl-project/sglang#14842",
            _ALL,
            "the class of NVFP4 experts on SM120 with flashinfer_trtllm asked for",
            _in_source(asks.runner_accepted_without_kernels),
            _packed_on_workstation,
            "the start goes on, and the first forward pass fails",
            "--moe-runner-backend flashinfer_cutlass",
        ),
        asks.runner_accepted_without_kernels,
        "moe_runner_backend",
        ("flashinfer_trtllm",),
    ),
    BackendDefect(
        Defect(
            "sglang-deepgemm-unasked",
            DefectLink.BACKEND,
            Harm.BREAKS,
            "Dense layers in FP8 get DeepGEMM on SM120 without a look at what its build can do",
            "sgl-project/sglang#18870",
            ("0.5.9",),
            "the function that runs dense layers with block scales on SM120",
            _in_source(asks.deepgemm_unasked),
            _blocks_on_workstation,
            "the start ends in DeepGEMM with an unknown recipe",
            "--fp8-gemm-backend triton, or SGLANG_ENABLE_JIT_DEEPGEMM=0",
        ),
        asks.deepgemm_unasked,
        "fp8_gemm_runner_backend",
        ("auto", "deep_gemm"),
    ),
    BackendDefect(
        Defect(
            "sglang-hybrid-default-refused",
            DefectLink.BACKEND,
            Harm.BREAKS,
            "FlashInfer, the default on SM120, is refused for models with Gated DeltaNet layers",
            "none known",
            ("0.5.9",),
            "the wrapper of attention for hybrid models on SM120 with flashinfer",
            _in_source(asks.hybrid_default_refused),
            _hybrid_on_workstation,
            "the start ends with an AssertionError",
            "--attention-backend triton",
        ),
        asks.hybrid_default_refused,
        "attention_backend",
        ("flashinfer",),
    ),
    BackendDefect(
        Defect(
            "sglang-verify-without-kernel",
            DefectLink.BACKEND,
            Harm.WEAKENS,
            "FlashInfer's verify kernel for Gated DeltaNet is not used on SM120",
            "none known",
            ("0.5.12", "0.5.23"),
            "the kernel of verify on SM120 when decode runs on FlashInfer",
            _in_source(asks.verify_without_kernel),
            _hybrid_on_workstation,
            "a verify pass of these layers runs on Triton, and another kernel computes the same state",
            "",
        ),
        asks.verify_without_kernel,
        "linear_attn_decode_backend",
        ("flashinfer",),
    ),
    BackendDefect(
        Defect(
            "sglang-state-rule-by-option",
            DefectLink.BACKEND,
            Harm.WEAKENS,
            "FlashInfer's kernels for a state in BF16 are chosen by the option, not by the checkpoint",
            "none known",
            ("0.5.12", "0.5.23"),
            "a rule that sets the decode backend by --mamba-ssm-dtype",
            _in_source(asks.state_rule_by_option),
            _short_state_on_datacentre,
            "decode and verify run on Triton although the checkpoint keeps its state in BF16",
            "--mamba-ssm-dtype bfloat16",
        ),
        asks.state_rule_by_option,
        FIELD,
        (None,),
    ),
)


def shown_defects(
    checkpoint: ServedCheckpoint, situation: Situation, values: ValuesInForce
) -> tuple[BackendDefect, ...]:
    """The known defects of this link that would show with this command, in a source that has them."""
    return tuple(entry for entry in BACKEND_DEFECTS if _shows(entry, checkpoint, situation, values))


def _shows(
    entry: BackendDefect, checkpoint: ServedCheckpoint, situation: Situation, values: ValuesInForce
) -> bool:
    value = values.values.get(entry.field)
    is_so = not isinstance(value, Unknown) and value in entry.values
    return is_so and entry.defect.applies(checkpoint, situation)
