"""Asks the version's own selectors: its functions are carried out for one GPU and for values in force."""

from __future__ import annotations

import ast
import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.errors import SourceError
from draftproof.hardware.gpu import Gpu
from draftproof.stacks.evaluation import (
    Evaluator,
    Given,
    Missing,
    Named,
    Outcome,
    RaisedError,
    Settings,
    Unknown,
)
from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.place import Place
from draftproof.stacks.sglang.backend.kernel_packages import Packages
from draftproof.stacks.sglang.launch.in_force import ValuesInForce
from draftproof.stacks.sglang.pretended_machine import answers, machine
from draftproof.stacks.source import SourceTree
from draftproof.stacks.syntax import find_function

DRIVER = "draftproof_stand_ins/sglang_kernels.py"
CONTEXT = "sglang/srt/runtime_context.py"
_FIELDS = "sglang/srt/arg_groups/fields"
_BAGS = ("exec", "spec", "schedule", "memory", "model", "lora", "serving", "device")
_RUNNER_CLASS = (
    "sglang.srt.layers.moe.moe_runner.runner.MoeRunner",
    "sglang.srt.layers.moe.moe_runner.MoeRunner",
    "sglang.srt.layers.moe.MoeRunner",
)
_VIEWS = ("resolved_view", "resolving_view")
_WAYS = 12
_NO_FEATURES = (
    "enable_lora",
    "record_nolora_graph",
    "enable_two_batch_overlap",
    "enable_single_batch_overlap",
    "disable_flashinfer_cutlass_moe_fp4_allgather",
    "enable_dp_attention",
)
"""Arguments that a selector looks at in passing; taken as not given."""


@dataclass(frozen=True)
class Answer:
    """What a selector says.

    Attributes:
        value: what it returned; None when it did not, or not always the same.
        raised: the error with which it refuses; None when it does not.
        lost: why nothing follows; empty when it was followed to its end.
        place: where it got lost.
        imports: modules that it asked for and that were taken to be there.
    """

    value: Any
    raised: RaisedError | None = None
    lost: str = ""
    place: Place | None = None
    imports: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """It returned one known value."""
        return self.raised is None and not self.lost


class Selectors:
    """The selectors of one version, for one GPU and one set of values; what was compiled is kept.

    Args:
        tree: the source.
        gpu: every GPU of the machine.
        values: server arguments in force.
        packages: what is installed beside the stack.
    """

    def __init__(self, tree: SourceTree, gpu: Gpu, values: ValuesInForce, packages: Packages) -> None:
        self.tree = tree
        self.gpu = gpu
        self.values = values
        self.packages = packages
        self.is_published = tree.has(CONTEXT)
        defaults: dict[str, Any] = dict.fromkeys(_NO_FEATURES, False)
        self._arguments = {**defaults, **values.values}
        self._evaluator = Evaluator(_with_driver(tree), self._substitutes(), self._settings())

    @property
    def arguments(self) -> list[Given]:
        """What the version's initialisers take: the server arguments, or nothing."""
        return [] if self.is_published else [self.server_args]

    @property
    def server_args(self) -> Given:
        """The server arguments as an object."""
        return Given("server_args", self._arguments, missing=Missing.UNKNOWN)

    def ask(self, name: str, *arguments: Any) -> Answer:
        """Carries out one of the driver's functions."""
        return self.call(DRIVER, name, *arguments)

    def call(self, file: str, name: str, *arguments: Any, **keywords: Any) -> Answer:
        """Carries out a function of the version."""
        return combined(self._evaluator.call(file, name, *arguments, **keywords))

    def asking(self, values: ValuesInForce) -> Selectors:
        """The same selectors asked with other values; what was compiled is shared."""
        return self.elsewhere(self.gpu, values)

    def elsewhere(self, gpu: Gpu, values: ValuesInForce) -> Selectors:
        """The same selectors for another GPU and other values; what was compiled is shared."""
        other = Selectors.__new__(Selectors)
        other.tree, other.gpu, other.packages = self.tree, gpu, self.packages
        other.is_published, other.values = self.is_published, values
        other._arguments = {**dict.fromkeys(_NO_FEATURES, False), **values.values}
        other._evaluator = self._evaluator.sharing(other._substitutes(), other._settings())
        return other

    def on(self, tree: SourceTree) -> Selectors:
        """Selectors of another tree, with the same values."""
        return Selectors(tree, self.gpu, self.values, self.packages)

    def with_substitutes(self, substitutes: Mapping[str, Any]) -> Evaluator:
        """An evaluator with further substitutes; it shares what was compiled."""
        return self._evaluator.sharing({**self._substitutes(), **substitutes})

    def _settings(self) -> Settings:
        return Settings(paths=_WAYS, environment=self.values.environment, decide=self._decide)

    def _decide(self, text: str, place: Place) -> bool | None:
        if text.startswith("import "):
            return self.packages.can_import(text.removeprefix("import "))
        if text.endswith(" is None") and text.startswith(("flashinfer.", "deep_gemm.")):
            return False
        if text.startswith("isinstance(model_config.hf_"):
            return False
        if text.startswith("callable(") and "deep_gemm" in text:
            return True
        return None

    def _substitutes(self) -> dict[str, Any]:
        substitutes = machine(self.gpu)
        has_flashinfer = self.packages.can_import("flashinfer")
        if has_flashinfer is False:
            substitutes["sglang.srt.utils.common.is_flashinfer_available"] = answers(False)
        leaf = Given("server_args", self._arguments, missing=Missing.UNKNOWN)
        groups = dict.fromkeys(_group_names(self.tree), leaf)
        bag = Given("published", {**self._arguments, **groups}, missing=Missing.UNKNOWN)
        context = "sglang.srt.runtime_context"
        substitutes |= {f"{context}.get_{name}": answers(bag) for name in _BAGS}
        parallel = Given("parallel", {"dcp_enabled": False}, missing=Missing.UNKNOWN)
        substitutes[f"{context}.get_parallel"] = answers(parallel)
        flags = Given("moe_flags", {}, missing=Missing.NONE)
        substitutes[f"{context}.get_flags"] = answers(Given("flags", {"moe": flags}, missing=Missing.UNKNOWN))
        substitutes["sglang.srt.server_args.get_global_server_args"] = answers(leaf)
        substitutes |= {name: Named(DRIVER, "Runner") for name in _RUNNER_CLASS}
        for module in ("model_override_base", "overrides"):
            substitutes |= {f"sglang.srt.arg_groups.{module}.{name}": _itself for name in _VIEWS}
        substitutes["msgspec.Struct"] = Named(DRIVER, "Struct")
        substitutes["torch.nn.Module"] = Named(DRIVER, "Module")
        return substitutes


def _itself(subject: Any, *rest: Any) -> Any:
    """A view on arguments that are in force already."""
    return subject


def combined(outcomes: Sequence[Outcome]) -> Answer:
    """One answer from all ways; where they differ, nothing follows."""
    lost = next((outcome.not_understood for outcome in outcomes if outcome.not_understood), None)
    if lost is not None:
        return Answer(None, lost=lost.reason, place=lost.place)
    first = outcomes[0]
    imports = tuple(
        dict.fromkeys(
            condition.text.removeprefix("import ")
            for outcome in outcomes
            for condition in outcome.conditions
            if condition.holds and condition.text.startswith("import ")
        )
    )
    if all(outcome.raised is not None for outcome in outcomes):
        return Answer(None, raised=first.raised, imports=imports)
    returned = [outcome for outcome in outcomes if outcome.raised is None]
    differs = len(returned) < len(outcomes) or any(
        not _same(outcome.returned, returned[0].returned) for outcome in returned
    )
    if differs:
        conditions = [c for c in outcomes[-1].conditions if not c.text.startswith("import ")]
        words = " and ".join(map(str, conditions[-2:])) or "values that are not known"
        subject = "it" if len(returned) == len(outcomes) else "whether it refuses"
        place = conditions[-1].place if conditions else None
        return Answer(None, lost=f"{subject} depends on {words}", place=place, imports=imports)
    if _has_unknown(first.returned):
        return Answer(None, lost=f"its result is not known: {first.returned!r}", imports=imports)
    return Answer(first.returned, imports=imports)


def choosing_places(tree: SourceTree, file: str, function: str, chosen: str) -> tuple[Place, ...]:
    """The line of a function that writes what was chosen, then the function's own; empty without one.

    Args:
        tree: the source.
        file: of the function.
        function: its dotted name.
        chosen: a word ("marlin"), the name of an enum's member (MARLIN) or of a function.
    """
    try:
        definition = find_function(tree, file, function)
    except SourceError:
        return ()
    if definition is None:
        return ()
    own = definition.place
    member = chosen.upper()
    for node in ast.walk(definition.node):
        written = (
            (isinstance(node, ast.Constant) and node.value == chosen)
            or (isinstance(node, ast.Attribute) and node.attr in (member, chosen))
            or (isinstance(node, ast.Name) and node.id == chosen)
        )
        if written and isinstance(node, ast.expr):
            return (Place(file, node.lineno), own)
    return (own,)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        return isinstance(one, Unknown) and isinstance(other, Unknown) and one.name == other.name
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _has_unknown(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_unknown, value))
    return isinstance(value, Unknown)


def _with_driver(tree: SourceTree) -> SourceTree:
    folder = importlib.resources.files("draftproof.stacks.stand_ins")
    text = (folder / DRIVER.rpartition("/")[2]).read_text("utf-8")
    return OverlaidTree(tree, {DRIVER: text, "draftproof_stand_ins/__init__.py": ""})


def _group_names(tree: SourceTree) -> tuple[str, ...]:
    """Names below a published namespace: "kernel" of `get_exec().kernel`, as the fields' classes say."""
    names = []
    for file in tree.files(_FIELDS):
        try:
            module = tree.syntax(file)
        except SourceError:
            continue
        for node in ast.walk(module):
            is_path = isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "_NS_PATH" for target in node.targets
            )
            if is_path and isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                _, _, name = str(node.value.value).partition(".")
                names.append(name)
    return tuple(dict.fromkeys(name for name in names if name))
