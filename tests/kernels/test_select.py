"""Kernels are chosen by capability from shipped tables; nothing falls back in silence."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from types import ModuleType

import pytest
import torch

from draftproof.errors import UnsupportedRequest
from draftproof.kernels import select
from draftproof.kernels.backend_rules import (
    Backend,
    BackendRule,
    TuningTable,
    load_table,
    parse_table,
    rules_in_words,
)
from draftproof.kernels.packed_linear import reference
from draftproof.kernels.packed_weights.formats import WeightFormat
from draftproof.kernels.select import PACKAGES, DemotionLog, StepKernels, kernels_for, operation

CPU = torch.device("cpu")
EVERY_TABLE = ("portable", "sm90")


@dataclass(frozen=True)
class Weights:
    """Anything with a format."""

    format: WeightFormat


def test_a_cpu_runs_every_definition() -> None:
    kernels = kernels_for(CPU)
    assert kernels.packed_linear is reference.packed_linear
    assert kernels.report.place == "cpu"
    assert not kernels.report.demotions.counts


def test_every_op_has_a_package_and_a_definition() -> None:
    ops = {each.name for each in fields(StepKernels)} - {"report"}
    assert ops == PACKAGES.keys()
    kernels = kernels_for(CPU)
    assert all(getattr(kernels, op).__module__.endswith(f"{PACKAGES[op]}.reference") for op in ops)


@pytest.mark.parametrize("name", EVERY_TABLE)
def test_shipped_tables_name_ops_that_there_are_and_never_the_definition(name: str) -> None:
    table = load_table(90 if name == "sm90" else 89)
    assert table.name == name
    assert table.rules.keys() <= PACKAGES.keys()
    backends = {rule.backend for rules in table.rules.values() for rule in rules}
    assert Backend.REFERENCE not in backends
    for rules in table.rules.values():
        assert rules[-1] == BackendRule(rules[-1].backend), "the last rule holds for every call"


def test_a_capability_without_a_table_takes_the_portable_one_and_says_that_it_is_untested() -> None:
    assert load_table(120).name == "portable"
    assert load_table(120).tested == ""
    assert load_table(90).tested == "H200"


def test_rules_in_words_say_for_which_rows_they_are() -> None:
    rules = parse_table("x", '[[route]]\nbackend = "cuda"\nmin_rows = 9\nmax_rows = 64\n').of("route")
    assert rules_in_words(rules) == "cuda from 9 rows up to 64 rows"


def test_a_table_with_an_unknown_key_is_an_error() -> None:
    with pytest.raises(ValueError, match="max_row"):
        parse_table("x", '[[route]]\nbackend = "triton"\nmax_row = 3\n')


class TestRules:
    """Which backend a call gets."""

    @pytest.fixture(autouse=True)
    def modules(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for backend in ("cuda", "triton"):
            module = ModuleType(backend)
            module.route = lambda x, *rest, name=backend: name  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, f"draftproof.kernels.routing.{backend}", module)

    def choose(self, *rules: BackendRule, log: DemotionLog | None = None) -> select.Operation:
        return operation("route", rules, False, "SM90", log or DemotionLog())

    def test_rows_decide(self) -> None:
        route = self.choose(BackendRule(Backend.CUDA, max_rows=8), BackendRule(Backend.TRITON))
        assert route(torch.zeros(8, 4)) == "cuda"
        assert route(torch.zeros(9, 4)) == "triton"
        wide = self.choose(BackendRule(Backend.CUDA, min_rows=9), BackendRule(Backend.TRITON))
        assert wide(torch.zeros(8, 4)) == "triton"
        assert wide(torch.zeros(9, 4)) == "cuda"

    def test_a_rule_for_other_rows_is_no_demotion(self) -> None:
        log = DemotionLog()
        self.choose(BackendRule(Backend.CUDA, min_rows=9), BackendRule(Backend.TRITON), log=log)(
            torch.zeros(1, 4)
        )
        assert not log.counts

    def test_the_weight_format_decides(self) -> None:
        route = self.choose(BackendRule(Backend.CUDA, formats=("nvfp4",)), BackendRule(Backend.TRITON))
        assert route(torch.zeros(1, 4), Weights(WeightFormat.NVFP4)) == "cuda"
        assert route(torch.zeros(1, 4), Weights(WeightFormat.BF16)) == "triton"

    def test_a_refusal_is_a_demotion_that_is_told_once_and_counted(self) -> None:
        told: list[str] = []
        log = DemotionLog(tell=told.append)
        sys.modules["draftproof.kernels.routing.cuda"].supports = (  # type: ignore[attr-defined]
            lambda x, *rest: "no such width" if x.shape[1] == 3 else None
        )
        route = self.choose(BackendRule(Backend.CUDA), BackendRule(Backend.TRITON), log=log)
        assert [route(torch.zeros(1, width)) for width in (4, 3, 3)] == ["cuda", "triton", "triton"]
        assert told == ["kernel route: cuda demoted: no such width"]
        assert list(log.counts.values()) == [2]

    def test_nothing_left_is_an_error_with_all_reasons_and_never_the_definition(self) -> None:
        sys.modules["draftproof.kernels.routing.cuda"].supports = (  # type: ignore[attr-defined]
            lambda *rest: "no such width"
        )
        route = self.choose(BackendRule(Backend.CUDA))
        with pytest.raises(UnsupportedRequest, match=r"2 rows with bf16 weights on SM90.*no such width"):
            route(torch.zeros(2, 4), Weights(WeightFormat.BF16))

    def test_a_backend_that_is_not_installed_is_a_demotion(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "draftproof.kernels.routing.cuda", None)
        told: list[str] = []
        route = self.choose(
            BackendRule(Backend.CUDA), BackendRule(Backend.TRITON), log=DemotionLog(tell=told.append)
        )
        assert route(torch.zeros(1, 4)) == "triton"
        assert len(told) == 1

    def test_a_backend_that_was_asked_for_by_name_is_there_or_an_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "draftproof.kernels.routing.cuda", None)
        with pytest.raises(UnsupportedRequest, match="cuda was asked for"):
            kernels_for(CPU, {"route": Backend.CUDA})


def test_operations_take_keywords_too() -> None:
    log = DemotionLog()
    rules = (BackendRule(Backend.REFERENCE, max_rows=1),)
    linear = operation("packed_linear", rules, False, "cpu", log)
    with pytest.raises(UnsupportedRequest, match="2 rows"):
        linear(x=torch.zeros(2, 4), matrix=None, out=None)


def test_an_empty_table_still_has_the_portable_kernel_for_every_op() -> None:
    assert TuningTable("x", "", {}).of("route") == (BackendRule(Backend.TRITON),)
