"""What vLLM's own resolution makes of a command's speculation, as findings and as values in force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from draftproof.stacks.launch_facts import LaunchFinding, ResolvedLaunch, Ruling
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.vllm.launch.activation import Activation
from draftproof.stacks.vllm.launch.options import SpeculativeKeys
from draftproof.stacks.vllm.launch.speculative_request import SpeculativeRequest

HEAD = "mtp"
_TOKENS = "num_speculative_tokens"
_TAKES_WEIGHTS_ELSEWHERE = ("eagle", "eagle3", "draft_model", "dflash", "dspark")


@dataclass(frozen=True)
class Speculation:
    """What a command asks for, and what came of it.

    Attributes:
        request: what it asks for.
        keys: the fields of this version's configuration.
        result: of the resolution; absent when speculation is not asked for.
    """

    request: SpeculativeRequest
    keys: SpeculativeKeys
    result: Reading[Activation]


def speculation_findings(speculation: Speculation) -> Iterator[LaunchFinding]:
    """Whether the start survives the configuration, and whether the head is what drafts."""
    request, result = speculation.request, speculation.result
    claim = "The engine's own resolution of the speculative configuration comes to its end."
    expected = f"no error in SpeculativeConfig for {request.words}"
    if result.value is None:
        if not result.understood:
            yield LaunchFinding(
                "starts", request.words, Ruling.UNKNOWN, claim, expected, result.sentence, "", result.places
            )
        return
    outcome = result.value
    if outcome.error is not None:
        observed = f"it ends with {outcome.error}"
        remedy = _remedy(str(outcome.error), speculation)
        yield LaunchFinding(
            "starts", request.words, Ruling.BREAKS, claim, expected, observed, remedy, result.places
        )
        return
    yield LaunchFinding(
        "starts", request.words, Ruling.HOLDS, claim, expected, result.sentence, "", result.places
    )
    yield _drafts_with_head(outcome, speculation)


def _drafts_with_head(outcome: Activation, speculation: Speculation) -> LaunchFinding:
    asked = speculation.request.values.get("method")
    claim = "What drafts is the head that the checkpoint carries."
    expected = f"the method {HEAD} in force"
    places = speculation.result.places
    subject = f'"method": "{asked}"'
    if outcome.method == HEAD:
        observed = f"{HEAD}, with {outcome.draft_architecture}"
        return LaunchFinding("head-drafts", subject, Ruling.HOLDS, claim, expected, observed, "", places)
    observed = f"the method in force is {outcome.method}"
    if asked is not None and asked != outcome.method and asked in speculation.keys.head_names:
        observed += (
            f", although {asked} was asked for: words in the draft's path decide before its model type"
        )
        remedy = "serve the checkpoint from a path without eagle-, eagle3, dflash or dspark in it"
    else:
        remedy = f'write "method": "{HEAD}"'
    return LaunchFinding("head-drafts", subject, Ruling.BREAKS, claim, expected, observed, remedy, places)


def _remedy(error: str, speculation: Speculation) -> str:
    values = speculation.request.values
    if "ZeroDivisionError" in error:
        return "the config declares no layer of a head (mtp_num_hidden_layers 0); serve without speculation"
    if "divisible" in error:
        return f"give a {_TOKENS} that is a multiple of the head's layers"
    if values.get(_TOKENS) is None:
        return f'add "{_TOKENS}": 3'
    if "without speculative model" in error or values.get("method") in _TAKES_WEIGHTS_ELSEWHERE:
        return f'write "method": "{HEAD}" for the head of the checkpoint itself'
    if "Unsupported speculative method" in error:
        return "this version maps the checkpoint's model type to no head; take a version that does"
    return ""


def resolved_speculation(
    speculation: Speculation, options: tuple[tuple[str, str, str], ...], changed: tuple[Reading[str], ...]
) -> ResolvedLaunch:
    """The values in force."""
    request, result = speculation.request, speculation.result
    if not request.is_given:
        nothing: Reading[str] = absent(
            "the command asks for no speculation; vLLM then leaves the head's weights out without a word",
            speculation.keys.place,
        )
        no_number: Reading[int] = absent("no speculation", speculation.keys.place)
        return ResolvedLaunch(nothing, no_number, nothing, options, changed)
    if result.value is None and result.understood:
        refused: Reading[str] = absent(result.sentence, *result.places)
        return ResolvedLaunch(refused, absent(result.sentence, *result.places), refused, options, changed)
    if result.value is None:
        lost: Reading[str] = not_understood(result.sentence, *result.places)
        return ResolvedLaunch(lost, not_understood(result.sentence, *result.places), lost, options, changed)
    outcome = result.value
    places = result.places
    if outcome.error is not None:
        ended: Reading[str] = absent(f"the start ends with {outcome.error}", *places)
        return ResolvedLaunch(ended, absent(ended.sentence, *places), ended, options, changed)
    return ResolvedLaunch(
        found(outcome.method, f"the method in force is {outcome.method}", *places),
        found(outcome.draft_tokens, f"{outcome.draft_tokens} drafts a pass", *places),
        found(outcome.draft_path, f"the head's weights are read from {outcome.draft_path}", *places),
        options,
        (*changed, *_changes(outcome)),
    )


def _changes(outcome: Activation) -> Iterator[Reading[str]]:
    """Warnings that the resolution logs."""
    for level, text, place in outcome.log:
        if level.startswith("warning") or "verrid" in text:
            yield found(text, text, place)
