"""The draft's config: SGLang's own rules, carried out on the checkpoint's config."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from draftproof.errors import SourceError
from draftproof.stacks.classes import find_class, find_method, statements_of
from draftproof.stacks.evaluation.evaluator import Evaluator
from draftproof.stacks.evaluation.settings import Named
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.sglang.code.surroundings import DRIVER
from draftproof.stacks.source import SourceTree

MODEL_CONFIG = "sglang/srt/configs/model_config.py"
CONFIGS = "sglang/srt/configs"
_RULE = "_config_draft_model"


def draft_architecture(
    tree: SourceTree, evaluator: Evaluator, config: Mapping[str, Any], architecture: str
) -> Reading[str]:
    """What SGLang makes of a checkpoint's architecture when it loads the checkpoint as a draft.

    Absent when it stays the same: the whole target is then loaded a second time as its own draft.

    Args:
        tree: SGLang's source.
        evaluator: of that source with the stand-ins.
        config: content of config.json.
        architecture: the first one that it names.
    """
    looked = f"looked for ModelConfig.{_RULE} in {MODEL_CONFIG} and carried it out for {architecture}"
    try:
        rule = _rule_place(tree)
    except SourceError as error:
        return not_understood(f"{looked}; {error.message}")
    if rule is None:
        return not_understood(f"{looked}; there is no such method", Place(MODEL_CONFIG, 1))
    outcomes = evaluator.call(DRIVER, "draft_architecture", *config_subject(tree, config))
    names = set()
    for outcome in outcomes:
        if outcome.not_understood is not None:
            return not_understood(f"{looked}; {outcome.not_understood}", rule)
        if outcome.raised is not None:
            return not_understood(f"{looked}; it raised {outcome.raised} at {outcome.raised.place}", rule)
        if not isinstance(outcome.returned, str):
            return not_understood(f"{looked}; its result is not known", rule)
        names.add(outcome.returned)
    if len(names) != 1:
        return not_understood(f"{looked}; it gives {' or '.join(sorted(names))}", rule)
    name = names.pop()
    if name == architecture:
        return absent(
            f"{_RULE} leaves {architecture} as it is: the whole target would be loaded as its own draft",
            rule,
        )
    line = _line_of(tree, name)
    places = (Place(MODEL_CONFIG, line), rule) if line else (rule,)
    return found(name, f"{_RULE} turns {architecture} into {name}", *places)


def config_subject(tree: SourceTree, config: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of the driver's `draft_config`: model config class, config class, content."""
    return Named(MODEL_CONFIG, "ModelConfig"), _config_class(tree, config), dict(config)


def _config_class(tree: SourceTree, config: Mapping[str, Any]) -> Named:
    """The class that SGLang has for a `model_type`; a plain one when transformers has it."""
    wanted = config.get("model_type")
    if not isinstance(wanted, str) or not wanted:
        return Named(DRIVER, "PlainConfig")
    for file in tree.files(CONFIGS):
        try:
            if f'"{wanted}"' not in tree.text(file):
                continue
            for statement in statements_of(tree.syntax(file).body):
                if isinstance(statement, ast.ClassDef) and _is_of(statement, wanted):
                    return Named(file, statement.name)
        except SourceError:
            continue
    return Named(DRIVER, "PlainConfig")


def _model_type(cls: ast.ClassDef) -> str:
    for statement in cls.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        if any(isinstance(target, ast.Name) and target.id == "model_type" for target in targets):
            value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
            return str(value.value) if isinstance(value, ast.Constant) else ""
    return ""


def _is_of(cls: ast.ClassDef, wanted: str) -> bool:
    """The class of a model type; a vision or audio part may have the model type of the whole."""
    return _model_type(cls) == wanted and not cls.name.endswith(("VisionConfig", "AudioConfig"))


def _rule_place(tree: SourceTree) -> Place | None:
    cls = find_class(tree, MODEL_CONFIG, "ModelConfig")
    method = find_method(tree, cls, _RULE) if cls is not None else None
    return method.place if method is not None else None


def _line_of(tree: SourceTree, name: str) -> int:
    """The line of the rule that writes a name; 0 when it is not written there."""
    cls = find_class(tree, MODEL_CONFIG, "ModelConfig")
    method = find_method(tree, cls, _RULE) if cls is not None else None
    for node in ast.walk(method.node) if method is not None else ():
        if isinstance(node, ast.Constant) and node.value == name:
            return node.lineno
    return 0
