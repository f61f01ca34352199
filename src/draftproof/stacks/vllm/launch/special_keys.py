"""Keys of a speculative configuration that are taken at the start and fail later, on some checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.errors import SourceError
from draftproof.stacks.classes import find_class
from draftproof.stacks.evaluation import Evaluator, Outcome
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.launch.options import SpeculativeKeys

ADAPTIVE = "enable_adaptive_verification"
SCHEDULE = "num_speculative_tokens_per_batch_size"
GDN_BACKEND = "vllm/v1/attention/backends/gdn_attn.py"
GDN_CLASS = "GDNAttentionBackend"
MISMATCH = "supports_device_cpu_query_lens_mismatch"
SCHEDULES = "vllm/v1/spec_decode/dynamic/utils.py"
NORMALISE = "validate_and_normalize_dynamic_sd_schedule"


def has_recurrent_layers(checkpoint: ServedCheckpoint) -> bool:
    """Whether some layers of the checkpoint are Gated DeltaNet."""
    text = checkpoint.config.get("text_config")
    section = text if isinstance(text, dict) else checkpoint.config
    kinds = section.get("layer_types")
    listed = isinstance(kinds, list) and "linear_attention" in kinds
    return listed or "linear_num_value_heads" in section


def special_findings(
    values: Mapping[str, Any], keys: SpeculativeKeys, tree: SourceTree, checkpoint: ServedCheckpoint
) -> Iterator[LaunchFinding]:
    """Findings about adaptive verification and about a schedule of K."""
    if values.get(ADAPTIVE) is True and keys.get(ADAPTIVE) is not None and has_recurrent_layers(checkpoint):
        yield _adaptive(trims_on_device(tree), keys)
    schedule = values.get(SCHEDULE)
    if schedule is not None and keys.get(SCHEDULE) is not None:
        yield _schedule(schedule, schedule_problem(tree, schedule), keys)


def trims_on_device(tree: SourceTree) -> Reading[bool]:
    """Whether the Gated DeltaNet backend lets adaptive verification trim a batch on the device."""
    wanted = f"{GDN_CLASS}.{MISMATCH} for {GDN_BACKEND}"
    try:
        cls = find_class(tree, GDN_BACKEND, GDN_CLASS)
        if cls is None:
            return not_understood(f"looked for {wanted}", Place(GDN_BACKEND, 1))
        outcomes = Evaluator(tree).call(GDN_BACKEND, f"{GDN_CLASS}.{MISMATCH}")
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    answers = {outcome.returned for outcome in outcomes if outcome.has_returned}
    if len(answers) != 1 or not isinstance(answer := answers.pop(), bool):
        return not_understood(f"looked for {wanted}, and could not carry it out", cls.place)
    return found(answer, f"{GDN_CLASS}.{MISMATCH}() is {answer}", cls.place)


def _adaptive(trims: Reading[bool], keys: SpeculativeKeys) -> LaunchFinding:
    field = keys.get(ADAPTIVE)
    places = (*((field.place,) if field else ()), *trims.places)
    claim = "Adaptive verification can be carried out by every attention backend of the target."
    expected = f"{MISMATCH}() is True for Gated DeltaNet"
    if not trims.understood:
        ruling, observed = Ruling.UNKNOWN, trims.sentence
    elif trims.value:
        ruling, observed = Ruling.HOLDS, trims.sentence
    else:
        ruling = Ruling.BREAKS
        observed = (
            f"{trims.sentence}: the key is taken at the start, and the engine ends with a ValueError when it "
            "makes its caches, after the weights are loaded"
        )
    remedy = f'leave "{ADAPTIVE}" out' if ruling is Ruling.BREAKS else ""
    return LaunchFinding(
        "adaptive-verification", f'"{ADAPTIVE}": true', ruling, claim, expected, observed, remedy, places
    )


def schedule_problem(tree: SourceTree, schedule: Any) -> Reading[str]:
    """What the version's own check says about a schedule; an empty text when it takes it."""
    wanted = f"{NORMALISE} in {SCHEDULES}"
    if not tree.has(SCHEDULES):
        return not_understood(f"looked for {wanted}")
    try:
        outcomes = Evaluator(tree).call(SCHEDULES, NORMALISE, schedule)
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    return _single_error(outcomes, wanted)


def _single_error(outcomes: tuple[Outcome, ...], wanted: str) -> Reading[str]:
    if len(outcomes) != 1 or outcomes[0].not_understood is not None:
        return not_understood(f"looked for {wanted}, and could not carry it out", Place(SCHEDULES, 1))
    error = outcomes[0].raised
    if error is not None:
        return found(str(error), f"the check ends with {error}", error.place)
    return found("", "the check takes it", Place(SCHEDULES, 1))


def _schedule(schedule: Any, problem: Reading[str], keys: SpeculativeKeys) -> LaunchFinding:
    field = keys.get(SCHEDULE)
    places = (*problem.places, *((field.place,) if field else ()))
    ruling = Ruling.UNKNOWN if problem.value is None else Ruling.BREAKS if problem.value else Ruling.HOLDS
    remedy = (
        "ranges [start, end, K] that begin at 1, do not overlap, and have K >= 0" if problem.value else ""
    )
    return LaunchFinding(
        "draft-token-schedule",
        f'"{SCHEDULE}": {schedule!r}',
        ruling,
        "The schedule of drafts by batch size is one that the scheduler takes.",
        f"{NORMALISE} takes it",
        problem.sentence,
        remedy,
        places,
    )
