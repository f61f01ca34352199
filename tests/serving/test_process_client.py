"""Client and engine process together: answers, limits, and every way in which the process can go."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from time import monotonic

import pytest

from draftproof.errors import UsageError
from draftproof.runtime.sampling import SamplingParameters
from draftproof.serving.client import GenerationFailed, HealthState, QueueFull
from draftproof.serving.engine_process import EngineProcess, EngineStartFailed
from draftproof.serving.messages import FailureKind, GenerationChunk, GenerationRequest
from draftproof.serving.process_client import ProcessEngineClient, ServingLimits
from tests.support.running_server import wait_until_gone
from tests.support.scripted_engine import Fails, ScriptedFactory, hangs

PATIENCE = 20.0
"""Seconds in which anything must have happened."""
ENDLESS = 1_000_000


def request(name: str, tokens: int = 4) -> GenerationRequest:
    return GenerationRequest(name, (1, 2), SamplingParameters(max_tokens=tokens))


def run(
    factory: ScriptedFactory,
    scenario: Callable[[ProcessEngineClient, EngineProcess], Awaitable[None]],
    limits: ServingLimits | None = None,
) -> None:
    """Start an engine process and play a scenario; no process is left."""
    process = EngineProcess.start(factory, lambda line: None)

    async def play() -> None:
        client = ProcessEngineClient(process, limits or ServingLimits())
        await asyncio.wait_for(scenario(client, process), PATIENCE)
        await client.close()

    try:
        asyncio.run(play())
    finally:
        process.kill()
        wait_until_gone(process.pid)


async def text_of(client: ProcessEngineClient, asked: GenerationRequest) -> str:
    return "".join([chunk.text async for chunk in client.stream(asked)])


async def failure_of(client: ProcessEngineClient, asked: GenerationRequest) -> FailureKind:
    with pytest.raises(GenerationFailed) as caught:
        await text_of(client, asked)
    return caught.value.kind


def endless(client: ProcessEngineClient, name: str) -> AsyncIterator[GenerationChunk]:
    return client.stream(request(name, ENDLESS))


async def begun(client: ProcessEngineClient, name: str) -> asyncio.Task[str]:
    """A request that goes on for ever, of which the first chunk has come."""
    first = asyncio.Event()

    async def read() -> str:
        text = ""
        async for chunk in endless(client, name):
            text += chunk.text
            first.set()
        return text

    task = asyncio.create_task(read())
    await first.wait()
    return task


async def until(happened: Callable[[], bool]) -> None:
    limit = monotonic() + PATIENCE
    while not happened():
        assert monotonic() < limit
        await asyncio.sleep(0.01)


class TestAnswers:
    def test_requests_are_answered_side_by_side_and_status_follows(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            assert client.health.state is HealthState.READY
            texts = await asyncio.gather(*(text_of(client, request(f"r{n}", 2 + n)) for n in range(5)))
            assert len(set(map(len, texts))) == 5
            await until(lambda: client.status.steps > 0 and client.status.running == 0)
            await client.reset_prefix_cache()

        run(ScriptedFactory(), scenario)

    def test_whoever_asks_is_told_that_acceptance_is_simulated(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            assert client.health.state is HealthState.READY
            assert "simulated (accept length 2.5)" in client.health.reasons[0]

        run(ScriptedFactory(simulated_accept_length=2.5), scenario)

    def test_whoever_has_an_answer_finds_it_counted(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            for number in range(1, 6):
                await text_of(client, request(f"r{number}", 1))
                assert client.status.steps >= number
                assert client.status.running == 0

        run(ScriptedFactory(), scenario)

    def test_closing_the_stream_aborts_the_request(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            async with aclosing(endless(client, "a")) as chunks:
                await anext(chunks)
                await until(lambda: client.status.running == 1)
            await until(lambda: client.status.running == 0)

        run(ScriptedFactory(step_seconds=0.01), scenario)

    def test_cancelling_the_task_aborts_the_request(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            reading = await begun(client, "a")
            reading.cancel()
            await asyncio.wait([reading])
            await until(lambda: client.status.running == 0)

        run(ScriptedFactory(step_seconds=0.01), scenario)

    def test_a_full_queue_turns_requests_away_until_there_is_room(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            tasks = [await begun(client, "runs")]
            tasks.append(asyncio.create_task(text_of(client, request("waits", ENDLESS))))
            await asyncio.sleep(0)
            with pytest.raises(QueueFull) as caught:
                await text_of(client, request("too many"))
            assert 1 <= caught.value.retry_after <= 60
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert await text_of(client, request("again"))

        run(ScriptedFactory(slots=1, step_seconds=0.01), scenario, ServingLimits(max_queue=1))


class TestFailures:
    def test_a_failed_step_ends_its_requests_and_later_ones_are_answered(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            assert await failure_of(client, request("a")) is FailureKind.FAULT
            assert await text_of(client, request("b"))
            assert client.health.state is HealthState.READY

        run(ScriptedFactory(deeds={1: Fails(RuntimeError("broken"))}), scenario)

    def test_an_engine_that_fails_again_and_again_is_given_up(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            for name in "abc":
                assert await failure_of(client, request(name)) is FailureKind.FAULT
            await client.failed.wait()
            assert client.health.state is HealthState.FAILED
            assert "3 engine steps in a row failed" in client.health.reasons[0]
            assert await failure_of(client, request("d")) is FailureKind.STOPPED

        run(ScriptedFactory(deeds=dict.fromkeys(range(3), Fails(RuntimeError("broken")))), scenario)

    def test_when_the_process_is_killed_everything_that_waits_ends_with_an_error(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            reading = await begun(client, "a")
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(GenerationFailed, match="SIGKILL") as caught:
                await reading
            assert caught.value.kind is FailureKind.STOPPED
            assert client.health.state is HealthState.FAILED
            with pytest.raises(GenerationFailed):
                await client.reset_prefix_cache()

        run(ScriptedFactory(step_seconds=0.01), scenario)

    def test_an_engine_that_hangs_with_work_is_killed(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            asked = monotonic()
            with pytest.raises(GenerationFailed, match="said nothing") as caught:
                await text_of(client, request("a"))
            assert caught.value.kind is FailureKind.STOPPED
            assert monotonic() - asked > 0.4
            assert client.health.state is HealthState.FAILED
            await asyncio.to_thread(wait_until_gone, process.pid)

        run(ScriptedFactory(deeds={2: hangs}), scenario, ServingLimits(stall_seconds=0.4))

    def test_signals_that_a_terminal_sends_to_all_processes_are_not_the_engines_business(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(process.pid, number)
                assert await text_of(client, request(f"after {number}"))

        run(ScriptedFactory(), scenario)

    def test_an_engine_without_work_may_be_silent(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            os.kill(process.pid, signal.SIGSTOP)
            await asyncio.sleep(0.6)
            assert client.health.state is HealthState.READY
            os.kill(process.pid, signal.SIGCONT)
            assert await text_of(client, request("a"))

        run(ScriptedFactory(), scenario, ServingLimits(stall_seconds=0.4))


class TestDraining:
    def test_what_runs_is_finished_and_nothing_new_is_taken(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            reading = asyncio.create_task(text_of(client, request("a", 40)))
            await asyncio.sleep(0.05)
            draining = asyncio.create_task(client.drain(PATIENCE))
            await asyncio.sleep(0)
            assert client.health.state is HealthState.DRAINING
            assert await failure_of(client, request("late")) is FailureKind.STOPPED
            await draining
            assert len(await reading) > 40

        run(ScriptedFactory(step_seconds=0.01), scenario)

    def test_what_is_not_finished_in_time_ends_with_an_error(self) -> None:
        async def scenario(client: ProcessEngineClient, process: EngineProcess) -> None:
            reading = await begun(client, "a")
            await client.drain(0.05)
            with pytest.raises(GenerationFailed, match="shutting down"):
                await reading

        run(ScriptedFactory(step_seconds=0.01), scenario)


class TestStarting:
    def test_progress_is_reported(self) -> None:
        lines: list[str] = []
        process = EngineProcess.start(ScriptedFactory(), lines.append)
        process.stop(PATIENCE)
        assert lines == ["making it up"]
        wait_until_gone(process.pid)

    def test_a_stopped_process_ends_by_itself(self) -> None:
        process = EngineProcess.start(ScriptedFactory(), lambda line: None)
        process.stop(PATIENCE)
        assert process.ending() == "exit code 0"

    @pytest.mark.parametrize(
        ("error", "message", "exit_code"),
        [
            (UsageError("no such thing", "Name another."), "no such thing. Name another.", 2),
            (ModuleNotFoundError("", name="torch"), "the package torch is not installed", 4),
            (ZeroDivisionError("by nought"), "ZeroDivisionError: by nought", 70),
        ],
    )
    def test_an_engine_that_cannot_be_made_says_why(
        self, error: Exception, message: str, exit_code: int
    ) -> None:
        with pytest.raises(EngineStartFailed) as caught:
            EngineProcess.start(ScriptedFactory(error=error), lambda line: None)
        assert message in str(caught.value)
        assert caught.value.exit_code == exit_code

    def test_a_process_that_dies_while_starting_is_an_error_with_its_end(self) -> None:
        with pytest.raises(EngineStartFailed, match=r"while it was starting \(ended by SIGKILL"):
            EngineProcess.start(ScriptedFactory(), lambda line: os.kill(_engine_pid(), signal.SIGKILL))


def _engine_pid() -> int:
    import multiprocessing

    (child,) = multiprocessing.active_children()
    assert child.pid is not None
    return child.pid
