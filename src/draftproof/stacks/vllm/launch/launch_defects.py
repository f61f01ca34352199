"""Known defects of vLLM's speculative configuration, each with the query that finds it in a source."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeGuard

from draftproof.errors import SourceError
from draftproof.stacks.classes import Function, find_class, find_method
from draftproof.stacks.defect import Defect, DefectFinding, DefectLink, Harm
from draftproof.stacks.fact_store import remember
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.launch.options import SPECULATIVE, SPECULATIVE_CLASS

REWRITE = "hf_config_override"
INIT = "__post_init__"
_EAGLE = ("eagle-", "eagle3")
_BLOCK_DRAFTERS = ("dflash", "dspark")
_DEPTH = "mtp_num_hidden_layers"
_NO_LAYERS = "vllm-no-layers-divides"
_TOP_ONLY = "vllm-depth-at-the-top-only"


@dataclass(frozen=True)
class _Present:
    """What the queries saw, in the order of the table."""

    readings: tuple[Reading[bool], ...]


def launch_defects(
    tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation
) -> tuple[DefectFinding, ...]:
    """What the queries saw in a source, and whether it matters to a checkpoint."""
    present = remember(
        tree,
        "vllm-launch-defects",
        lambda view: _Present(tuple(defect.query(view) for defect in LAUNCH_DEFECTS)),
        _Present,
    )
    readings = dict(zip(LAUNCH_DEFECTS, present.readings, strict=True))
    top_only = next(r.value for d, r in readings.items() if d.identifier == _TOP_ONLY)
    unseen = top_only is True and _has_nested_depth(checkpoint, situation)
    return tuple(
        DefectFinding(
            defect,
            reading,
            # A depth that the version does not look at cannot be divided by.
            defect.applies(checkpoint, situation) and not (unseen and defect.identifier == _NO_LAYERS),
        )
        for defect, reading in readings.items()
    )


def _method(tree: SourceTree, name: str) -> Function | Reading[bool]:
    wanted = f"{SPECULATIVE_CLASS}.{name} in {SPECULATIVE}"
    try:
        cls = find_class(tree, SPECULATIVE, SPECULATIVE_CLASS)
        method = find_method(tree, cls, name) if cls is not None else None
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    if method is None:
        return not_understood(f"looked for {wanted}", Place(SPECULATIVE, 1))
    return method.node


def _tests_for_a_part_of_a_name(tree: SourceTree) -> Reading[bool]:
    """`model_type in ("name")`: one pair of brackets is no tuple, so that parts of the name match."""
    method = _method(tree, REWRITE)
    if isinstance(method, Reading):
        return method
    for node in ast.walk(method):
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.ops[0], ast.In)
            and ast.unparse(node.left).endswith("model_type")
            and isinstance(node.comparators[0], ast.Constant)
            and isinstance(node.comparators[0].value, str)
        ):
            text = node.comparators[0].value
            sentence = f'model_type is looked for inside the text "{text}", so that any part of it matches'
            return found(True, sentence, Place(SPECULATIVE, node.lineno))
    return found(False, f"no `model_type in` a single text in {REWRITE}", Place(SPECULATIVE, method.lineno))


def _matches_a_part(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    name = checkpoint.model_type
    return bool(name) and name in "pangu_ultra_moe" and name != "pangu_ultra_moe"


def _sniffs_the_path(tree: SourceTree, sniffed: tuple[str, ...]) -> Reading[bool]:
    """Tests of the draft's path stand before the test of its model type in one chain."""
    method = _method(tree, INIT)
    if isinstance(method, Reading):
        return method
    sniffs = [
        node
        for node in ast.walk(method)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Constant)
        and node.left.value in sniffed
        and ".lower()" in ast.unparse(node.comparators[0])
    ]
    decides = [
        node.lineno
        for node in ast.walk(method)
        if isinstance(node, ast.Compare)
        and "MTPModelTypes" in ast.unparse(node.comparators[0])
        and "model_type" in ast.unparse(node.left)
    ]
    if not decides:
        return not_understood(
            f"looked for a test of the draft's model_type in {INIT}", Place(SPECULATIVE, method.lineno)
        )
    earlier = [node for node in sniffs if node.lineno < max(decides)]
    if not earlier:
        looked = f"no test of the draft's path for {' or '.join(sniffed)} in {INIT}"
        return found(False, looked, Place(SPECULATIVE, max(decides)))
    words = ", ".join(str(node.left.value) for node in earlier if isinstance(node.left, ast.Constant))
    sentence = f"the draft's path is searched for {words} before its model type decides"
    return found(True, sentence, *(Place(SPECULATIVE, node.lineno) for node in earlier))


def _sniffs_for_eagle(tree: SourceTree) -> Reading[bool]:
    return _sniffs_the_path(tree, _EAGLE)


def _sniffs_for_block_drafters(tree: SourceTree) -> Reading[bool]:
    return _sniffs_the_path(tree, _BLOCK_DRAFTERS)


def _is_called_eagle(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    return any(word in checkpoint.name.lower() for word in _EAGLE)


def _is_called_block_drafter(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    return any(word in checkpoint.name.lower() for word in _BLOCK_DRAFTERS)


def _divides_by_no_layers(tree: SourceTree) -> Reading[bool]:
    """`% n_predict` under a test that lets 0 through."""
    method = _method(tree, INIT)
    if isinstance(method, Reading):
        return method
    for node in ast.walk(method):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            divisor = ast.unparse(node.right)
            if divisor != "n_predict":
                continue
            place = Place(SPECULATIVE, node.lineno)
            if _guards_zero(method, divisor):
                return found(False, f"{divisor} is tested before it divides", place)
            return found(True, f"K % {divisor} with no test that {divisor} is more than 0", place)
    return found(False, f"{INIT} divides by no number of layers", Place(SPECULATIVE, method.lineno))


def _guards_zero(method: Function, name: str) -> bool:
    """A test that is false for 0: `if n`, `n and ...`, `n > 0`, `n >= 1`."""
    for node in ast.walk(method):
        tests = [node.test] if isinstance(node, ast.If) else []
        tests += node.values if isinstance(node, ast.BoolOp) else []
        if any(ast.unparse(test) in (name, f"{name} > 0", f"{name} >= 1", f"{name} != 0") for test in tests):
            return True
    return False


def _has_no_layers(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    text = checkpoint.config.get("text_config")
    sections = (checkpoint.config, text if isinstance(text, dict) else {})
    return any(section.get(_DEPTH) == 0 for section in sections)


def _looks_for_depth_at_the_top_only(tree: SourceTree) -> Reading[bool]:
    """`getattr(hf_config, DEPTH, None)` for this family, with no look into the text section."""
    method = _method(tree, REWRITE)
    if isinstance(method, Reading):
        return method
    blocks = [
        node
        for node in ast.walk(method)
        if isinstance(node, ast.If) and any(name in _texts(node.test) for name in ("qwen3_5", "qwen3_5_moe"))
    ]
    reads = [node for block in blocks for node in ast.walk(block) if _reads_depth(node)]
    if not reads:
        wanted = f"a read of {_DEPTH} under a test for qwen3_5 in {REWRITE}"
        return not_understood(f"looked for {wanted}", Place(SPECULATIVE, method.lineno))
    places = tuple(Place(SPECULATIVE, node.lineno) for node in reads)
    if any("text" in ast.unparse(node.args[0]) for node in reads):
        return found(False, "the text section is looked at too", *places)
    return found(True, "only the top level of the config is looked at", *places)


def _texts(node: ast.expr) -> set[str]:
    return {
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }


def _reads_depth(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "getattr"
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
        and node.args[1].value == _DEPTH
    )


def _has_nested_depth(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    text = checkpoint.config.get("text_config")
    nested = isinstance(text, dict) and _DEPTH in text
    return nested and _DEPTH not in checkpoint.config


LAUNCH_DEFECTS: tuple[Defect, ...] = (
    Defect(
        "vllm-part-of-a-model-type",
        DefectLink.LAUNCH,
        Harm.BREAKS,
        "A model type that is part of another one's name is taken for it",
        "none known",
        ("0.19.0", "0.26.0", "0.33.0"),
        f'`model_type in ("...")` without a comma in {REWRITE}',
        _tests_for_a_part_of_a_name,
        _matches_a_part,
        "the draft becomes a model of another family, and the start fails",
        "rename the model type with --hf-overrides",
    ),
    Defect(
        "vllm-path-decides-method",
        DefectLink.LAUNCH,
        Harm.BREAKS,
        "The word EAGLE in the checkpoint's path decides the method, whatever was asked for",
        "none known",
        ("0.19.0", "0.26.0", "0.33.0"),
        f"tests of the lower-cased path before the test of the model type in {INIT}",
        _sniffs_for_eagle,
        _is_called_eagle,
        "the head is loaded as an EAGLE drafter, and the start fails or nothing is accepted",
        "serve the checkpoint from a folder whose path does not have the word",
    ),
    Defect(
        "vllm-path-decides-block-drafter",
        DefectLink.LAUNCH,
        Harm.BREAKS,
        "The word DFlash or DSpark in the checkpoint's path decides the method, whatever was asked for",
        "none known",
        ("0.26.0", "0.33.0"),
        f"tests of the lower-cased path before the test of the model type in {INIT}",
        _sniffs_for_block_drafters,
        _is_called_block_drafter,
        "the head is loaded as another kind of drafter, and the start fails or nothing is accepted",
        "serve the checkpoint from a folder whose path does not have the word",
    ),
    Defect(
        _NO_LAYERS,
        DefectLink.LAUNCH,
        Harm.BREAKS,
        "A config that declares no layers of the head ends in a ZeroDivisionError",
        "none known",
        ("0.19.0", "0.26.0", "0.33.0"),
        f"`% n_predict` in {INIT} with no test for 0",
        _divides_by_no_layers,
        _has_no_layers,
        "the start ends with a ZeroDivisionError that names no cause",
        "serve without --speculative-config, or restore the head and its depth in the config",
    ),
    Defect(
        _TOP_ONLY,
        DefectLink.LAUNCH,
        Harm.WEAKENS,
        "The depth of the head is not seen where multimodal checkpoints keep it",
        "none known",
        ("0.19.0", "0.26.0"),
        f"a read of mtp_num_hidden_layers in {REWRITE} that looks at the top level only",
        _looks_for_depth_at_the_top_only,
        _has_nested_depth,
        "K is not checked against the depth; one layer is built from the text section all the same",
        "give num_speculative_tokens as a multiple of the depth",
    ),
)
