"""The command that serves a checkpoint with draftproof's own engine, with the head on."""

from __future__ import annotations

from draftproof.stacks.gathered_tensors import alike_in
from draftproof.stacks.launch_facts import LaunchPlan, PlannedFlag
from draftproof.stacks.native.options import read_options
from draftproof.stacks.native.own_source import BUILD, CONFIG, SERVE, constant, function_place
from draftproof.stacks.place import Place
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree

DRAFTER, DRAFT_TOKENS, POLICY, DEVICE, WEIGHTS = "--drafter", "--k", "--draft-policy", "--device", "--weights"
MAX_LENGTH, MAX_SEQUENCES = "--max-length", "--max-num-seqs"
NEXTN, ADAPTIVE = "nextn", "adaptive"
USUAL_SEQUENCES = 8
"""Sequences at a time that a server has room for, when nobody asks for more."""


def plan(tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation) -> LaunchPlan:
    """A command for one device; options that this version does not have are left out.

    Raises:
        SourceError: a file of the engine cannot be read or parsed.
    """
    table = read_options(tree).value

    def flag(name: str, value: str, reason: str, *places: Place | None) -> tuple[PlannedFlag, ...]:
        option = table.get(name) if table else None
        if option is None:
            return ()
        return (PlannedFlag(option.name, value, reason, (option.place, *(p for p in places if p))),)

    def function(name: str) -> Place | None:
        return function_place(tree, BUILD, name)

    drafts = str(situation.draft_tokens)
    most = constant(tree, CONFIG, "MAX_DRAFT_TOKENS")
    sequences = str(max(situation.concurrency, USUAL_SEQUENCES))
    flags = [
        PlannedFlag(
            checkpoint.name, None, "the checkpoint", tuple(filter(None, (function("build_engine"),)))
        ),
        *flag(DRAFTER, NEXTN, "the head drafts, the target decides", function("wire_engine")),
        *flag(DRAFT_TOKENS, drafts, "most drafts per verify pass", most[1] if most else None),
        *flag(
            POLICY,
            ADAPTIVE,
            "as many drafts as pay for the batch at hand, none among the choices",
            function("draft_choice"),
        ),
    ]
    if situation.gpu is not None:
        reason = "steps are programs of GPU kernels; activations are bfloat16, weights stay as stored"
        flags += flag(DEVICE, "cuda", reason, function("load_target"))
    elif is_quantised(checkpoint):
        flags += flag(WEIGHTS, "packed", "as stored, unpacked at every use; the default unpacks once at load")
    flags += flag(
        MAX_LENGTH, str(situation.context), "the context that was asked for", function("_max_length")
    )
    flags += flag(MAX_SEQUENCES, sequences, "sequences that run at a time", function("state_sizes"))
    return LaunchPlan(("draftproof", SERVE), tuple(flags))


def is_quantised(checkpoint: ServedCheckpoint) -> bool:
    """Any weight is stored in another form than plain floating point."""
    if not checkpoint.from_files:
        return "quantization_config" in checkpoint.config or checkpoint.hf_quant_config is not None
    plain = ("BF16", "F16", "F32", "I64")
    kinds = (*alike_in(checkpoint.head), *alike_in(checkpoint.trunk))
    return any(kind.first.dtype not in plain for kind in kinds)
