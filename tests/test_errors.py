"""What a library's error means to a user."""

import pytest

from draftproof.errors import DraftproofError, EnvironmentProblem, UsageError, known_problem


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


@pytest.mark.parametrize(
    ("package", "extra"),
    [("torch", "engine"), ("triton.language", "gpu"), ("fastapi", "server"), ("llguidance", "server")],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(package: str, extra: str) -> None:
    problem = known_problem(ModuleNotFoundError(f"No module named {package!r}", name=package))
    assert isinstance(problem, EnvironmentProblem)
    assert package in problem.message
    assert problem.remedy == f"Run: pip install 'draftproof[{extra}]'"


@pytest.mark.parametrize("error", [MemoryError(), OutOfMemoryError("Tried to allocate")])
def test_memory_that_runs_out_is_a_problem_of_the_machine(error: Exception) -> None:
    problem = known_problem(error)
    assert isinstance(problem, EnvironmentProblem)
    assert "out of memory" in problem.message


def test_our_own_errors_are_what_they_are() -> None:
    error = UsageError("no such thing")
    assert known_problem(error) is error


@pytest.mark.parametrize("error", [IndexError(1), ModuleNotFoundError("", name="draftproof.gone")])
def test_everything_else_is_a_defect(error: Exception) -> None:
    found: DraftproofError | None = known_problem(error)
    assert found is None
