"""Links 3 to 7 as far as serving shows them: what is seen now, and that it is no proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from draftproof.engine.status import AlarmKind, DraftArm, EngineStatus
from draftproof.server.served_chain import LinkState, ServedChain, ServedClaim, ServedLink
from draftproof.serving.messages import EngineReady


@dataclass(frozen=True)
class RunningEngine:
    """What is known of the engine that runs.

    Attributes:
        checkpoint: its name, for commands.
        ready: what the engine said at its start.
        status: of the engine.
    """

    checkpoint: str
    ready: EngineReady
    status: EngineStatus


def with_live_links(chain: ServedChain, ready: EngineReady, status: EngineStatus) -> ServedChain:
    """The chain with what the running engine shows in place of links that were not run before the start.

    Nothing changes behind a broken link: what comes after it does not count.
    """
    engine = RunningEngine(chain.checkpoint, ready, status)
    links = []
    is_broken = False
    for link in chain.links:
        if is_broken or link.state is not LinkState.NOT_RUN or link.name not in _LIVE:
            links.append(link)
        else:
            links.append(_LIVE[link.name](link, engine))
        is_broken = is_broken or links[-1].state is LinkState.DISPROVED
    return replace(chain, links=tuple(links))


def arm_gain(arms: tuple[DraftArm, ...], batch: int) -> float | None:
    """Expected tokens a second of the K in use over those of plain decoding; None without both."""
    own = [arm for arm in arms if arm.batch == batch]
    plain = next((arm for arm in own if arm.draft_tokens == 0), None)
    chosen = next((arm for arm in own if arm.is_chosen), None)
    if plain is None or chosen is None or not plain.tokens_per_second:
        return None
    return chosen.tokens_per_second / plain.tokens_per_second


def _code(link: ServedLink, engine: RunningEngine) -> ServedLink:
    loaded = "; ".join(engine.ready.load_lines)
    if not loaded:
        return link
    return _seen(link, f"This engine loaded the checkpoint, every tensor accounted for: {loaded}.")


def _launch(link: ServedLink, engine: RunningEngine) -> ServedLink:
    ready = engine.ready
    claims = tuple(_launch_claims(ready))
    broken = [claim.observed for claim in claims if claim.state is LinkState.DISPROVED]
    if broken:
        return replace(link, state=LinkState.DISPROVED, summary=broken[0], claims=claims)
    summary = f"This engine drafts with {ready.drafter_name}, up to {ready.draft_tokens} tokens a pass."
    return replace(_seen(link, summary), claims=claims)


def _launch_claims(ready: EngineReady) -> Iterator[ServedClaim]:
    """What `draftproof verify --stack native` claims of a command, seen in the engine that it started."""
    drafts = ready.draft_tokens
    observed = (
        f"This engine drafts with {ready.drafter_name}."
        if drafts
        else f"The engine was started without drafts (drafter: {ready.drafter_name})."
    )
    yield ServedClaim("Speculation is on.", LinkState.LIVE if drafts else LinkState.DISPROVED, observed)
    if not drafts:
        return
    yield ServedClaim("The number of drafts per verify pass is decided.", LinkState.LIVE, f"K = {drafts}.")
    length = ready.simulated_accept_length
    lossless = "A draft is accepted when it equals the target's own draw."
    if length is not None:
        lossless = f"Acceptance is simulated (accept length {length:g}): drafts stand unjudged."
    yield ServedClaim(
        "No option lets a draft stand that the target would not have drawn.",
        LinkState.LIVE if length is None else LinkState.DISPROVED,
        lossless,
    )
    if ready.draft_policy:
        is_adaptive = ready.draft_policy == "adaptive"
        yield ServedClaim(
            "Drafts are taken only for batches in which they give more tokens a second.",
            LinkState.LIVE if is_adaptive else LinkState.UNKNOWN,
            f"From none to {drafts} drafts, by measured step times and acceptance."
            if is_adaptive
            else f"Always {drafts} drafts: --draft-policy {ready.draft_policy}.",
        )


def _backend(link: ServedLink, engine: RunningEngine) -> ServedLink:
    ready = engine.ready
    return _seen(
        link, f"This engine runs on {ready.device}, with room for {ready.max_sequences} sequences at a time."
    )


def _function(link: ServedLink, engine: RunningEngine) -> ServedLink:
    for alarm in engine.status.alarms:
        if alarm.kind is AlarmKind.COLLAPSED_ACCEPTANCE:
            return replace(link, state=LinkState.DISPROVED, summary=alarm.message)
    counts = engine.status.acceptance
    if not counts.proposed:
        return link
    rates = ", ".join(f"{rate:.0%}" for rate in counts.unconditional_rates)
    summary = (
        f"Drafts are accepted in {rates} of passes, by position, over {counts.proposed[0]:,} passes. "
        "That the text is the same without them is not checked here: "
        f"draftproof verify {engine.checkpoint} --run"
    )
    return _seen(link, summary)


def _speed(link: ServedLink, engine: RunningEngine) -> ServedLink:
    arms = engine.status.arms
    gain = arm_gain(arms, 1)
    chosen = next((arm for arm in arms if arm.batch == 1 and arm.is_chosen), None)
    if gain is None or chosen is None:
        return link
    summary = (
        f"For one sequence K = {chosen.draft_tokens} is expected to give {gain:.2f} times the tokens a "
        "second of plain decoding, by step times measured here and the acceptance so far. "
        "It is no paired measurement."
    )
    return _seen(link, summary)


def _seen(link: ServedLink, summary: str) -> ServedLink:
    return replace(link, state=LinkState.LIVE, summary=summary)


_LIVE: dict[str, Callable[[ServedLink, RunningEngine], ServedLink]] = {
    "code": _code,
    "launch": _launch,
    "backend": _backend,
    "function": _function,
    "speed": _speed,
}
