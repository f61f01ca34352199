"""Typed options find their place in a version's table, and words that no option takes are given back."""

from __future__ import annotations

from draftproof.stacks.command.binding import Match, bind, look_up, nearest_names
from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.launch_facts import Option, OptionTable, ValueKind
from draftproof.stacks.place import Place

HERE = Place("stack/options.py", 1)


def option(name: str, kind: ValueKind = ValueKind.STRING, *aliases: str) -> Option:
    return Option(name, aliases, kind, (), "", HERE)


TABLE = OptionTable(
    (
        option("--tensor-parallel-size", ValueKind.INTEGER, "--tp", "--tp-size"),
        option("--trust-remote-code", ValueKind.FLAG),
        option("--stop-words", ValueKind.LIST),
        option("--speculative-algorithm"),
        option("--speculative-num-steps", ValueKind.INTEGER),
    )
)


def test_names_aliases_and_unique_beginnings_are_found() -> None:
    assert look_up("--tensor-parallel-size", TABLE)[:2] == (TABLE.options[0], Match.NAME)
    assert look_up("--tp", TABLE)[:2] == (TABLE.options[0], Match.ALIAS)
    assert look_up("--speculative-alg", TABLE)[:2] == (TABLE.options[3], Match.ABBREVIATION)
    assert look_up("--spec", TABLE) == (
        None,
        Match.AMBIGUOUS,
        ("--speculative-algorithm", "--speculative-num-steps"),
    )
    assert look_up("--nothing", TABLE) == (None, Match.MISSING, ())
    assert look_up("-t", TABLE) == (None, Match.MISSING, ())


def test_words_that_an_option_does_not_take_are_positionals() -> None:
    bound = bind(parse_command("serve --trust-remote-code model --tp 8 9 --stop-words a b"[6:]), TABLE)
    assert [entry.flag.values for entry in bound.flags] == [(), ("8",), ("a", "b")]
    assert bound.positionals == ("model", "9")
    assert bound.value("--tensor-parallel-size") == "8"
    assert bound.value("--trust-remote-code") is None


def test_the_last_of_repeated_options_counts_whatever_its_spelling() -> None:
    bound = bind(parse_command("--tp 4 --tensor-parallel-size 8"), TABLE)
    assert bound.value("--tensor-parallel-size") == "8"


def test_a_stack_may_read_names_its_own_way() -> None:
    bound = bind(parse_command("--tp_size 8"), TABLE, lambda name: name.replace("_", "-"))
    assert bound.value("--tensor-parallel-size") == "8"
    assert bind(parse_command("--tp_size 8"), TABLE).value("--tensor-parallel-size") is None


def test_the_nearest_names_are_offered() -> None:
    assert nearest_names("--speculative-num-step", TABLE)[0] == "--speculative-num-steps"
    assert nearest_names("--zzz", TABLE) == ()
