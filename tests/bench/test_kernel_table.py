"""Own times of overlapping kernels add up to the time in which the GPU was at work."""

from __future__ import annotations

from draftproof.bench.kernel_table import Launch, tabulate, with_subjects


def test_a_kernel_that_waits_for_its_predecessor_is_not_counted_twice() -> None:
    table = tabulate([Launch("a", 0.0, 10.0), Launch("b", 2.0, 13.0), Launch("c", 12.0, 20.0)], 1)
    assert {row.name: row.microseconds for row in table.rows} == {"a": 10.0, "b": 3.0, "c": 7.0}
    assert {row.name: row.resident_microseconds for row in table.rows}["b"] == 11.0
    assert table.kernel_microseconds == table.step_microseconds == 20.0


def test_gaps_belong_to_no_kernel() -> None:
    table = tabulate([Launch("a", 0.0, 4.0), Launch("a", 6.0, 9.0)], 1)
    assert (table.kernel_microseconds, table.step_microseconds) == (7.0, 9.0)


def test_figures_are_of_one_step_and_the_longest_comes_first() -> None:
    table = tabulate([Launch("a", 0.0, 1.0), Launch("b", 1.0, 4.0), Launch("b", 4.0, 7.0)], 2)
    assert [(row.name, row.launches, row.microseconds) for row in table.rows] == [
        ("b", 1.0, 3.0),
        ("a", 0.5, 0.5),
    ]


def test_nothing_ran() -> None:
    assert tabulate([], 3).step_microseconds == 0.0


def test_launches_are_named_by_what_they_work_on_in_the_order_of_a_step() -> None:
    launches = [Launch("p", 0.0, 1.0), Launch("q", 1.0, 2.0), Launch("p", 2.0, 3.0), Launch("p", 4.0, 5.0)]
    launches.append(Launch("p", 5.0, 6.0))
    named = with_subjects(launches, {"p": ("up", "down")}, 2)
    assert [launch.name for launch in named] == ["p: up", "q", "p: down", "p: up", "p: down"]


def test_they_keep_their_names_when_the_numbers_do_not_agree() -> None:
    assert [each.name for each in with_subjects([Launch("p", 0.0, 1.0)], {"p": ("a", "b")}, 1)] == ["p"]
