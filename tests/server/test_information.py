"""`/server_info`: what the page shows, and links 6 and 7 while serving."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from draftproof.engine.status import Alarm, AlarmKind, DraftArm, EngineStatus
from draftproof.runtime.sampling import SamplingParameters
from draftproof.server.app import create_app
from draftproof.server.live_links import arm_gain, with_live_links
from draftproof.server.observability import observe
from draftproof.server.served_chain import LinkState, ServedChain, ServedLink
from draftproof.server.settings import ServerSettings
from draftproof.serving.messages import EngineReady, GenerationRequest
from draftproof.speculation.acceptance import AcceptanceCounts
from draftproof.text.tokenizer import Tokenizer
from tests.support.fake_engine import READY, Answer, FakeEngineClient, Piece

ARMS = (DraftArm(1, 0, 0.01, 100.0, False), DraftArm(1, 3, 0.015, 170.0, True))
ACCEPTED = AcceptanceCounts.of_pass(3, 2, 3) + AcceptanceCounts.of_pass(3, 0, 1)
COLLAPSED = Alarm(AlarmKind.COLLAPSED_ACCEPTANCE, "accept length 1.00 over 200 passes", ("r1",))


def chain(config: LinkState = LinkState.PROVEN) -> ServedChain:
    """Links 1, 6 and 7; only the first was run."""
    return ServedChain(
        "tiny",
        "Qwen3_5ForCausalLM",
        (
            ServedLink(1, "config", "The config declares a head.", config, "It does."),
            ServedLink(6, "function", "It runs.", LinkState.NOT_RUN, "Not run."),
            ServedLink(7, "speed", "It is faster.", LinkState.NOT_RUN, "Not run."),
        ),
    )


def states(status: EngineStatus, before: ServedChain | None = None) -> list[LinkState]:
    """Of the links, as the page shows them."""
    return [link.state for link in with_live_links(before or chain(), READY, status).links]


def test_links_that_were_not_run_stay_so_until_the_engine_shows_something() -> None:
    assert states(EngineStatus()) == [LinkState.PROVEN, LinkState.NOT_RUN, LinkState.NOT_RUN]


def test_accepted_drafts_and_measured_steps_are_shown_and_not_called_proven() -> None:
    shown = with_live_links(chain(), READY, EngineStatus(acceptance=ACCEPTED, arms=ARMS)).links
    assert [link.state for link in shown] == [LinkState.PROVEN, LinkState.LIVE, LinkState.LIVE]
    assert "50%, 50%, 0%" in shown[1].summary
    assert "not checked here: draftproof verify tiny --run" in shown[1].summary
    assert "K = 3 is expected to give 1.70 times" in shown[2].summary
    assert "no paired measurement" in shown[2].summary


def test_collapsed_acceptance_breaks_the_chain_at_link_6() -> None:
    status = EngineStatus(acceptance=ACCEPTED, arms=ARMS, alarms=(COLLAPSED,))
    assert states(status) == [LinkState.PROVEN, LinkState.DISPROVED, LinkState.NOT_RUN]


def test_nothing_is_shown_behind_a_broken_link() -> None:
    status = EngineStatus(acceptance=ACCEPTED, arms=ARMS)
    assert states(status, chain(LinkState.DISPROVED))[1:] == [LinkState.NOT_RUN, LinkState.NOT_RUN]


LAUNCHED = ServedChain(
    "tiny",
    "",
    tuple(
        ServedLink(number, name, "It holds.", LinkState.NOT_RUN, "Not run.")
        for number, name in ((3, "code"), (4, "launch"), (5, "backend"), (6, "function"))
    ),
)


def test_an_engine_that_runs_shows_that_it_was_loaded_where_it_runs_and_that_it_drafts() -> None:
    ready = replace(READY, load_lines=("12 tensors loaded",))
    shown = with_live_links(LAUNCHED, ready, EngineStatus()).links
    assert [link.state for link in shown] == [LinkState.LIVE] * 3 + [LinkState.NOT_RUN]
    assert "12 tensors loaded" in shown[0].summary
    assert "nextn, up to 3 tokens a pass" in shown[1].summary
    assert "on cpu" in shown[2].summary


@pytest.mark.parametrize(
    ("ready", "reason"),
    [
        (replace(READY, drafter_name="none", draft_tokens=0), "started without drafts"),
        (replace(READY, simulated_accept_length=2.5), "simulated"),
    ],
)
def test_without_drafts_or_with_made_up_ones_the_chain_is_broken_at_link_4(
    ready: EngineReady, reason: str
) -> None:
    shown = with_live_links(LAUNCHED, ready, EngineStatus(acceptance=ACCEPTED)).links
    assert [link.state for link in shown[1:]] == [LinkState.DISPROVED] + [LinkState.NOT_RUN] * 2
    assert reason in shown[1].summary


def test_the_claims_of_link_4_are_those_that_verify_makes_of_a_command() -> None:
    def claims(ready: EngineReady) -> dict[str, tuple[LinkState, str]]:
        launch = with_live_links(LAUNCHED, ready, EngineStatus()).links[1]
        return {claim.claim: (claim.state, claim.observed) for claim in launch.claims}

    adaptive = claims(replace(READY, draft_policy="adaptive"))
    assert {state for state, _ in adaptive.values()} == {LinkState.LIVE}
    assert any("K = 3" in observed for _, observed in adaptive.values())
    assert any("From none to 3 drafts" in observed for _, observed in adaptive.values())
    fixed = claims(replace(READY, draft_policy="fixed"))
    assert LinkState.UNKNOWN in {state for state, _ in fixed.values()}
    made_up = claims(replace(READY, simulated_accept_length=2.0))
    assert (
        made_up["No option lets a draft stand that the target would not have drawn."][0]
        is LinkState.DISPROVED
    )


def test_what_was_proven_before_the_start_is_not_replaced() -> None:
    run = replace(chain().links[1], state=LinkState.PROVEN)
    before = replace(chain(), links=(run,))
    assert with_live_links(before, READY, EngineStatus(acceptance=ACCEPTED)) == before


@pytest.mark.parametrize(("arms", "gain"), [(ARMS, 1.7), (ARMS[:1], None), (ARMS[1:], None), ((), None)])
def test_the_gain_needs_both_arms(arms: tuple[DraftArm, ...], gain: float | None) -> None:
    assert arm_gain(arms, 1) == (pytest.approx(gain) if gain else None)
    assert arm_gain(arms, 2) is None


def test_the_answer_holds_levels_rates_alarms_and_the_chain(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    engine.status = EngineStatus(
        running=2, acceptance=ACCEPTED, recent_acceptance=ACCEPTED, arms=ARMS, alarms=(COLLAPSED,)
    )
    seen = observe(engine, settings, chain())
    with TestClient(create_app(seen.client, tokenizer, None, settings, routers=seen.routers)) as http:
        answer = http.get("/server_info").json()
        assert set(http.get("/get_server_info").json()) == set(answer)
    assert answer["load"]["running"] == 2
    assert answer["model"]["names"] == ["tiny", "other/name"]
    assert answer["alarms"] == [
        {"kind": "collapsed_acceptance", "message": COLLAPSED.message, "request_ids": ["r1"]}
    ]
    assert answer["speculation"]["recent"]["positions"][0] == {
        "proposed": 2,
        "reached": 2,
        "accepted": 1,
        "rate": 0.5,
        "conditional_rate": 0.5,
    }
    assert [link["state"] for link in answer["chain"]["links"]] == ["proven", "disproved", "not run"]
    assert answer["internal_states"] == [{"avg_spec_accept_length": 2.0}]


def test_requests_in_flight_are_listed_without_their_text(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    engine.answer = lambda request: Answer((Piece("secret", (1, 2), accepted=1),), never_ends=True)
    seen = observe(engine, settings)
    app = create_app(seen.client, tokenizer, None, settings, routers=seen.routers)

    async def one_in_flight() -> str:
        stream = seen.client.stream(GenerationRequest("r7", (1, 2, 3), SamplingParameters(), draft_tokens=0))
        await anext(stream)
        with TestClient(app) as http:
            text = http.get("/server_info").text
            assert http.get("/server_info").json()["requests"][0] | {"age_seconds": 0} == {
                "id": "r7",
                "age_seconds": 0,
                "draft_tokens": 0,
                "prompt_tokens": 3,
                "cached_tokens": 0,
                "output_tokens": 2,
                "tokens_per_second": None,
                "accept_length": 2.0,
            }
            await stream.aclose()  # type: ignore[attr-defined]
            assert http.get("/server_info").json()["requests"] == []
        return text

    assert "secret" not in asyncio.run(one_in_flight())
