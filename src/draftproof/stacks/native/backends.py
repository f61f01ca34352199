"""Link 5 for draftproof's own engine: its kernels on a GPU, plain torch elsewhere, one state a sequence."""

from __future__ import annotations

import ast

from draftproof.architecture.tensor_plan import ModelPart, TensorGroup
from draftproof.checkpoint.precision import Precision
from draftproof.hardware.state_layout import StateLayout
from draftproof.hardware.weights import WeightTable
from draftproof.stacks.backend_facts import BackendFacts, KernelChoice, Operation, Phase
from draftproof.stacks.launch_facts import LaunchJudgement
from draftproof.stacks.native.gpu_kernels import GpuKernels, gpu_kernels
from draftproof.stacks.native.own_source import STATE_STORE, STORED_LINEAR, function_place
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree

BACKEND = "torch"
_STASH = {"recurrent", "convolution", "stash_inputs", "stash_log_decay", "stash_beta"}
_OTHERS = (
    (
        Operation.ATTENTION,
        "attention layers",
        "decode_attention",
        "draftproof/kernels/paged_attention/reference.py",
    ),
    (
        Operation.GATED_DELTA_NET,
        "mixers",
        "gated_delta_decode",
        "draftproof/kernels/gated_delta_step/reference.py",
    ),
)
_OPS = {Operation.DENSE_GEMM: "packed_linear", Operation.EXPERT_GEMM: "experts_step"}
"""The engine's ops by kind of kernel."""
_MATRICES = (
    (ModelPart.TRUNK, TensorGroup.ROUTED_EXPERT, Operation.EXPERT_GEMM, "routed experts"),
    (ModelPart.TRUNK, TensorGroup.SHARED_EXPERT, Operation.DENSE_GEMM, "shared experts"),
    (ModelPart.TRUNK, TensorGroup.DENSE_MLP, Operation.DENSE_GEMM, "MLP"),
    (ModelPart.TRUNK, TensorGroup.GATED_DELTA_NET, Operation.DENSE_GEMM, "Gated DeltaNet projections"),
    (ModelPart.TRUNK, TensorGroup.ATTENTION, Operation.DENSE_GEMM, "attention projections"),
    (ModelPart.TRUNK, TensorGroup.LM_HEAD, Operation.DENSE_GEMM, "output head"),
    (ModelPart.MTP, TensorGroup.ROUTED_EXPERT, Operation.EXPERT_GEMM, "experts of the MTP head"),
    (ModelPart.MTP, TensorGroup.MTP, Operation.DENSE_GEMM, "projection of the MTP head"),
)


def backends(
    tree: SourceTree, weights: WeightTable | None, situation: Situation, judgement: LaunchJudgement
) -> BackendFacts:
    """Which code runs each group, and how states are kept.

    On a GPU whose capability has a tuning table the table says which kernels run, and where they were tried.
    Without a GPU, or in a version without tables, every operation is plain torch, which runs on whatever the
    installed torch was built for; whether that is this device is for `draftproof doctor` on it to say.

    Raises:
        SourceError: a file of the engine cannot be read or parsed.
    """
    kernels = gpu_kernels(tree, situation.gpu) if situation.gpu else None
    choices = [
        choice
        for row in _MATRICES
        if weights
        for choice in _matrices(tree, weights, situation, kernels, *row)
    ]
    for operation, group, op, file in _OTHERS:
        backend, valid = _portable(file, _first_function(tree, file)), _open(situation)
        if kernels is not None:
            backend, valid = kernels.backend(op), kernels.valid(op)
        choices.append(KernelChoice(operation, group, "", Phase.ANY, backend, valid, native=None))
    count = judgement.resolved.draft_tokens.value
    rows = (situation.draft_tokens if count is None else count) + 1
    return BackendFacts(tuple(choices), _state_layout(tree, rows))


def _matrices(
    tree: SourceTree,
    weights: WeightTable,
    situation: Situation,
    kernels: GpuKernels | None,
    part: ModelPart,
    group: TensorGroup,
    operation: Operation,
    words: str,
) -> list[KernelChoice]:
    precisions = weights.precisions(part, group)
    refused = function_place(tree, STORED_LINEAR, "_not_loaded")
    reader = function_place(tree, STORED_LINEAR, "read_matrix")
    choices = []
    for precision in precisions[:1]:
        backend, valid = _portable(STORED_LINEAR, reader), _open(situation)
        if kernels is not None:
            backend, valid = kernels.backend(_OPS[operation]), kernels.valid(_OPS[operation])
        if not precision.is_loaded:
            sentence = f"{precision.value} is a precision that is not loaded"
            valid = found(False, sentence, *((refused,) if refused else ()))
        choices.append(
            KernelChoice(
                operation,
                words,
                precision.value,
                Phase.ANY,
                backend,
                valid,
                native=True if precision.is_plain else False if precision is not Precision.UNKNOWN else None,
                is_promised=part is ModelPart.MTP and not weights.from_files,
            )
        )
    return choices


def _portable(file: str, place: Place | None) -> Reading[str]:
    if place is None:
        return not_understood(f"looked for the operation in {file}")
    return found(BACKEND, "plain torch operations, no kernel of its own", place)


def _open(situation: Situation) -> Reading[bool]:
    where = situation.gpu.architecture if situation.gpu else "the device"
    return not_understood(
        f"plain torch operations run where the installed torch runs; whether that is {where}, and how fast, "
        "is seen by `draftproof doctor` and `draftproof verify --run` on the machine"
    )


def _first_function(tree: SourceTree, file: str) -> Place | None:
    if not tree.has(file):
        return None
    nodes = (node for node in tree.syntax(file).body if isinstance(node, ast.FunctionDef))
    return next((Place(file, node.lineno) for node in nodes), None)


def _state_layout(tree: SourceTree, rows: int) -> Reading[StateLayout]:
    """One committed state and the inputs of a window: read from what a layer's state is made of."""
    for node in ast.walk(tree.syntax(STATE_STORE)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "RecurrentState"
        ):
            if {keyword.arg for keyword in node.keywords} != _STASH:
                break
            sentence = f"one float32 state for each sequence, and the inputs of {rows} rows for replay"
            return found(StateLayout(1, 0, 4, kept_rows=rows), sentence, Place(STATE_STORE, node.lineno))
    return not_understood(f"looked for a RecurrentState of one state and a stash of inputs in {STATE_STORE}")
