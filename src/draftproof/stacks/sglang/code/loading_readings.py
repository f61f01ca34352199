"""What loading says about a head: its precision, where tensors land, and what stays unwritten."""

from __future__ import annotations

from dataclasses import replace

from draftproof.errors import SourceError
from draftproof.stacks.built_precision import head_summary
from draftproof.stacks.classes import ClassSource
from draftproof.stacks.evaluation.evaluator import Evaluator
from draftproof.stacks.kept_head import LoadingReadings
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.code.argument_defaults import argument_defaults, argument_groups
from draftproof.stacks.sglang.code.draft_config import config_subject
from draftproof.stacks.sglang.code.few_experts import few_experts
from draftproof.stacks.sglang.code.head_class import effective_method
from draftproof.stacks.sglang.code.head_loading import HeadSubject, LoadedHead, load_head
from draftproof.stacks.sglang.code.landings import LoadedCheckpoint, tensor_landings, unwritten_parameters
from draftproof.stacks.sglang.defect_conditions import method_of, quantisation_of
from draftproof.stacks.source import SourceTree


def read_loading(
    tree: SourceTree,
    evaluator: Evaluator,
    checkpoint: ServedCheckpoint,
    capability: int,
    head: ClassSource,
) -> LoadingReadings:
    """Builds the head, loads the checkpoint into it, and says what became of both.

    Args:
        tree: SGLang's source.
        evaluator: of that source with the stand-ins.
        checkpoint: what is loaded.
        capability: compute capability times ten.
        head: class of the head.
    """
    few = few_experts(checkpoint)
    subject = HeadSubject(
        head=head,
        config=config_subject(tree, few.config),
        hf_quant_config=checkpoint.hf_quant_config,
        capability=capability,
        defaults=argument_defaults(tree),
        groups=argument_groups(tree),
    )
    loaded = load_head(evaluator, subject, few.tensors)
    named = _quantization_argument(checkpoint)
    words = ""
    if loaded.value is None and named is not None:
        # Older versions do not find ModelOpt's FP4 by themselves.
        again = load_head(evaluator, replace(subject, quantization=named), few.tensors)
        if again.value is not None:
            loaded, words = again, f" with --quantization {named}"
    if loaded.value is None:
        return not_loaded(loaded.sentence, loaded)
    try:
        loader = effective_method(tree, head, "load_weights")
    except SourceError as error:
        return not_loaded(error.message)
    if loader is None:
        return not_loaded(f"{head.name} and its bases have no load_weights")
    whole = LoadedCheckpoint(checkpoint, few, loaded.value, loader, head.place)
    if not checkpoint.head:
        return _without_head(loaded.value, head)
    unwritten = unwritten_parameters(whole)
    every = f"every one of {len(loaded.value.parameters)} parameters is written or shared"
    precision = head_summary(loaded.value.parameters) + words
    return LoadingReadings(
        found(precision, f"the head is built in {precision}", head.place),
        found(tensor_landings(whole), loaded.sentence, loader.place),
        found(unwritten, every if not unwritten else f"{len(unwritten)} are not written", loader.place),
    )


def _quantization_argument(checkpoint: ServedCheckpoint) -> str | None:
    """What a user has to name where SGLang does not find it: ModelOpt's FP4."""
    section = quantisation_of(checkpoint)
    is_fp4 = "FP4" in str(section.get("quant_algo", "")).upper()
    return "modelopt_fp4" if is_fp4 and method_of(checkpoint).startswith("modelopt") else None


def _without_head(loaded: LoadedHead, head: ClassSource) -> LoadingReadings:
    precision = head_summary(loaded.parameters)
    nothing = "the checkpoint has no tensor of a head to follow"
    return LoadingReadings(
        found(precision, f"the head is built in {precision}", head.place),
        found((), nothing, head.place),
        not_understood(nothing, head.place),
    )


def not_loaded(sentence: str, reading: Reading[LoadedHead] | None = None) -> LoadingReadings:
    """The same answer to every question: why it was not followed."""
    places = reading.places if reading is not None else ()
    return LoadingReadings(
        not_understood(sentence, *places),
        not_understood(sentence, *places),
        not_understood(sentence, *places),
    )
