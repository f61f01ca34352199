"""Alarms come with their cause, name the requests, and go with it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from draftproof.engine.alarms import FAULT_SECONDS, NAMED_REQUESTS, AlarmWatch
from draftproof.engine.recent_acceptance import COLLAPSED_PASSES
from draftproof.engine.status import Alarm, AlarmKind
from draftproof.speculation.acceptance import AcceptanceCounts


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def window(drafts: int, accepted: int) -> AcceptanceCounts:
    return AcceptanceCounts.of_pass(drafts, accepted, accepted + 1)


def only(watch: AlarmWatch) -> Alarm:
    (alarm,) = watch.alarms()
    return alarm


def test_nothing_is_wrong_at_first() -> None:
    assert AlarmWatch().alarms() == ()


@pytest.mark.parametrize(("drafts", "passes"), [(1, 200), (3, 200), (10, 200), (16, 125)])
def test_drafts_that_are_never_accepted_collapse_after_200_passes_or_2000_drafts(
    drafts: int, passes: int
) -> None:
    watch = AlarmWatch()
    for _ in range(passes - 1):
        watch.passed("r", window(drafts, 0))
    assert watch.alarms() == ()
    watch.passed("r", window(drafts, 0))
    assert only(watch).kind is AlarmKind.COLLAPSED_ACCEPTANCE


def test_the_message_has_the_figures_and_the_ids_the_latest_first() -> None:
    watch = AlarmWatch()
    for number in range(300):
        watch.passed(f"r{number % 20}", window(3, 0))
    alarm = only(watch)
    assert "0 of the last 600 drafts" in alarm.message
    assert "\n" not in alarm.message
    assert alarm.request_ids == tuple(f"r{number}" for number in range(19, 19 - NAMED_REQUESTS, -1))


def test_a_poor_head_is_no_collapse() -> None:
    watch = AlarmWatch()
    for number in range(2000):
        watch.passed("r", window(3, int(number % 20 == 0)))
    assert watch.alarms() == ()


def test_one_lucky_draft_does_not_hide_the_collapse_and_acceptance_ends_it() -> None:
    watch = AlarmWatch()
    for number in range(COLLAPSED_PASSES):
        watch.passed("r", window(3, int(number == 50)))
    assert only(watch).kind is AlarmKind.COLLAPSED_ACCEPTANCE
    for _ in range(5):
        watch.passed("r", window(3, 2))
    assert watch.alarms() == ()


def test_passes_without_drafts_say_nothing() -> None:
    watch = AlarmWatch()
    for _ in range(5000):
        watch.passed("r", window(0, 0))
    assert watch.alarms() == ()


def test_the_collapse_stays_when_its_requests_leave_for_the_next_ones_may_fare_alike() -> None:
    watch = AlarmWatch()
    for number in range(COLLAPSED_PASSES):
        watch.passed(f"r{number}", window(2, 0))
        watch.left(f"r{number}")
    assert only(watch).kind is AlarmKind.COLLAPSED_ACCEPTANCE


def test_one_request_that_collapses_among_others_is_named_until_it_leaves() -> None:
    watch = AlarmWatch()
    for _ in range(COLLAPSED_PASSES):
        watch.passed("good", window(3, 2))
        watch.passed("bad", window(3, 0))
    assert only(watch).request_ids == ("bad",)
    watch.left("bad")
    assert watch.alarms() == ()


def test_an_output_in_circles_is_named_until_it_leaves() -> None:
    watch = AlarmWatch()
    watch.wrote("fine", list(range(400)))
    watch.wrote("circle", list(range(7)) * 60)
    alarm = only(watch)
    assert alarm.kind is AlarmKind.REPETITION
    assert alarm.request_ids == ("circle",)
    assert "7 tokens" in alarm.message
    watch.left("circle")
    assert watch.alarms() == ()


def test_faults_are_news_for_a_while() -> None:
    clock = Clock()
    watch = AlarmWatch(clock)
    watch.lost(["a", "b"])
    clock.now += FAULT_SECONDS / 2
    watch.lost(["c"])
    alarm = only(watch)
    assert alarm.kind is AlarmKind.FAULTS
    assert alarm.request_ids == ("c", "b", "a")
    assert alarm.message.startswith("3 requests")
    clock.now += FAULT_SECONDS / 2 + 1
    assert only(watch).request_ids == ("c",)
    clock.now += FAULT_SECONDS
    assert watch.alarms() == ()


def test_several_alarms_may_be_on() -> None:
    watch = AlarmWatch()
    for _ in range(COLLAPSED_PASSES):
        watch.passed("r", window(3, 0))
    watch.wrote("r", [1] * 400)
    watch.lost(["s"])
    assert [alarm.kind for alarm in watch.alarms()] == list(AlarmKind)


def test_a_lost_request_is_forgotten() -> None:
    watch = AlarmWatch()
    watch.wrote("r", [1] * 400)
    watch.lost(["r"])
    assert only(watch).kind is AlarmKind.FAULTS


def test_none_of_it_needs_torch() -> None:
    program = (
        "import sys, draftproof.engine.alarms, draftproof.speculation.draft_choice\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
