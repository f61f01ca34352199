"""Random lives of requests in an engine: prompts that begin alike, every kind of sampling, speculation on and
off, aborts at any time, requests that come again. Whoever is not aborted must get its text of being alone."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from draftproof.engine.loop import EngineLoop
from draftproof.engine.request import Request
from draftproof.runtime.sampling import SamplingParameters

VOCABULARY = 290
"""Token ids below the special ones of generated checkpoints."""


def random_requests(count: int, seed: int, longest: int = 40, most_tokens: int = 14) -> list[Request]:
    """Requests whose prompts come from three families that begin alike."""
    chance = random.Random(seed)
    families = [[chance.randrange(VOCABULARY) for _ in range(longest)] for _ in range(3)]
    return [_request(f"r{number}", families, chance, longest, most_tokens) for number in range(count)]


def _request(
    name: str, families: Sequence[Sequence[int]], chance: random.Random, longest: int, most_tokens: int
) -> Request:
    length = chance.randint(1, longest)
    own = chance.randint(0, min(length, 12))
    prompt = [*chance.choice(families)[: length - own], *chance.choices(range(VOCABULARY), k=own)]
    parameters = SamplingParameters(
        temperature=chance.choice((0.0, 0.0, 0.8, 4.0)),
        seed=chance.randrange(1000),
        max_tokens=chance.randint(1, most_tokens),
        ignore_eos=True,
        frequency_penalty=chance.choice((0.0, 0.0, 0.0, 0.0, 0.5)),
        stop_token_ids=tuple(chance.choices(range(VOCABULARY), k=chance.choice((0, 40)))),
    )
    return Request(name, tuple(prompt), parameters, chance.choice((None, None, 0, 1)))


def next_turn(request: Request, answer: Sequence[int], added: Sequence[int], name: str) -> Request:
    """The request that goes on with a conversation."""
    return replace(request, request_id=name, prompt_ids=(*request.prompt_ids, *answer, *added))


def run_lives(
    engine: EngineLoop,
    requests: Sequence[Request],
    alone: Mapping[str, tuple[int, ...]],
    lives: int,
    chance: random.Random,
) -> int:
    """Run requests that come at random, some of which are dropped, and compare every text.

    Args:
        engine: without requests.
        requests: to choose from.
        alone: their texts.
        lives: requests that come.
        chance: decides.

    Returns:
        Lives that came to their end.
    """
    inside: dict[str, list[int]] = {}
    names: dict[str, str] = {}
    started = finished = 0
    while started < lives or inside:
        if started < lives and len(inside) < 8 and chance.random() < 0.4:
            request = chance.choice(requests)
            name = f"life-{started}"
            names[name], inside[name] = request.request_id, []
            engine.add(replace(request, request_id=name))
            started += 1
        if inside and chance.random() < 0.015:
            name = chance.choice(list(inside))
            engine.abort(name)
            engine.abort(name)
            got = tuple(inside.pop(name))
            assert got == alone[names[name]][: len(got)]
        for output in engine.step():
            inside[output.request_id].extend(output.token_ids)
            if output.finish_reason is not None:
                assert tuple(inside.pop(output.request_id)) == alone[names[output.request_id]]
                finished += 1
        engine.check_integrity()
    assert not engine.has_work
    return finished
