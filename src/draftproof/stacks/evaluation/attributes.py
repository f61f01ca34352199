"""`value.name`: read and assign, for every kind of value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.construction import base_method
from draftproof.stacks.evaluation.errors import Raised
from draftproof.stacks.evaluation.modules import ModuleValue
from draftproof.stacks.evaluation.native_methods import native_method, native_type_attribute
from draftproof.stacks.evaluation.type_checks import class_name
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import (
    ABSENT,
    BoundMethod,
    ClassKind,
    ClassMethod,
    ClassValue,
    FunctionValue,
    Instance,
    Missing,
    NativeFunction,
    PropertyValue,
    StaticMethod,
    SuperValue,
    Symbol,
)
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


def get_attribute(run: Run, value: Value, name: str, place: Place) -> Value:
    """`value.name`."""
    if isinstance(value, Instance):
        return _of_instance(run, value, name, place)
    if isinstance(value, Unknown):
        return _of_unknown(run, value, name, place)
    if isinstance(value, ModuleValue):
        return _of_module(run, value, name, place)
    if isinstance(value, ClassValue):
        return _of_class(run, value, name, place)
    if isinstance(value, (FunctionValue, BoundMethod, NativeFunction)):
        return _of_function(run, value, name, place)
    if isinstance(value, SuperValue):
        return _of_super(run, value, name, place)
    if isinstance(value, (StaticMethod, ClassMethod)):
        return get_attribute(run, value.function, name, place)
    if isinstance(value, PropertyValue):
        return _of_property(value, name, place)
    if isinstance(value, Symbol):
        return _of_unknown(run, Unknown(value.name, place), name, place)
    if isinstance(value, type):
        found = native_type_attribute(run, value, name, place)
    else:
        found = native_method(run, value, name, place)
    if found is ABSENT:
        kind = (
            f"type object '{value.__name__}'" if isinstance(value, type) else f"'{class_name(value)}' object"
        )
        raise run.error("AttributeError", f"{kind} has no attribute '{name}'", place)
    return found


def _of_unknown(run: Run, value: Unknown, name: str, place: Place) -> Value:
    dotted = f"{run.shown(value)}.{name}"
    substitute = run.program.substitute(run, dotted)
    if substitute is not ABSENT:
        return substitute
    return Unknown(dotted, place)


def _of_module(run: Run, value: ModuleValue, name: str, place: Place) -> Value:
    found = value.lookup(name)
    if found is ABSENT and name == "__dict__":
        return Unknown(f"{value.dotted}.__dict__", place)
    if found is ABSENT and not value.source.statements:
        # A module of the standard library of which only a part is known.
        return _of_unknown(run, Unknown(value.dotted, place), name, place)
    if found is ABSENT:
        raise run.error("AttributeError", f"module '{value.dotted}' has no attribute '{name}'", place)
    return found


def _of_instance(run: Run, value: Instance, name: str, place: Place) -> Value:
    found = value.cls.find(name)
    if isinstance(found, PropertyValue) and not (found.is_cached and name in value.attributes):
        answer = run.call(found.getter, (value,), {}, place)
        if found.is_cached:
            value.attributes[name] = answer
        return answer
    if name in value.attributes:
        return value.attributes[name]
    if found is not ABSENT:
        return _bound(run, found, value, value.cls, place)
    special = _special(value, name)
    if special is not ABSENT:
        return special
    if value.cls.kind is ClassKind.EXCEPTION and name == "__cause__":
        return None
    if value.payload is not ABSENT:
        method = native_method(run, value.payload, name, place)
        if method is not ABSENT:
            return method
    return _missing(run, value, name, place)


def _special(value: Instance, name: str) -> Value:
    if name == "__class__":
        return value.cls
    if name == "__dict__":
        return value.attributes
    if value.cls.kind in (ClassKind.ENUM, ClassKind.FLAG) and name in ("name", "value"):
        return value.attributes[f"_{name}_"]
    return ABSENT


def _missing(run: Run, value: Instance, name: str, place: Place) -> Value:
    """What is answered for an attribute that is not there."""
    fallback = value.cls.find("__getattr__")
    if fallback is not ABSENT and not name.startswith("__"):
        return run.call(fallback, (value, name), {}, place)
    if value.missing is Missing.UNKNOWN and not name.startswith("__"):
        return _of_unknown(run, Unknown(value.label, place), name, place)
    if value.missing is Missing.NONE and not name.startswith("__"):
        return None
    if value.cls.unknown_base is not None:
        return Unknown(f"{value.label}.{name}", place)
    raise run.error("AttributeError", f"'{value.cls.name}' object has no attribute '{name}'", place)


def _bound(run: Run, found: Value, receiver: Value, cls: ClassValue, place: Place) -> Value:
    """A class attribute as an object's attribute."""
    if isinstance(found, StaticMethod):
        return found.function
    if isinstance(found, ClassMethod):
        return BoundMethod(found.function, cls)
    if isinstance(found, FunctionValue):
        return BoundMethod(found, receiver)
    if isinstance(found, NativeFunction) and found.attributes.get("binds"):
        return BoundMethod(found, receiver)
    if isinstance(found, PropertyValue):
        return run.call(found.getter, (receiver,), {}, place)
    if isinstance(found, Instance) and found.cls.find("__get__") is not ABSENT:
        return run.call(found.cls.find("__get__"), (found, receiver, cls), {}, place)
    return found


def _of_class(run: Run, value: ClassValue, name: str, place: Place) -> Value:
    simple = {
        "__name__": value.name,
        "__qualname__": value.qualified_name,
        "__module__": value.module,
        "__mro__": (*value.mro, object),
        "__bases__": value.bases,
    }
    if name in simple:
        return simple[name]
    if name == "__members__" and value.kind in (ClassKind.ENUM, ClassKind.FLAG):
        return dict(value.members)
    if name in value.members:
        return value.members[name]
    found = value.find(name)
    if isinstance(found, StaticMethod):
        return found.function
    if isinstance(found, ClassMethod):
        return BoundMethod(found.function, value)
    if isinstance(found, Instance) and found.cls.find("__get__") is not ABSENT:
        return run.call(found.cls.find("__get__"), (found, None, value), {}, place)
    if found is not ABSENT:
        return found
    if name == "__dict__":
        return dict(value.namespace)
    if name == "__doc__":
        return None
    if value.unknown_base is not None:
        return Unknown(f"{value.name}.{name}", place)
    if name == "__init__":
        return NativeFunction("object.__init__", lambda run, arguments: None)
    raise run.error("AttributeError", f"type object '{value.name}' has no attribute '{name}'", place)


def _of_function(
    run: Run, value: FunctionValue | BoundMethod | NativeFunction, name: str, place: Place
) -> Value:
    if isinstance(value, BoundMethod):
        if name in ("__self__", "__func__"):
            return value.receiver if name == "__self__" else value.function
        return get_attribute(run, value.function, name, place)
    if name in value.attributes:
        return value.attributes[name]
    if name == "__name__":
        return value.name
    if isinstance(value, FunctionValue) and name in ("__qualname__", "__module__"):
        return value.qualified_name if name == "__qualname__" else value.module.dotted
    if name == "cache_clear":
        return NativeFunction("cache_clear", lambda run, arguments: None)
    if name in ("__doc__", "__wrapped__", "__code__", "__signature__", "__annotations__"):
        return Unknown(f"{value.name}.{name}", place)
    raise run.error("AttributeError", f"'function' object has no attribute '{name}'", place)


def _of_property(value: PropertyValue, name: str, place: Place) -> Value:
    if name == "setter":
        return NativeFunction(
            "setter",
            lambda run, arguments: PropertyValue(value.getter, arguments.positional[0], value.is_cached),
        )
    if name in ("getter", "deleter"):
        return NativeFunction(name, lambda run, arguments: value)
    return {"fget": value.getter, "fset": value.setter}.get(name, Unknown(f"property.{name}", place))


def _of_super(run: Run, value: SuperValue, name: str, place: Place) -> Value:
    receiver = value.receiver
    cls = receiver.cls if isinstance(receiver, Instance) else receiver
    order = cls.mro
    rest = order[order.index(value.after) + 1 :] if value.after in order else ()
    for entry in rest:
        if name in entry.namespace:
            return _bound(run, entry.namespace[name], receiver, cls, place)
    native = base_method(run, cls, receiver, name)
    if native is not ABSENT:
        return native
    if cls.unknown_base is not None:
        return Unknown(f"super().{name}", place)
    raise run.error("AttributeError", f"'super' object has no attribute '{name}'", place)


def set_attribute(run: Run, value: Value, name: str, assigned: Value, place: Place) -> None:
    """`value.name = assigned`."""
    if isinstance(value, Instance):
        custom = value.cls.find("__setattr__")
        if custom is not ABSENT:
            run.call(custom, (value, name, assigned), {}, place)
            return
        store_attribute(run, value, name, assigned, place)
    elif isinstance(value, ClassValue):
        value.namespace[name] = assigned
    elif isinstance(value, ModuleValue):
        value.assign(name, assigned)
    elif isinstance(value, FunctionValue):
        value.attributes[name] = assigned
    elif isinstance(value, (Unknown, NativeFunction, Symbol, BoundMethod)):
        return
    else:
        message = f"'{class_name(value)}' object has no attribute '{name}'"
        raise run.error("AttributeError", message, place)


def store_attribute(run: Run, value: Instance, name: str, assigned: Value, place: Place) -> None:
    """As `object.__setattr__`, with the rules of properties and frozen dataclasses."""
    found = value.cls.find(name)
    if isinstance(found, PropertyValue) and not found.is_cached:
        if found.setter is None:
            message = f"property '{name}' of '{value.cls.name}' object has no setter"
            raise run.error("AttributeError", message, place)
        run.call(found.setter, (value, assigned), {}, place)
        return
    data = value.cls.data
    if data is not None and data.frozen:
        error = run.new_instance(run.program.frozen_instance_error)
        error.attributes["args"] = (f"cannot assign to field '{name}'",)
        raise Raised(error, place)
    value.attributes[name] = assigned
    run.note_assignment(value, name, assigned, place)
