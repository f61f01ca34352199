"""Link 3 for draftproof's own engine: its head's class, and what its loader does with each tensor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from draftproof.architecture.spec import ModelSpec, MoeSpec
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import (
    COMPANION_LEAVES,
    FUSED_EXPERT_ENDS,
    WEIGHT_LEAVES,
    ModulePrecision,
    Precision,
    decide,
    group_by_module,
)
from draftproof.stacks.classes import find_class, is_stub
from draftproof.stacks.code_facts import Fate, HeadSupport, Noticing, TensorLanding, UnwrittenParameter
from draftproof.stacks.native.asked_names import AskedKind, AskedName, FollowerFacts, asked_names
from draftproof.stacks.native.own_source import (
    ACCOUNT,
    ARCHITECTURES,
    BUILD,
    HEAD,
    LOADING,
    STORED_LINEAR,
    calls_of,
    constant_places,
    dictionary_keys,
    function_place,
    raises,
    skipped_leaves,
)
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint, StoredTensor
from draftproof.stacks.source import SourceTree

HEAD_CLASS, BUILDER, DRAFTER = "MtpHead", "_Builder", "NextnDrafter"
_METHODS = ("forward", "last", "logits")
_READERS = {"read_matrix": 1, "load_linear": 1}
_TAKERS = frozenset(("take",))
_EXPERT = re.compile(r"\.experts\.\d+\.")
_LEAVES = frozenset((*WEIGHT_LEAVES, *COMPANION_LEAVES, "bias"))


def head_support(tree: SourceTree, checkpoint: ServedCheckpoint) -> HeadSupport:
    """Everything that link 3 needs, read from the engine's own source.

    Raises:
        SourceError: one of its files cannot be read or parsed.
    """
    target = _target(tree, checkpoint.architecture)
    landings, unwritten = _followed(tree, checkpoint)
    return HeadSupport(
        target=target,
        draft_architecture=_draft_architecture(tree, target),
        draft_class=_draft_class(tree),
        registration=_registration(tree),
        implementation=_implementation(tree),
        head_precision=found(
            "the precision of the tensors on disk", "precision is read from the tensors, module by module"
        ),
        landings=landings,
        unwritten=unwritten,
        noticing=_noticing(tree),
        defects=(),
    )


def _target(tree: SourceTree, architecture: str) -> Reading[str]:
    keys = dictionary_keys(tree, ARCHITECTURES, "ARCHITECTURES")
    if keys is None:
        return not_understood(f"looked for a dictionary ARCHITECTURES in {ARCHITECTURES}")
    if architecture in keys:
        return found(architecture, f"{architecture} is planned and run", keys[architecture])
    return absent(f"{architecture or 'the architecture'} is none of {', '.join(keys)}", *keys.values())


def _draft_architecture(tree: SourceTree, target: Reading[str]) -> Reading[str]:
    builder = find_class(tree, LOADING, BUILDER)
    method = builder.method("head") if builder else None
    if method is None or not isinstance(method.returns, ast.Name):
        return not_understood(
            f"looked for a method head of {BUILDER} in {LOADING} with a class as its result"
        )
    place = Place(LOADING, method.lineno)
    if not target.is_found:
        return absent("an architecture that is not run has no head", place)
    return found(method.returns.id, f"the loader builds {method.returns.id} for every such model", place)


def _draft_class(tree: SourceTree) -> Reading[str]:
    cls = find_class(tree, LOADING, HEAD_CLASS)
    if cls is None:
        return absent(f"{LOADING} knows no class {HEAD_CLASS}")
    return found(HEAD_CLASS, f"class {HEAD_CLASS}", cls.place)


def _registration(tree: SourceTree) -> Reading[str]:
    """The engine has no table of classes: the head is reached when the drafter is made from it."""
    drafters = calls_of(tree, BUILD, DRAFTER)
    builders = calls_of(tree, LOADING, "head")
    if drafters and builders:
        return found(HEAD_CLASS, f"loaded by the builder and given to {DRAFTER}", *drafters, *builders)
    missing = DRAFTER if not drafters else "the builder's head"
    return absent(f"nothing in {BUILD} or {LOADING} calls {missing}", *drafters, *builders)


def _implementation(tree: SourceTree) -> Reading[str]:
    cls = find_class(tree, LOADING, HEAD_CLASS)
    if cls is None:
        return absent(f"there is no class {HEAD_CLASS}")
    for name in _METHODS:
        method = cls.method(name)
        if method is None:
            return absent(f"{HEAD_CLASS} has no method {name}", cls.place)
        if is_stub(method):
            return absent(f"{HEAD_CLASS}.{name} does nothing", Place(cls.file, method.lineno))
    words = constant_places(tree, cls.file, ("embedding_norm", "hidden_norm"))
    if len(words) < 2:
        return not_understood(f"looked for embedding_norm and hidden_norm in {HEAD}", cls.place)
    return found(
        HEAD_CLASS,
        f"{', '.join(_METHODS)} compute, from the token's embedding and the target's hidden state",
        cls.place,
    )


def _followed(
    tree: SourceTree, checkpoint: ServedCheckpoint
) -> tuple[Reading[tuple[TensorLanding, ...]], Reading[tuple[UnwrittenParameter, ...]]]:
    if checkpoint.spec is None or checkpoint.spec.mtp is None:
        reason = "the config declares no head of a known shape"
        return not_understood(reason), not_understood(reason)
    names = asked_names(tree, LOADING, BUILDER, "head", _facts(checkpoint.spec, checkpoint.head))
    if not names:
        reason = f"looked for the names that {BUILDER}.head in {LOADING} asks for"
        return not_understood(reason), not_understood(reason)
    landings = tuple(_Landings(tree, names, checkpoint.head).all())
    missing = tuple(
        UnwrittenParameter(_whole_name(name), name.place)
        for name in names
        if not any(_asks(name, tensor) for tensor in checkpoint.head)
    )
    places = tuple(name.place for name in names)
    sentence = f"each of the {len(names)} names that the loader asks for is there"
    return found(landings, "followed", *places), found(missing, sentence, *places)


def _facts(spec: ModelSpec, head: Mapping[str, StoredTensor]) -> FollowerFacts:
    layer = spec.mtp.layer if spec.mtp else spec.layers[-1]
    shared = isinstance(layer.mlp, MoeSpec) and bool(layer.mlp.shared_intermediate_size)
    return FollowerFacts(
        types=frozenset((type(layer.mixer).__name__, type(layer.mlp).__name__)),
        truths={"shared_intermediate_size": shared},
        has=lambda pattern: any(pattern.fullmatch(name) for name in head),
        readers=_READERS,
        takers=_TAKERS,
    )


def _whole_name(name: AskedName) -> str:
    return f"{name.shown}.weight" if name.kind is AskedKind.MODULE else name.shown


def _asks(name: AskedName, tensor: str) -> bool:
    """Whether the loader's name is for this tensor; of a module's tensors, the weight."""
    if name.kind is AskedKind.TENSOR:
        return name.pattern.fullmatch(tensor) is not None
    module, _, leaf = tensor.rpartition(".")
    return leaf in WEIGHT_LEAVES and name.pattern.fullmatch(module) is not None


class _Landings:
    """What becomes of every tensor of the head."""

    def __init__(
        self, tree: SourceTree, names: Sequence[AskedName], head: Mapping[str, StoredTensor]
    ) -> None:
        self._names = names
        self._head = head
        self._leaves = constant_places(tree, STORED_LINEAR, tuple(_LEAVES))
        self._skipped = skipped_leaves(tree, STORED_LINEAR)
        self._refused = function_place(tree, STORED_LINEAR, "_not_loaded")
        self._left_over = raises(tree, ACCOUNT, "TensorAccount", "close")

    def all(self) -> Iterator[TensorLanding]:
        """One landing for tensors that differ in an expert's number only, sorted by name."""
        stored = {
            module: decide(module, leaves)
            for module, leaves in group_by_module(map(_entry, self._head.values())).items()
        }
        counts: dict[str, list[str]] = {}
        for name in sorted(self._head):
            counts.setdefault(_EXPERT.sub(".experts.{e}.", name), []).append(name)
        for shown, members in counts.items():
            yield self._landing(shown, members, stored)

    def _landing(
        self, shown: str, members: Sequence[str], stored: Mapping[str, ModulePrecision]
    ) -> TensorLanding:
        name = members[0]
        module, _, leaf = name.rpartition(".")
        fused = name.endswith(FUSED_EXPERT_ENDS)
        found_module = stored.get(name if fused else module)
        precision = found_module.precision if found_module else Precision.UNKNOWN
        value = "" if precision is Precision.UNKNOWN else precision.value

        def landing(fate: Fate, sentence: str, *places: Place) -> TensorLanding:
            parameter = shown if fused else shown.rpartition(".")[0]
            parameter = parameter if fate is Fate.LANDS else ""
            return TensorLanding(
                shown, len(members), fate, parameter, "", value, value, tuple(places), sentence
            )

        whole = self._asked(AskedKind.TENSOR, name)
        if whole is not None:
            return landing(Fate.LANDS, "is taken", whole.place)
        asked = self._asked(AskedKind.MODULE, module)
        if asked is None or leaf not in _LEAVES:
            return landing(Fate.REFUSED, "no part of the loader asks for it", *self._left_over)
        if leaf in self._skipped:
            return landing(Fate.LEFT_OUT, "is left out on purpose, and counted", self._skipped[leaf])
        if found_module is not None and not precision.is_loaded:
            places = (self._refused,) if self._refused else ()
            return landing(Fate.REFUSED, f"{precision.value} is a precision that is not loaded", *places)
        if leaf in self._leaves:
            return landing(Fate.LANDS, "is read with its module", asked.place, self._leaves[leaf])
        return landing(Fate.REFUSED, f"the loader knows no part {leaf} of a matrix", *self._left_over)

    def _asked(self, kind: AskedKind, name: str) -> AskedName | None:
        return next(
            (each for each in self._names if each.kind is kind and each.pattern.fullmatch(name)), None
        )


def _entry(tensor: StoredTensor) -> TensorEntry:
    return TensorEntry(tensor.name, tensor.dtype, tensor.shape, "", 0, 0)


def _noticing(tree: SourceTree) -> Reading[Noticing]:
    missing = raises(tree, ACCOUNT, "TensorAccount", "entry")
    left = raises(tree, ACCOUNT, "TensorAccount", "close")
    asked = calls_of(tree, LOADING, "close")
    if missing and left and asked:
        sentence = "a tensor that is missing or left over stops the start, with its name"
        return found(Noticing.ERROR, sentence, *missing, *left, *asked)
    if find_class(tree, ACCOUNT, "TensorAccount") is None:
        return not_understood(f"looked for a class TensorAccount in {ACCOUNT}")
    return found(Noticing.NOTHING, "the account of tensors does not stop the start", *missing, *left, *asked)
