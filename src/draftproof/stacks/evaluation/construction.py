"""Objects: made by calling a class, and handed in by the caller."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from draftproof.stacks.evaluation.enums import find_member
from draftproof.stacks.evaluation.named_tuples import fill_named_tuple
from draftproof.stacks.evaluation.native_types import construct_native
from draftproof.stacks.evaluation.settings import Given, Named
from draftproof.stacks.evaluation.subscripts import get_item, set_item
from draftproof.stacks.evaluation.type_checks import class_name
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import (
    ABSENT,
    Arguments,
    BoundMethod,
    ClassKind,
    ClassValue,
    Instance,
    NativeFunction,
    StaticMethod,
)
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


_PYTHON_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def instantiate(run: Run, cls: ClassValue, arguments: Arguments) -> Value:
    """`Class(...)`."""
    run.tick(arguments.place)
    if cls.kind in (ClassKind.ENUM, ClassKind.FLAG):
        return find_member(run, cls, arguments)
    if cls.unknown_base is not None and cls.unknown_base.name == f"type({cls.name})":
        return Unknown(f"{cls.name}(…)", arguments.place)
    maker = cls.find("__new__")
    if maker is not ABSENT:
        function = maker.function if isinstance(maker, StaticMethod) else maker
        given = Arguments(
            (cls, *arguments.positional), arguments.keywords, arguments.place, arguments.is_complete
        )
        value = run.call_with(function, given)
        if not isinstance(value, Instance) or not value.cls.is_subclass(cls):
            return value
    else:
        value = run.new_instance(cls)
    _initialise(run, cls, value, arguments)
    return value


def _initialise(run: Run, cls: ClassValue, value: Instance, arguments: Arguments) -> None:
    if cls.kind is ClassKind.EXCEPTION:
        value.attributes["args"] = arguments.positional
    if cls.kind is ClassKind.NAMED_TUPLE:
        fill_named_tuple(run, value, arguments)
        return
    initialiser = cls.find("__init__")
    native = cls.native_base
    if native is not None:
        is_mutable = native in (dict, list, set)
        given = Arguments((), {}, arguments.place) if initialiser is not ABSENT and is_mutable else arguments
        if value.payload is ABSENT:
            value.payload = construct_native(run, native, given)
    if initialiser is not ABSENT:
        run.call_with(BoundMethod(initialiser, value), arguments)
        return
    is_silent = native is not None or cls.kind is not ClassKind.PLAIN or cls.unknown_base is not None
    if (arguments.positional or arguments.keywords) and not is_silent:
        raise run.error("TypeError", f"{cls.name}() takes no arguments", arguments.place)


def object_methods() -> dict[str, NativeFunction]:
    """Methods of `object`."""

    def new(run: Run, arguments: Arguments) -> Value:
        cls = arguments.positional[0]
        if not isinstance(cls, ClassValue):
            return Unknown(f"object.__new__({run.shown(cls)})", arguments.place)
        return run.new_instance(cls)

    def set_directly(run: Run, arguments: Arguments) -> Value:
        value, name, assigned = arguments.positional
        if isinstance(value, Instance) and isinstance(name, str):
            value.attributes[name] = assigned
            run.note_assignment(value, name, assigned, arguments.place)
        return None

    def read(run: Run, arguments: Arguments) -> Value:
        value, name = arguments.positional
        if isinstance(value, Instance) and name in value.attributes:
            return value.attributes[name]
        return run.attribute(value, name, arguments.place)

    return {
        "__new__": NativeFunction("object.__new__", new),
        "__init__": NativeFunction("object.__init__", lambda run, arguments: None),
        "__setattr__": NativeFunction("object.__setattr__", set_directly),
        "__getattribute__": NativeFunction("object.__getattribute__", read),
    }


def base_method(run: Run, cls: ClassValue, receiver: Value, name: str) -> Value:
    """What `super().name` finds when no class of the tree has it."""
    if name == "__new__":
        return run.program.object_methods["__new__"]
    if name == "__setattr__":
        return BoundMethod(run.program.object_methods["__setattr__"], receiver)
    if name in ("__init_subclass__", "__set_name__"):
        return NativeFunction(name, lambda run, arguments: None)
    if name == "__init__":
        return NativeFunction(name, _base_initialiser(cls, receiver))
    if isinstance(receiver, Instance) and receiver.payload is not ABSENT:
        payload = receiver.payload
        if name == "__getitem__":
            return NativeFunction(
                name, lambda run, given: get_item(run, payload, given.positional[0], given.place)
            )
        if name == "__setitem__":

            def assign(run: Run, given: Arguments) -> Value:
                set_item(run, payload, given.positional[0], given.positional[1], given.place)
                return None

            return NativeFunction(name, assign)
        return run.attribute(payload, name, Place("", 0))
    return ABSENT


def _base_initialiser(cls: ClassValue, receiver: Value) -> Callable[[Any, Arguments], Value]:
    def initialise(run: Run, arguments: Arguments) -> Value:
        if not isinstance(receiver, Instance):
            return None
        if cls.kind is ClassKind.EXCEPTION:
            receiver.attributes["args"] = arguments.positional
        elif cls.native_base in (dict, list, set) and cls.native_base is not None:
            receiver.payload = construct_native(run, cls.native_base, arguments)
        elif (arguments.positional or arguments.keywords) and cls.unknown_base is None:
            message = (
                f"{class_name(receiver)}.__init__() takes exactly one argument (the instance to initialize)"
            )
            raise run.error("TypeError", message, arguments.place)
        return None

    return initialise


def materialise(run: Run, described: Value) -> Value:
    """What a caller handed in, as a value of this run: containers are copied, descriptions carried out."""
    if isinstance(described, Given):
        return _materialise_object(run, described)
    if isinstance(described, Named):
        return run.program.named(run, described)
    if isinstance(described, _PYTHON_FUNCTIONS):
        return python_function(described)
    kind = type(described)
    if kind in (list, tuple, set, frozenset):
        return kind(materialise(run, item) for item in described)
    if kind is dict:
        return {materialise(run, key): materialise(run, item) for key, item in described.items()}
    return described


def _materialise_object(run: Run, described: Given) -> Instance:
    known = run.given.get(id(described))
    if known is not None:
        return known
    if described.file:
        cls = run.program.named(run, Named(described.file, described.class_name))
        if not isinstance(cls, ClassValue):
            raise run.refused(f"{described.class_name} is no class", Place(described.file, 1))
    else:
        cls = ClassValue(described.class_name, (), {})
        cls.module = "given"
    value = run.new_instance(cls, described.name)
    value.missing = described.missing
    run.given[id(described)] = value
    for name, method in described.methods.items():
        function = method if isinstance(method, NativeFunction) else python_function(method, name)
        value.attributes[name] = BoundMethod(function, value)
    for name, item in described.attributes.items():
        if isinstance(item, _PYTHON_FUNCTIONS):
            value.attributes[name] = python_function(item, f"{described.name}.{name}")
        else:
            value.attributes[name] = materialise(run, item)
    return value


def python_function(function: Callable[..., Any], name: str = "") -> NativeFunction:
    """A caller's Python function as a value; it is called with evaluated values."""

    def implementation(run: Run, arguments: Arguments) -> Value:
        return run.native(
            lambda: materialise(run, function(*arguments.positional, **arguments.keywords)),
            arguments.place,
            lambda: getattr(function, "__name__", "function"),
        )

    return NativeFunction(name or getattr(function, "__name__", "function"), implementation)
