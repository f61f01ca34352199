"""Several chains side by side: what differs comes first, and one verdict covers all."""

import io
import json

import pytest
from rich.console import Console

from draftproof.evidence import Agreement, ComparisonReport, Link, Verdict
from draftproof.evidence.comparison_json import ComparisonModel, comparison_to_json
from draftproof.evidence.comparison_markdown import comparison_to_markdown
from draftproof.evidence.comparison_terminal import print_comparison
from draftproof.evidence.report_models import render_json
from tests.evidence import examples


def both(first, second):
    """Two chains whose link 3 has these verdicts."""
    return ComparisonReport(
        (
            examples.in_stack("0.5.9", examples.link(Link.CODE, first)),
            examples.in_stack("0.5.12", examples.link(Link.CODE, second)),
        )
    )


def terminal(report, width=100):
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, markup=False)
    print_comparison(console, report)
    return stream.getvalue()


def test_claims_that_differ_come_first_then_those_that_hold_nowhere():
    rows = examples.comparison().claim_rows
    assert [row.check for row in rows[:2]] == ["draft-class", "written"]
    assert [row.agreement for row in rows[:2]] == [Agreement.DIFFERENT, Agreement.SAME]
    assert all(row.holds_everywhere for row in rows[2:])


def test_a_cell_has_the_verdict_and_why_it_is_not_proven():
    row = examples.comparison().claim_rows[0]
    assert [(cell.verdict, cell.reason) for cell in row.cells] == [
        (Verdict.DISPROVED, "no class"),
        (Verdict.PROVEN, ""),
    ]


def test_a_claim_that_one_stack_does_not_make_has_no_cell_there_and_is_no_difference():
    row = next(row for row in examples.comparison().claim_rows if row.check == "only-new")
    assert row.cells[0] is None
    assert row.agreement is Agreement.SAME


def test_links_are_rows_too_and_know_which_count():
    report = ComparisonReport(
        (
            examples.in_stack(
                "0.5.9",
                examples.link(Link.CODE, Verdict.DISPROVED),
                examples.link(Link.LAUNCH, Verdict.PROVEN),
            ),
            examples.in_stack("0.5.12", examples.link(Link.CODE, Verdict.PROVEN)),
        )
    )
    rows = {row.link: row for row in report.link_rows}
    assert list(rows) == [Link.CONFIG, Link.WEIGHTS, Link.CODE, Link.LAUNCH]
    assert not rows[Link.LAUNCH].cells[0].counts
    assert rows[Link.LAUNCH].cells[1] is None


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (Verdict.PROVEN, Verdict.PROVEN, 0),
        (Verdict.PROVEN, Verdict.UNKNOWN, 3),
        (Verdict.UNKNOWN, Verdict.DISPROVED, 1),
        (Verdict.DISPROVED, Verdict.PROVEN, 1),
    ],
)
def test_the_exit_code_is_0_only_when_the_chain_holds_in_every_stack(first, second, code):
    assert both(first, second).exit_code == code


def test_the_summary_names_the_stacks_by_verdict():
    assert both(Verdict.DISPROVED, Verdict.PROVEN).summary == "holds in SGLang 0.5.12; broken in SGLang 0.5.9"


def test_the_same_version_from_two_places_is_told_apart():
    chains = tuple(examples.in_stack("0.5.12") for _ in range(2))
    assert ComparisonReport(chains).labels == ("SGLang 0.5.12 (made for a test)",) * 2


def test_one_chain_or_another_checkpoint_is_no_comparison():
    with pytest.raises(ValueError, match="two chains"):
        ComparisonReport((examples.in_stack("0.5.12"),))
    one = examples.in_stack("0.5.12")
    other = examples.replace(one, subject=examples.replace(one.subject, name="other"))
    with pytest.raises(ValueError, match="different checkpoints"):
        ComparisonReport((one, other))


def test_only_links_that_are_the_same_object_are_shared():
    assert [report.link for report in examples.comparison().shared_links] == [Link.CONFIG, Link.WEIGHTS]


def test_every_form_says_the_same():
    report = examples.comparison()
    parsed = json.loads(comparison_to_json(report))
    assert (parsed["verdict"], parsed["exit_code"]) == ("disproved", 1)
    assert parsed["claims"][0]["cells"][0] == {"verdict": "disproved", "reason": "no class", "counts": True}
    for text in (terminal(report), comparison_to_markdown(report)):
        assert "SGLang 0.5.9" in text
        assert "What differs" in text
        assert "no class" in text
        assert "does not prove" in text
    assert "4 claims more: proven in every stack that makes them" in terminal(report)


def test_json_round_trips_through_its_model():
    text = comparison_to_json(examples.comparison())
    assert render_json(ComparisonModel.model_validate_json(text)) == text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_lines_fit_the_terminal(width):
    assert all(len(line) <= width for line in terminal(examples.comparison(), width).splitlines())
