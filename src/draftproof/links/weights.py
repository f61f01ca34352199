"""Link 2: every tensor of head and target is there, whole, of the right shape, and sane."""

from __future__ import annotations

import time

from draftproof.architecture.mtp_layout import survey_head
from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.registry import mtp_declaration
from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.errors import ConfigError, UnknownArchitecture
from draftproof.evidence import EvidenceItem, Link, LinkReport, Location, Verdict
from draftproof.links.completeness_claims import completeness_items
from draftproof.links.examined import Examined, examine, stored_modules
from draftproof.links.family_claims import family_items, surveyed_modules
from draftproof.links.file_claims import file_items
from draftproof.links.head_origin import norm_convention_notes, origin_items
from draftproof.links.precision_claims import precision_items
from draftproof.links.progress import NoProgress, Progress
from draftproof.links.scalar_scales import ScalarScales, read_scalar_scales
from draftproof.links.subject import commands_for
from draftproof.links.value_claims import reading_text, value_items
from draftproof.links.value_reading import (
    REMOTE_SAMPLE,
    SAMPLE,
    ReadValues,
    StoredModules,
    ValueReading,
    read_values,
)


def check_weights(
    checkpoint: Checkpoint, reading: ValueReading | None = None, progress: Progress | None = None
) -> LinkReport:
    """Runs link 2 on an opened checkpoint. Broken files are evidence, not errors.

    Args:
        checkpoint: the files.
        reading: how much of the values is read; None takes a sample, a small one of a remote repository.
        progress: is told how far the reading is.

    Raises:
        EnvironmentProblem: the hub cannot be reached any more.
    """
    start = time.perf_counter()
    chosen = reading or (REMOTE_SAMPLE if checkpoint.folder is None else SAMPLE)
    progress = progress or NoProgress()
    items = list(file_items(checkpoint, commands_for(checkpoint)))
    try:
        examined = examine(checkpoint, spec_from_config(checkpoint.config))
    except UnknownArchitecture as error:
        more, values = _surveyed(checkpoint, chosen, progress, error)
    except ConfigError as error:
        more, values = [_not_planned(checkpoint, error)], None
    else:
        more, values = _planned(examined, chosen, progress)
    limits = _limits(values) if values is not None else ()
    return LinkReport(Link.WEIGHTS, (*items, *more), time.perf_counter() - start, limits)


def _planned(
    examined: Examined, reading: ValueReading, progress: Progress
) -> tuple[list[EvidenceItem], ReadValues | None]:
    """A model whose every tensor is known."""
    checkpoint, modules = examined.checkpoint, stored_modules(examined)
    values = read_values(checkpoint, modules, reading, progress)
    items = [*completeness_items(examined), *precision_items(examined)]
    if values.all:
        scales = _scalar_scales(checkpoint, modules, reading)
        items += value_items(checkpoint, values, scales, norm_convention_notes(examined, values))
        items += origin_items(examined, reading.readers)
    return items, values


def _surveyed(
    checkpoint: Checkpoint, reading: ValueReading, progress: Progress, error: UnknownArchitecture
) -> tuple[list[EvidenceItem], ReadValues | None]:
    """A family that is known by the naming rule of its head only, or not at all."""
    try:
        config = checkpoint.config.config.require()
        survey = survey_head(mtp_declaration(config), config, checkpoint.inventory.tensors)
    except (UnknownArchitecture, ConfigError) as problem:
        return [_not_planned(checkpoint, problem)], None
    modules = surveyed_modules(checkpoint, survey)
    values = read_values(checkpoint, modules, reading, progress)
    items = list(family_items(checkpoint, survey, modules, error))
    if values.all:
        items += value_items(checkpoint, values, _scalar_scales(checkpoint, modules, reading))
    return items, values


def _scalar_scales(checkpoint: Checkpoint, modules: StoredModules, reading: ValueReading) -> ScalarScales:
    return read_scalar_scales(checkpoint.source, modules.all, reading.most_spans, reading.readers)


def _limits(values: ReadValues) -> tuple[str, ...]:
    if values.complete:
        return ()
    if not values.all:
        return ("that any value is sane: none was read",)
    return (f"that values are sane which were not read (read: {reading_text(values)}; --full reads all)",)


def _not_planned(checkpoint: Checkpoint, error: UnknownArchitecture | ConfigError) -> EvidenceItem:
    return EvidenceItem(
        check="head-complete",
        claim="Every tensor of the MTP head is there.",
        verdict=Verdict.UNKNOWN,
        expected="a plan of every tensor, made from the config",
        observed=error.message,
        where=(Location("config.json"),),
        command=commands_for(checkpoint).field("config.json", "model_type"),
        reason=f"{error.message}, so that the required tensors are not known",
    )
