"""The kernels of dense layers: projections, shared experts, output head, MTP projection."""

from __future__ import annotations

from draftproof.checkpoint.precision import Precision
from draftproof.errors import SourceError
from draftproof.stacks.backend_facts import KernelChoice, Operation, Phase
from draftproof.stacks.evaluation import Given, Missing, Named
from draftproof.stacks.module_groups import NVFP4, ModuleGroup
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.sglang.backend.kernel_reach import DENSE, is_native, reach_of, triton_refusal
from draftproof.stacks.sglang.backend.quantised_methods import (
    DENSE_METHODS,
    FP4_CHOICE,
    FP8_CHOICE,
    MODELOPT,
    UNQUANTISED,
    WEIGHT_ONLY_DENSE,
    MethodClass,
    quant_config,
)
from draftproof.stacks.sglang.backend.selector import Answer, Selectors, choosing_places
from draftproof.stacks.source import SourceTree
from draftproof.stacks.syntax import find_class, find_function

_FP8 = (Precision.FP8_BLOCK, Precision.FP8_TENSOR, Precision.FP8_CHANNEL)
_PLAIN = (Precision.BF16, Precision.FP16, Precision.FP32)
FP4_FUNCTION = "initialize_fp4_gemm_config"
FP8_AUTO = "_dispatch_auto_backend"
FP8_INITIAL = "initialize_fp8_gemm_config"
BF16_FUNCTION = "initialize_bf16_gemm_config"
CUBLAS = "cuBLAS"
DEEPGEMM = "deepgemm"
_LIBRARY_CHOICE = "FlashInfer's own choice"


def dense_choice(selectors: Selectors, group: ModuleGroup) -> KernelChoice:
    """The kernel of one group of dense layers."""
    precision = group.precision
    if precision in _PLAIN:
        backend, valid, explicit = _plain(selectors)
    elif precision in NVFP4:
        backend, valid, explicit = _packed(selectors, precision)
    elif precision in _FP8:
        backend, valid, explicit = _scaled(selectors, precision)
    else:
        sentence = f"no rule for dense layers in {precision.value}"
        backend, valid, explicit = not_understood(sentence), not_understood(sentence), ""
    name = backend.value or ""
    needs = selectors.packages.needs(name, backend.places)
    return KernelChoice(
        Operation.DENSE_GEMM,
        group.name,
        precision.value,
        Phase.ANY,
        backend,
        valid,
        native=is_native(name, precision.bits, selectors.gpu) if name and valid.value is not False else None,
        explicit=explicit,
        needs=needs,
    )


_Found = tuple[Reading[str], Reading[bool], str]


def _plain(selectors: Selectors) -> _Found:
    valid = found(True, f"{CUBLAS} multiplies BF16 on every GPU from SM80 on")
    if function_place(selectors.tree, UNQUANTISED, BF16_FUNCTION) is None:
        linear = function_place(selectors.tree, UNQUANTISED, "UnquantizedLinearMethod.apply")
        if linear is None:
            return _lost(f"looked for UnquantizedLinearMethod.apply in {UNQUANTISED}")
        return found(CUBLAS, "torch's linear function", linear), valid, ""
    answer = selectors.ask("plain_gemm", selectors.arguments)
    reading = reading_of(selectors, answer, UNQUANTISED, BF16_FUNCTION, "bf16_gemm_backend")
    if answer.raised is not None:
        return reading, found(False, answer.raised.message, answer.raised.place), "--bf16-gemm-backend auto"
    if reading.value in ("auto", "torch"):
        reading = found(CUBLAS, f"{BF16_FUNCTION} leaves it to torch", *reading.places)
    elif reading.value == "cutedsl":
        valid = found(True, "for the shapes that it was tuned for; the others are multiplied by cuBLAS")
    return reading, valid, ""


def _packed(selectors: Selectors, precision: Precision) -> _Found:
    answer = selectors.ask("packed_gemm", selectors.arguments)
    reading = reading_of(selectors, answer, FP4_CHOICE, FP4_FUNCTION, "fp4_gemm_runner_backend")
    if reading.value == "auto":
        sentence = f"{FP4_FUNCTION} leaves it at auto: {_LIBRARY_CHOICE} for the shapes at hand"
        reading = found("flashinfer", sentence, *reading.places)
    refusal = least_capability(selectors, DENSE_METHODS[precision])
    if refusal is not None and precision is Precision.NVFP4_COMPRESSED:
        fallback = class_place(selectors.tree, WEIGHT_ONLY_DENSE)
        if fallback is not None:
            sentence = f"{WEIGHT_ONLY_DENSE.name} in its place"
            return found("marlin", sentence, fallback), found(True, refusal.sentence, *refusal.places), ""
    if refusal is not None:
        return reading, refusal, ""
    if reading.value is None:
        return reading, not_understood(reading.sentence, *reading.places), ""
    return reading, _reached(selectors, reading.value), ""


def _scaled(selectors: Selectors, precision: Precision) -> _Found:
    wanted = precision if precision in DENSE_METHODS else Precision.FP8_TENSOR
    method = DENSE_METHODS[wanted]
    answer = selectors.ask(
        "scaled_gemm", selectors.arguments, Named(method.file, method.name), quant_config(wanted)
    )
    refusal = least_capability(selectors, method)
    if not answer.is_known:
        reading: Reading[str] = not_known(answer, f"{method.name} and {FP8_AUTO} of {FP8_CHOICE}")
        if answer.raised is not None:
            return reading, found(False, str(answer.raised), answer.raised.place), "--fp8-gemm-backend auto"
        return reading, refusal or not_understood(reading.sentence, *reading.places), ""
    by_marlin, function, by_cutlass = answer.value
    own = function_place(selectors.tree, method.file, f"{method.name}.__init__")
    own_places = () if own is None else (own,)
    if by_marlin:
        reading = found(
            "marlin", f"{method.name} turns weights into BF16 on GPUs without FP8 units", *own_places
        )
    elif wanted is Precision.FP8_BLOCK and function:
        places = choosing_places(selectors.tree, FP8_CHOICE, FP8_AUTO, function)
        explicit = choosing_places(selectors.tree, FP8_CHOICE, FP8_INITIAL, function.partition("_")[0])
        sentence = f"{function} runs layers with block scales"
        reading = found(function.partition("_w8a8")[0], sentence, *places, *explicit[:1])
    else:
        name = "cutlass" if by_cutlass else "torch._scaled_mm"
        reading = found(name, f"{method.name} with one scale", *own_places)
    if refusal is not None:
        return reading, refusal, ""
    return reading, _admitted(selectors, reading), _other_than_deepgemm(selectors, reading)


def _admitted(selectors: Selectors, reading: Reading[str]) -> Reading[bool]:
    if _is_deepgemm_beyond(selectors, reading):
        sentence = (
            f"{DEEPGEMM} was first built for SM90 and SM100, and this version does not ask whether the "
            f"installed build has kernels for {selectors.gpu.architecture}"
        )
        return not_understood(sentence, *reading.places[:1])
    without_fp8 = triton_refusal(reading.value or "", Precision.FP8_BLOCK.bits, selectors.gpu)
    if without_fp8 is not None:
        return found(False, without_fp8, *reading.places[:1])
    return found(True, "its own conditions admit the GPU", *reading.places[:1])


def _other_than_deepgemm(selectors: Selectors, reading: Reading[str]) -> str:
    return "--fp8-gemm-backend triton" if _is_deepgemm_beyond(selectors, reading) else ""


def _is_deepgemm_beyond(selectors: Selectors, reading: Reading[str]) -> bool:
    return reading.value == DEEPGEMM and selectors.gpu.capability in (120, 121)


def reading_of(selectors: Selectors, answer: Answer, file: str, function: str, field: str) -> Reading[str]:
    """A selector's answer as a reading: the line that chooses, then where the option was set."""
    if not answer.is_known or not isinstance(answer.value, str):
        return not_known(answer, f"{function} in {file}")
    places = (*choosing_places(selectors.tree, file, function, answer.value), *selectors.values.at(field))
    asked = selectors.values.text(field) or "auto"
    how = f"{field} is {asked}" if asked != "auto" else f"{function} chooses it"
    return found(answer.value, how, *places)


def least_capability(selectors: Selectors, method: MethodClass) -> Reading[bool] | None:
    """The refusal of a GPU below the quantisation's own minimum; None when it is admitted or says nothing."""
    if not method.config_name:
        return None
    name = f"{method.config_name}.get_min_capability"
    place = function_place(selectors.tree, method.file, name)
    if place is None:
        return None
    subject = Given(
        "quant_config", {"use_mxfp8": False}, method.file, method.config_name, missing=Missing.NONE
    )
    definition = find_function(selectors.tree, method.file, name)
    is_bound = definition is not None and definition.parameters[:1] == ("self",)
    answer = selectors.call(method.file, name, *((subject,) if is_bound else ()))
    least = answer.value
    if not isinstance(least, int) or selectors.gpu.capability >= least:
        return None
    architecture = selectors.gpu.architecture
    return found(
        False, f"{method.config_name} asks for SM{least} at least, and this is {architecture}", place
    )


def _reached(selectors: Selectors, backend: str) -> Reading[bool]:
    reach = reach_of(DENSE, backend)
    capability = selectors.gpu.capability
    if reach is not None and capability not in reach.capabilities:
        return found(False, f"{reach.sentence}, and this is {selectors.gpu.architecture}")
    if backend == "flashinfer" and not selectors.gpu.has_native_fp4:
        return found(
            False, f"FlashInfer multiplies FP4 on Blackwell, and this is {selectors.gpu.architecture}"
        )
    place = function_place(selectors.tree, MODELOPT, "fp4_gemm")
    return found(True, "no condition of the source speaks against it", *(() if place is None else (place,)))


def class_place(tree: SourceTree, method: MethodClass) -> Place | None:
    """The line of a method's class; None when the version has none."""
    try:
        definition = find_class(tree, method.file, method.name) if tree.has(method.file) else None
    except SourceError:
        return None
    return None if definition is None else definition.place


def function_place(tree: SourceTree, file: str, name: str) -> Place | None:
    """The line of a function; None when the version has none of that name."""
    try:
        definition = find_function(tree, file, name) if tree.has(file) else None
    except SourceError:
        return None
    return None if definition is None else definition.place


def not_known(answer: Answer, looked_for: str) -> Reading[str]:
    """A reading that says why a selector's answer is not known."""
    text = str(answer.raised) if answer.raised is not None else answer.lost or f"it gave {answer.value!r}"
    place = answer.raised.place if answer.raised is not None else answer.place
    return not_understood(f"looked for {looked_for}: {text}", *(() if place is None else (place,)))


def _lost(sentence: str) -> _Found:
    return not_understood(sentence), not_understood(sentence), ""
