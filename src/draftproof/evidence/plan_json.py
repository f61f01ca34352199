"""A proposed command as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from draftproof.evidence.item import Location
from draftproof.evidence.json_report import ChainModel
from draftproof.evidence.plan_report import PlanReport, flag_words
from draftproof.evidence.report_models import (
    SCHEMA_VERSION,
    LocationModel,
    ReportModel,
    VerdictWord,
    places,
    render_json,
)
from draftproof.stacks.launch_facts import EnvironmentVariable, PlannedFlag, Requirement
from draftproof.stacks.place import Place


class FlagModel(ReportModel):
    """One option, or one word that belongs to none, with the reason why it is there."""

    words: tuple[str, ...]
    reason: str
    where: tuple[LocationModel, ...] = ()

    @classmethod
    def of(cls, flag: PlannedFlag) -> FlagModel:
        """From a plan."""
        return cls(words=flag_words(flag), reason=flag.reason, where=_places(flag.places))


class VariableModel(ReportModel):
    """One environment variable that the command needs."""

    name: str
    value: str
    reason: str
    where: tuple[LocationModel, ...] = ()

    @classmethod
    def of(cls, variable: EnvironmentVariable) -> VariableModel:
        """From a plan."""
        return cls(
            name=variable.name,
            value=variable.value,
            reason=variable.reason,
            where=_places(variable.places),
        )


class RequirementModel(ReportModel):
    """Something that has to be installed; `present` is absent when the environment could not be looked at."""

    name: str
    version: str | None = None
    reason: str
    present: bool | None = None
    command: str | None = None
    where: tuple[LocationModel, ...] = ()

    @classmethod
    def of(cls, need: Requirement) -> RequirementModel:
        """From a plan."""
        return cls(
            name=need.name,
            version=need.version or None,
            reason=need.reason,
            present=need.present,
            command=need.command or None,
            where=_places(need.places),
        )


class PlanModel(ReportModel):
    """The report of ``draftproof plan``: the command in words and for a shell, and the chain under it."""

    kind: Literal["plan"] = "plan"
    schema_version: Literal["1.1"] = SCHEMA_VERSION
    verdict: VerdictWord
    exit_code: int
    summary: str
    program: tuple[str, ...]
    flags: tuple[FlagModel, ...]
    environment: tuple[VariableModel, ...]
    requirements: tuple[RequirementModel, ...]
    command: str
    chain: ChainModel

    @classmethod
    def of(cls, report: PlanReport) -> PlanModel:
        """From evidence."""
        plan = report.plan
        return cls(
            verdict=report.verdict.value,
            exit_code=report.exit_code,
            summary=report.chain.summary,
            program=plan.program,
            flags=tuple(FlagModel.of(flag) for flag in plan.flags),
            environment=tuple(VariableModel.of(variable) for variable in plan.environment),
            requirements=tuple(RequirementModel.of(need) for need in plan.requirements),
            command=report.one_line,
            chain=ChainModel.of(report.chain),
        )


def plan_to_json(report: PlanReport) -> str:
    """The whole report, ending with a newline."""
    return render_json(PlanModel.of(report))


def _places(found: Iterable[Place]) -> tuple[LocationModel, ...]:
    return places(tuple(Location(place.file, line=place.line) for place in found))
