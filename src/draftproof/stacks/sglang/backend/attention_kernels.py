"""The attention backends of target and draft: registered by name, admitted by their own conditions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from draftproof.errors import SourceError
from draftproof.stacks.backend_facts import KernelChoice, Operation, Phase
from draftproof.stacks.evaluation import Given, Missing
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.sglang.backend.kernel_reach import ATTENTION, reach_of
from draftproof.stacks.sglang.backend.selector import Selectors, combined
from draftproof.stacks.sglang.pretended_machine import answers
from draftproof.stacks.source import SourceTree
from draftproof.stacks.syntax import find_function, imported_names, top_level

REGISTRY = "sglang/srt/layers/attention/attention_registry.py"
DECORATOR = "register_attention_backend"
WRAPPER = "attn_backend_wrapper"
DRAFT = "sglang/srt/speculative/draft_utils.py"
DRAFT_MAKERS = ("create_decode_backend", "create_draft_extend_backend")
DRAFT_MAP = "backend_map"
_GROUP = "attention layers"
_DRAFT_GROUP = "MTP attention layer"
_WHERE_CONFIGS_ARE_ASKED = ("mambaish_config", "hybrid_gdn_config", "hybrid_kda_config", "mamba2_config")


@dataclass(frozen=True)
class AttentionQuestion:
    """What attention is asked about.

    Attributes:
        selectors: of the version, for the GPU.
        is_latent: attention with one compressed key and value for all heads (MLA).
        is_hybrid: Gated DeltaNet layers stand between the attention layers.
        architecture: of the checkpoint.
        has_draft: speculation is on.
    """

    selectors: Selectors
    is_latent: bool
    is_hybrid: bool
    architecture: str
    has_draft: bool


def attention_choices(question: AttentionQuestion) -> tuple[KernelChoice, ...]:
    """The kernels of prefill, decode, verify, and of the draft."""
    return tuple(_choices(question))


def _choices(question: AttentionQuestion) -> Iterator[KernelChoice]:
    prefill, decode = _backend(question, "prefill"), _backend(question, "decode")
    chosen = {reading: _choice(question, Phase.ANY, reading) for reading in (prefill, decode)}
    yield replace(chosen[prefill], phase=Phase.PREFILL)
    yield replace(chosen[decode], phase=Phase.DECODE)
    if not question.has_draft:
        return
    by_decode = question.selectors.values.text("speculative_attention_mode") == "decode"
    yield replace(chosen[decode if by_decode else prefill], phase=Phase.VERIFY)
    asked = question.selectors.values.text("speculative_draft_attention_backend")
    at = question.selectors.values.at("speculative_draft_attention_backend")
    draft = decode if asked is None else found(asked, "speculative_draft_attention_backend is given", *at)
    yield _draft_choice(question, draft)


def _backend(question: AttentionQuestion, phase: str) -> Reading[str]:
    """The backend in force for a phase: its own option, or the one for both."""
    values = question.selectors.values
    for field in (f"{phase}_attention_backend", "attention_backend"):
        value = values.text(field)
        if value is not None:
            return found(value, f"{field} in force", *values.at(field))
    return not_understood(
        "attention_backend is not in force: the resolution of the command, link 4, did not get that far"
    )


def _choice(question: AttentionQuestion, phase: Phase, backend: Reading[str]) -> KernelChoice:
    name = backend.value or ""
    valid: Reading[bool] = not_understood(backend.sentence)
    explicit = ""
    if name:
        valid = _admitted(question, name)
        explicit = "" if valid.value is not False else _remedy(question)
        registered = registered_backends(question.selectors.tree).get(name)
        if registered is not None:
            backend = found(name, backend.sentence, *backend.places, registered)
    return KernelChoice(
        Operation.ATTENTION,
        _GROUP,
        "",
        phase,
        backend,
        valid,
        explicit=explicit,
        needs=question.selectors.packages.needs(name, backend.places) if name else (),
    )


def _draft_choice(question: AttentionQuestion, backend: Reading[str]) -> KernelChoice:
    name = backend.value or ""
    valid: Reading[bool] = not_understood(backend.sentence)
    if name:
        valid = _in_draft_maps(question.selectors.tree, name)
        if valid.value:
            target = _created(question, name)
            valid = target if target.value is False else valid
    return KernelChoice(
        Operation.ATTENTION,
        _DRAFT_GROUP,
        "",
        Phase.DRAFT,
        backend,
        valid,
        needs=question.selectors.packages.needs(name, backend.places) if name else (),
    )


def registered_backends(tree: SourceTree) -> dict[str, Place]:
    """Names under which attention backends are registered, with the functions that make them."""
    return {name: Place(REGISTRY, node.lineno) for name, node in _factories(tree)}


def _factories(tree: SourceTree) -> Iterator[tuple[str, ast.FunctionDef]]:
    try:
        body = tree.syntax(REGISTRY).body if tree.has(REGISTRY) else []
    except SourceError:
        body = []
    for node in top_level(body):
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            is_ours = (
                isinstance(decorator, ast.Call)
                and isinstance(decorator.func, ast.Name)
                and decorator.func.id == DECORATOR
                and decorator.args
            )
            if is_ours and isinstance(decorator, ast.Call) and isinstance(node, ast.FunctionDef):
                name = decorator.args[0]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield name.value, node


def _admitted(question: AttentionQuestion, name: str) -> Reading[bool]:
    """By its factory's conditions, by those of hybrid models, and by what the kernels were built for."""
    created = _created(question, name)
    if created.value is not True:
        return created
    if question.is_hybrid:
        wrapped = hybrid_refusal(question, name)
        if wrapped is not None and not wrapped.value:
            return wrapped
    reach = reach_of(ATTENTION, name)
    architecture = question.selectors.gpu.architecture
    if reach is not None and question.selectors.gpu.capability not in reach.capabilities:
        return found(False, f"{reach.sentence}, and this is {architecture}", *created.places)
    return created


def _created(question: AttentionQuestion, name: str) -> Reading[bool]:
    """The factory carried out: it raises where it refuses."""
    function = next((node for key, node in _factories(question.selectors.tree) if key == name), None)
    if function is None:
        return found(False, f"no backend is registered as {name} in {REGISTRY}")
    own = Place(REGISTRY, function.lineno)
    substitutes = _classes_of(question.selectors.tree, function)
    runner = _runner(question, name)
    evaluator = question.selectors.with_substitutes(substitutes)
    answer = combined(evaluator.call(REGISTRY, function.name, runner))
    if answer.raised is not None:
        return found(False, answer.raised.message or str(answer.raised), answer.raised.place)
    if answer.lost and not answer.lost.startswith(("its result", "it depends", "whether it refuses")):
        return not_understood(
            f"carried out {function.name}: {answer.lost}", *((answer.place,) if answer.place else ())
        )
    return found(True, f"{function.name} makes it on {question.selectors.gpu.architecture}", own)


def hybrid_refusal(question: AttentionQuestion, name: str) -> Reading[bool] | None:
    """The wrapper for hybrid models carried out: False where it refuses; None when the version has none."""
    tree = question.selectors.tree
    definition = find_function(tree, REGISTRY, WRAPPER)
    if definition is None:
        return None
    config = Given("config", {"full_attention_layer_ids": [0]}, missing=Missing.UNKNOWN)
    substitutes = _classes_of(tree, definition.node)
    substitutes |= {
        f"{entry}": answers(config if "kda" not in entry and "mamba2" not in entry else None)
        for module in _modules_asked(tree)
        for entry in (f"{module}.{function}" for function in _WHERE_CONFIGS_ARE_ASKED)
    }
    evaluator = question.selectors.with_substitutes(substitutes)
    answer = combined(evaluator.call(REGISTRY, WRAPPER, _runner(question, name), None))
    if answer.raised is not None:
        return found(False, answer.raised.message or str(answer.raised), answer.raised.place)
    if answer.lost and not answer.lost.startswith(("its result", "it depends")):
        return not_understood(
            f"carried out {WRAPPER}: {answer.lost}", *((answer.place,) if answer.place else ())
        )
    return found(True, f"{WRAPPER} admits it", definition.place)


def _modules_asked(tree: SourceTree) -> tuple[str, ...]:
    """Modules that the registry imports questions about hybrid configs from."""
    modules = [
        entry.module for entry in imported_names(tree, REGISTRY) if entry.name in _WHERE_CONFIGS_ARE_ASKED
    ]
    return tuple(dict.fromkeys(modules))


def _classes_of(tree: SourceTree, function: ast.AST) -> dict[str, Any]:
    """Classes of backends that a function imports, replaced by functions that make nothing."""
    made: dict[str, Any] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.ImportFrom) and node.module and ".attention." in f"{node.module}.":
            for entry in node.names:
                if entry.name[:1].isupper():
                    made[f"{node.module}.{entry.name}"] = answers(f"{entry.name}")
                elif entry.name.startswith(("flashinfer_", "check_", "resolve_", "initialize_")):
                    made[f"{node.module}.{entry.name}"] = answers(None)
                elif entry.name.startswith("is_"):
                    made[f"{node.module}.{entry.name}"] = answers(False)
    return made


def _runner(question: AttentionQuestion, name: str) -> Given:
    """The process that attention backends are made for."""
    values = question.selectors.values
    arguments = {**values.values, "attention_backend": name, "_resolved_overrides": [], "_raw_input": {}}
    config = Given("hf_config", {"architectures": [question.architecture]}, missing=Missing.UNKNOWN)
    hybrid = Given("config", {"full_attention_layer_ids": [0]}, missing=Missing.UNKNOWN)
    return Given(
        "runner",
        {
            "use_mla_backend": question.is_latent,
            "server_args": Given("server_args", arguments, missing=Missing.UNKNOWN),
            "model_config": Given("model_config", {"hf_config": config}, missing=Missing.UNKNOWN),
            "prefill_attention_backend_str": name,
            "decode_attention_backend_str": name,
            "is_draft_worker": False,
            "mambaish_config": hybrid if question.is_hybrid else None,
            "hybrid_gdn_config": hybrid if question.is_hybrid else None,
            "device": "cuda",
            "is_hybrid_swa": False,
        },
        missing=Missing.UNKNOWN,
    )


def _in_draft_maps(tree: SourceTree, name: str) -> Reading[bool]:
    """Whether the draft's factories know the backend."""
    seen: list[Place] = []
    for maker in DRAFT_MAKERS:
        keys = dict(_map_keys(tree, maker))
        if not keys:
            return not_understood(f"looked for {DRAFT_MAP} in {maker} of {DRAFT}")
        if name not in keys:
            known = ", ".join(sorted(keys))
            return found(False, f"{maker} knows {known}, and not {name}", next(iter(keys.values())))
        seen.append(keys[name])
    return found(True, "the draft's factories know it", *seen)


def _map_keys(tree: SourceTree, maker: str) -> Iterator[tuple[str, Place]]:
    if not tree.has(DRAFT):
        return
    for node in ast.walk(tree.syntax(DRAFT)):
        if isinstance(node, ast.FunctionDef) and node.name == maker:
            for statement in ast.walk(node):
                is_map = isinstance(statement, ast.Assign) and any(
                    isinstance(target, ast.Name) and target.id == DRAFT_MAP for target in statement.targets
                )
                if is_map and isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
                    for key in statement.value.keys:
                        if isinstance(key, ast.Constant) and isinstance(key.value, str):
                            yield key.value, Place(DRAFT, key.lineno)


def _remedy(question: AttentionQuestion) -> str:
    """A backend of general use that the same conditions admit."""
    for name in ("flashinfer", "triton"):
        if _admitted(question, name).value:
            return f"--attention-backend {name}"
    return ""
