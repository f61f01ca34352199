"""The values that evaluated code works on.

Python's own immutable values, lists, dicts and sets stand for themselves. Everything else has a class here.
A value that is not known is an `Unknown`. When Python's own operators meet one inside a container they raise
`Touched`, so that the result becomes unknown instead of wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from draftproof.stacks.evaluation.unknowns import Touched, Unknown, Value
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.code import FunctionCode
    from draftproof.stacks.evaluation.run import Run
    from draftproof.stacks.evaluation.scope import Frame


@dataclass(frozen=True)
class Symbol:
    """A constant of which nothing is known but its identity: torch.float16."""

    name: str

    def __repr__(self) -> str:
        return self.name


class Missing(Enum):
    """What an object answers when it is asked for an attribute that it does not have."""

    RAISES = "raises AttributeError"
    UNKNOWN = "an unknown value"
    NONE = "None"


class _Absent:
    """Type of `ABSENT`."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()
"""No value at all."""


class ClassKind(Enum):
    """Classes whose construction follows rules of their own."""

    PLAIN = "plain"
    ENUM = "enum"
    FLAG = "flag"
    EXCEPTION = "exception"
    NAMED_TUPLE = "named tuple"


@dataclass(frozen=True)
class DataField:
    """A field of a dataclass or named tuple."""

    name: str
    default: Value = ABSENT
    factory: Value = ABSENT
    in_init: bool = True
    compared: bool = True
    keyword_only: bool = False
    shown: bool = True


@dataclass(frozen=True)
class DataclassRules:
    """What `@dataclass` gave to a class."""

    fields: tuple[DataField, ...]
    frozen: bool
    compares: bool
    ordered: bool = False


class ClassValue:
    """A class of evaluated code, or one of Python's exception classes."""

    __slots__ = (
        "bases", "data", "kind", "members", "module", "mro", "name", "namespace", "native_base", "place",
        "qualified_name", "run", "unknown_base",
    )  # fmt: skip

    def __init__(self, name: str, bases: tuple[Value, ...], namespace: dict[str, Value]) -> None:
        self.name = name
        self.qualified_name = name
        self.bases = bases
        self.namespace = namespace
        self.mro: tuple[ClassValue, ...] = (self,)
        self.kind = ClassKind.PLAIN
        self.members: dict[str, Instance] = {}
        self.data: DataclassRules | None = None
        self.native_base: type | None = None
        self.unknown_base: Unknown | None = None
        self.module = "builtins"
        self.place: Place | None = None
        self.run: Run | None = None

    def find(self, name: str) -> Value:
        """The attribute of the class or the first base that has it; `ABSENT` when none has."""
        for entry in self.mro:
            if name in entry.namespace:
                return entry.namespace[name]
        return ABSENT

    def is_subclass(self, other: ClassValue) -> bool:
        """Whether the other is this class or among its known bases."""
        return other in self.mro

    def __repr__(self) -> str:
        return f"<class '{self.module}.{self.qualified_name}'>"


class Instance:
    """An object of evaluated code.

    Attributes:
        cls: its class.
        attributes: its own attributes.
        places: for each attribute that evaluated code assigned, where it last did.
        missing: what it answers for an attribute that neither it nor its class has.
        label: how conditions and events call it.
        payload: the contents, for a class derived from one of Python's own types; ABSENT otherwise.
        serial: counts the objects of one run.
    """

    __slots__ = ("attributes", "cls", "label", "missing", "payload", "places", "serial")

    def __init__(self, cls: ClassValue, label: str, serial: int) -> None:
        self.cls = cls
        self.attributes: dict[str, Value] = {}
        self.places: dict[str, Place] = {}
        self.missing = Missing.RAISES
        self.label = label
        self.payload: Value = ABSENT
        self.serial = serial

    def __repr__(self) -> str:
        return f"<{self.label}>"

    def place_of(self, attribute: str) -> Place | None:
        """Where evaluated code last assigned the attribute; None when it never did."""
        return self.places.get(attribute)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is Unknown:
            raise Touched(other)
        data = self.cls.data
        run = self.cls.run
        custom = self.cls.find("__eq__")
        if custom is not ABSENT and run is not None:
            place = self.cls.place or Place("", 0)
            return run.truth(run.call(custom, (self, other), {}, place), place)
        if data is not None and data.compares:
            if not isinstance(other, Instance) or other.cls is not self.cls:
                return False
            return compared_fields(self, data) == compared_fields(other, data)
        if self.payload is not ABSENT:
            theirs = other.payload if isinstance(other, Instance) else other
            return bool(self.payload == theirs)
        return False

    def __lt__(self, other: object) -> bool:
        run = self.cls.run
        if run is None:
            return NotImplemented
        return run.is_less(self, other, self.cls.place or Place("", 0))

    def __hash__(self) -> int:
        data = self.cls.data
        run = self.cls.run
        custom = self.cls.find("__hash__")
        if custom is not ABSENT and custom is not None and run is not None:
            answer = run.call(custom, (self,), {}, self.cls.place or Place("", 0))
            return hash(answer)
        if data is not None and data.compares:
            if not data.frozen:
                raise TypeError(f"unhashable type: '{self.cls.name}'")
            return hash(compared_fields(self, data))
        if self.cls.find("__eq__") is not ABSENT:
            raise TypeError(f"unhashable type: '{self.cls.name}'")
        if self.payload is not ABSENT:
            return hash(self.payload)
        return hash(("instance", self.serial))


def compared_fields(instance: Instance, data: DataclassRules) -> tuple[Value, ...]:
    """The values of the fields that decide about equality."""
    return tuple(instance.attributes.get(entry.name) for entry in data.fields if entry.compared)


class FunctionValue:
    """A function of evaluated code with what it closes over."""

    __slots__ = (
        "attributes", "closure", "code", "defaults", "keyword_defaults", "module", "name", "owner",
        "qualified_name",
    )  # fmt: skip

    def __init__(
        self,
        code: FunctionCode,
        closure: Frame,
        defaults: tuple[Value, ...],
        keyword_defaults: Mapping[str, Value],
    ) -> None:
        self.code = code
        self.closure = closure
        self.defaults = defaults
        self.keyword_defaults = keyword_defaults
        self.module = closure.module
        self.name = code.name
        self.qualified_name = code.name
        self.owner: ClassValue | None = None
        self.attributes: dict[str, Value] = {}

    def __repr__(self) -> str:
        return f"<function {self.qualified_name}>"


@dataclass(frozen=True, eq=False)
class BoundMethod:
    """A function with the object that it was taken from."""

    function: Value
    receiver: Value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BoundMethod)
            and other.function is self.function
            and other.receiver is self.receiver
        )

    def __hash__(self) -> int:
        return hash((id(self.function), id(self.receiver)))


@dataclass(frozen=True)
class Arguments:
    """What a call passes.

    Attributes:
        positional: in order.
        keywords: by name.
        place: of the call.
        is_complete: False when `*unknown` or `**unknown` may have passed more.
    """

    positional: tuple[Value, ...]
    keywords: Mapping[str, Value]
    place: Place
    is_complete: bool = True

    def get(self, position: int, name: str, default: Value = None) -> Value:
        """An argument by position or name."""
        if position < len(self.positional):
            return self.positional[position]
        return self.keywords.get(name, default)


Implementation: TypeAlias = "Callable[[Run, Arguments], Value]"


@dataclass(frozen=True, eq=False)
class NativeFunction:
    """A function that the evaluator itself carries out."""

    name: str
    implementation: Implementation
    attributes: dict[str, Value] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<built-in function {self.name}>"


@dataclass(eq=False)
class PropertyValue:
    """A property; a cached one keeps its value as an attribute of the object."""

    getter: Value
    setter: Value = None
    is_cached: bool = False


@dataclass(frozen=True, eq=False)
class StaticMethod:
    """A function that is not bound."""

    function: Value


@dataclass(frozen=True, eq=False)
class ClassMethod:
    """A function that is bound to the class."""

    function: Value


@dataclass(frozen=True, eq=False)
class SuperValue:
    """What `super()` gives: attributes are looked for after `after` in the receiver's class order."""

    after: ClassValue
    receiver: Value


@dataclass(frozen=True)
class LiteralType:
    """`typing.Literal[...]`, nested ones flattened."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class UnionType:
    """`A | B` of classes."""

    members: tuple[Value, ...]


def unwrapped(value: Value) -> Value:
    """The contents of an object derived from one of Python's own types; any other value itself."""
    if type(value) is Instance and value.payload is not ABSENT:
        return value.payload
    return value
