"""Link 6, function: it runs, drafts are accepted at every position, and the text is the text without
speculation.

The link compares answers of one engine with speculation off and on: same prompt, same temperature, same
seed. Four failures look alike from outside (a slow server) and are told apart here: never drafted; drafted
and never accepted; accepted at the first position only; accepted, but the text differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from draftproof.evidence.chain import LinkReport
from draftproof.evidence.chain_links import Link
from draftproof.evidence.item import EvidenceItem, Location, information, warning
from draftproof.evidence.verdict import Verdict
from draftproof.links.running_engine import (
    Arm,
    Difference,
    DraftCounts,
    Generated,
    Prompt,
    RunningEngine,
    Sampling,
)

LOW_ACCEPT_LENGTH = 1.05
"""At or below this accept length the head hardly does anything: weights not loaded look like this."""


@dataclass(frozen=True)
class Comparison:
    """One prompt answered by both arms.

    Attributes:
        prompt: the prompt.
        sampling: the same in both arms.
        plain: the answer without speculation.
        speculative: the answer with it.
        difference: None when the token ids are equal.
    """

    prompt: Prompt
    sampling: Sampling
    plain: Generated
    speculative: Generated
    difference: Difference | None


def compare(
    engine: RunningEngine,
    prompts: Sequence[Prompt],
    samplings: Sequence[Sampling],
    seen: Callable[[Comparison], None],
) -> tuple[Comparison, ...]:
    """Answer every prompt with every sampling in both arms, one after the other, arms alternating.

    Args:
        engine: the engine.
        prompts: at least one.
        samplings: greedy first, by custom.
        seen: called after each comparison, for progress.
    """
    comparisons = []
    for prompt in prompts:
        for sampling in samplings:
            plain = engine.generate(prompt, sampling, Arm.PLAIN)
            speculative = engine.generate(prompt, sampling, Arm.SPECULATIVE)
            same = plain.token_ids == speculative.token_ids
            difference = None if same else engine.explain(prompt, sampling, plain, speculative)
            comparison = Comparison(prompt, sampling, plain, speculative, difference)
            comparisons.append(comparison)
            seen(comparison)
    return tuple(comparisons)


def check_function(
    engine: RunningEngine, comparisons: Sequence[Comparison], command: str, started: float
) -> LinkReport:
    """Judge comparisons.

    Args:
        engine: what was compared.
        comparisons: from `compare`.
        command: what a user can run to see the same.
        started: `perf_counter` value when the comparisons began.
    """
    counts = DraftCounts(0, (), ())
    for comparison in comparisons:
        counts += comparison.speculative.drafts
    items = [_runs(comparisons, command), _drafts_made(engine, counts, command)]
    items.append(_drafts_accepted(engine, counts, command))
    temperatures = sorted({comparison.sampling.temperature for comparison in comparisons})
    items.extend(_same_text(comparisons, temperature, command) for temperature in temperatures)
    return LinkReport(Link.FUNCTION, tuple(items), perf_counter() - started, ("other prompts than these",))


def _runs(comparisons: Sequence[Comparison], command: str) -> EvidenceItem:
    answers = [answer for pair in comparisons for answer in (pair.plain, pair.speculative)]
    empty = [
        pair.prompt.name for pair in comparisons if not (pair.plain.token_ids and pair.speculative.token_ids)
    ]
    tokens = sum(len(answer.token_ids) for answer in answers)
    return EvidenceItem(
        check="runs",
        claim="The engine answers with speculation off and on.",
        verdict=Verdict.DISPROVED if empty else Verdict.PROVEN,
        expected="output tokens for every prompt in both arms",
        observed=f"no output for {', '.join(empty)}" if empty else f"{len(answers)} answers, {tokens} tokens",
        command=command,
    )


def _drafts_made(engine: RunningEngine, counts: DraftCounts, command: str) -> EvidenceItem:
    proposed = sum(counts.proposed)
    made = proposed > 0
    return EvidenceItem(
        check="drafts-made",
        claim="The head drafts.",
        verdict=Verdict.PROVEN if made else Verdict.DISPROVED,
        expected=f"up to {engine.draft_tokens} drafts in each verify pass",
        observed=f"{proposed} drafts in {counts.passes} verify passes"
        if made
        else f"no draft in {counts.passes} verify passes: speculation is not active",
        where=(Location(metric="proposed drafts"),),
        command=command,
    )


def _drafts_accepted(engine: RunningEngine, counts: DraftCounts, command: str) -> EvidenceItem:
    listed = ", ".join(
        f"{position}: {accepted}/{proposed} ({rate:.0%})"
        for position, (accepted, proposed, rate) in enumerate(
            zip(counts.accepted, counts.proposed, counts.rates, strict=True), 1
        )
    )
    dead = [position for position, accepted in enumerate(counts.accepted, 1) if not accepted]
    if not sum(counts.proposed):
        observed = "no draft was made, so none was accepted"
    elif not sum(counts.accepted):
        observed = f"{sum(counts.proposed)} drafts, none accepted: the head's weights or its inputs are wrong"
    elif dead:
        observed = f"nothing accepted from position {dead[0]} on ({listed}): the chain of drafts is wrong"
    else:
        observed = f"accept length {counts.accept_length:.2f}; accepted by position {listed}"
    notes = []
    if 0 < counts.accept_length <= LOW_ACCEPT_LENGTH and not dead:
        notes.append(warning(f"accept length {counts.accept_length:.2f} means that the head hardly helps"))
    notes.append(
        information(
            "accept length = 1 + accepted drafts / verify passes; a rate counts a draft as accepted "
            "when it and all before it in its pass were"
        )
    )
    proven = bool(counts.accepted) and not dead and sum(counts.accepted) > 0
    return EvidenceItem(
        check="drafts-accepted",
        claim="Drafts are accepted at every position.",
        verdict=Verdict.PROVEN if proven else Verdict.DISPROVED,
        expected=f"accepted drafts at each of {engine.draft_tokens} positions",
        observed=observed,
        where=(Location(metric="accepted drafts by position"),),
        command=command,
        notes=tuple(notes),
    )


def _same_text(comparisons: Sequence[Comparison], temperature: float, command: str) -> EvidenceItem:
    pairs = [pair for pair in comparisons if pair.sampling.temperature == temperature]
    parted = [(pair, pair.difference) for pair in pairs if pair.difference is not None]
    defects = [
        f"{pair.prompt.name} from output token {difference.index} on "
        f"(gap {difference.gap:.2g}, rounding {difference.noise:.2g})"
        for pair, difference in parted
        if not difference.is_near_tie
    ]
    ties = [pair.prompt.name for pair, difference in parted if difference.is_near_tie]
    tokens = sum(len(pair.plain.token_ids) for pair in pairs)
    how = "greedily" if temperature == 0 else f"at temperature {temperature:g} with the same seed"
    observed = f"{len(pairs) - len(parted)} of {len(pairs)} answers equal, token for token ({tokens} tokens)"
    return EvidenceItem(
        check=f"same-text-{temperature:g}",
        claim=f"The text generated {how} is the text without speculation.",
        verdict=Verdict.DISPROVED if defects else Verdict.PROVEN,
        expected="equal token ids for every prompt, or a first difference that rounding explains",
        observed=f"differs: {'; '.join(defects)}" if defects else observed,
        command=command,
        notes=(information(f"near-ties (the two best tokens closer than rounding): {', '.join(ties)}"),)
        if ties
        else (),
    )
