"""What of a command does not fit the checkpoint: path, context, quantisation, weights that are not loaded."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.parallel_findings import USED_AS_NAMED, RanksGiven, rank_findings
from draftproof.stacks.place import Place
from draftproof.stacks.sglang.launch.found_quantization import (
    MODELOPT_FP4,
    found_quantization,
    is_modelopt_fp4,
)
from draftproof.stacks.sglang.launch.launch_context import LaunchContext
from draftproof.stacks.sglang.launch.model_view import MODEL, MODEL_CONFIG, context_length

_PATH = "The command serves the checkpoint that was looked at."
_QUANTIZATION = "The quantization of the command fits the checkpoint."
_CONTEXT = "The context length of the command is one that the model reaches."
_LOADS = "The weights are loaded from the checkpoint."


def model_findings(context: LaunchContext) -> Iterator[LaunchFinding]:
    """All of them."""
    yield from _path(context)
    yield from _loading(context)
    yield from _quantization(context)
    yield from _context_length(context)
    yield from _ranks(context)


def declared(context: LaunchContext, field: str) -> tuple[str, tuple[Place, ...]]:
    """An option's name and where it is declared, by the field that it sets."""
    option = context.arguments.of_field(field)
    if option is None:
        return f"--{field.replace('_', '-')}", ()
    return option.option.name, (option.option.place,)


def _path(context: LaunchContext) -> Iterator[LaunchFinding]:
    given = context.values.text("model_path")
    if given is None:
        return
    name, places = declared(context, "model_path")
    looked_at = context.checkpoint.name
    same = (
        given == looked_at or given.rstrip("/").rpartition("/")[2] == looked_at.rstrip("/").rpartition("/")[2]
    )
    yield LaunchFinding(
        check="model-path",
        subject=f"{name} {given}",
        ruling=Ruling.HOLDS if same else Ruling.WARNS,
        claim=_PATH,
        expected=f"{name} {looked_at}",
        observed="is it" if same else f"is another name than {looked_at}, which was looked at",
        remedy="" if same else f"{name} {looked_at}",
        places=places,
    )


def _loading(context: LaunchContext) -> Iterator[LaunchFinding]:
    for field, what in (("load_format", "the model"), ("speculative_draft_load_format", "the head")):
        if context.values.text(field) == "dummy":
            name, places = declared(context, field)
            yield LaunchFinding(
                check="weights-loaded",
                subject=f"{name} dummy",
                ruling=Ruling.BREAKS,
                claim=_LOADS,
                expected="a format that reads the files",
                observed=f"fills {what} with random values instead of the checkpoint's",
                remedy=f"leave {name} out",
                places=places,
            )


def _quantization(context: LaunchContext) -> Iterator[LaunchFinding]:
    given = context.values.text("quantization")
    if given is None:
        yield from _without_quantization(context)
        return
    name, places = declared(context, "quantization")
    wanted = None if given == "unquant" else given
    outcome = context.resolver.model_check(
        "_verify_quantization", {"quantization": wanted}, context.environment, context.gpu
    )
    subject, remedy = f"{name} {given}", f"leave {name} out"
    expected = "a method that the version takes for this checkpoint"
    if outcome is None:
        method = Place(MODEL_CONFIG, 1)
        yield LaunchFinding(
            "quantization-fits", subject, Ruling.UNKNOWN, _QUANTIZATION, expected,
            f"ModelConfig._verify_quantization in {MODEL_CONFIG} could not be followed", "",
            (method, *places),
        )  # fmt: skip
    elif outcome.raised is not None:
        yield LaunchFinding(
            "quantization-fits", subject, Ruling.BREAKS, _QUANTIZATION, expected,
            f"stops the start: {outcome.raised.message}", remedy, (outcome.raised.place, *places),
        )  # fmt: skip
    else:
        in_force = outcome.given[MODEL].attributes.get("quantization") if MODEL in outcome.given else given
        replaced = isinstance(in_force, str) and in_force != given
        observed = f"is replaced by the checkpoint's own, {in_force}" if replaced else "is taken"
        yield LaunchFinding(
            check="quantization-fits",
            subject=subject,
            ruling=Ruling.WARNS if replaced else Ruling.HOLDS,
            claim=_QUANTIZATION,
            expected=expected,
            observed=observed,
            remedy=f"{name} {in_force}" if replaced else "",
            places=places,
        )


def _without_quantization(context: LaunchContext) -> Iterator[LaunchFinding]:
    """ModelOpt's FP4, where the version has to be told of it and is not."""
    if not is_modelopt_fp4(context.checkpoint):
        return
    set_by_version = context.resolution.value("quantization")
    alone = found_quantization(
        context.resolver, context.checkpoint, set_by_version, context.environment, context.gpu
    )
    if alone.understood and not alone.is_found:
        name, places = declared(context, "quantization")
        yield LaunchFinding(
            check="quantization-fits",
            subject=f"no {name}",
            ruling=Ruling.BREAKS,
            claim=_QUANTIZATION,
            expected="a method that the version takes for this checkpoint",
            observed=alone.sentence,
            remedy=f"{name} {MODELOPT_FP4}",
            places=(*alone.places, *places),
        )


def _context_length(context: LaunchContext) -> Iterator[LaunchFinding]:
    given = context.values.number("context_length")
    if given is None:
        return
    name, places = declared(context, "context_length")
    outcome = context.resolver.model_check(
        "_derive_context_length", {}, context.environment, context.gpu, given
    )
    subject, expected = f"{name} {given}", "no more than the model's own length"
    lost = ""
    if context_length(context.checkpoint) is None:
        lost = "config.json does not say how many positions the model has"
    elif outcome is None:
        lost = f"ModelConfig._derive_context_length in {MODEL_CONFIG} could not be followed"
    if outcome is None or lost:
        yield LaunchFinding("context-fits", subject, Ruling.UNKNOWN, _CONTEXT, expected, lost, "", places)
    elif outcome.raised is not None:
        yield LaunchFinding(
            "context-fits", subject, Ruling.BREAKS, _CONTEXT, expected,
            f"stops the start: {outcome.raised.message}", f"leave {name} out, or a smaller one",
            (outcome.raised.place, *places),
        )  # fmt: skip
    elif outcome.log:
        yield LaunchFinding(
            "context-fits", subject, Ruling.WARNS, _CONTEXT, expected, outcome.log[0].text, "",
            (outcome.log[0].place, *places),
        )  # fmt: skip
    else:
        yield LaunchFinding(
            "context-fits", subject, Ruling.HOLDS, _CONTEXT, expected, "is reached", "", places
        )


def _ranks(context: LaunchContext) -> Iterator[LaunchFinding]:
    name, places = declared(context, "tp_size")
    is_spread = any(context.values.given(field) for field in ("pp_size", "dp_size"))
    given = RanksGiven(context.ranks, name, f"{name} {context.ranks}", places, is_spread)
    yield from rank_findings(given, context.situation)
    visible = context.command.variable("CUDA_VISIBLE_DEVICES")
    if visible is not None and len([part for part in visible.split(",") if part.strip()]) < context.ranks:
        yield LaunchFinding(
            check="ranks-agree",
            subject=f"CUDA_VISIBLE_DEVICES={visible}",
            ruling=Ruling.BREAKS,
            claim=USED_AS_NAMED,
            expected=f"at least {context.ranks} visible GPUs",
            observed=f"shows fewer GPUs than the {context.ranks} ranks of the command",
            remedy=f"{name} with the number of visible GPUs, or more GPUs",
            places=places,
        )
