"""Stop strings: found wherever they lie, cut out, and never shown in part."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.text.stop import StopMatch, StopStep, StopStrings


def run(
    stops: list[str], steps: list[list[str]], min_pieces: int = 0
) -> tuple[list[str], StopMatch | None, int]:
    """Shown text by step, the match, and the step it happened in; the held text is shown at the end."""
    watcher = StopStrings(stops, min_pieces)
    shown = []
    for index, pieces in enumerate(steps):
        step = watcher.push(pieces)
        shown.append(step.text)
        if step.match is not None:
            return shown, step.match, index
    return [*shown, watcher.finish()], None, len(steps)


@pytest.mark.parametrize(
    ("stops", "steps", "shown", "match"),
    [
        # early in a long step
        (["END"], [["x", "END", " yy", "yyyy"]], ["x"], StopMatch("END", 1)),
        # over two tokens of a step, over two steps, one character a step
        (["END"], [["xE", "ND y"]], ["x"], StopMatch("END", 1)),
        (["END"], [["x", "E"], ["ND"]], ["x", ""], StopMatch("END", 0)),
        (["END"], [["x"], ["E"], ["N"], ["D"]], ["x", "", "", ""], StopMatch("END", 0)),
        # inside one token, with text around it
        (["END"], [["aENDb"]], ["a"], StopMatch("END", 0)),
        # a beginning that goes on otherwise is shown as soon as that is known
        (["END"], [["xE"], ["N"], ["o"]], ["x", "", "ENo", ""], None),
        (["aab"], [["aa"], ["a"], ["b"]], ["", "a", ""], StopMatch("aab", 0)),
        # what is held at the end is shown
        (["END"], [["xEN"]], ["x", "EN"], None),
        # the first to be complete wins, whatever the order of the list; of two at one place the longer
        (["bc", "abcd"], [["xabcd"]], ["xa"], StopMatch("bc", 0)),
        (["c", "abc"], [["xabcd"]], ["x"], StopMatch("abc", 0)),
        (["ab", "a"], [["xab"]], ["x"], StopMatch("a", 0)),
        # texts that are not ASCII, and empty pieces
        (["。"], [["終", "", "わり。次"]], ["終わり"], StopMatch("。", 2)),
        (["\n\n"], [["a\n"], [""], ["\nb"]], ["a", "", ""], StopMatch("\n\n", 0)),
        # no stop strings
        ([], [["a", "b"], ["c"]], ["ab", "c", ""], None),
    ],
)
def test_where_the_text_ends(
    stops: list[str], steps: list[list[str]], shown: list[str], match: StopMatch | None
) -> None:
    texts, found, _ = run(stops, steps)
    assert texts == shown
    assert found == match


def test_before_min_tokens_a_stop_string_is_ordinary_text() -> None:
    assert run(["END"], [["END", "END", "x", "END"]], min_pieces=2)[:2] == (["ENDENDx"], StopMatch("END", 3))
    # it may begin before, as long as a later token completes it
    assert run(["END"], [["EN", "D"]], min_pieces=1)[:2] == ([""], StopMatch("END", 1))
    assert run(["END"], [["END", "x"]], min_pieces=1)[:2] == (["ENDx", ""], None)


def test_a_stop_string_that_does_not_count_is_shown_at_once() -> None:
    assert StopStrings(["END", "longer"], min_pieces=1).push(["xEND"]) == StopStep("xEND", None)


def test_nothing_is_looked_for_twice() -> None:
    """A stop string that was complete before min_tokens is not found again by the next token."""
    watcher = StopStrings(["ab", "abab"], min_pieces=1)
    assert watcher.push(["ab"]) == StopStep("", None)
    assert watcher.push(["c"]) == StopStep("abc", None)


LETTERS = st.sampled_from("ab")
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=1, max_size=3)
PIECES = st.lists(st.text(LETTERS, max_size=4), max_size=10)


def end_by_definition(text: str, stops: list[str]) -> tuple[int, str] | None:
    """The first character that completes a stop string, and the longest one it completes."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return end, max(complete, key=len)
    return None


@given(STOPS, PIECES, st.data())
@settings(max_examples=300, deadline=None)
def test_the_end_does_not_depend_on_pieces_and_steps(
    stops: list[str], pieces: list[str], data: st.DataObject
) -> None:
    steps, left = [], list(pieces)
    while left:
        count = data.draw(st.integers(1, len(left)))
        steps.append(left[:count])
        left = left[count:]
    text = "".join(pieces)
    shown, match, step = run(stops, steps)
    expected = end_by_definition(text, stops)
    if expected is None:
        assert match is None
        assert "".join(shown) == text
        return
    end, stop = expected
    assert match is not None
    assert match.stop == stop
    assert "".join(shown) == text[: end - len(stop)]
    # the token that completes it is the first with which the text is long enough
    index = sum(len(steps[before]) for before in range(step)) + match.piece_index
    assert len("".join(pieces[:index])) < end <= len("".join(pieces[: index + 1]))


@given(STOPS, PIECES, st.integers(0, 6))
@settings(max_examples=200, deadline=None)
def test_min_tokens_by_definition(stops: list[str], pieces: list[str], min_pieces: int) -> None:
    text = "".join(pieces)
    early = len("".join(pieces[:min_pieces]))
    shown, match, _ = run(stops, [pieces], min_pieces)
    ends = [
        end for end in range(early + 1, len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)
    ]
    if not ends:
        assert (match, "".join(shown)) == (None, text)
        return
    stop = max((stop for stop in stops if text[: ends[0]].endswith(stop)), key=len)
    assert match is not None
    assert (match.stop, "".join(shown)) == (stop, text[: ends[0] - len(stop)])
