"""What is not known forks, is named, and never becomes a wrong known value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.stacks.evaluation import (
    Evaluator,
    Given,
    Missing,
    NotInstalled,
    Outcome,
    Settings,
    Symbol,
    Unknown,
    single,
)
from draftproof.stacks.evaluation.unknowns import contains_unknown
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree

Run = Callable[..., tuple[Outcome, ...]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Evaluates `f` of a text."""

    def evaluate(
        text: str,
        *arguments: Any,
        substitutes: dict[str, Any] | None = None,
        settings: Settings | None = None,
    ) -> tuple[Outcome, ...]:
        (tmp_path / "m.py").write_text(text)
        return Evaluator(SourceTree(tmp_path), substitutes, settings).call("m.py", "f", *arguments)

    return evaluate


def ways(outcomes: tuple[Outcome, ...]) -> list[tuple[list[str], Any]]:
    """Conditions and value of each outcome."""
    return [([str(condition) for condition in outcome.conditions], outcome.returned) for outcome in outcomes]


def test_a_branch_on_an_unknown_is_followed_both_ways(run: Run) -> None:
    found = run("def f(x):\n    if x > 3:\n        return 'big'\n    return 'small'\n", Unknown("x"))
    assert ways(found) == [(["x > 3"], "big"), (["not (x > 3)"], "small")]
    assert found[0].conditions[0].place == Place("m.py", 2)


def test_a_question_is_asked_once_on_a_way(run: Run) -> None:
    text = "def f(x):\n    a = 1 if x.ready else 0\n    b = 0 if not x.ready else 1\n    return a, b\n"
    assert [value for _, value in ways(run(text, Unknown("x")))] == [(1, 1), (0, 0)]


def test_an_assumed_equality_answers_other_comparisons(run: Run) -> None:
    text = (
        "def f(x):\n"
        "    if x == 'a':\n"
        "        return 1, x == 'b', x in ('a', 'c'), x is None\n"
        "    elif x == 'b':\n"
        "        return 2\n"
        "    return 3\n"
    )
    first, *others = run(text, Unknown("x"))
    assert len(others) == 2
    assert first.returned == (1, False, True, False)
    text = "def f(x):\n    if x == 'a' and x == 'b':\n        return 'never'\n    return 'fine'\n"
    assert all(outcome.returned == "fine" for outcome in run(text, Unknown("x")))


def test_opposite_questions_are_one_question(run: Run) -> None:
    text = "def f(x):\n    if x is None:\n        return 1\n    return 2 if x is not None else 3\n"
    assert [value for _, value in ways(run(text, Unknown("x")))] == [1, 2]


def test_a_caller_decides_questions_by_their_text(run: Run) -> None:
    settings = Settings(decide=lambda text, place: text == "x.is_cuda()")
    found = run("def f(x):\n    return 'cuda' if x.is_cuda() else 'cpu'\n", Unknown("x"), settings=settings)
    assert ways(found) == [(["x.is_cuda()"], "cuda")]


@pytest.mark.parametrize(
    "expression",
    [
        "x + 1", "-x", "x[0]", "x.y", "x()", "[x][0]", "len(x)", "str(x)", "int(x)", "f'a{x}'", "'%s' % x",
        "x == 1", "x < 2", "x in [1]", "1 in x", "1 in [x]", "[1] == [x]", "{'a': x} == {'a': 1}",
        "(x, 1) in {(2, 1)}", "{'a': 1}[x]", "{'a': 1}.get(x)", "sorted([x, 1])", "max(x, 1)",
        "sum([1, x])", "any([x])", "all([1, x])", "'a'.startswith(x)", "','.join([x, 'b'])",
        "'{}'.format(x)", "isinstance(x, int)", "repr([x])", "abs(x)", "round(x)", "range(x)", "list(x)",
        "x if 1 else 0", "dict(a=x)['a']", "min([x, 2])", "hash(x)", "(1, x) < (1, 2)", "set([x])",
        "'abc'[x]", "[1, 2][x:]", "type(x)", "x @ x", "re.match('a', x)", "getattr(x, 'y')", "not x",
    ],
)  # fmt: skip
def test_an_unknown_part_makes_an_unknown_value(run: Run, expression: str) -> None:
    found = single(run(f"import re\ndef f(x):\n    return {expression}\n", Unknown("x")))
    assert found is not None
    assert found.raised is None
    if expression == "set([x])":
        assert isinstance(next(iter(found.returned)), Unknown)
    else:
        assert isinstance(found.returned, Unknown)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("x is x", True), ("x == x", True), ("x in []", False), ("1 in [x, 1]", True), ("any([x, 1])", True),
        ("all([x, 0])", False), ("[x] and 1", 1), ("len([x, x])", 2), ("isinstance([x], list)", True),
        ("'b' in {'a': x}", False), ("{'a': 1}.get('b', 2)", 2), ("[1, x][0]", 1), ("bool([x])", True),
    ],
)  # fmt: skip
def test_what_does_not_depend_on_the_unknown_is_known(run: Run, expression: str, value: Any) -> None:
    assert ways(run(f"def f(x):\n    return {expression}\n", Unknown("x"))) == [([], value)]


@pytest.mark.parametrize(
    "change",
    ["d[x] = 1", "d.pop(x)", "d.update(x)", "d.setdefault(x, 1)", "del d[x]", "d.update([(x, 1)])", "d |= x"],
)
def test_a_dict_changed_by_an_unknown_key_has_unknown_contents(run: Run, change: str) -> None:
    asked = "d.get('a'), 'a' in d, len(d), d['a'], d == {}"
    text = f"def f(x):\n    d = {{'a': 1}}\n    {change}\n    return {asked}\n"
    found = single(run(text, Unknown("x")))
    assert found is not None
    assert all(isinstance(part, Unknown) for part in found.returned)


@pytest.mark.parametrize("change", ["s.add(x)", "s.update([x])", "s.discard(x)", "s |= x", "s.remove(x)"])
def test_a_set_changed_by_an_unknown_has_unknown_contents(run: Run, change: str) -> None:
    text = f"def f(x):\n    s = {{'a'}}\n    {change}\n    return 'a' in s, len(s), s == {{'a'}}\n"
    found = single(run(text, Unknown("x")))
    assert found is not None
    assert all(isinstance(part, Unknown) for part in found.returned)


@pytest.mark.parametrize(
    "change", ["a.extend(x)", "a += x", "a[x] = 1", "a.insert(x, 1)", "a.remove(x)", "a.sort(key=x)"]
)
def test_a_list_changed_in_an_unknown_way_has_unknown_contents(run: Run, change: str) -> None:
    text = f"def f(x):\n    a = [1, 2]\n    {change}\n    return len(a), a[0], 1 in a\n"
    found = single(run(text, Unknown("x")))
    assert found is not None
    assert all(isinstance(part, Unknown) for part in found.returned)


def test_an_assertion_on_an_unknown_can_fail(run: Run) -> None:
    passed, failed = run("def f(x):\n    assert x, 'x is needed'\n    return 1\n", Unknown("x"))
    assert passed.returned == 1
    assert failed.raised is not None
    assert str(failed.raised) == "AssertionError: x is needed"
    assert failed.raised.place == Place("m.py", 2)


def test_an_unknown_part_of_a_message_stands_in_braces(run: Run) -> None:
    (found,) = run("def f(x):\n    raise ValueError(f'bad {x} for {3}')\n", Unknown("x"))
    assert found.raised is not None
    assert found.raised.message == "bad {x} for 3"


def test_log_messages_and_assignments_come_in_order_with_their_lines(run: Run) -> None:
    text = (
        "import logging\n"
        "logger = logging.getLogger(__name__)\n"
        "def f(args):\n"
        "    args.backend = 'triton'\n"
        "    logger.warning('set to %s, not %s', args.backend, args.size)\n"
        "    args.names[0] = 'b'\n"
        "    args.backend = None\n"
    )
    given = Given("args", {"size": Unknown("size"), "names": ["a"]})
    (found,) = run(text, given)
    assert [event.place.line for event in found.events] == [4, 5, 6, 7]
    assert [message.text for message in found.log] == ["set to triton, not {size}"]
    assert found.given["args"].place_of("backend") == Place("m.py", 7)
    assert found.given["args"].place_of("names") == Place("m.py", 6)


@pytest.mark.parametrize(
    ("missing", "expected"),
    [(Missing.NONE, None), (Missing.UNKNOWN, "args.other"), (Missing.RAISES, "AttributeError")],
)
def test_an_object_answers_for_missing_attributes_as_it_was_told(
    run: Run, missing: Missing, expected: str
) -> None:
    (found,) = run("def f(args):\n    return args.other\n", Given("args", {}, missing=missing))
    if missing is Missing.RAISES:
        assert found.raised is not None
        assert found.raised.type_name == expected
    elif missing is Missing.UNKNOWN:
        assert found.returned.name == expected
    else:
        assert found.returned is None


def test_each_way_gets_its_own_arguments(run: Run) -> None:
    text = "def f(args, x):\n    args.items.append(1)\n    if x:\n        args.items.append(2)\n"
    found = run(text, Given("args", {"items": []}), Unknown("x"))
    assert [outcome.given["args"].attributes["items"] for outcome in found] == [[1, 2], [1]]


def test_substitutes_take_the_place_of_functions_inside_and_outside_the_tree(run: Run) -> None:
    text = (
        "import torch\n"
        "def is_cuda():\n"
        "    raise ValueError\n"
        "class C:\n"
        "    pass\n"
        "def f():\n"
        "    capability = torch.cuda.get_device_capability(0)\n"
        "    return is_cuda(), capability, torch.float16 == torch.half, torch.version.cuda\n"
    )
    substitutes = {
        "m.is_cuda": lambda: True,
        "torch.cuda.get_device_capability": lambda *_: (12, 0),
        "torch.version": Given("torch.version", {"cuda": "13.0"}),
    }
    (found,) = run(text, substitutes=substitutes)
    assert found.returned == (True, (12, 0), True, "13.0")


def test_an_expected_import_failure_is_a_question(run: Run) -> None:
    module = "try:\n    import fast\n    HAS = True\nexcept ImportError:\n    HAS = False\n"
    text = f"{module}def f():\n    return HAS\n"
    assert ways(run(text)) == [(["import fast"], True), (["not (import fast)"], False)]
    assert ways(run(text, substitutes={"fast": NotInstalled()})) == [([], False)]


def test_unknown_functions_are_listed_with_what_they_were_given(run: Run) -> None:
    (found,) = run("import fast\ndef f(x):\n    return fast.go(x, n=2)\n", 7)
    assert found.returned.name == "fast.go(7, n=2)"
    assert [(call.name, call.positional) for call in found.unknown_calls] == [("fast.go", (7,))]


def test_named_functions_are_traced(run: Run) -> None:
    text = "def load(p, s):\n    return p\ndef f(q):\n    load(1, 's')\n    q.loader(2)\n"
    settings = Settings(traced=frozenset({"load", "loader"}))
    (found,) = run(text, Given("q", {"loader": lambda n: n}), settings=settings)
    assert [(call.name, call.positional) for call in found.calls("load")] == [("m.load", (1, "s"))]
    assert [call.positional for call in found.calls("loader")] == [(2,)]


def test_a_symbol_equals_only_itself(run: Run) -> None:
    (found,) = run(
        "def f(a, b):\n    return a == a, a == b, a in (b, a), {a: 1}[a]\n", Symbol("p"), Symbol("q")
    )
    assert found.returned == (True, False, True, 1)


def test_a_loop_over_an_unknown_stops_as_not_understood(run: Run) -> None:
    found = run("def f(x):\n    n = 0\n    for i in x:\n        n += 1\n    return n\n", Unknown("x"))
    assert [outcome.returned for outcome in found if outcome.has_returned] == [0, 1] or len(found) == 3
    assert any(outcome.not_understood is not None for outcome in found)


@pytest.mark.parametrize(
    "body",
    [
        "return 'a' * 10 ** 9", "return 10 ** 10 ** 10", "return [0] * 10 ** 8", "return 1 << 10 ** 9",
        "while True: pass", "return list(range(10 ** 9))", "return sum(range(10 ** 9))", "return f()",
        "return '%999999999d' % 1", "return f'{1:999999999}'", "return '{:999999999}'.format(1)",
        "return 'a'.ljust(10 ** 9)", "a = []\n    while True: a.append(a)",
        "a = [1]\n    while True: a = a + a", "a = 'x'\n    while True: a += a",
        "a = ()\n    for _ in range(200): a = (a, a)\n    return repr(a)",
        "a = ()\n    for _ in range(200): a = (a, a)\n    return a == (a,)",
        "a = ()\n    for _ in range(200): a = (a, a)\n    return {a: 1}",
        "a = []\n    a.append(a)\n    return repr(a)",
        "return 'a'.replace('a', 'b' * 10 ** 5).replace('b', 'c' * 10 ** 5)",
        "n = 2\n    for _ in range(99): n = n * n\n    return n", "return int('9' * 10 ** 6)",
        "return bytes(10 ** 9)", "import re\n    return re.match('(a+)+b', 'a' * 10 ** 5)",
        "return ','.join(['a' * 10 ** 5] * 10 ** 4)",
        "import itertools\n    return list(itertools.product(range(10 ** 4), range(10 ** 4)))",
        "import math\n    return math.factorial(10 ** 7) + 1 and undefined", "return max(range(10 ** 9))",
        "return 10 ** 9 in list(range(10 ** 9))", "d = {}\n    for i in range(10 ** 9): d[i] = i",
        "return eval('1')", "return open('/etc/passwd').read()", "return __import__('os').system('x')",
    ],
)  # fmt: skip
def test_what_would_never_end_or_leave_the_evaluator_is_refused(run: Run, body: str) -> None:
    settings = Settings(steps=20_000)
    for outcome in run(f"def f():\n    {body}\n", settings=settings):
        refused = outcome.not_understood is not None or outcome.raised is not None
        assert refused or contains_unknown(outcome.returned)


def test_too_many_ways_are_cut_and_said_so(run: Run) -> None:
    text = "def f(x):\n    return [1 if x[i] else 0 for i in range(20)]\n"
    found = run(text, Unknown("x"), settings=Settings(paths=8))
    assert len(found) == 9
    assert found[-1].not_understood is not None
    assert "more than 8 ways" in found[-1].not_understood.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def g(): pass\n", "no f in m.py"),
        ("import nowhere.at.all\ndef f():\n    return nowhere.x.y.z()\n", ""),
        ("def f():\n    async def g(): pass\n    return g()\n", ""),
        ("def f():\n    import m2\n    return m2.x\n", ""),
        ("def f(:\n", "no valid Python"),
    ],
)
def test_what_cannot_be_followed_is_said_and_never_a_crash(run: Run, text: str, reason: str) -> None:
    for outcome in run(text):
        if reason:
            assert outcome.not_understood is not None
            assert reason in outcome.not_understood.reason
        else:
            assert isinstance(outcome.returned, Unknown)
