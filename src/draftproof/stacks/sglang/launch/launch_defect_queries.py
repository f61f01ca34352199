"""What the known defects of launching ask of SGLang's source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from draftproof.errors import SourceError
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.sglang.launch.options import SERVER_ARGS
from draftproof.stacks.source import SourceTree

GROUPS = "sglang/srt/arg_groups"
BUDGETS = ("sglang/srt/mem_cache", "sglang/srt/model_executor")
Node = tuple[str, ast.AST]
_HAS_BUFFER = "mamba_extra_buffer_of"
_STATE_PASS = "_mamba_radix_cache_resolution"
_COLLECT = "collect_model_override_declarations"
_STRATEGY = "mamba_scheduler_strategy"
_MODEL_RULES = "_handle_model_specific_adjustments"


def raw_comparison(tree: SourceTree) -> Reading[bool]:
    """Rules that switch all layers of a head on for EAGLE, but not for its alias."""
    rules = [
        (file, node)
        for file, node in _nodes(tree, "enable_multi_layer_eagle")
        if isinstance(node, ast.If)
        and "speculative_algorithm" in ast.unparse(node.test)
        and _sets(node.body, "enable_multi_layer_eagle")
    ]
    if not rules:
        return not_understood("looked for rules that set enable_multi_layer_eagle by the algorithm's name")
    raw = [(file, node) for file, node in rules if "NEXTN" not in ast.unparse(node.test)]
    if raw:
        return found(True, f"{len(raw)} rules compare the algorithm with EAGLE alone", *_places(raw))
    return found(False, "the rules know both names", *_places(rules))


def partial_triple(tree: SourceTree) -> Reading[bool]:
    """An assertion without text that nobody gave branches or draft tokens."""
    fields = ("speculative_eagle_topk", "speculative_num_draft_tokens")
    asserts = [
        (file, node)
        for file, node in _nodes(tree, fields[0])
        if isinstance(node, ast.Assert)
        and all(f"{field} is None" in ast.unparse(node.test) for field in fields)
    ]
    return _without_text(asserts, "that branches and draft tokens are not given without steps")


def bare_track_interval(tree: SourceTree) -> Reading[bool]:
    """An assertion without text about the track interval and the draft tokens."""
    asserts = [
        (file, node)
        for file, node in _nodes(tree, "mamba_track_interval")
        if isinstance(node, ast.Assert)
        and all(word in ast.unparse(node.test) for word in ("mamba_track_interval", "draft_tokens"))
    ]
    return _without_text(asserts, "that the track interval covers the draft tokens")


def silent_overlap_loss(tree: SourceTree) -> Reading[bool]:
    """A function that decides for no_buffer and against the overlap schedule, and logs nothing."""
    functions = [
        (file, node)
        for file, node in _nodes(tree, "no_buffer")
        if isinstance(node, ast.FunctionDef)
        and "no_buffer" in ast.unparse(node)
        and _sets(node.body, "disable_overlap_schedule")
    ]
    if not functions:
        return not_understood("looked for a function that decides for no_buffer and the overlap schedule")
    silent = [(file, node) for file, node in functions if "logger." not in ast.unparse(node)]
    if silent:
        return found(True, "the overlap schedule is switched off without a word", *_places(silent))
    return found(False, "what is switched off is logged", *_places(functions))


def unquant_forgotten(tree: SourceTree) -> Reading[bool]:
    """`unquant` for the draft becomes None and leaves no mark."""
    field = "speculative_draft_model_quantization"
    branches = [
        (file, node)
        for file, node in _nodes(tree, "unquant")
        if isinstance(node, ast.If)
        and field in ast.unparse(node.test)
        and "unquant" in ast.unparse(node.test)
    ]
    if not branches:
        return not_understood(f"looked for a branch for {field} 'unquant'")
    forgotten = [(file, node) for file, node in branches if isinstance(node, ast.If) and len(node.body) == 1]
    if forgotten:
        return found(True, "unquant becomes None, as if nothing had been given", *_places(forgotten))
    return found(False, "unquant leaves a mark", *_places(branches))


def admission_cut(tree: SourceTree) -> Reading[bool]:
    """A limit of running requests that speculation sets."""
    cuts = [
        (file, node)
        for file, node in _nodes(tree, "max_running_requests")
        if isinstance(node, ast.If)
        and ast.unparse(node.test).endswith(".max_running_requests is None")
        and _sets(node.body, "max_running_requests")
    ]
    if cuts:
        return found(True, "max_running_requests is set where it is None", *_places(cuts))
    handlers = [
        (file, node)
        for file, node in _nodes(tree, "speculative_algorithm")
        if isinstance(node, ast.FunctionDef) and node.name.endswith("handle_speculative_decoding")
    ]
    if not handlers:
        return not_understood("looked for the handling of speculation, and for max_running_requests in it")
    return found(False, "the handling of speculation leaves max_running_requests alone", *_places(handlers))


def adaptive_budget(tree: SourceTree) -> Reading[bool]:
    """A budget of recurrent states by one number of drafts, and an allocation by another."""
    largest, current = "max_speculative_num_draft_tokens", "speculative_num_draft_tokens"
    if not tree.containing("sglang/srt", "speculative_adaptive"):
        return found(False, "this version has no adaptive speculation")
    budgets: list[Node] = []
    for folder in BUDGETS:
        for file in tree.containing(folder, largest):
            for node in _walk(tree, file):
                if (
                    isinstance(node, ast.BinOp)
                    and isinstance(node.op, ast.Mult)
                    and _last(node.right) == current
                ):
                    budgets.append((file, node))
    if budgets:
        return found(True, f"budgets multiply by {current}, allocations take {largest}()", *_places(budgets))
    if any(tree.containing(folder, largest) for folder in BUDGETS):
        return found(False, f"no budget multiplies by {current}")
    return not_understood(f"looked for {largest} in {' and '.join(BUDGETS)}")


def attention_before_branches(tree: SourceTree) -> Reading[bool]:
    """The default attention backend of SM100 depends on whether branches were given."""
    choices = [
        (file, node)
        for file, node in _nodes(tree, "trtllm_mha")
        if isinstance(node, ast.If)
        and "is_sm100" in ast.unparse(node.test)
        and "is_no_spec_infer_or_topk_one" in ast.unparse(node.test)
        and any("trtllm_mha" in ast.unparse(statement) for statement in node.body)
    ]
    if not choices:
        return not_understood("looked for the choice of trtllm_mha on SM100 by the number of branches")
    early = [(file, node) for file, node in choices if "speculative_eagle_topk" in ast.unparse(_test(node))]
    if early:
        return found(True, "the backend of SM100 depends on speculative_eagle_topk as given", *_places(early))
    return found(False, "the backend of SM100 does not look at speculative_eagle_topk", *_places(choices))


def attention_before_states(tree: SourceTree) -> Reading[bool]:
    """A model's rule asks which state cache is in force before the pass that decides it has run."""
    asking = [
        (file, node)
        for file, node in _nodes(tree, _HAS_BUFFER)
        if isinstance(node, ast.If)
        and all(word in ast.unparse(node.test) for word in ("trtllm_mha", _HAS_BUFFER))
    ]
    if not asking:
        return _states_by_default(tree)
    for file, node in _nodes(tree, _COLLECT):
        if isinstance(node, ast.FunctionDef):
            collects = [at for at, part in enumerate(node.body) if f"{_COLLECT}(" in ast.unparse(part)]
            if collects:
                # A call inside of a branch is for some models only.
                before = [part for part in node.body[: collects[0]] if isinstance(part, ast.Expr)]
                deciding = _deciding_states(tree, file)
                if any(name in ast.unparse(part) for part in before for name in deciding):
                    return found(
                        False, "the state cache is decided before rules ask for it", *_places(asking)
                    )
                late: list[Node] = [(file, node.body[collects[0]])]
                words = f"rules that ask {_HAS_BUFFER} are carried out before {_STATE_PASS}"
                return found(True, words, *_places(asking), *_places(late))
    return not_understood(f"looked for a function that calls {_COLLECT}", *_places(asking))


def _deciding_states(tree: SourceTree, file: str) -> tuple[str, ...]:
    """The pass that decides the state cache, and the functions of a file that run it whatever the model."""
    functions = [node for node in _walk(tree, file) if isinstance(node, ast.FunctionDef)]
    running = [
        node.name
        for node in functions
        if any(isinstance(part, ast.Expr) and _STATE_PASS in ast.unparse(part.value) for part in node.body)
        and not any(f"{_COLLECT}(" in ast.unparse(part) for part in node.body)
    ]
    return (_STATE_PASS, *running)


def _states_by_default(tree: SourceTree) -> Reading[bool]:
    """Older versions fill in the state cache with the other defaults, before anything about the model."""
    looked_for = f"looked for a rule that chooses trtllm_mha by {_HAS_BUFFER}, or a default of {_STRATEGY}"
    methods = [(file, node) for file, node in _nodes(tree, _STRATEGY) if isinstance(node, ast.FunctionDef)]
    start = next((node for _, node in methods if _MODEL_RULES in _called(node)), None)
    filling = [(file, node) for file, node in methods if f"self.{_STRATEGY} == 'auto'" in ast.unparse(node)]
    if start is None or not filling:
        return not_understood(looked_for)
    steps, filler = _called(start), filling[0][1].name
    if filler not in steps:
        return not_understood(looked_for, *_places(filling))
    is_late = steps.index(filler) > steps.index(_MODEL_RULES)
    words = "after the rules of models" if is_late else "with the other defaults, before the rules of models"
    return found(is_late, f"the state cache is filled in {words}", *_places(filling))


def _called(function: ast.FunctionDef) -> list[str]:
    """The last names of what a function calls as statements of its own, in order."""
    calls = [part.value for part in function.body if isinstance(part, ast.Expr)]
    return [_last(call.func) for call in calls if isinstance(call, ast.Call)]


def _test(node: ast.AST) -> ast.expr:
    return node.test if isinstance(node, ast.If) else ast.Constant(None)


def _without_text(asserts: Sequence[Node], about: str) -> Reading[bool]:
    if not asserts:
        return not_understood(f"looked for an assertion {about}")
    bare = [(file, node) for file, node in asserts if isinstance(node, ast.Assert) and node.msg is None]
    if bare:
        return found(True, f"an assertion without text says {about}", *_places(bare))
    return found(False, f"the assertion has a text that says {about}", *_places(asserts))


def _nodes(tree: SourceTree, word: str) -> Iterator[Node]:
    """Every node of the files that handle arguments and hold a word."""
    own = (SERVER_ARGS,) if tree.has(SERVER_ARGS) and word in tree.text(SERVER_ARGS) else ()
    for file in (*own, *tree.containing(GROUPS, word)):
        for node in _walk(tree, file):
            yield file, node


def _walk(tree: SourceTree, file: str) -> Iterator[ast.AST]:
    try:
        yield from ast.walk(tree.syntax(file))
    except SourceError:
        return


def _places(nodes: Sequence[Node]) -> tuple[Place, ...]:
    return tuple(Place(file, getattr(node, "lineno", 1)) for file, node in nodes)


def _sets(body: list[ast.stmt], field: str) -> bool:
    """A block assigns a field: as an attribute, as a key, or as an argument by name."""
    return any(_assigns(node, field) for statement in body for node in ast.walk(statement))


def _assigns(node: ast.AST, field: str) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg == field
    if isinstance(node, ast.Assign):
        return any(_names(target, field) for target in node.targets)
    return isinstance(node, ast.Dict) and any(_is_word(key, field) for key in node.keys)


def _names(target: ast.expr, field: str) -> bool:
    if isinstance(target, ast.Attribute):
        return target.attr == field
    return isinstance(target, ast.Subscript) and _is_word(target.slice, field)


def _is_word(node: ast.expr | None, word: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == word


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""
