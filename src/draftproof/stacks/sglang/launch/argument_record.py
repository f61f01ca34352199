"""SGLang's server arguments as an object for the evaluator: declared defaults, and what a command sets.

Newer versions build the class with a library that is not evaluated; what they ask about its fields is
answered from the declarations instead.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from draftproof.stacks.evaluation import ClassValue, Given, Instance, Missing, Unknown
from draftproof.stacks.sglang.launch.declared_option import last_name
from draftproof.stacks.sglang.launch.field_options import AnnotatedField
from draftproof.stacks.sglang.launch.literals import NotLiteral, literal_value
from draftproof.stacks.sglang.launch.options import SERVER_ARGS, ArgumentTable
from draftproof.stacks.source import SourceTree

RECORD = "server_args"
CLASS = "ServerArgs"
_UTILS = "sglang.srt.arg_groups.arg_utils"


def default_values(tree: SourceTree, arguments: ArgumentTable) -> dict[str, Any]:
    """The value of each field that nobody sets; a default that the source computes is unknown."""
    return {field.name: _default(tree, field) for field in arguments.fields if field.default is not None}


def _default(tree: SourceTree, field: AnnotatedField) -> Any:
    node = field.default
    if node is None:
        return None
    if isinstance(node, ast.Call) and last_name(node.func) == "field":
        factory = next((k.value for k in node.keywords if k.arg == "default_factory"), None)
        return [] if last_name(factory) == "list" else Unknown(f"{RECORD}.{field.name}", field.place)
    try:
        return literal_value(tree, field.place.file, node)
    except NotLiteral:
        return Unknown(f"{RECORD}.{field.name}", field.place)


def record(values: Mapping[str, Any], has_own_class: bool) -> Given:
    """The object.

    Args:
        values: of its fields.
        has_own_class: the source's class can be evaluated; otherwise an invented one takes its place.
    """
    if has_own_class:
        return Given(RECORD, values, file=SERVER_ARGS, class_name=CLASS)
    return Given(RECORD, values, class_name=CLASS)


def field_answers(arguments: ArgumentTable) -> dict[str, Any]:
    """Substitutes for the functions that ask about the fields of an invented class."""
    fields = [Given("field", {"name": field.name}, missing=Missing.UNKNOWN) for field in arguments.fields]
    names = frozenset(field.name for field in arguments.fields)
    resolvable = frozenset(field.name for field in arguments.fields if _says(field, "resolvable"))
    fallbacks = {field.name: value for field in arguments.fields if (value := _fallback(field)) is not None}
    return {
        f"{_UTILS}.record_fields": _for_record(fields, ()),
        f"{_UTILS}.is_record": _for_record(True, False),
        f"{_UTILS}.field_names": _for_record(names, frozenset()),
        f"{_UTILS}.resolvable_fields": _for_record(resolvable, frozenset()),
        f"{_UTILS}.fallbacks_of": _for_record(fallbacks, {}),
    }


def _for_record(answer: Any, other: Any) -> Any:
    """A function that gives one answer for the arguments' class and its objects, another for all else."""

    def function(subject: Any, *rest: Any, **keywords: Any) -> Any:
        cls = subject.cls if isinstance(subject, Instance) else subject
        return answer if isinstance(cls, ClassValue) and cls.name == CLASS else other

    return function


def _says(field: AnnotatedField, keyword: str) -> bool:
    value = _keyword(field, keyword)
    return isinstance(value, ast.Constant) and value.value is True


def _fallback(field: AnnotatedField) -> Any:
    value = _keyword(field, "fallback")
    return value.value if isinstance(value, ast.Constant) else None


def _keyword(field: AnnotatedField, keyword: str) -> ast.expr | None:
    if not isinstance(field.metadata, ast.Call):
        return None
    return next((entry.value for entry in field.metadata.keywords if entry.arg == keyword), None)
