"""Questions about sources: definitions, imports, class orders, literals, calls."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree
from draftproof.stacks.syntax import (
    NOT_LITERAL,
    attribute_comparisons,
    calls_of,
    class_order,
    decorator_names,
    find_class,
    find_function,
    find_method,
    imported_names,
    is_stub,
    literal,
    module_file,
    resolve_name,
    string_constants,
    top_level_value,
)

FILES = {
    "pack/__init__.py": "from .inner import Base as Root\nfrom pack.names import *\n",
    "pack/names.py": "LIST = ['a'] + ['b']\nLIST += ['c']\nTABLE: dict = {'x': (1, -2)}\nOTHER = make()\n",
    "pack/inner/__init__.py": "from .deep import Base\n",
    "pack/inner/deep.py": "class Base:\n    def load(self):\n        return 1\n    def forward(self): ...\n",
    "pack/model.py": (
        "import os.path\n"
        "from torch import nn\n"
        "from pack import Root, LIST\n"
        "import pack.inner.deep as deep\n"
        "try:\n"
        "    import fast\n"
        "except ImportError:\n"
        "    class Mixin: pass\n"
        "class Left(Root): pass\n"
        "class Right(deep.Base):\n"
        "    def load(self): return 2\n"
        "@register('x')\n"
        "@nn.final\n"
        "class Model(Left, Right, Mixin, nn.Module):\n"
        "    class Inner:\n"
        "        def f(self, a, *, b=1): pass\n"
        "EntryClass = [Model]\n"
    ),
}


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return SourceTree(tmp_path)


def test_a_class_is_found_by_its_dotted_name_with_its_line(tree: SourceTree) -> None:
    found = find_class(tree, "pack/model.py", "Model.Inner")
    assert found is not None
    assert found.place == Place("pack/model.py", 15)
    assert find_class(tree, "pack/model.py", "Model.Outer") is None


def test_a_class_inside_an_except_branch_is_found(tree: SourceTree) -> None:
    found = find_class(tree, "pack/model.py", "Mixin")
    assert found is not None
    assert found.place.line == 8


def test_a_method_is_found_with_its_parameters(tree: SourceTree) -> None:
    found = find_function(tree, "pack/model.py", "Model.Inner.f")
    assert found is not None
    assert found.parameters == ("self", "a", "b")


def test_decorators_are_named_without_arguments(tree: SourceTree) -> None:
    found = find_class(tree, "pack/model.py", "Model")
    assert found is not None
    assert decorator_names(found.node) == ("register", "nn.final")


def test_a_name_is_followed_through_a_renaming_re_export(tree: SourceTree) -> None:
    found = resolve_name(tree, "pack/model.py", "Root")
    assert found is not None
    assert (found.file, found.name, found.place.line) == ("pack/inner/deep.py", "Base", 1)
    assert [hop.file for hop in found.hops] == ["pack/model.py", "pack/__init__.py", "pack/inner/__init__.py"]


def test_a_name_is_followed_through_a_star_import(tree: SourceTree) -> None:
    found = resolve_name(tree, "pack/model.py", "LIST")
    assert found is not None
    assert found.file == "pack/names.py"


def test_a_name_from_outside_the_tree_is_not_resolved(tree: SourceTree) -> None:
    assert resolve_name(tree, "pack/model.py", "nn.Module") is None


def test_the_class_order_is_pythons_and_names_what_is_outside(tree: SourceTree) -> None:
    model = find_class(tree, "pack/model.py", "Model")
    assert model is not None
    order = class_order(tree, model)
    assert [entry.name for entry in order.classes] == ["Model", "Left", "Right", "Base", "Mixin"]
    assert order.outside == ("nn.Module",)


def test_a_method_comes_from_the_first_class_of_the_order_that_has_it(tree: SourceTree) -> None:
    model = find_class(tree, "pack/model.py", "Model")
    assert model is not None
    load, forward = find_method(tree, model, "load"), find_method(tree, model, "forward")
    assert load is not None
    assert forward is not None
    assert load.name == "Right.load"
    assert forward.place == Place("pack/inner/deep.py", 4)
    assert find_method(tree, model, "missing") is None


def test_a_modules_list_is_assembled_from_all_its_assignments(tree: SourceTree) -> None:
    found = top_level_value(tree, "pack/names.py", "LIST")
    assert found is not None
    assert found.value == ["a", "b", "c"]
    assert [place.line for place in found.places] == [1, 2]


def test_a_value_that_is_computed_is_no_literal(tree: SourceTree) -> None:
    found = top_level_value(tree, "pack/names.py", "OTHER")
    assert found is not None
    assert found.value is NOT_LITERAL
    assert top_level_value(tree, "pack/names.py", "ABSENT") is None


def test_imports_are_listed_with_their_origin(tree: SourceTree) -> None:
    listed = {entry.name: (entry.module, entry.original) for entry in imported_names(tree, "pack/model.py")}
    assert listed["deep"] == ("pack.inner.deep", "")
    assert listed["os"] == ("os", "")
    assert listed["Root"] == ("pack", "Root")
    assert listed["fast"] == ("fast", "")


def test_a_module_is_a_package_or_a_file(tree: SourceTree) -> None:
    assert module_file(tree, "pack.inner") == "pack/inner/__init__.py"
    assert module_file(tree, "pack.model") == "pack/model.py"
    assert module_file(tree, "pack.nowhere") is None


@pytest.mark.parametrize(
    ("body", "stub"),
    [
        ("pass", True),
        ("...", True),
        ("'only a docstring'", True),
        ("raise NotImplementedError('later')", True),
        ("raise NotImplementedError", True),
        ("return None", True),
        ("return", True),
        ("return 1", False),
        ("raise ValueError", False),
        ("self.x = 1", False),
    ],
)
def test_a_stub_does_nothing(body: str, stub: bool) -> None:
    node = ast.parse(f"def f(self):\n    {body}").body[0]
    assert isinstance(node, ast.FunctionDef)
    assert is_stub(node) is stub


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "-2.5",
        "'a' 'b'",
        "[1, *(2, 3)]",
        "{'a': [1], **{'b': 2}}",
        "{1, 2}",
        "('a',) + ('b',)",
        "{1} | {2}",
    ],
)
def test_literals_have_pythons_value(text: str) -> None:
    assert literal(ast.parse(text, mode="eval").body) == eval(text)


@pytest.mark.parametrize(
    "text", ["name", "f'{x}'", "[1, name]", "{'a': f()}", "1 + 2j + x", "{**x}", "'a' * 9"]
)
def test_what_has_to_be_computed_is_no_literal(text: str) -> None:
    assert literal(ast.parse(text, mode="eval").body) is NOT_LITERAL


def test_calls_are_found_by_the_last_part_of_their_name() -> None:
    node = ast.parse("self.model.load_weights(w, strict=True)\nx = load_weights(w, mode=y)\nother()\n")
    first, second = calls_of("a.py", node, "load_weights")
    assert (first.name, first.is_statement, dict(first.keywords)) == (
        "self.model.load_weights",
        True,
        {"strict": True},
    )
    assert (second.place.line, second.is_statement, second.keywords["mode"]) == (2, False, NOT_LITERAL)


def test_comparisons_with_literals_are_found_on_either_side() -> None:
    node = ast.parse("if c.get_name() == 'fp4' or name in ('a', 'b') or 'z' != self.name: pass")
    assert [(entry.symbol, entry.value) for entry in attribute_comparisons("a.py", node, "name")] == [
        ("in", ("a", "b")),
        ("!=", "z"),
    ]
    (call,) = attribute_comparisons("a.py", node, "get_name")
    assert (call.subject, call.value) == ("c.get_name", "fp4")


def test_string_constants_leave_docstrings_out() -> None:
    node = ast.parse("def f():\n    'docstring'\n    return name.startswith('mtp.')\n")
    assert string_constants("a.py", node) == (("mtp.", Place("a.py", 3)),)
