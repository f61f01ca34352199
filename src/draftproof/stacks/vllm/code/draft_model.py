"""The draft model, built and loaded by vLLM's own constructors and loaders, run by the evaluator.

Nothing is imported and no number is computed: tensors have a shape, a dtype and a name. One rank, one CUDA
device, default settings: how the head is divided over GPUs is a question of the launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftproof.stacks.evaluation import Evaluator, Instance, Named, Outcome, Settings
from draftproof.stacks.evaluation.outcomes import Condition, LogMessage, RaisedError
from draftproof.stacks.place import Place
from draftproof.stacks.served_checkpoint import StoredTensor
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.code.class_location import ClassSite
from draftproof.stacks.vllm.code.deep_calls import with_deep_calls
from draftproof.stacks.vllm.code.default_configuration import vllm_config
from draftproof.stacks.vllm.code.quantisation import Quantisation
from draftproof.stacks.vllm.code.surroundings import DRIVER, STAND_INS, surroundings, with_stand_ins

FIND = Named("vllm/model_executor/layers/quantization/__init__.py", "get_quantization_config")
CONFIGURE = Named("vllm/model_executor/model_loader/utils.py", "configure_quant_config")
_BOUND = Settings(
    paths=1,
    steps=3_000_000,
    depth=120,
    traced=frozenset(("copy_", "narrow", "register_parameter")),
    labels_traced=frozenset(),
    decide=lambda text, place: False,
)
"""A single way: what is not known of the surroundings is taken to be off, as without further options."""


@dataclass(frozen=True)
class DraftSubject:
    """What is built.

    Attributes:
        draft: the draft's class.
        target: the target's class, whose names the quantisation's lists are adapted to; None when unknown.
        config: the target's config.json.
        draft_config: the same after vLLM's override for the draft.
        quantisation: of the checkpoint; None for none.
        capability: of the GPU, since some layers look at it while they are built.
    """

    draft: ClassSite
    target: ClassSite | None
    config: Mapping[str, Any]
    draft_config: Mapping[str, Any]
    quantisation: Quantisation | None
    capability: tuple[int, int] = (10, 0)


@dataclass(frozen=True)
class BuiltParameter:
    """A parameter of the draft model.

    Attributes:
        name: qualified name.
        shape: of the whole.
        dtype: torch's name: "bfloat16".
        module: class of the layer that owns it.
        method: class of that layer's quantisation method; empty for a layer without.
        writes: names of the tensors that were copied into it, one for each copy.
        written: elements that were copied into it.
        is_filled: made with a value (ones, zeros), not as bare memory.
        place: where the stack makes it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    module: str
    method: str
    writes: tuple[str, ...]
    written: int
    is_filled: bool
    place: Place

    @property
    def elements(self) -> int:
        """Of the whole."""
        total = 1
        for side in self.shape:
            total *= side
        return total


@dataclass(frozen=True)
class DraftRun:
    """What came of building and loading.

    Attributes:
        parameters: in the model's order; empty when it was not built.
        error: the exception that ended it; None when it came to its end.
        errors: by tensor name, of tensors loaded one by one: name of the exception and its message.
        log: what was logged.
        conditions: what was assumed about the surroundings.
        places: tensor name -> where it was copied.
        problem: why nothing can be said; empty when it was followed to its end.
        problem_place: where.
    """

    parameters: tuple[BuiltParameter, ...]
    error: RaisedError | None
    errors: Mapping[str, tuple[str, str]]
    log: tuple[LogMessage, ...]
    conditions: tuple[Condition, ...]
    places: Mapping[str, tuple[Place, ...]]
    problem: str = ""
    problem_place: Place | None = None


def draft_evaluator(tree: SourceTree) -> Evaluator:
    """Runs vLLM's own code, with stand-ins for everything around a model."""
    return Evaluator(with_stand_ins(tree), surroundings(), _BOUND)


class DraftBuilder:
    """Builds and loads one draft model, as often as asked.

    Args:
        evaluator: of vLLM's source with its stand-ins.
        subject: what is built.
    """

    def __init__(self, evaluator: Evaluator, subject: DraftSubject) -> None:
        self._subject = subject
        self._evaluator = evaluator

    def load(self, tensors: Sequence[StoredTensor]) -> DraftRun:
        """Build the model and load all tensors in one go."""
        return _described(self._call("build_and_load", tensors))

    def load_singly(self, tensors: Sequence[StoredTensor]) -> DraftRun:
        """Build the model and load the tensors one by one, past every error."""
        return _described(self._call("build_and_load_singly", tensors))

    def _call(self, function: str, tensors: Sequence[StoredTensor]) -> Outcome:
        subject = self._subject
        quantisation = subject.quantisation
        stored = [(tensor.name, tensor.shape, tensor.dtype) for tensor in tensors]
        target = subject.target
        arguments = (
            stored,
            Named(subject.draft.file, subject.draft.name),
            None if target is None else Named(target.file, target.name),
            None if quantisation is None else quantisation.method,
            {} if quantisation is None else dict(quantisation.section),
            FIND,
            CONFIGURE,
            vllm_config(subject.config, subject.draft_config, subject.quantisation),
            subject.capability,
        )
        return with_deep_calls(lambda: self._evaluator.call(DRIVER, function, *arguments))[0]


def _described(outcome: Outcome) -> DraftRun:
    returned = outcome.returned
    problem = outcome.not_understood
    model = returned[0] if isinstance(returned, tuple) and isinstance(returned[0], Instance) else None
    errors = returned[1] if isinstance(returned, tuple) and isinstance(returned[1], dict) else {}
    return DraftRun(
        () if model is None else tuple(_parameters(model, _made_at(outcome))),
        _in_the_stack(outcome),
        {str(name): (str(error[0]), str(error[1])) for name, error in errors.items()},
        outcome.log,
        outcome.conditions,
        _copies(outcome),
        "" if problem is None else problem.reason,
        None if problem is None else problem.place,
    )


def _in_the_stack(outcome: Outcome) -> RaisedError | None:
    """The error with a place in vLLM's source: where it called what stands in for torch."""
    error = outcome.raised
    if error is None or not error.place.file.startswith(STAND_INS):
        return error
    calls = [
        call.place
        for name in ("copy_", "narrow")
        for call in outcome.calls(name)
        if not call.place.file.startswith(STAND_INS)
    ]
    return replace(error, place=calls[-1]) if calls else error


def _made_at(outcome: Outcome) -> dict[int, Place]:
    """Where a parameter was registered, by the serial number of its object."""
    return {
        call.positional[-1].serial: call.place
        for call in outcome.calls("register_parameter")
        if call.positional and isinstance(call.positional[-1], Instance)
    }


def _copies(outcome: Outcome) -> dict[str, tuple[Place, ...]]:
    places: dict[str, tuple[Place, ...]] = {}
    for call in outcome.calls("copy_"):
        source = call.positional[0] if call.positional else None
        storage = source.attributes.get("storage") if isinstance(source, Instance) else None
        if isinstance(storage, Instance):
            label = str(storage.attributes.get("label"))
            places[label] = (*places.get(label, ()), call.place)
    return places


def _parameters(model: Instance, made_at: Mapping[int, Place]) -> Iterator[BuiltParameter]:
    seen: set[int] = set()
    for owner_name, owner in _modules("", model, set()):
        for name, value in owner.attributes.items():
            if not isinstance(value, Instance) or not _is_a(value, "Parameter") or id(value) in seen:
                continue
            seen.add(id(value))
            storage = value.attributes["storage"]
            writes = [pair for pair in storage.attributes["writes"] if isinstance(pair, tuple)]
            place = made_at.get(value.serial) or owner.place_of(name) or Place(DRIVER, 1)
            method = owner.attributes.get("quant_method")
            yield BuiltParameter(
                f"{owner_name}.{name}" if owner_name else name,
                tuple(value.attributes["shape"]),
                str(value.attributes["dtype"].attributes["name"]),
                owner.cls.name,
                method.cls.name if isinstance(method, Instance) else "",
                tuple(str(label) for label, _ in writes),
                sum(count for _, count in writes if isinstance(count, int)),
                bool(storage.attributes["is_filled"]),
                place,
            )


def _modules(name: str, module: Instance, seen: set[int]) -> Iterator[tuple[str, Instance]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    yield name, module
    for child_name, child in module.attributes.items():
        if isinstance(child, Instance) and _is_a(child, "Module"):
            yield from _modules(f"{name}.{child_name}" if name else child_name, child, seen)


def _is_a(value: Instance, class_name: str) -> bool:
    return any(entry.name == class_name and "torch_parts" in entry.module for entry in value.cls.mro)
