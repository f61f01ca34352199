"""The kernels of routed experts, of trunk and head: the version's own classes say which they run."""

from __future__ import annotations

import ast
from dataclasses import replace

from draftproof.checkpoint.precision import Precision
from draftproof.stacks.backend_facts import KernelChoice, Operation, Phase
from draftproof.stacks.evaluation import Named
from draftproof.stacks.module_groups import NVFP4, ModuleGroup
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.sglang.backend.dense_kernels import (
    class_place,
    function_place,
    least_capability,
    not_known,
)
from draftproof.stacks.sglang.backend.kernel_reach import (
    DATACENTRE,
    EXPERTS,
    is_native,
    reach_of,
    triton_refusal,
)
from draftproof.stacks.sglang.backend.quantised_methods import (
    EXPERT_METHODS,
    WEIGHT_ONLY_EXPERTS,
    MethodClass,
    quant_config,
)
from draftproof.stacks.sglang.backend.selector import Answer, Selectors, choosing_places
from draftproof.stacks.sglang.trtllm_gate import only_for_datacentre
from draftproof.stacks.syntax import calls_of, find_function

FIELD = "moe_runner_backend"
DRAFT_FIELD = "speculative_moe_runner_backend"
OPTION = "--moe-runner-backend"
DRAFT_OPTION = "--speculative-moe-runner-backend"
TRTLLM = "flashinfer_trtllm"
DIRECT = "cutlass_moe_fp4"
"""SGLang's own CUTLASS kernels, which older versions call past every runner."""
NO_FP4 = "triton"
"""A runner without FP4 kernels: a class that makes it for FP4 weights does not use it."""
_LAYOUT = ("enable_flashinfer_trtllm_moe", "use_flashinfer_trtllm")
"""Attributes that say whether weights are laid out as TRT-LLM reads them."""
_APPLY = ("apply", "apply_weights")
CREATE = "create_moe_runner"
_PREFERRED = (TRTLLM, "flashinfer_cutlass", "marlin")
"""Runners for NVFP4 that are tried when the automatic choice cannot run, those for FP4 units first."""
_CONVERTING = ("marlin",)
_NOT_CONVERTING = (TRTLLM, "flashinfer_cutlass", "triton")


def expert_choice(selectors: Selectors, group: ModuleGroup) -> KernelChoice:
    """The kernel of one group of experts."""
    backend, valid = _chosen(selectors, group)
    explicit = ""
    if backend.is_found and not valid.value:
        explicit = _remedy(selectors, group)
    name = backend.value or ""
    return KernelChoice(
        Operation.EXPERT_GEMM,
        group.name,
        group.precision.value,
        Phase.ANY,
        backend,
        valid,
        native=is_native(name, group.precision.bits, selectors.gpu)
        if name and valid.value is not False
        else None,
        explicit=explicit,
        needs=selectors.packages.needs(name, backend.places) if valid.value is not False else (),
    )


_Found = tuple[Reading[str], Reading[bool]]


def _chosen(selectors: Selectors, group: ModuleGroup) -> _Found:
    method = EXPERT_METHODS.get(group.precision)
    if method is None or class_place(selectors.tree, method) is None:
        wanted = method.name if method is not None else f"a rule for experts in {group.precision.value}"
        sentence = f"looked for {wanted}"
        return not_understood(sentence), not_understood(sentence)
    refusal = least_capability(selectors, method)
    if refusal is not None and group.precision is Precision.NVFP4_COMPRESSED:
        place = class_place(selectors.tree, WEIGHT_ONLY_EXPERTS)
        if place is not None:
            reading = found("marlin", f"{WEIGHT_ONLY_EXPERTS.name} in its place", place)
            return reading, found(True, refusal.sentence, *refusal.places)
    answer = _ask(selectors, method, group)
    if not answer.is_known:
        reading = not_known(answer, f"{method.name}.{CREATE} in {method.file}")
        if answer.raised is not None:
            return reading, found(False, answer.raised.message or str(answer.raised), answer.raised.place)
        return reading, refusal or not_understood(reading.sentence, *reading.places)
    reading = _reading(selectors, method, group, answer)
    if refusal is not None:
        return reading, refusal
    if reading.value is None:
        return reading, not_understood(reading.sentence, *reading.places)
    return reading, _admitted(selectors, method, group, reading.value, answer)


def _ask(selectors: Selectors, method: MethodClass, group: ModuleGroup) -> Answer:
    attributes = [quant_config(group.precision)] if method.takes_config else []
    taken = _parameters(selectors, method)
    switches = {name: runner for name, runner in method.switches if name in taken}
    return selectors.ask(
        "expert_runner",
        selectors.arguments,
        Named(method.file, method.name),
        attributes,
        switches,
        group.is_draft,
    )


def _parameters(selectors: Selectors, method: MethodClass) -> tuple[str, ...]:
    definition = find_function(selectors.tree, method.file, f"{method.name}.__init__")
    return () if definition is None else definition.parameters


def _reading(selectors: Selectors, method: MethodClass, group: ModuleGroup, answer: Answer) -> Reading[str]:
    runner, asked, _ = answer.value
    function = f"{method.name}.{CREATE}"
    own = function_place(selectors.tree, method.file, function)
    field = DRAFT_FIELD if group.is_draft and selectors.values.text(DRAFT_FIELD) else FIELD
    set_at = selectors.values.at(field)
    direct = _direct(selectors, method, group, answer)
    if direct is not None:
        sentence = f"{method.name} calls it past the runner, for {field} {asked}"
        return found(DIRECT, sentence, direct, *set_at)
    if runner == NO_FP4 and group.precision in NVFP4 and answer.value[2]:
        place = _layout_place(selectors, method)
        return found(TRTLLM, f"{field} is {asked}", *((place,) if place else ()), *set_at)
    if runner is None and group.precision in NVFP4 and asked != "auto":
        places = choosing_places(selectors.tree, method.file, f"{method.name}.{_APPLY[0]}", asked)
        return found(asked, f"{method.name} runs it itself", *places, *set_at)
    if runner is None:
        sentence = f"{function} makes no runner for {field} {asked}"
        return not_understood(sentence, *((own,) if own else ()))
    places = choosing_places(selectors.tree, method.file, function, runner)
    how = f"{field} is {asked}" if asked == runner else f"{function} chooses it for {field} {asked}"
    return found(runner, how, *places, *set_at)


def _direct(selectors: Selectors, method: MethodClass, group: ModuleGroup, answer: Answer) -> Place | None:
    """The call of the stack's own kernels, where the version reaches it; None where it does not.

    It is reached when nothing else was asked for, and the class looks at the layout of the weights, or has no
    runner for them, before it runs experts.
    """
    runner, asked, layout = answer.value
    is_otherwise = asked == "flashinfer_cutlass" and runner != NO_FP4
    if group.precision not in NVFP4 or layout or is_otherwise:
        return None
    for name in _APPLY:
        definition = find_function(selectors.tree, method.file, f"{method.name}.{name}")
        calls = calls_of(method.file, definition.node, DIRECT) if definition is not None else ()
        if definition is not None and calls:
            asks = any(
                isinstance(node, ast.If) and _names_layout(node.test) for node in ast.walk(definition.node)
            )
            return calls[0].place if asks or runner in (None, NO_FP4) else None
    return None


def _names_layout(test: ast.expr) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr in _LAYOUT)
        or (isinstance(node, ast.Constant) and node.value == "gemm1_weights_fp4_shuffled")
        for node in ast.walk(test)
    )


def _admitted(
    selectors: Selectors, method: MethodClass, group: ModuleGroup, backend: str, answer: Answer
) -> Reading[bool]:
    """By what the kernels were built for, and by whether weights are laid out for them."""
    architecture = selectors.gpu.architecture
    if backend == DIRECT:
        return _direct_admitted(selectors, method)
    reach = reach_of(EXPERTS, backend)
    if reach is not None and selectors.gpu.capability not in reach.capabilities:
        gate = only_for_datacentre(selectors.tree) if backend == TRTLLM else None
        seen = f"; {gate.sentence}" if gate is not None and gate.value else ""
        return found(
            False,
            f"{reach.sentence}, and this is {architecture}{seen}",
            *(gate.places[:2] if gate is not None else ()),
        )
    without_fp8 = triton_refusal(backend, group.precision.bits, selectors.gpu)
    if without_fp8 is not None:
        return found(False, without_fp8)
    layout = answer.value[2]
    if backend == TRTLLM and group.precision in NVFP4 and layout is False:
        place = _layout_place(selectors, method)
        sentence = f"weights are laid out by {FIELD} {answer.value[1]}, not as {TRTLLM} reads them"
        return found(False, sentence, *((place,) if place else ()))
    return found(True, f"its own conditions admit {architecture}", *_own(selectors, method))


def _direct_admitted(selectors: Selectors, method: MethodClass) -> Reading[bool]:
    architecture = selectors.gpu.architecture
    if selectors.gpu.capability in DATACENTRE:
        return found(True, f"its own conditions admit {architecture}", *_own(selectors, method))
    return not_understood(
        f"{DIRECT} is compiled code of sgl-kernel; whether it has kernels for {architecture} is not "
        "visible in the source"
    )


def _own(selectors: Selectors, method: MethodClass) -> tuple[Place, ...]:
    place = function_place(selectors.tree, method.file, f"{method.name}.__init__")
    return () if place is None else (place,)


def _layout_place(selectors: Selectors, method: MethodClass) -> Place | None:
    for name in _LAYOUT:
        places = choosing_places(selectors.tree, method.file, f"{method.name}.__init__", name)
        if len(places) > 1:
            return places[0]
    return function_place(selectors.tree, method.file, f"{method.name}.__init__")


def _remedy(selectors: Selectors, group: ModuleGroup) -> str:
    """The first runner that the same rules admit when it is asked for by name."""
    fields = (FIELD, DRAFT_FIELD) if group.is_draft else (FIELD,)
    runners: tuple[str, ...] = _PREFERRED
    if group.precision not in NVFP4:
        runners = _NOT_CONVERTING
    elif not selectors.gpu.has_native_fp4:
        runners = _CONVERTING
    for runner in runners:
        values = {**selectors.values.values, **dict.fromkeys(fields, runner)}
        other = selectors.asking(replace(selectors.values, values=values))
        backend, valid = _chosen(other, group)
        if backend.value == runner and valid.value:
            return f"{DRAFT_OPTION if group.is_draft else OPTION} {runner}"
    return ""
