"""Kernels that a command leads to and that the GPU, or the model on it, does not take."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.architecture.spec import GatedDeltaNetSpec, ModelSpec
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.sglang.launch.hybrid_attention import allowed_on_blackwell
from draftproof.stacks.sglang.launch.launch_context import LaunchContext
from draftproof.stacks.sglang.launch.model_findings import declared
from draftproof.stacks.sglang.trtllm_gate import RUNNER, only_for_datacentre

RUNNERS = (RUNNER, f"{RUNNER}_routed")
RUNNER_FIELDS = ("moe_runner_backend", "speculative_moe_runner_backend")
ATTENTION_FIELDS = ("prefill_attention_backend", "decode_attention_backend")
BLACKWELL = (100, 103, 110, 120, 121)
DATACENTRE = (100, 103)
_EXPERTS = "The expert kernels that the command leads to run on this GPU."
_ATTENTION = "The attention kernels that the command leads to run this model on this GPU."


def kernel_findings(context: LaunchContext) -> Iterator[LaunchFinding]:
    """Nothing is said without a GPU."""
    if context.situation.gpu is None:
        return
    yield from _experts(context, context.situation.gpu.capability)
    yield from _attention(context, context.situation.gpu.capability)


def _experts(context: LaunchContext, capability: int) -> Iterator[LaunchFinding]:
    for field in RUNNER_FIELDS:
        runner = context.resolution.value(field)
        if runner not in RUNNERS or capability in DATACENTRE:
            continue
        gate = only_for_datacentre(context.tree)
        name, places = declared(context, field)
        given = context.values.given(field)
        subject = f"{name} {runner}"
        ruling = Ruling.UNKNOWN if gate.value is None else Ruling.BREAKS if gate.value else Ruling.WARNS
        observed = f"{'is asked for' if given else 'is in force'} on SM{capability}, and {gate.sentence}"
        yield LaunchFinding(
            "expert-kernels-fit", subject, ruling, _EXPERTS, "kernels for this compute capability", observed,
            f"{name} flashinfer_cutlass" if capability >= 110 else f"leave {name} out",
            (*gate.places[:3], *places),
        )  # fmt: skip


def _attention(context: LaunchContext, capability: int) -> Iterator[LaunchFinding]:
    spec = context.checkpoint.spec
    if capability not in BLACKWELL or spec is None or not is_hybrid(spec):
        return
    allowed = allowed_on_blackwell(context.tree, capability)
    base = context.resolution.value("attention_backend")
    if not context.resolution.is_complete:
        return
    name, places = declared(context, "attention_backend")
    backends = dict.fromkeys(str(context.resolution.value(field) or base) for field in ATTENTION_FIELDS)
    for backend in backends:
        subject = f"{name} {backend}"
        where: tuple[Place, ...] = (*allowed.places, *context.resolution.places("attention_backend"), *places)
        if allowed.value is None:
            yield LaunchFinding(
                "attention-kernels-fit", subject, Ruling.UNKNOWN, _ATTENTION, "an allowed backend",
                allowed.sentence, "", where,
            )  # fmt: skip
            continue
        holds = backend in allowed.value
        how = "is given" if context.values.given("attention_backend") else "is what the version chooses"
        yield LaunchFinding(
            check="attention-kernels-fit",
            subject=subject,
            ruling=Ruling.HOLDS if holds else Ruling.BREAKS,
            claim=_ATTENTION,
            expected=f"one of {', '.join(allowed.value)}",
            observed=f"{how}, and passes" if holds else f"{how}, and {allowed.sentence}",
            remedy="" if holds else f"{name} {preferred(allowed.value)}",
            places=where,
        )


def is_hybrid(spec: ModelSpec) -> bool:
    """The model has Gated DeltaNet layers."""
    return any(isinstance(layer.mixer, GatedDeltaNetSpec) for layer in spec.layers)


def preferred(allowed: tuple[str, ...]) -> str:
    """The backend to ask for: the one that every version and every Blackwell GPU has a kernel for."""
    return "triton" if "triton" in allowed else allowed[0]
