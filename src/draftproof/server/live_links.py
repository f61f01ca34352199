"""Links 6 and 7 as far as serving shows them: what is seen now, and that it is no proof."""

from __future__ import annotations

from dataclasses import replace

from draftproof.engine.status import AlarmKind, DraftArm, EngineStatus
from draftproof.server.served_chain import LinkState, ServedChain, ServedLink

FUNCTION, SPEED = "function", "speed"


def with_live_links(chain: ServedChain, status: EngineStatus) -> ServedChain:
    """The chain with what the running engine shows in place of links that were not run before the start.

    Nothing changes behind a broken link: what comes after it does not count.
    """
    links = []
    is_broken = False
    for link in chain.links:
        if is_broken or link.state is not LinkState.NOT_RUN:
            links.append(link)
        elif link.name == FUNCTION:
            links.append(_function(link, chain, status))
        elif link.name == SPEED:
            links.append(_speed(link, status))
        else:
            links.append(link)
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


def _function(link: ServedLink, chain: ServedChain, status: EngineStatus) -> ServedLink:
    for alarm in status.alarms:
        if alarm.kind is AlarmKind.COLLAPSED_ACCEPTANCE:
            return replace(link, state=LinkState.DISPROVED, summary=alarm.message)
    counts = status.acceptance
    if not counts.proposed:
        return link
    rates = ", ".join(f"{rate:.0%}" for rate in counts.unconditional_rates)
    summary = (
        f"Drafts are accepted in {rates} of passes, by position, over {counts.proposed[0]:,} passes. "
        "That the text is the same without them is not checked here: "
        f"draftproof verify {chain.checkpoint} --run"
    )
    return replace(link, state=LinkState.LIVE, summary=summary)


def _speed(link: ServedLink, status: EngineStatus) -> ServedLink:
    gain = arm_gain(status.arms, 1)
    chosen = next((arm for arm in status.arms if arm.batch == 1 and arm.is_chosen), None)
    if gain is None or chosen is None:
        return link
    summary = (
        f"For one sequence K = {chosen.draft_tokens} is expected to give {gain:.2f} times the tokens a "
        "second of plain decoding, by step times measured here and the acceptance so far. "
        "It is no paired measurement."
    )
    return replace(link, state=LinkState.LIVE, summary=summary)
