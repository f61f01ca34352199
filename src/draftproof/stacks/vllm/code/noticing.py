"""What vLLM does about parameters that no tensor of the checkpoint was written to."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from draftproof.errors import SourceError
from draftproof.stacks.code_facts import Noticing
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.code.class_body import find_method, lineage
from draftproof.stacks.vllm.code.class_location import ClassSite
from draftproof.stacks.vllm.code.source_search import function_node, place_of, strings

LOADER = "vllm/model_executor/model_loader/default_loader.py"
_LOAD = "DefaultModelLoader.load_weights"
_TRACK = "DefaultModelLoader.track_weights_loading"
_SAYS_MISSING = ("missing", "not in the checkpoint", "from checkpoint", "not initialized")


@dataclass(frozen=True)
class Tracking:
    """The loader's own check for parameters that stayed unwritten.

    Attributes:
        only_unquantised: it runs only for models without a quantisation, unless asked for.
        exempts_linears: modules with a `quant_method` (linears, experts, embeddings) are not looked at.
        place: of the condition.
        exemption: of the exemption; None when there is none.
    """

    only_unquantised: bool
    exempts_linears: bool
    place: Place
    exemption: Place | None


def tracking(tree: SourceTree) -> Reading[Tracking]:
    """The check that the loader makes after every load."""
    wanted = f"`weights_to_load - loaded_weights` under a condition on `quantization`, in {LOADER}"
    try:
        load = function_node(tree, LOADER, _LOAD)
        track = function_node(tree, LOADER, _TRACK)
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    if load is None:
        return not_understood(f"looked for {wanted}; there is no {_LOAD}", Place(LOADER, 1))
    check = _difference(track or load)
    if check is None:
        return not_understood(f"looked for {wanted}", place_of(LOADER, load))
    condition = _asks_for_no_quantisation(load)
    exemption = None if track is None else _exemption(track)
    value = Tracking(
        condition is not None,
        exemption is not None,
        place_of(LOADER, condition if condition is not None else check),
        None if exemption is None else place_of(LOADER, exemption),
    )
    when = "only when there is no quantisation" if condition is not None else "always"
    return found(value, f"unwritten parameters are looked for {when}", value.place)


def completeness_check(tree: SourceTree, site: ClassSite) -> Reading[Place]:
    """Where a draft class itself refuses to load when weights of the head are missing.

    It is an error raised in load_weights, or in a method or function of the same file that it calls, whose
    message says that something is missing.
    """
    try:
        classes = lineage(tree, site)
        method = find_method(tree, classes, "load_weights")
        if method is None:
            return not_understood(f"looked for load_weights of {site.name}", site.place)
        helpers = _functions_of(tree, method.owner.file)
    except SourceError as error:
        return not_understood(f"looked for load_weights of {site.name}: {error}", site.place)
    for function in (method.node, *_called(method.node, helpers)):
        refusal = _missing_refusal(function)
        if refusal is not None:
            place = place_of(method.owner.file, refusal)
            return found(place, f"{method.owner.name} refuses a checkpoint with missing weights", place)
    sentence = f"{method.owner.name}.load_weights raises nothing about missing weights"
    return Reading(None, sentence, (method.place,))


def noticing(tree: SourceTree, site: ClassSite, is_quantised: bool) -> Reading[Noticing]:
    """Whether the start would stop when parameters of the head stay unwritten.

    Args:
        tree: the source.
        site: the draft class.
        is_quantised: the checkpoint has a quantisation that vLLM recognises.
    """
    own = completeness_check(tree, site)
    if own.value is not None:
        return found(Noticing.ERROR, own.sentence, *own.places)
    rule = tracking(tree)
    if not own.understood or rule.value is None:
        return not_understood("; ".join((own.sentence, rule.sentence)), *own.places, *rule.places)
    places = (rule.value.place, *own.places)
    if is_quantised and rule.value.only_unquantised:
        sentence = "the loader looks for unwritten parameters only in models without quantisation"
        return found(Noticing.NOTHING, f"{sentence}, and {own.sentence}", *places)
    if rule.value.exempts_linears:
        exempt = (rule.value.exemption,) if rule.value.exemption else ()
        sentence = "the loader's check leaves out every linear, expert and embedding; only norms are noticed"
        return found(Noticing.NOTHING, f"{sentence}; {own.sentence}", *exempt, *places)
    return found(Noticing.ERROR, "the loader refuses a model with unwritten parameters", *places)


def _difference(function: ast.FunctionDef) -> ast.AST | None:
    """`weights_to_load - loaded_weights`."""
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            names = [side.id for side in (node.left, node.right) if isinstance(side, ast.Name)]
            if names == ["weights_to_load", "loaded_weights"]:
                return node
    return None


def _asks_for_no_quantisation(function: ast.FunctionDef) -> ast.AST | None:
    """`....quantization is None`, where it decides about the check."""
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is):
            left = node.left
            if isinstance(left, ast.Attribute) and left.attr == "quantization":
                return node
    return None


def _exemption(function: ast.FunctionDef) -> ast.AST | None:
    """`loaded_weights.add(...)`: counting parameters as loaded that were not."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add":
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "loaded_weights":
                return node
    return None


def _functions_of(tree: SourceTree, file: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree.syntax(file)) if isinstance(node, ast.FunctionDef)}


def _called(function: ast.FunctionDef, helpers: dict[str, ast.FunctionDef]) -> list[ast.FunctionDef]:
    """Functions of the same file that a method calls; never load_weights of another class."""
    called = []
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            target = node.func
            name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
            if name in helpers and name != function.name:
                called.append(helpers[name])
    return called


def _missing_refusal(function: ast.FunctionDef) -> ast.Raise | None:
    for node in ast.walk(function):
        if isinstance(node, ast.Raise) and node.exc is not None:
            text = " ".join(strings(node.exc)).lower()
            if any(words in text for words in _SAYS_MISSING):
                return node
    return None
