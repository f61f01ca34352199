"""Claims about memory: the weights fit, and beside them so many sequences of so many tokens."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.evidence import EvidenceItem, EvidenceTable, Location, Note, Verdict, information
from draftproof.evidence.quantities import count_text, size_text
from draftproof.hardware.gpu import Gpu
from draftproof.hardware.memory import (
    MemoryBudget,
    budget_for,
    fit_table,
    smallest_ranks,
)
from draftproof.hardware.parallel import possible_ranks
from draftproof.hardware.roofline import Model
from draftproof.hardware.sequence_cost import sequence_cost
from draftproof.hardware.state_layout import StateLayout
from draftproof.hardware.weights import WeightTable
from draftproof.links.backend_subject import BackendSubject
from draftproof.links.stack_places import locations, show_lines
from draftproof.stacks.reading import Reading


def memory_items(subject: BackendSubject) -> Iterator[EvidenceItem]:
    """Weights, then sequences; both open without a GPU, which another claim says."""
    gpu = subject.situation.gpu
    if gpu is None:
        return
    if subject.weights is None:
        yield _open(
            "weights-fit", "The weights fit.", "there are no weight files, and the config does not say"
        )
        return
    model = subject.model
    if model is None:
        yield _unknown_shape(subject, gpu, subject.weights)
        yield _open("sequences-fit", "Keys, values and states fit beside the weights.", subject.shape_problem)
        return
    least = _budget(subject, model, gpu, _bounds(subject)[0], subject.situation.tensor_parallel)
    yield _weights_fit(subject, model, least)
    if least.free > 0:
        yield _sequences_fit(subject, model, gpu)


def most_states(subject: BackendSubject) -> StateLayout:
    """How the stack keeps states; without an answer, the most that a stack is known to keep."""
    return _bounds(subject)[1]


def _layout(subject: BackendSubject) -> Reading[StateLayout] | None:
    return subject.kernels.facts.state_layout if subject.kernels else None


def _bounds(subject: BackendSubject) -> tuple[StateLayout, StateLayout]:
    """The least and the most that a stack is known to keep; the same one twice when its source says it."""
    reading = _layout(subject)
    if reading is not None and reading.value is not None:
        return reading.value, reading.value
    rows = subject.draft_tokens + 1
    return StateLayout(1, 0, 4, kept_rows=rows), StateLayout(5, rows, 4)


def _budget(subject: BackendSubject, model: Model, gpu: Gpu, layout: StateLayout, ranks: int) -> MemoryBudget:
    with_head = subject.draft_tokens > 0
    cost = sequence_cost(model.shape, layout, ranks, subject.cache_bytes, with_head)
    return budget_for(gpu, ranks, model.weights, model.shape, cost)


def _weights_fit(subject: BackendSubject, model: Model, budget: MemoryBudget) -> EvidenceItem:
    gpus = count_text(budget.ranks, "GPU")
    room = budget.gpu.memory_bytes - budget.set_aside
    fits = budget.free > 0
    observed = f"{size_text(budget.weights)} on each of {gpus}"
    observed = f"{size_text(budget.weights)} on one GPU" if budget.ranks == 1 else observed
    if fits:
        observed += f", {size_text(budget.free)} left for sequences"
    else:
        observed += f": {size_text(-budget.free)} too much{_fewest(subject, model, budget.gpu, 1, 0)}"
    return EvidenceItem(
        check="weights-fit",
        claim=f"The weights fit {gpus}, with room for what a server needs beside them.",
        verdict=Verdict.PROVEN if fits else Verdict.DISPROVED,
        expected=f"less than {size_text(room)}: {size_text(budget.gpu.memory_bytes)} "
        f"({budget.gpu.memory.source}) without {size_text(budget.set_aside)} set aside",
        observed=observed,
        where=(Location("config.json"),),
        command=f"draftproof inspect {subject.commands.name}",
        tables=(_groups_table(model.weights), _allowances_table(budget)),
    )


def _sequences_fit(subject: BackendSubject, model: Model, gpu: Gpu) -> EvidenceItem:
    situation = subject.situation
    context = min(situation.context, subject.max_position)
    ranks, count = situation.tensor_parallel, max(situation.concurrency, 1)
    least, most = (_budget(subject, model, gpu, layout, ranks) for layout in _bounds(subject))
    verdict, reason = Verdict.PROVEN, ""
    if least.shortfall(context, count):
        verdict = Verdict.DISPROVED
    elif most.shortfall(context, count):
        verdict = Verdict.UNKNOWN
        reason = f"how the stack keeps states decides: {_layout_problem(subject)}"
    shown = least if verdict is Verdict.DISPROVED else most
    reading = _layout(subject)
    places = reading.places if reading else ()
    sequences = count_text(count, "sequence")
    return EvidenceItem(
        check="sequences-fit",
        claim=f"Keys, values and states of {sequences} of {context:,} tokens fit beside the weights.",
        verdict=verdict,
        expected=f"at most {size_text(max(shown.free, 0))} on each GPU",
        observed=_sequences_text(subject, model, shown, context, count),
        where=(*locations(places), subject.field("num_key_value_heads")),
        command=show_lines(subject.kernels.root, places)
        if subject.kernels and places
        else subject.commands.field("config.json", "num_key_value_heads"),
        reason=reason,
        notes=tuple(_sequence_notes(subject)),
        tables=_fit_tables(subject, shown),
    )


def _sequences_text(
    subject: BackendSubject, model: Model, budget: MemoryBudget, context: int, count: int
) -> str:
    need = count * budget.cost.total(context)
    text = (
        f"{size_text(need)}: {size_text(budget.cost.state)} of states for each sequence, "
        f"{size_text(budget.cost.key_value_per_token)} for each token"
    )
    short = budget.shortfall(context, count)
    if short:
        return f"{text}; {size_text(short)} short{_fewest(subject, model, budget.gpu, context, count)}"
    longest = budget.largest_context(1)
    reach = f"{min(longest, subject.max_position):,} tokens"
    if longest >= subject.max_position:
        reach = f"all {subject.max_position:,} positions of the model"
    most = budget.largest_concurrency(context)
    return f"{text}; one sequence could have {reach}, and {most:,} could have {context:,} tokens each"


def _sequence_notes(subject: BackendSubject) -> Iterator[Note]:
    reading = _layout(subject)
    if reading is not None and reading.value is not None:
        yield information(f"states: {reading.sentence}", *locations(reading.places))
    else:
        yield information(f"states: {_layout_problem(subject)}; counted as the most that a stack keeps")
    element = "FP8" if subject.cache_bytes == 1 else "BF16"
    yield information(f"keys and values in {element}, the head's layer included")


def _fit_tables(subject: BackendSubject, budget: MemoryBudget) -> tuple[EvidenceTable, ...]:
    rows = tuple((f"{row.context:,}", f"{row.most:,}") for row in fit_table(budget, subject.max_position))
    return (EvidenceTable("what fits", ("tokens each", "sequences at once"), rows),) if rows else ()


def _layout_problem(subject: BackendSubject) -> str:
    reading = _layout(subject)
    if reading is None:
        return "no stack was named"
    return reading.sentence or "the stack's source did not say how it keeps them"


def _fewest(subject: BackendSubject, model: Model, gpu: Gpu, context: int, count: int) -> str:
    """The fewest of these GPUs that would do, in words."""
    layout = _bounds(subject)[0]
    ranks = smallest_ranks(
        lambda ranks: _budget(subject, model, gpu, layout, ranks),
        possible_ranks(model.shape, model.weights),
        context,
        max(count, 1),
    )
    if ranks is None:
        return f"; it fits no number of {gpu.title} up to 32 that divides the model"
    return f"; it fits {count_text(ranks, 'GPU')} of this kind (--tp {ranks})"


def _groups_table(weights: WeightTable) -> EvidenceTable:
    rows = [
        (f"{row.part.value} {row.group.value}", row.precision.value, size_text(int(row.nbytes)))
        for row in sorted(weights.groups, key=lambda row: -row.nbytes)
    ]
    rows.append(("all", "", size_text(int(weights.nbytes))))
    return EvidenceTable(f"weights ({weights.source})", ("group", "precision", "bytes"), tuple(rows))


def _allowances_table(budget: MemoryBudget) -> EvidenceTable:
    rows = tuple((each.purpose, size_text(each.nbytes), each.source) for each in budget.allowances)
    return EvidenceTable("set aside on each GPU", ("for", "bytes", "source"), rows)


def _unknown_shape(subject: BackendSubject, gpu: Gpu, weights: WeightTable) -> EvidenceItem:
    """Weights of a family without known shapes: too much is too much however they are split."""
    ranks = subject.situation.tensor_parallel
    each = weights.nbytes / ranks
    too_much = each > gpu.memory_bytes
    return EvidenceItem(
        check="weights-fit",
        claim=f"The weights fit {count_text(ranks, 'GPU')}.",
        verdict=Verdict.DISPROVED if too_much else Verdict.UNKNOWN,
        expected=f"less than {size_text(gpu.memory_bytes)} on each",
        observed=f"at least {size_text(int(each))} on each",
        where=(Location("config.json"),),
        command=f"draftproof inspect {subject.commands.name}",
        reason="" if too_much else f"what is repeated on every GPU is not known: {subject.shape_problem}",
        notes=(information(f"{size_text(int(weights.nbytes))} of weights ({weights.source})"),),
    )


def _open(check: str, claim: str, reason: str) -> EvidenceItem:
    return EvidenceItem(
        check, claim, Verdict.UNKNOWN, "sizes of weights and layers", "not computed", reason=reason
    )
