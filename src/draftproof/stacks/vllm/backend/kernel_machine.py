"""The machine on which vLLM's own selectors are asked for kernels: a GPU that is not there, and packages."""

from __future__ import annotations

import ast
import importlib.resources
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from draftproof.errors import SourceError
from draftproof.stacks.evaluation import Evaluator, Named, Symbol
from draftproof.stacks.evaluation.unknowns import Value
from draftproof.stacks.evaluation.values import Arguments, NativeFunction
from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.source import SourceTree
from draftproof.stacks.torch_names import PARTS

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

DRIVER = "draftproof_stand_ins/vllm_kernels.py"
ENVIRONMENT = "vllm/envs.py"
FLASHINFER_HELPERS = "vllm/utils/flashinfer.py"
_FIRST_WITH_FP4_UNITS = 100
_CUDA_MAJOR = 13
_ABBREVIATIONS = {
    Symbol(f"torch.{name}"): name
    for name in (
        *("uint8", "int8", "int32", "bfloat16", "float16", "float32"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    )
}
"""For messages: how torch abbreviates its types is no matter of the choice."""


@dataclass(frozen=True)
class Machine:
    """What selectors look at besides the layer.

    Attributes:
        capability: compute capability times ten.
        has_flashinfer: FlashInfer can be imported and has its kernels, or can build them.
        has_humming: humming-kernels can be imported.
        has_deep_gemm: DeepGEMM can be imported, from the wheel itself or from beside it.
        environment: variables that the command sets.
        options: values of the kernel options that the command gives: "linear_backend", "moe_backend".
    """

    capability: int
    has_flashinfer: bool
    has_humming: bool
    has_deep_gemm: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)


def kernel_evaluator(tree: SourceTree, machine: Machine) -> Evaluator:
    """An evaluator in which the driver's questions are answered by a version's own selectors.

    Raises:
        SourceError: a module that is replaced cannot be read.
    """
    folder = importlib.resources.files("draftproof.stacks.stand_ins")
    texts = {path: (folder / path.rpartition("/")[2]).read_text("utf-8") for path in (DRIVER, PARTS)}
    overlaid = OverlaidTree(tree, {**texts, "draftproof_stand_ins/__init__.py": ""})
    return Evaluator(overlaid, _substitutes(tree, machine))


def on_other_machine(evaluator: Evaluator, tree: SourceTree, machine: Machine) -> Evaluator:
    """An evaluator for another machine, which shares what was read and compiled.

    Raises:
        SourceError: a module that is replaced cannot be read.
    """
    return evaluator.sharing(_substitutes(tree, machine))


def _substitutes(tree: SourceTree, machine: Machine) -> dict[str, Any]:
    module = DRIVER.removesuffix(".py").replace("/", ".")
    kernels = {"linear_backend": "auto", "moe_backend": "auto", **machine.options}
    made: dict[str, Any] = {
        "vllm.platforms.current_platform": Named(DRIVER, "PLATFORM"),
        f"{module}.MACHINE": {"capability": machine.capability, "cuda": _CUDA_MAJOR, **kernels},
        "vllm.utils.import_utils.resolve_obj_by_qualname": NativeFunction(
            "resolve_obj_by_qualname", _resolve
        ),
        # Compiled code answers this one, by the GPU alone as far as Python can tell.
        "vllm._custom_ops.cutlass_scaled_mm_supports_fp4": _has_fp4_units,
        "vllm._custom_ops.cutlass_scaled_mm_supports_fp8": lambda capability: capability >= 89,
        "vllm._custom_ops.cutlass_scaled_mm_supports_block_fp8": lambda capability: capability >= 90,
        "vllm._custom_ops.cutlass_group_gemm_supported": lambda capability: capability >= 90,
        "vllm.config.vllm.get_current_vllm_config_or_none": Named(DRIVER, "configuration"),
        "vllm.config.vllm.get_current_vllm_config": Named(DRIVER, "configuration"),
        "vllm.utils.torch_utils.supports_custom_op": _answer(True),
        "vllm.model_executor.custom_op.CustomOp.__init__": _do_nothing,
        "vllm.utils.humming.GemmType": Named(DRIVER, "HummingKind"),
        "torch.fx.graph.dtype_abbrs": _ABBREVIATIONS,
        "torch.nn.Module": Named(PARTS, "Module"),
        "pydantic.ConfigDict": dict,
    }
    made["vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn.supports_fused_mtp_decode"] = _answer(
        True
    )
    made |= {f"vllm.envs.{name}": value for name, value in _environment(tree, machine).items()}
    for name in _questions(tree, FLASHINFER_HELPERS, "has_"):
        made[f"vllm.utils.flashinfer.{name}"] = _answer(machine.has_flashinfer)
    made["vllm.utils.import_utils.has_humming"] = _answer(machine.has_humming)
    made["vllm.utils.import_utils.has_deep_gemm"] = _answer(machine.has_deep_gemm)
    return made


def _resolve(run: Run, arguments: Arguments) -> Value:
    """A class by its full name, as Python would import it."""
    module, _, name = str(arguments.positional[0]).rpartition(".")
    return run.attribute(run.program.module(run, module), name, arguments.place)


def _do_nothing(*positional: Any, **keywords: Any) -> None:
    """A constructor whose work is no matter of the choice."""


def _has_fp4_units(capability: int) -> bool:
    return capability >= _FIRST_WITH_FP4_UNITS


def _answer(value: bool) -> Callable[..., bool]:
    def answer(*positional: Any, **keywords: Any) -> bool:
        return value

    return answer


def _questions(tree: SourceTree, file: str, prefix: str) -> tuple[str, ...]:
    """The functions of a module that answer whether something is there."""
    try:
        body = tree.syntax(file).body
    except SourceError:
        return ()
    return tuple(
        node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith(prefix)
    )


def _environment(tree: SourceTree, machine: Machine) -> dict[str, Any]:
    """Every variable of the version with its declared default, or what the command sets it to."""
    values: dict[str, Any] = {}
    for node in ast.walk(tree.syntax(ENVIRONMENT)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            try:
                values[node.target.id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    for name, text in machine.environment.items():
        if name in values:
            values[name] = _like(text, values[name])
    return values


def _like(text: str, default: Any) -> Any:
    """A variable's text as a value of its default's kind."""
    if isinstance(default, bool) and text.lstrip("-").isdigit():
        return bool(int(text))
    if isinstance(default, int) and text.lstrip("-").isdigit():
        return int(text)
    return text
