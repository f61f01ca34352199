"""Constants of a source file: literals, names of other constants, and the few calls choices are made with.

For tables such as the choices of an option. Whatever needs more than that is a matter for the evaluator.
"""

from __future__ import annotations

import ast

from draftproof.errors import SourceError
from draftproof.stacks.source import SourceTree

_DEEP = 12
_COPIES = ("list", "tuple", "set", "sorted", "frozenset")


class NotLiteral(Exception):
    """The expression is no constant that is understood here."""


def literal_value(
    tree: SourceTree, file: str, node: ast.expr, local: dict[str, ast.expr] | None = None
) -> object:
    """The value of an expression.

    Args:
        tree: the source.
        file: where the expression stands.
        node: the expression.
        local: expressions that were assigned to local names before it.

    Raises:
        NotLiteral: it is no constant.
    """
    return _value(tree, file, node, local or {}, _DEEP)


def _value(tree: SourceTree, file: str, node: ast.expr, local: dict[str, ast.expr], deep: int) -> object:
    if deep == 0:
        raise NotLiteral
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return _items(tree, file, node.elts, local, deep)
    if isinstance(node, ast.Dict):
        keys = [_value(tree, file, key, local, deep - 1) for key in node.keys if key is not None]
        return dict.fromkeys(str(key) for key in keys)
    if isinstance(node, ast.Name):
        return _named(tree, file, node.id, local, deep)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _value(tree, file, node.operand, local, deep - 1)
        if isinstance(number, (int, float)):
            return -number
    if isinstance(node, ast.BinOp):
        return _combined(tree, file, node, local, deep)
    if isinstance(node, ast.Call):
        return _called(tree, file, node, local, deep)
    raise NotLiteral


def _items(
    tree: SourceTree, file: str, nodes: list[ast.expr], local: dict[str, ast.expr], deep: int
) -> list[object]:
    items: list[object] = []
    for node in nodes:
        value = _value(tree, file, node.value if isinstance(node, ast.Starred) else node, local, deep - 1)
        if isinstance(node, ast.Starred) and isinstance(value, list):
            items.extend(value)
        elif not isinstance(node, ast.Starred):
            items.append(value)
        else:
            raise NotLiteral
    return items


def _combined(tree: SourceTree, file: str, node: ast.BinOp, local: dict[str, ast.expr], deep: int) -> object:
    left = _value(tree, file, node.left, local, deep - 1)
    right = _value(tree, file, node.right, local, deep - 1)
    if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
        return [*left, *right]
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Mult):
            return left * right
    if isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str):
        return left + right
    raise NotLiteral


def _called(tree: SourceTree, file: str, node: ast.Call, local: dict[str, ast.expr], deep: int) -> object:
    if isinstance(node.func, ast.Name) and node.func.id in _COPIES and len(node.args) == 1:
        copied = _value(tree, file, node.args[0], local, deep - 1)
        if isinstance(copied, (list, dict)):
            return list(copied)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "keys" and not node.args:
        keys = _value(tree, file, node.func.value, local, deep - 1)
        if isinstance(keys, dict):
            return list(keys)
    raise NotLiteral


def _named(tree: SourceTree, file: str, name: str, local: dict[str, ast.expr], deep: int) -> object:
    if name in local:
        rest = {key: value for key, value in local.items() if key != name}
        return _value(tree, file, local[name], rest, deep - 1)
    if not tree.has(file):
        raise NotLiteral
    try:
        module = tree.syntax(file)
    except SourceError as error:
        raise NotLiteral from error
    for statement in reversed(module.body):
        value = _assigned(statement, name)
        if value is not None:
            return _value(tree, file, value, {}, deep - 1)
        if isinstance(statement, ast.ImportFrom) and statement.module and statement.level == 0:
            original = next((a.name for a in statement.names if (a.asname or a.name) == name), None)
            if original is not None:
                return _named(tree, _file_of(tree, statement.module), original, {}, deep - 1)
    raise NotLiteral


def _assigned(statement: ast.stmt, name: str) -> ast.expr | None:
    if isinstance(statement, ast.AnnAssign):
        targets: list[ast.expr] = [statement.target]
        value = statement.value
    elif isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    else:
        return None
    return value if any(isinstance(t, ast.Name) and t.id == name for t in targets) else None


def _file_of(tree: SourceTree, module: str) -> str:
    path = module.replace(".", "/")
    return f"{path}.py" if tree.has(f"{path}.py") else f"{path}/__init__.py"
