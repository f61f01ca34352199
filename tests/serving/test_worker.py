"""The engine's side of serving: what each command and each failure leads to, for which request."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from draftproof.errors import EngineFault
from draftproof.runtime.sampling import SamplingParameters
from draftproof.serving.messages import (
    Abort,
    EngineMessage,
    FailureKind,
    GenerationChunk,
    GenerationFailure,
    GenerationRequest,
    PrefixCacheReset,
    ResetPrefixCache,
)
from draftproof.serving.worker import EngineLost, EngineWorker
from draftproof.speculation.acceptance import FinishReason
from draftproof.text.output_rules import OutputRules
from tests.support.scripted_engine import (
    REFUSED_TOKEN,
    Fails,
    Loses,
    ScriptedEngine,
    served,
    word_tokens,
)

WORDS = word_tokens()


class Clock:
    """Seconds that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def request(name: str, tokens: int = len(WORDS) * 2, **fields: object) -> GenerationRequest:
    made = GenerationRequest(name, (1, 2), SamplingParameters(max_tokens=tokens))
    return replace(made, **fields)  # type: ignore[arg-type]


def worker_of(
    engine: ScriptedEngine, *requests: GenerationRequest, clock: Clock | None = None
) -> EngineWorker:
    worker = EngineWorker(served(engine), clock or Clock())
    for each in requests:
        assert list(worker.take(each)) == []
    return worker


def run(worker: EngineWorker) -> list[EngineMessage]:
    messages: list[EngineMessage] = []
    while worker.has_work:
        messages += worker.step()
    return messages


def chunks(messages: Iterable[EngineMessage], name: str) -> list[GenerationChunk]:
    return [each for each in messages if isinstance(each, GenerationChunk) and each.request_id == name]


def failures(messages: Iterable[EngineMessage]) -> dict[str, FailureKind]:
    return {each.request_id: each.kind for each in messages if isinstance(each, GenerationFailure)}


def test_a_request_becomes_chunks_and_the_last_one_says_why_it_ended() -> None:
    messages = chunks(run(worker_of(ScriptedEngine(WORDS), request("a"))), "a")
    assert "".join(chunk.text for chunk in messages) == "word word "
    assert [chunk.finish_reason for chunk in messages] == [None] * (len(messages) - 1) + [FinishReason.LENGTH]
    assert [chunk.usage.completion_tokens for chunk in messages] == list(range(1, len(messages) + 1))


def test_usage_counts_what_became_of_drafts_pass_by_pass() -> None:
    usage = chunks(run(worker_of(ScriptedEngine(WORDS), request("a", 4))), "a")[-1].usage
    assert usage.prompt_tokens == 2
    assert usage.histogram == (0, 4, 0)
    assert (usage.acceptance.passes, usage.acceptance.accepted) == (4, (4, 0))


def test_a_stop_string_is_never_part_of_the_text_and_is_named() -> None:
    parameters = SamplingParameters(max_tokens=50, stop_strings=("rd wo",))
    messages = chunks(run(worker_of(ScriptedEngine(WORDS), request("a", parameters=parameters))), "a")
    assert "".join(chunk.text for chunk in messages) == "wo"
    assert (messages[-1].finish_reason, messages[-1].matched_stop) == (FinishReason.STOP, "rd wo")


def test_times_count_from_arrival_to_the_first_step_and_from_there_to_the_first_token() -> None:
    clock = Clock()

    def slow(engine: ScriptedEngine) -> None:
        clock.now += 2.0

    engine = ScriptedEngine(WORDS, slots=1, deeds={0: slow, 1: slow, 2: slow})
    worker = worker_of(engine, request("a", 2), request("b", 1), clock=clock)
    clock.now += 1.0
    messages = run(worker)
    first, second = (chunks(messages, name)[-1].usage for name in "ab")
    assert (first.queued_seconds, first.prompt_seconds) == (1.0, 2.0)
    assert (second.queued_seconds, second.prompt_seconds) == (5.0, 2.0)


def test_a_refused_request_says_what_is_wrong_and_the_others_go_on() -> None:
    worker = worker_of(ScriptedEngine(WORDS), request("good"))
    refusal = list(worker.take(request("bad", prompt_ids=(REFUSED_TOKEN,))))
    message = "the prompt is unlucky. Try another one."
    assert refusal == [GenerationFailure("bad", FailureKind.REFUSED, message)]
    assert chunks(run(worker), "good")[-1].finish_reason is FinishReason.LENGTH


def test_rules_that_cannot_be_kept_are_refused() -> None:
    worker = worker_of(ScriptedEngine(WORDS))
    assert failures(worker.take(request("a", rules=OutputRules()))) == {"a": FailureKind.REFUSED}


def test_an_output_that_ended_against_its_rules_is_a_failure_and_no_answer() -> None:
    """The engine takes it for an end like any other."""

    class Broken:
        is_active = True
        failure = "the grammar could not be followed"

    class MakesBroken:
        def constraint(self, rules: OutputRules) -> object:
            return Broken()

    engine = ScriptedEngine(WORDS)
    worker = EngineWorker(replace(served(engine), constraints=MakesBroken()), Clock())  # type: ignore[arg-type]
    list(worker.take(request("a", rules=OutputRules())))
    list(worker.take(request("b")))
    messages = run(worker)
    assert failures(messages) == {"a": FailureKind.REFUSED}
    assert all(chunk.finish_reason is None for chunk in chunks(messages, "a"))
    assert chunks(messages, "b")[-1].finish_reason is FinishReason.LENGTH


def test_an_aborted_request_is_never_heard_of_again() -> None:
    worker = worker_of(ScriptedEngine(WORDS), request("a"), request("b"))
    list(worker.step())
    for name in ("a", "a", "never there"):
        assert list(worker.take(Abort(name))) == []
    messages = run(worker)
    assert chunks(messages, "a") == []
    assert chunks(messages, "b")[-1].finish_reason is FinishReason.LENGTH


def test_a_fault_ends_the_requests_that_it_touches_and_no_others() -> None:
    engine = ScriptedEngine(WORDS, deeds={1: Loses(("a",))})
    messages = run(worker := worker_of(engine, request("a"), request("b")))
    assert failures(messages) == {"a": FailureKind.FAULT}
    assert chunks(messages, "b")[-1].finish_reason is FinishReason.LENGTH
    assert engine.resets == 0
    assert worker.status.faults == 1


@pytest.mark.parametrize("error", [RuntimeError("out of the blue\nand more"), EngineFault("touches nobody")])
def test_after_an_unforeseen_failure_all_requests_end_and_the_engine_goes_on(error: Exception) -> None:
    engine = ScriptedEngine(WORDS, deeds={1: Fails(error)})
    worker = worker_of(engine, request("a"), request("b"), request("waits"))
    messages = run(worker)
    assert failures(messages) == dict.fromkeys(("a", "b", "waits"), FailureKind.FAULT)
    assert all("\n" not in each.message for each in messages if isinstance(each, GenerationFailure))
    assert (engine.resets, engine.prefix_resets) == (1, 1)
    assert list(worker.take(request("next"))) == []
    assert chunks(run(worker), "next")[-1].finish_reason is FinishReason.LENGTH


def test_a_command_that_makes_the_engine_fail_is_like_a_failed_step(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ScriptedEngine(WORDS)
    worker = worker_of(engine, request("a"), request("b"))
    monkeypatch.setattr(engine, "abort", lambda name: Fails(KeyError(name))(engine))
    assert failures(worker.take(Abort("a"))) == dict.fromkeys("ab", FailureKind.FAULT)
    assert engine.resets == 1


def test_three_failed_steps_in_a_row_are_the_end_and_the_last_request_is_told_too() -> None:
    worker = worker_of(ScriptedEngine(WORDS, deeds=dict.fromkeys((0, 1, 2), Fails(RuntimeError("broken")))))
    for name in "ab":
        list(worker.take(request(name)))
        assert failures(worker.step()) == {name: FailureKind.FAULT}
    list(worker.take(request("c")))
    step = worker.step()
    assert failures([next(step)]) == {"c": FailureKind.FAULT}
    with pytest.raises(EngineLost, match=r"3 engine steps in a row failed: .*broken"):
        next(step)


def test_failures_with_a_good_step_between_them_are_not_the_end() -> None:
    engine = ScriptedEngine(WORDS, deeds=dict.fromkeys((0, 1, 3, 4), Fails(RuntimeError("broken"))))
    worker = worker_of(engine)
    for name in "abcde":
        list(worker.take(request(name)))
        list(worker.step())
    assert engine.resets == 4


def test_an_engine_that_cannot_be_reset_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ScriptedEngine(WORDS, deeds={0: Fails(RuntimeError("broken"))})
    monkeypatch.setattr(engine, "reset", lambda: Fails(ValueError("two pages lost"))(engine))
    worker = worker_of(engine, request("a"))
    with pytest.raises(EngineLost, match="two pages lost"):
        list(worker.step())


def test_a_request_past_its_deadline_ends_running_or_waiting() -> None:
    clock = Clock()
    engine = ScriptedEngine(WORDS, slots=1)
    worker = worker_of(
        engine,
        request("runs", deadline_seconds=5.0),
        request("waits", deadline_seconds=4.0),
        request("patient", 2),
        clock=clock,
    )
    list(worker.step())
    clock.now += 3.9
    assert failures(worker.step()) == {}
    clock.now += 0.2
    assert failures(worker.step()) == {"waits": FailureKind.DEADLINE}
    clock.now += 1.0
    messages = list(worker.step())
    assert failures(messages) == {"runs": FailureKind.DEADLINE}
    assert engine.running == ["patient"]
    assert chunks([*messages, *run(worker)], "patient")[-1].finish_reason is FinishReason.LENGTH


def test_the_deadline_of_a_finished_request_does_not_hit_another_of_its_name() -> None:
    clock = Clock()
    worker = worker_of(ScriptedEngine(WORDS), request("a", 1, deadline_seconds=5.0), clock=clock)
    run(worker)
    list(worker.take(request("a", 2)))
    clock.now += 6.0
    assert failures(run(worker)) == {}


def test_resetting_the_prefix_cache_is_answered() -> None:
    engine = ScriptedEngine(WORDS)
    assert list(worker_of(engine).take(ResetPrefixCache())) == [PrefixCacheReset()]
    assert engine.prefix_resets == 1


def test_special_tokens_have_text_only_when_asked_for() -> None:
    special = served(ScriptedEngine(WORDS)).tokenizer.token_id("<|im_start|>")
    assert special is not None
    texts = {}
    for shown in (False, True):
        worker = worker_of(ScriptedEngine((special,)), request("a", 1, shows_special_tokens=shown))
        texts[shown] = chunks(run(worker), "a")[-1].text
    assert texts == {False: "", True: "<|im_start|>"}
