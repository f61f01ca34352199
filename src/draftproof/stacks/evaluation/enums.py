"""Classes derived from `enum.Enum`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.unknowns import Unknown, Value, contains_unknown
from draftproof.stacks.evaluation.values import (
    ABSENT,
    Arguments,
    ClassKind,
    ClassMethod,
    ClassValue,
    FunctionValue,
    Instance,
    NativeFunction,
    PropertyValue,
    StaticMethod,
    Symbol,
)
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

AUTO = Symbol("enum.auto()")
_NOT_MEMBERS = (FunctionValue, NativeFunction, PropertyValue, StaticMethod, ClassMethod, ClassValue)


def enum_classes() -> dict[str, ClassValue]:
    """Enum and its kin."""
    made: dict[str, ClassValue] = {}
    for name, native in (
        ("Enum", None),
        ("IntEnum", int),
        ("StrEnum", str),
        ("Flag", None),
        ("IntFlag", int),
    ):
        bases = (made["Enum"],) if made else ()
        cls = ClassValue(name, bases, {})
        cls.mro = (cls, *bases)
        cls.kind = ClassKind.FLAG if "Flag" in name else ClassKind.ENUM
        cls.native_base = native
        cls.module = "enum"
        made[name] = cls
    return made


def make_members(run: Run, cls: ClassValue, place: Place) -> None:
    """Turn the values of the class body into members."""
    last: Value = 0
    for name, value in list(cls.namespace.items()):
        if name.startswith("_") or isinstance(value, _NOT_MEMBERS):
            continue
        if isinstance(value, Symbol) and value == AUTO:
            value = _next_value(cls, name, last, place)
        elif type(value) is tuple and any(item == AUTO for item in value if isinstance(item, Symbol)):
            value = Unknown(f"{cls.name}.{name}.value", place)
        last = value if isinstance(value, int) else last
        member = next((other for other in cls.members.values() if _same(other, value)), None)
        if member is None:
            member = _make_member(run, cls, name, value, place)
        cls.members[name] = member
        del cls.namespace[name]


def _same(member: Instance, value: Value) -> bool:
    theirs = member.attributes["_value_"]
    if contains_unknown(theirs) or contains_unknown(value) or type(theirs) is not type(value):
        return False
    return bool(theirs == value)


def _next_value(cls: ClassValue, name: str, last: Value, place: Place) -> Value:
    custom = cls.find("_generate_next_value_")
    if custom is not ABSENT:
        return Unknown(f"{cls.name}.{name}.value", place)
    if any(entry.name == "StrEnum" for entry in cls.mro):
        return name.lower()
    if cls.kind is ClassKind.FLAG:
        return 1 << int(last).bit_length()
    return last + 1


def _make_member(run: Run, cls: ClassValue, name: str, value: Value, place: Place) -> Instance:
    member = run.new_instance(cls)
    member.label = f"{cls.name}.{name}"
    maker, initialiser = cls.find("__new__"), cls.find("__init__")
    listed = value if type(value) is tuple else (value,)
    if maker is not ABSENT:
        made = run.call(
            maker.function if isinstance(maker, StaticMethod) else maker, (cls, *listed), {}, place
        )
        if isinstance(made, Instance):
            made.label = member.label
            member = made
    member.attributes["_name_"] = name
    member.attributes.setdefault("_value_", value)
    native = cls.native_base
    if native is not None and member.payload is ABSENT and isinstance(value, native):
        member.payload = value
    if initialiser is not ABSENT:
        run.call_with(initialiser, Arguments((member, *listed), {}, place))
    return member


def find_member(run: Run, cls: ClassValue, arguments: Arguments) -> Value:
    """`Color(value)`."""
    place = arguments.place
    wanted = arguments.get(0, "value")
    if isinstance(wanted, Instance) and wanted.cls is cls:
        return wanted
    if contains_unknown(wanted):
        return Unknown(f"{cls.name}({run.shown(wanted)})", place)
    for member in cls.members.values():
        value = member.attributes["_value_"]
        if not contains_unknown(value) and run.equal(value, wanted, place) is True:
            return member
    missing = cls.find("_missing_")
    if missing is not ABSENT:
        function = missing.function if isinstance(missing, ClassMethod) else missing
        found = run.call(function, (cls, wanted), {}, place)
        if found is not None:
            return found
    if cls.kind is ClassKind.FLAG:
        return Unknown(f"{cls.name}({run.shown(wanted)})", place)
    text = run.program.repr_text(run, wanted, place)
    raise run.error("ValueError", f"{text} is not a valid {cls.qualified_name}", place)
