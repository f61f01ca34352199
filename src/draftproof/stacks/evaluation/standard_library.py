"""The parts of the standard library that rules of a stack use."""

from __future__ import annotations

import itertools
import math
import operator
import posixpath
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation import operators
from draftproof.stacks.evaluation.container_types import collections_module, copy_module
from draftproof.stacks.evaluation.data_classes import (
    as_dict,
    dataclass_decorator,
    fields_of,
    make_field,
    replace,
)
from draftproof.stacks.evaluation.enums import AUTO, enum_classes
from draftproof.stacks.evaluation.functional import functools_module, identity
from draftproof.stacks.evaluation.logs import logging_module, warnings_module
from draftproof.stacks.evaluation.patterns import file_pattern_module, pattern_module
from draftproof.stacks.evaluation.subscripts import get_item
from draftproof.stacks.evaluation.unknowns import Unknown, Value, contains_unknown
from draftproof.stacks.evaluation.values import (
    ABSENT,
    Arguments,
    ClassKind,
    ClassValue,
    LiteralType,
    Missing,
    NativeFunction,
    Symbol,
    UnionType,
    unwrapped,
)

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


def standard_modules(frozen_error: ClassValue) -> Mapping[str, Mapping[str, Value]]:
    """What each known module offers; anything else in it is unknown."""
    typing = _typing()
    enums: dict[str, Value] = dict(enum_classes())
    abstract = _plain_class("ABC", "abc")
    dataclasses = _dataclasses(frozen_error)
    modules: dict[str, Mapping[str, Value]] = {
        "typing": typing,
        "typing_extensions": typing,
        "collections.abc": _ABSTRACT,
        "enum": {
            **enums,
            "auto": NativeFunction("auto", lambda run, arguments: AUTO),
            "unique": identity("unique"),
            "EnumMeta": _plain_class("EnumMeta", "enum"),
            "EnumType": _plain_class("EnumType", "enum"),
        },
        "abc": {
            "ABC": abstract,
            "ABCMeta": _plain_class("ABCMeta", "abc"),
            "abstractmethod": identity("abstractmethod"),
        },
        "dataclasses": dataclasses,
        "pydantic.dataclasses": {"dataclass": dataclasses["dataclass"]},
        "pydantic": {"Field": NativeFunction("Field", make_field)},
        "functools": functools_module(),
        "collections": collections_module(),
        "copy": copy_module(),
        "re": pattern_module(),
        "regex": pattern_module(),
        "fnmatch": file_pattern_module(),
        "math": _math(),
        "operator": _operator(),
        "itertools": _itertools(),
        "logging": logging_module(),
        "warnings": warnings_module(),
        "contextlib": {
            "contextmanager": identity("contextmanager"),
            "nullcontext": NativeFunction(
                "nullcontext", lambda run, given: iter([given.get(0, "enter_result")])
            ),
        },
        "__future__": dict.fromkeys(("annotations", "division", "print_function")),
    }
    return modules


def _plain_class(name: str, module: str) -> ClassValue:
    cls = ClassValue(name, (), {})
    cls.module = module
    return cls


_ABSTRACT: dict[str, Value] = {
    "Mapping": UnionType((dict,)),
    "MutableMapping": UnionType((dict,)),
    "Sequence": UnionType((list, tuple, str, bytes, range)),
    "MutableSequence": UnionType((list,)),
    "Set": UnionType((set, frozenset)),
    "Collection": UnionType((list, tuple, str, bytes, range, dict, set, frozenset)),
}


def _typing() -> dict[str, Value]:
    named_tuple = _plain_class("NamedTuple", "typing")
    named_tuple.kind = ClassKind.NAMED_TUPLE
    typed_dict = _plain_class("TypedDict", "typing")
    typed_dict.native_base = dict
    return {
        **_ABSTRACT,
        "TYPE_CHECKING": False,
        "Literal": NativeFunction("Literal", lambda run, arguments: None),
        "get_args": NativeFunction("get_args", _get_args),
        "cast": NativeFunction("cast", lambda run, arguments: arguments.positional[1]),
        "NamedTuple": named_tuple,
        "TypedDict": typed_dict,
        "Generic": _plain_class("Generic", "typing"),
        "Protocol": _plain_class("Protocol", "typing"),
        "overload": identity("overload"),
        "final": identity("final"),
        "override": identity("override"),
        "runtime_checkable": identity("runtime_checkable"),
        "Dict": dict,
        "List": list,
        "Tuple": tuple,
        "FrozenSet": frozenset,
        "Type": type,
    }


def _get_args(run: Run, arguments: Arguments) -> Value:
    value = arguments.positional[0]
    if isinstance(value, LiteralType):
        return value.values
    if isinstance(value, UnionType):
        return value.members
    return Unknown(f"get_args({run.shown(value)})", arguments.place)


def _dataclasses(frozen_error: ClassValue) -> dict[str, Value]:
    def fields(run: Run, arguments: Arguments) -> Value:
        found = fields_of(arguments.positional[0])
        if found is None:
            return Unknown(f"fields({run.shown(arguments.positional[0])})", arguments.place)
        names = []
        for entry in found:
            value = run.new_instance(_FIELD)
            value.attributes.update({"name": entry.name, "init": entry.in_init})
            value.attributes["default"] = _MISSING if entry.default is ABSENT else entry.default
            names.append(value)
        return tuple(names)

    def is_dataclass(run: Run, arguments: Arguments) -> Value:
        value = arguments.positional[0]
        if isinstance(value, Unknown):
            return Unknown(f"is_dataclass({run.shown(value)})", arguments.place)
        return fields_of(value) is not None

    return {
        "dataclass": NativeFunction("dataclass", dataclass_decorator),
        "field": NativeFunction("field", make_field),
        "replace": NativeFunction("replace", replace),
        "asdict": NativeFunction("asdict", as_dict),
        "fields": NativeFunction("fields", fields),
        "is_dataclass": NativeFunction("is_dataclass", is_dataclass),
        "MISSING": _MISSING,
        "FrozenInstanceError": frozen_error,
    }


_FIELD = _plain_class("Field", "dataclasses")
_MISSING = Symbol("dataclasses.MISSING")


def on_known(name: str, function: Callable[..., Value]) -> NativeFunction:
    """A function that Python itself carries out when all arguments are known."""

    def carry_out(run: Run, arguments: Arguments) -> Value:
        positional = [unwrapped(item) for item in arguments.positional]
        if any(contains_unknown(item) for item in positional):
            return Unknown(f"{name}({', '.join(run.shown(item) for item in positional)})", arguments.place)
        return run.native(lambda: function(*positional), arguments.place, lambda: name)

    return NativeFunction(name, carry_out)


def _math() -> dict[str, Value]:
    names = (
        "ceil", "floor", "sqrt", "log", "log2", "log10", "exp", "gcd", "lcm", "isclose", "isnan", "isinf",
        "trunc", "fabs", "copysign", "fmod",
    )  # fmt: skip
    made: dict[str, Value] = {name: on_known(f"math.{name}", getattr(math, name)) for name in names}
    made.update({name: getattr(math, name) for name in ("pi", "e", "inf", "nan")})

    def product(run: Run, arguments: Arguments) -> Value:
        total: Value = arguments.keywords.get("start", 1)
        for item in run.items(arguments.positional[0], arguments.place):
            total = operators.binary(run, "*", total, item, arguments.place)
        return total

    made["prod"] = NativeFunction("math.prod", product)
    return made


def _operator() -> dict[str, Value]:
    def attribute_getter(run: Run, arguments: Arguments) -> Value:
        names = arguments.positional

        def read(run: Run, given: Arguments) -> Value:
            values = []
            for name in names:
                value = given.positional[0]
                for part in str(name).split("."):
                    value = run.attribute(value, part, given.place)
                values.append(value)
            return values[0] if len(values) == 1 else tuple(values)

        return NativeFunction("attrgetter", read)

    def item_getter(run: Run, arguments: Arguments) -> Value:
        keys = arguments.positional

        def read(run: Run, given: Arguments) -> Value:
            values = [get_item(run, given.positional[0], key, given.place) for key in keys]
            return values[0] if len(values) == 1 else tuple(values)

        return NativeFunction("itemgetter", read)

    return {
        "attrgetter": NativeFunction("attrgetter", attribute_getter),
        "itemgetter": NativeFunction("itemgetter", item_getter),
        "mul": on_known("operator.mul", operator.mul),
        "add": on_known("operator.add", operator.add),
    }


def _itertools() -> dict[str, Value]:
    def listed(name: str, function: Callable[..., Value]) -> NativeFunction:
        def carry_out(run: Run, arguments: Arguments) -> Value:
            columns = [list(run.items(item, arguments.place)) for item in arguments.positional]
            size = math.prod(max(1, len(column)) for column in columns) if name == "product" else 0
            run.require_size(size, arguments.place)
            return iter(
                run.native(
                    lambda: list(function(*columns, **arguments.keywords)), arguments.place, lambda: name
                )
            )

        return NativeFunction(f"itertools.{name}", carry_out)

    def from_iterable(run: Run, arguments: Arguments) -> Value:
        parts = [
            list(run.items(item, arguments.place))
            for item in run.items(arguments.positional[0], arguments.place)
        ]
        return iter([item for part in parts for item in part])

    def islice(run: Run, arguments: Arguments) -> Value:
        source, *bounds = arguments.positional
        if any(contains_unknown(item) for item in bounds):
            return Unknown("itertools.islice(…)", arguments.place)
        items = list(run.items(source, arguments.place))
        return iter(
            run.native(lambda: list(itertools.islice(items, *bounds)), arguments.place, lambda: "islice")
        )

    chain = listed("chain", itertools.chain)
    chain.attributes["from_iterable"] = NativeFunction("chain.from_iterable", from_iterable)
    return {
        "chain": chain,
        "product": listed("product", itertools.product),
        "zip_longest": listed("zip_longest", itertools.zip_longest),
        "islice": NativeFunction("islice", islice),
    }


def operating_system(run: Run) -> dict[str, Value]:
    """What `os` offers: the environment that the settings give, and paths as text."""
    environment = dict(run.settings.environment)

    def get_variable(run: Run, arguments: Arguments) -> Value:
        name = arguments.positional[0]
        if isinstance(name, Unknown):
            return Unknown(f"os.getenv({run.shown(name)})", arguments.place)
        return environment.get(name, arguments.get(1, "default"))

    path_functions = {
        name: on_known(f"os.path.{name}", getattr(posixpath, name))
        for name in ("join", "basename", "dirname", "splitext", "split", "isabs", "normpath")
    }
    path_class = _plain_class("path", "os")
    path = run.new_instance(path_class, "os.path")
    path.attributes.update(path_functions)
    path.missing = Missing.UNKNOWN
    return {
        "environ": environment,
        "getenv": NativeFunction("os.getenv", get_variable),
        "path": path,
        "sep": "/",
    }
