"""The command that runs a checkpoint on draftproof's own engine, with the head on."""

from __future__ import annotations

from draftproof.stacks.gathered_tensors import alike_in
from draftproof.stacks.launch_facts import LaunchPlan, PlannedFlag
from draftproof.stacks.native.options import COMMAND, read_options
from draftproof.stacks.native.own_source import BUILD, CONFIG, function_place
from draftproof.stacks.place import Place
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree

DRAFTER, DRAFT_TOKENS, DEVICE, DTYPE, WEIGHTS = "--drafter", "--k", "--device", "--dtype", "--weights"
MAX_LENGTH = "--max-length"
NEXTN = "nextn"


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

    device = function_place(tree, BUILD, "_device")
    count = str(situation.draft_tokens)
    flags = [
        PlannedFlag("", checkpoint.name, "the checkpoint"),
        PlannedFlag("", "Once upon a time", "a prompt; '-' reads standard input"),
        *flag(
            DRAFTER, NEXTN, "the head drafts, the target decides", function_place(tree, BUILD, "wire_engine")
        ),
        *flag(DRAFT_TOKENS, count, "drafts per verify pass"),
    ]
    if situation.gpu is not None:
        flags += flag(DEVICE, "cuda", "any device that torch knows", device)
        flags += flag(DTYPE, "bfloat16", "half the memory of the default, float32", Place(CONFIG, 1))
    if is_quantised(checkpoint):
        flags += flag(WEIGHTS, "packed", "as stored, unpacked at every use; the default unpacks once at load")
    flags += flag(MAX_LENGTH, str(situation.context), "the context that was asked for")
    return LaunchPlan(("draftproof", COMMAND), tuple(flags))


def is_quantised(checkpoint: ServedCheckpoint) -> bool:
    """Any weight is stored in another form than plain floating point."""
    if not checkpoint.from_files:
        return "quantization_config" in checkpoint.config or checkpoint.hf_quant_config is not None
    plain = ("BF16", "F16", "F32", "I64")
    kinds = (*alike_in(checkpoint.head), *alike_in(checkpoint.trunk))
    return any(kind.first.dtype not in plain for kind in kinds)
