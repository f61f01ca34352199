"""Which kernels a version of vLLM chooses for a checkpoint's matrices: linear layers and experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from draftproof.checkpoint.precision import Precision
from draftproof.hardware.gpu import NATIVE_FP4, NATIVE_FP8
from draftproof.stacks.backend_facts import KernelChoice, Operation, Phase
from draftproof.stacks.evaluation import Evaluator
from draftproof.stacks.module_groups import NVFP4, ModuleGroup
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.backend.kernel_machine import Machine, on_other_machine
from draftproof.stacks.vllm.backend.kernel_questions import Answer, ask
from draftproof.stacks.vllm.backend.kernel_site import converts_weights, kernel_site, libraries_of
from draftproof.stacks.vllm.backend.library_needs import needs_of

LINEAR = "vllm/model_executor/kernels/linear/__init__.py"
EARLIER_NVFP4 = "vllm/model_executor/layers/quantization/utils/nvfp4_utils.py"
EARLIER_FP8 = "vllm/model_executor/layers/quantization/utils/fp8_utils.py"
_ORACLES = {
    "nvfp4": "vllm/model_executor/layers/fused_moe/oracle/nvfp4.py",
    "fp8": "vllm/model_executor/layers/fused_moe/oracle/fp8.py",
    "plain": "vllm/model_executor/layers/fused_moe/oracle/unquantized.py",
}
_WEIGHT_ONLY = ("marlin", "humming")
_PLAIN = "default_unquantized_gemm"
_CUBLAS = "torch (cuBLAS)"
_FP8 = (Precision.FP8_BLOCK, Precision.FP8_TENSOR, Precision.FP8_CHANNEL)


@dataclass(frozen=True)
class MatrixQuestion:
    """What the kernels of matrices are asked with.

    Attributes:
        stack: the version.
        machine: the GPU and the packages.
        evaluator: in which its selectors are asked.
        experts: the driver's description of a layer of experts; empty for a dense model.
        rows: of a typical matrix.
        columns: of it.
        draft_backend: the experts' backend that the command asks for in the head; empty for the target's.
    """

    stack: Stack
    machine: Machine
    evaluator: Evaluator
    experts: Mapping[str, Any]
    rows: int
    columns: int
    draft_backend: str = ""


def matrix_choices(question: MatrixQuestion, groups: tuple[ModuleGroup, ...]) -> Iterator[KernelChoice]:
    """One choice for each group of matrices."""
    without = on_other_machine(
        question.evaluator, question.stack.tree, replace(question.machine, has_flashinfer=False)
    )
    asked: dict[tuple[Any, ...], KernelChoice] = {}
    for group in groups:
        key = (group.precision, group.is_expert, group.weight_only, group.is_expert and group.is_draft)
        if key not in asked:
            asked[key] = _choice(question, group, without)
        yield replace(asked[key], group=group.name, is_promised=group.is_promised)


def _choice(question: MatrixQuestion, group: ModuleGroup, without: Evaluator) -> KernelChoice:
    answer = _ask(question, group, question.evaluator)
    backend, valid, name = _read(question, group, answer)
    if name and libraries_of(name):
        instead = _named(_ask(question, group, without))
        if question.machine.has_flashinfer and instead and instead != name:
            backend = replace(backend, sentence=f"{backend.sentence}; without FlashInfer {instead}")
    return KernelChoice(
        operation=Operation.EXPERT_GEMM if group.is_expert else Operation.DENSE_GEMM,
        group=group.name,
        precision=group.precision.value,
        phase=Phase.ANY,
        backend=backend,
        valid=valid,
        native=_is_native(group.precision, name, question.machine.capability) if name else None,
        needs=needs_of(question.stack, libraries_of(name), name) if name else (),
    )


def _is_native(precision: Precision, kernel: str, capability: int) -> bool:
    """Whether the GPU's own units multiply the weights as they are stored."""
    if precision in NVFP4:
        return capability >= NATIVE_FP4 and not converts_weights(kernel)
    if precision in _FP8:
        return capability >= NATIVE_FP8 and not any(word in kernel.lower() for word in _WEIGHT_ONLY)
    return True


def _ask(question: MatrixQuestion, group: ModuleGroup, evaluator: Evaluator) -> Reading[Answer]:
    if group.is_expert:
        return _ask_experts(question, group, evaluator)
    tree = question.stack.tree
    if group.precision in NVFP4:
        if tree.has(LINEAR) and "def init_nvfp4_linear_kernel" in tree.text(LINEAR):
            return ask(evaluator, "nvfp4_linear", group.weight_only)
        return ask(evaluator, "earlier_nvfp4_linear")
    if group.precision in _FP8:
        block = group.precision is Precision.FP8_BLOCK
        if block and "_POSSIBLE_FP8_BLOCK_KERNELS" not in (tree.text(LINEAR) if tree.has(LINEAR) else ""):
            return ask(evaluator, "earlier_fp8_linear")
        return ask(evaluator, "fp8_linear", block, question.rows, question.columns)
    if group.precision.is_plain:
        return ask(evaluator, "unquantised_linear")
    return not_understood(f"no selector is known for {group.precision.value}")


def _ask_experts(question: MatrixQuestion, group: ModuleGroup, evaluator: Evaluator) -> Reading[Answer]:
    layer = dict(question.experts)
    if not layer:
        return not_understood("the shape of the experts is not known")
    if group.is_draft and question.draft_backend:
        layer["backend"] = question.draft_backend
    if group.precision in NVFP4:
        return ask(evaluator, "nvfp4_experts", layer, group.weight_only)
    if group.precision in _FP8:
        return ask(evaluator, "fp8_experts", layer, group.precision is Precision.FP8_BLOCK)
    if group.precision.is_plain:
        return ask(evaluator, "unquantised_experts", layer)
    return not_understood(f"no selector is known for {group.precision.value}")


def _read(
    question: MatrixQuestion, group: ModuleGroup, answer: Reading[Answer]
) -> tuple[Reading[str], Reading[bool], str]:
    """The choice, whether it may run here, and the kernel's name."""
    if answer.value is None:
        lost: Reading[bool] = not_understood(answer.sentence, *answer.places)
        return not_understood(answer.sentence, *answer.places), lost, ""
    selector = _selector(question, group)
    if answer.value.error is not None:
        text = str(answer.value.error)
        places = (*answer.places, *selector)
        asked = question.draft_backend if group.is_draft and group.is_expert else ""
        asked = asked or str(question.experts.get("backend", "auto") if group.is_expert else "")
        if asked not in ("", "auto"):
            return found(asked, "asked for by name", *places), found(False, text, *places), ""
        return absent(text, *places), found(False, text, *places), ""
    name = _named(answer)
    if name == _PLAIN:
        runs = found(True, "torch's own product runs on every GPU", *selector)
        return found(_CUBLAS, f"{_PLAIN}, from {_words(selector)}", *selector), runs, _CUBLAS
    value = answer.value.value
    kernel = value[1] if isinstance(value, list) and value[1] else name
    site = kernel_site(question.stack.tree, kernel)
    gate = site.places if site is not None else selector
    sentence = f"chosen by {_words(selector)}" if selector else "chosen by its selector"
    if group.weight_only:
        sentence += "; 4-bit in the weights alone, since the checkpoint has no scales for activations"
    backend = found(name, sentence, *selector, *answer.places)
    valid = found(True, f"the conditions of {kernel} admit SM{question.machine.capability}", *gate)
    return backend, valid, name


def _named(answer: Reading[Answer]) -> str:
    """The name of what was chosen: for experts the backend with its class."""
    if answer.value is None or answer.value.error is not None:
        return ""
    value = answer.value.value
    if isinstance(value, list):
        return f"{value[0]} ({value[1]})" if value[1] else str(value[0])
    return str(value)


def _words(places: tuple[Place, ...]) -> str:
    return f"the list at {places[0]}"


def _selector(question: MatrixQuestion, group: ModuleGroup) -> tuple[Place, ...]:
    """The line of the ordered list, or of the function that holds it."""
    tree = question.stack.tree
    if group.is_expert:
        kind = "nvfp4" if group.precision in NVFP4 else "fp8" if group.precision in _FP8 else "plain"
        return _line(
            tree, _ORACLES[kind], ("AVAILABLE_BACKENDS = [", "_AVAILABLE_BACKENDS = [", "def select_")
        )
    if group.precision in NVFP4:
        return _line(tree, LINEAR, ("_POSSIBLE_NVFP4_KERNELS",)) or _line(
            tree, EARLIER_NVFP4, ("def select_nvfp4_linear_backend",)
        )
    if group.precision in _FP8:
        return _line(tree, LINEAR, ("_POSSIBLE_FP8_BLOCK_KERNELS",)) or _line(
            tree, EARLIER_FP8, ("def _dispatch_w8a8_blockscale_op",)
        )
    return _line(tree, "vllm/model_executor/layers/utils.py", ("def dispatch_unquantized_gemm",))


def _line(tree: Any, file: str, marks: tuple[str, ...]) -> tuple[Place, ...]:
    if not tree.has(file):
        return ()
    lines = tree.text(file).splitlines()
    for mark in marks:
        for number, line in enumerate(lines, 1):
            if line.strip().startswith(mark):
                return (Place(file, number),)
    return ()
