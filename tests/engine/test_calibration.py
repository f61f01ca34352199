"""Costs of steps are measured on real steps, and nothing of it is left."""

from __future__ import annotations

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.build import build_engine
from draftproof.engine.calibration import (
    Calibration,
    DictatedChoice,
    calibrated_batches,
    calibrated_drafts,
    measure_step_costs,
)
from draftproof.engine.config import DrafterName, DraftPolicy, EngineConfig
from draftproof.models.loading import LoadedModel
from draftproof.speculation.acceptance import AcceptanceCounts
from draftproof.speculation.draft_choice import AdaptiveChoice, Decision, FixedChoice
from draftproof.speculation.step_costs import StepCosts
from tests.support.engines import Settings, make_engine, nextn


def measure(model: LoadedModel, calibration: Calibration, settings: Settings) -> StepCosts | None:
    choice = DictatedChoice()
    engine = make_engine(model, nextn, settings, choice)
    costs = measure_step_costs(engine, choice, calibration)
    assert not engine.has_work
    engine.check_integrity()
    return costs


@pytest.mark.parametrize(("most", "sizes"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))])
def test_sizes_double_up_to_the_largest_batch(most: int, sizes: tuple[int, ...]) -> None:
    assert calibrated_batches(most) == sizes


@pytest.mark.parametrize(
    ("most", "drafts"),
    [(1, (0, 1)), (2, (0, 1, 2)), (3, (0, 1, 3)), (5, (0, 1, 3, 5)), (16, (0, 1, 3, 7, 15, 16))],
)
def test_windows_double_up_to_the_largest(most: int, drafts: tuple[int, ...]) -> None:
    assert calibrated_drafts(most) == drafts


def test_every_batch_size_and_k_has_a_cost(small_model: LoadedModel) -> None:
    costs = measure(small_model, Calibration((1, 2, 4), (0, 1, 3)), Settings(draft_tokens=3, slots=4))
    assert costs is not None
    assert costs.batches == (1, 2, 4)
    assert costs.most_drafts == 3
    for batch in costs.batches:
        assert costs.seconds(batch, 3) > costs.seconds(batch, 0) > 0.0


def test_when_time_is_over_larger_batches_are_estimated(small_model: LoadedModel) -> None:
    costs = measure(
        small_model, Calibration((1, 2, 4), (0, 1, 2), seconds=0.0), Settings(draft_tokens=2, slots=4)
    )
    assert costs is not None
    assert costs.batches == (1,)
    assert costs.seconds(4, 2) == 4 * costs.seconds(1, 2)


def test_sequences_that_end_early_are_followed_by_others(small_model: LoadedModel) -> None:
    settings = Settings(draft_tokens=2, slots=2, max_length=24)
    costs = measure(small_model, Calibration((1, 2), (0, 1, 2)), settings)
    assert costs is not None
    assert costs.batches == (1, 2)


def test_a_context_in_which_no_step_is_of_full_width_gives_no_costs(small_model: LoadedModel) -> None:
    assert (
        measure(small_model, Calibration((1,), (0, 1, 3)), Settings(draft_tokens=3, slots=1, max_length=4))
        is None
    )


def test_it_takes_few_steps(small_model: LoadedModel) -> None:
    """Less than a hundred for eight sequences and K up to 3: half a second of the embedded checkpoint."""
    choice = DictatedChoice()
    engine = make_engine(small_model, nextn, Settings(draft_tokens=3, slots=8), choice)
    measure_step_costs(engine, choice, Calibration(calibrated_batches(8), calibrated_drafts(3)))
    assert engine.status().steps < 100


def test_the_engine_that_serves_has_seen_nothing_of_it() -> None:
    config = EngineConfig(max_length=128, max_sequences=2, draft_policy=DraftPolicy.ADAPTIVE)
    engine = build_engine(open_checkpoint("tiny"), config).engine
    assert isinstance(engine.choice, AdaptiveChoice)
    assert {(arm.batch, arm.draft_tokens) for arm in engine.choice.arms()} == {
        (batch, arm) for batch in (1, 2) for arm in range(4)
    }
    status = engine.status()
    assert (status.steps, status.pages_cached, status.alarms) == (0, 0, ())
    assert status.arms == engine.choice.arms()
    assert engine.acceptance == AcceptanceCounts()
    engine.check_integrity()


def test_without_speculation_or_with_a_fixed_k_nothing_is_measured() -> None:
    plain = EngineConfig(
        drafter=DrafterName.NONE, draft_tokens=0, max_length=64, draft_policy=DraftPolicy.ADAPTIVE
    )
    for config in (plain, EngineConfig(max_length=64)):
        engine = build_engine(open_checkpoint("tiny"), config).engine
        assert isinstance(engine.choice, FixedChoice)
        assert engine.status().arms == ()


def test_a_step_that_waited_does_not_end_the_measurement(small_model: LoadedModel) -> None:
    """The first step of a form compiles kernels: that is the time of a step once, and counts once."""
    choice = SlowNow()
    engine = make_engine(small_model, nextn, Settings(draft_tokens=1, slots=4), choice)
    costs = measure_step_costs(engine, choice, Calibration((1, 2, 4), (0, 1), seconds=5.0))
    assert costs is not None
    assert costs.batches == (1, 2, 4)


class SlowNow(DictatedChoice):
    """The first step that is timed took a minute."""

    def observe(self, decision: Decision, seconds: float | None, acceptance: AcceptanceCounts) -> None:
        super().observe(decision, seconds if self.costs or seconds is None else 60.0, acceptance)
