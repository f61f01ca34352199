"""One way through the evaluated code: its decisions, bounds, modules, and what happened on it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation import attributes, calls, construction, iteration, operators, render
from draftproof.stacks.evaluation.errors import Raised, Refused
from draftproof.stacks.evaluation.modules import ModuleValue
from draftproof.stacks.evaluation.outcomes import Assignment, Condition, Event
from draftproof.stacks.evaluation.settings import Settings
from draftproof.stacks.evaluation.unknowns import Touched, Unknown, Value, has_lost_contents
from draftproof.stacks.evaluation.values import ABSENT, Arguments, ClassKind, ClassValue, Instance, unwrapped
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.program import Program


class Run:
    """The state of one way.

    Args:
        program: what all ways share: the tree, compiled code, substitutes.
        decisions: the answers for the first unknown branches; later ones are taken as True.
    """

    def __init__(self, program: Program, decisions: Sequence[bool]) -> None:
        self.program = program
        self.settings: Settings = program.settings
        self.decisions = list(decisions)
        self.taken: list[bool] = []
        self.conditions: list[Condition] = []
        self.events: list[Event] = []
        self.steps = 0
        self.depth = 0
        self.modules: dict[str, ModuleValue | Unknown] = {}
        self.substitutes: dict[str, Value] = {}
        self.exceptions: Mapping[str, ClassValue] = program.exceptions
        self.builtins: Mapping[str, Value] = program.builtins
        self.given: dict[int, Instance] = {}
        self._assumed: dict[str, bool] = {}
        self._equal: dict[str, Value] = {}
        self._serials: dict[str, int] = {}
        self._serial = 0

    # Bounds.

    def tick(self, place: Place) -> None:
        """Count one step."""
        self.steps += 1
        if self.steps > self.settings.steps:
            raise Refused(f"more than {self.settings.steps} steps", place)

    def refused(self, reason: str, place: Place) -> Refused:
        """The error that ends this way as not understood."""
        return Refused(reason, place)

    def require_size(self, size: int, place: Place) -> None:
        """Refuse a string or container of more than the allowed items."""
        if size > self.settings.items:
            raise Refused(f"a string or container of {size} items", place)

    def require_bits(self, bits: int, place: Place) -> None:
        """Refuse an integer of more than the allowed bits."""
        if bits > self.settings.bits:
            raise Refused(f"an integer of about {bits} bits", place)

    # Unknown truth.

    def assumed(self, unknown: Unknown) -> bool | None:
        """What is known already about an unknown truth; None when nothing is."""
        known = self._assumed.get(unknown.name)
        relation = unknown.relation
        if known is None and relation is not None and relation.subject in self._equal:
            value = self._equal[relation.subject]
            known = any(type(value) is type(other) and value == other for other in relation.constants)
        if known is None and unknown.name in self._equal:
            known = bool(unwrapped(self._equal[unknown.name]))
        return None if known is None else known != unknown.negated

    def decide(self, unknown: Unknown, place: Place) -> bool:
        """Whether an unknown is taken to be true on this way."""
        known = self.assumed(unknown)
        if known is not None:
            return known
        answer = self.settings.decide(unknown.name, place)
        if answer is None:
            position = len(self.taken)
            answer = self.decisions[position] if position < len(self.decisions) else True
            self.taken.append(answer)
        self.conditions.append(Condition(unknown.name, answer, place))
        self._assumed[unknown.name] = answer
        relation = unknown.relation
        if answer and relation is not None and len(relation.constants) == 1:
            self._equal[relation.subject] = relation.constants[0]
        return answer != unknown.negated

    def ask(self, question: str, place: Place) -> bool:
        """As `decide`, for a question in words."""
        return self.decide(Unknown(question, place), place)

    def truth(self, value: Value, place: Place) -> bool:
        """`bool(value)`."""
        if value is True or value is False:
            return value
        if isinstance(value, Unknown):
            return self.decide(value, place)
        if type(value) is Instance:
            return self._instance_truth(value, place)
        if has_lost_contents(value):
            return self.ask(f"{self.shown(value)} is not empty", place)
        answer = self.native(lambda: bool(value), place, lambda: self.shown(value))
        return self.decide(answer, place) if isinstance(answer, Unknown) else bool(answer)

    def _instance_truth(self, value: Instance, place: Place) -> bool:
        for name in ("__bool__", "__len__"):
            method = value.cls.find(name)
            if method is not ABSENT:
                return self.truth(self.call(method, (value,), {}, place), place)
        return self.truth(value.payload, place) if value.payload is not ABSENT else True

    # Operations; each is carried out by the module of its name.

    def call(
        self, function: Value, positional: Sequence[Value], keywords: Mapping[str, Value], place: Place
    ) -> Value:
        """Call anything."""
        return calls.call(self, function, Arguments(tuple(positional), keywords, place))

    def call_with(self, function: Value, arguments: Arguments) -> Value:
        """Call anything with prepared arguments."""
        return calls.call(self, function, arguments)

    def attribute(self, value: Value, name: str, place: Place) -> Value:
        """`value.name`; raises AttributeError of evaluated code when there is none."""
        return attributes.get_attribute(self, value, name, place)

    def set_attribute(self, value: Value, name: str, assigned: Value, place: Place) -> None:
        """`value.name = assigned`."""
        attributes.set_attribute(self, value, name, assigned, place)

    def items(self, value: Value, place: Place) -> Iterator[Value]:
        """The items of an iterable, bounded."""
        return iteration.items(self, value, place)

    def shown(self, value: Value) -> str:
        """A value in a few words."""
        return render.shown(value)

    def in_braces(self, value: Value) -> Value:
        """A value for a message."""
        return render.in_braces(self, value)

    def text_of(self, value: Value, place: Place) -> Value:
        """`str(value)`."""
        return render.text_of(self, value, place)

    def equal(self, left: Value, right: Value, place: Place) -> Value:
        """`left == right`."""
        return operators.compare(self, "==", left, right, place)

    def is_less(self, left: Value, right: Value, place: Place) -> bool:
        """`left < right` as a decided truth."""
        return self.truth(operators.compare(self, "<", left, right, place), place)

    def native(self, operation: Callable[[], Value], place: Place, name: Callable[[], str]) -> Value:
        """Let Python itself do an operation on known values; its exceptions become the evaluated code's."""
        try:
            return operation()
        except Touched as touched:
            return Unknown(f"{name()} with {touched.unknown.name}", place)
        except (Raised, Refused):
            raise
        except (RecursionError, MemoryError) as error:
            raise Refused(type(error).__name__, place) from error
        except Exception as error:
            raise self.native_error(error, place) from error

    # Objects and errors.

    def native_error(self, error: Exception, place: Place) -> Raised:
        """An exception of Python itself as one of the evaluated code."""
        for kind in type(error).__mro__:
            cls = self.exceptions.get(kind.__name__)
            if cls is not None:
                value = self.new_instance(cls)
                value.attributes["args"] = error.args if len(error.args) < 2 else (str(error),)
                return Raised(value, place)
        raise Refused(f"an exception of type {type(error).__name__}", place)

    def error(self, type_name: str, message: str, place: Place) -> Raised:
        """An exception of the evaluated code, to be raised."""
        value = self.new_instance(self.exceptions[type_name])
        value.attributes["args"] = (message,)
        return Raised(value, place)

    def new_instance(self, cls: ClassValue, label: str = "") -> Instance:
        """An object without attributes."""
        name = label or cls.name
        count = self._serials.get(name, 0) + 1
        self._serials[name] = count
        self._serial += 1
        return Instance(cls, name if count == 1 else f"{name}#{count}", self._serial)

    def note_assignment(self, target: Instance, attribute: str, value: Value, place: Place) -> None:
        """Remember that evaluated code assigned an attribute."""
        target.places[attribute] = place
        if target.cls.kind is ClassKind.EXCEPTION:
            return
        traced = self.settings.labels_traced
        if traced is None or target.label in traced:
            self.events.append(Assignment(target, attribute, value, place))

    def module(self, dotted: str) -> ModuleValue | Value:
        """A module by its full name: of the tree, of the known standard library, substituted, or unknown."""
        return self.program.module(self, dotted)

    def materialise(self, described: Value) -> Value:
        """A caller's argument as a value of this run."""
        return construction.materialise(self, described)

    def compiled_module_statement(self, module: ModuleValue, node: ast.stmt) -> Callable[..., Value]:
        """A statement of a module, compiled."""
        return self.program.compiled(module.source.scope, node)
