"""`dataclasses` of evaluated code; pydantic's dataclasses follow the same rules, without its checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import (
    ABSENT,
    Arguments,
    ClassValue,
    DataclassRules,
    DataField,
    FunctionValue,
    Instance,
    NativeFunction,
    PropertyValue,
)
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

KEYWORD_ONLY = "KW_ONLY"


def dataclass_decorator(run: Run, arguments: Arguments) -> Value:
    """`@dataclass`, with or without options."""
    if arguments.positional and isinstance(arguments.positional[0], ClassValue):
        return make_dataclass(run, arguments.positional[0], arguments)
    if arguments.positional and arguments.positional[0] is not None:
        return arguments.positional[0]
    options = arguments

    def decorate(run: Run, arguments: Arguments) -> Value:
        cls = arguments.positional[0]
        return make_dataclass(run, cls, options) if isinstance(cls, ClassValue) else cls

    return NativeFunction("dataclass", decorate)


def make_dataclass(run: Run, cls: ClassValue, options: Arguments) -> ClassValue:
    """Give a class its fields and the methods that follow from them."""
    keyword_only = options.keywords.get("kw_only", False) is True
    fields = _collect(cls, keyword_only)
    inherited = cls.data
    cls.data = DataclassRules(
        tuple(fields),
        options.keywords.get("frozen", False) is True or (inherited is not None and inherited.frozen),
        options.keywords.get("eq", True) is not False,
        options.keywords.get("order", False) is True,
    )
    if "__init__" not in cls.namespace and options.keywords.get("init", True) is not False:
        cls.namespace["__init__"] = NativeFunction(
            f"{cls.name}.__init__", lambda run, arguments: _initialise(run, cls, arguments), {"binds": True}
        )
    cls.namespace["__dataclass_fields__"] = {entry.name: entry for entry in fields}
    return cls


def _collect(cls: ClassValue, keyword_only: bool) -> list[DataField]:
    """Fields of the bases, the last one first, then the class's own."""
    fields: dict[str, DataField] = {}
    for base in reversed(cls.mro[1:]):
        for name, inherited in base.namespace.get("__dataclass_fields__", {}).items():
            fields[name] = inherited
    for name, annotation in cls.namespace.get("__annotations__", {}).items():
        if "ClassVar" in annotation:
            continue
        if annotation.endswith(KEYWORD_ONLY):
            keyword_only = True
            continue
        fields[name] = _field(cls, name, keyword_only)
    return list(fields.values())


def _field(cls: ClassValue, name: str, keyword_only: bool) -> DataField:
    default = cls.namespace.get(name, ABSENT)
    if not isinstance(default, DataField):
        if isinstance(default, (PropertyValue, FunctionValue)):
            default = ABSENT
        return DataField(name, default, keyword_only=keyword_only)
    made = DataField(
        name, default.default, default.factory, default.in_init, default.compared,
        keyword_only or default.keyword_only, default.shown,
    )  # fmt: skip
    if made.default is ABSENT:
        del cls.namespace[name]
    else:
        cls.namespace[name] = made.default
    return made


def make_field(run: Run, arguments: Arguments) -> Value:
    """`dataclasses.field(...)` and `pydantic.Field(...)`."""
    given = arguments.keywords
    default = given.get("default", arguments.positional[0] if arguments.positional else ABSENT)
    return DataField(
        "",
        ABSENT if default is Ellipsis else default,
        given.get("default_factory", ABSENT),
        given.get("init", True) is not False,
        given.get("compare", True) is not False,
        given.get("kw_only", False) is True,
        given.get("repr", True) is not False,
    )


def _initialise(run: Run, cls: ClassValue, arguments: Arguments) -> Value:
    """The generated `__init__`."""
    value, *rest = arguments.positional
    data = cls.data
    assert data is not None
    place = arguments.place
    accepted = [entry for entry in data.fields if entry.in_init]
    positions = [entry for entry in accepted if not entry.keyword_only]
    name = f"{cls.qualified_name}.__init__()"
    if len(rest) > len(positions):
        required = sum(entry.default is ABSENT and entry.factory is ABSENT for entry in positions) + 1
        most = len(positions) + 1
        takes = f"from {required} to {most}" if required != most else str(most)
        plural = "s" if most != 1 or required != most else ""
        message = f"{name} takes {takes} positional argument{plural} but {len(rest) + 1} were given"
        raise run.error("TypeError", message, place)
    given: dict[str, Value] = {entry.name: item for entry, item in zip(positions, rest, strict=False)}
    for key, item in arguments.keywords.items():
        if key in given:
            raise run.error("TypeError", f"{name} got multiple values for argument '{key}'", place)
        if not any(entry.name == key for entry in accepted):
            raise run.error("TypeError", f"{name} got an unexpected keyword argument '{key}'", place)
        given[key] = item
    _require_fields(run, name, accepted, given, arguments)
    for entry in data.fields:
        _store(run, value, entry, given, arguments)
    after = cls.find("__post_init__")
    if after is not ABSENT and isinstance(value, Instance):
        run.call(value.cls.find("__post_init__"), (value,), {}, place)
    return None


def _require_fields(
    run: Run, name: str, accepted: list[DataField], given: dict[str, Value], arguments: Arguments
) -> None:
    missing = [
        entry.name
        for entry in accepted
        if entry.name not in given and entry.default is ABSENT and entry.factory is ABSENT
    ]
    if missing and arguments.is_complete:
        count = len(missing)
        quoted = [f"'{entry}'" for entry in missing]
        listed = (
            quoted[0]
            if count == 1
            else ", ".join(quoted[:-1]) + ("," if count > 2 else "") + f" and {quoted[-1]}"
        )
        noun = "argument" if count == 1 else "arguments"
        message = f"{name} missing {count} required positional {noun}: {listed}"
        raise run.error("TypeError", message, arguments.place)


def _store(
    run: Run, value: Instance, entry: DataField, given: dict[str, Value], arguments: Arguments
) -> None:
    place = arguments.place
    if entry.name in given:
        content = given[entry.name]
    elif not arguments.is_complete:
        content = Unknown(f"{value.label}.{entry.name}", place)
    elif entry.factory is not ABSENT:
        content = run.call(entry.factory, (), {}, place)
    elif entry.default is not ABSENT:
        content = entry.default
    else:
        return
    data = value.cls.data
    if data is not None and data.frozen:
        value.attributes[entry.name] = content
        run.note_assignment(value, entry.name, content, place)
    else:
        run.set_attribute(value, entry.name, content, place)


def fields_of(value: Value) -> tuple[DataField, ...] | None:
    """The fields of a dataclass or one of its objects; None for anything else."""
    cls = value.cls if isinstance(value, Instance) else value
    return cls.data.fields if isinstance(cls, ClassValue) and cls.data is not None else None


def replace(run: Run, arguments: Arguments) -> Value:
    """`dataclasses.replace(value, **changes)`."""
    value = arguments.positional[0]
    fields = fields_of(value)
    if fields is None or not isinstance(value, Instance):
        return Unknown(f"replace({run.shown(value)})", arguments.place)
    content = {entry.name: value.attributes.get(entry.name) for entry in fields if entry.in_init}
    content.update(arguments.keywords)
    return run.call_with(value.cls, Arguments((), content, arguments.place, arguments.is_complete))


def as_dict(run: Run, arguments: Arguments) -> Value:
    """`dataclasses.asdict(value)`."""
    return _as_dict(run, arguments.positional[0], arguments.place)


def _as_dict(run: Run, value: Value, place: Place) -> Value:
    fields = fields_of(value) if isinstance(value, Instance) else None
    if fields is not None:
        return {entry.name: _as_dict(run, value.attributes.get(entry.name), place) for entry in fields}
    kind = type(value)
    if kind in (list, tuple):
        return kind(_as_dict(run, item, place) for item in value)
    if kind is dict:
        return {key: _as_dict(run, item, place) for key, item in value.items()}
    return value
