"""Classes found by following imports, and what counts as a stub."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from draftproof.stacks.classes import (
    ClassSource,
    class_order,
    find_class,
    find_method,
    is_stub,
    module_file,
)
from draftproof.stacks.source import SourceTree


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    files = {
        "pack/__init__.py": "from pack.base import Base as Renamed\n",
        "pack/base.py": (
            "class Root:\n    def run(self):\n        return 1 + 1\n\n\nclass Base(Root):\n    pass\n"
        ),
        "pack/model.py": (
            "import outside\n"
            "from pack import Renamed\n"
            "from .base import Root\n\n"
            "if outside.flag:\n"
            "    class Hidden(Renamed):\n"
            "        def run(self):\n"
            "            return super().run()\n\n\n"
            "class Diamond(Hidden, Root, outside.Thing):\n"
            "    pass\n"
        ),
        "pack/circle.py": "from pack.round import X\n",
        "pack/round.py": "from pack.circle import X\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return SourceTree(tmp_path)


def found(tree: SourceTree, file: str, name: str) -> ClassSource:
    cls = find_class(tree, file, name)
    assert cls is not None
    return cls


def test_imports_are_followed_to_where_a_class_is_written(tree: SourceTree) -> None:
    cls = found(tree, "pack/model.py", "Renamed")
    assert (cls.name, cls.file, cls.place.line) == ("Base", "pack/base.py", 6)


def test_a_class_below_a_condition_is_found(tree: SourceTree) -> None:
    assert found(tree, "pack/model.py", "Hidden").file == "pack/model.py"


@pytest.mark.parametrize("file", ["pack/circle.py", "pack/base.py"])
def test_a_name_that_leads_nowhere_is_none(tree: SourceTree, file: str) -> None:
    assert find_class(tree, file, "X") is None


def test_the_order_is_pythons(tree: SourceTree) -> None:
    order = class_order(tree, found(tree, "pack/model.py", "Diamond"))
    assert [cls.name for cls in order] == ["Diamond", "Hidden", "Base", "Root"]


def test_methods_are_inherited_and_super_goes_on(tree: SourceTree) -> None:
    cls = found(tree, "pack/model.py", "Diamond")
    own = find_method(tree, cls, "run")
    assert own is not None
    assert own.owner.name == "Hidden"
    base = find_method(tree, cls, "run", after="Hidden")
    assert base is not None
    assert base.owner.name == "Root"
    assert find_method(tree, cls, "stop") is None


@pytest.mark.parametrize(
    ("body", "stub"),
    [
        ("pass", True),
        ("...", True),
        ('"""Words."""', True),
        ("raise NotImplementedError", True),
        ("return None", True),
        ("return 1", True),
        ("return work()", False),
        ("work()", False),
        ("if x:\n        pass", False),
    ],
)
def test_what_a_stub_is(body: str, stub: bool) -> None:
    function = ast.parse(f"def f(self):\n    {body}\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert is_stub(function) is stub


def test_modules_and_packages_have_their_files(tree: SourceTree) -> None:
    assert module_file(tree, "pack.base") == "pack/base.py"
    assert module_file(tree, "pack") == "pack/__init__.py"
    assert module_file(tree, "pack.nothing") is None
