"""Known defects of vLLM's choice of kernels, each with the query that finds it in a source."""

from __future__ import annotations

import ast

from draftproof.errors import SourceError
from draftproof.stacks.classes import find_class
from draftproof.stacks.defect import Defect, DefectFinding, DefectLink, Harm
from draftproof.stacks.packages import Presence, package
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.backend.attention_kernels import EARLIER_GDN_LAYER, GDN_LAYER, RESOLVER
from draftproof.stacks.vllm.definitions import Definition, find_definition
from draftproof.stacks.vllm.launch.special_keys import has_recurrent_layers

COMPILATION = "vllm/config/compilation.py"
COMPILATION_CLASS = "CompilationConfig"


def backend_defects(
    stack: Stack, checkpoint: ServedCheckpoint, situation: Situation
) -> tuple[DefectFinding, ...]:
    """What the queries saw, and whether it matters here; a package that is there mends what needs it."""
    is_absent = package(stack, "flashinfer-python").presence is Presence.ABSENT
    findings = []
    for defect in BACKEND_DEFECTS:
        applies = defect.applies(checkpoint, situation)
        if defect.identifier == _UNCHECKED_PREFILL:
            applies = applies and is_absent
        findings.append(DefectFinding(defect, defect.query(stack.tree), applies))
    return tuple(findings)


_UNCHECKED_PREFILL = "vllm-prefill-kernel-not-looked-for"


def _chooses_without_looking(tree: SourceTree) -> Reading[bool]:
    """The rule that chooses FlashInfer's prefill kernel asks nothing about the package."""
    wanted = f"{RESOLVER} in {GDN_LAYER}, or ChunkGatedDeltaRule in {EARLIER_GDN_LAYER}"
    try:
        node, file = _prefill_rule(tree)
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    if node is None:
        return not_understood(f"looked for {wanted}")
    text = ast.unparse(node)
    place = Place(file, node.lineno)
    if "flashinfer" not in text:
        return not_understood(f"looked for {wanted}; it does not name FlashInfer", place)
    if "has_flashinfer" in text or "find_spec" in text:
        return found(False, "the rule asks whether FlashInfer is there", place)
    return found(True, "the rule looks at the GPU and not at the package", place)


def _prefill_rule(tree: SourceTree) -> tuple[Definition | None, str]:
    for file, name in ((GDN_LAYER, RESOLVER), (EARLIER_GDN_LAYER, "ChunkGatedDeltaRule")):
        if tree.has(file):
            defined = find_definition(tree, file, name)
            if defined is not None:
                return defined.node, defined.file
    return None, ""


def _has_recurrent(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    return has_recurrent_layers(checkpoint)


def _counts_a_block_a_sequence(tree: SourceTree) -> Reading[bool]:
    """The check of max_num_seqs against state blocks does not count the blocks of drafts."""
    wanted = f"a comparison of max_num_seqs with the number of state blocks in {COMPILATION}"
    try:
        cls = find_class(tree, COMPILATION, COMPILATION_CLASS)
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    if cls is None:
        return not_understood(f"looked for {wanted}", Place(COMPILATION, 1))
    for node in ast.walk(cls.node):
        if isinstance(node, ast.If) and "mamba" in (test := ast.unparse(node.test)) and "num_blocks" in test:
            place = Place(COMPILATION, node.lineno)
            if "spec" in test:
                return found(False, "the check counts the blocks of drafts", place)
            return found(True, "the check takes one block a sequence", place)
    return found(False, f"{COMPILATION} compares no blocks of state", cls.place)


BACKEND_DEFECTS: tuple[Defect, ...] = (
    Defect(
        _UNCHECKED_PREFILL,
        DefectLink.BACKEND,
        Harm.BREAKS,
        "FlashInfer's Gated DeltaNet prefill is chosen without looking whether FlashInfer is installed",
        "none known",
        ("0.19.0", "0.26.0", "0.33.0"),
        f"{RESOLVER} names FlashInfer and asks nothing about the package",
        _chooses_without_looking,
        _has_recurrent,
        "the server starts, and the first prompt fails with an ImportError",
        "--gdn-prefill-backend triton",
    ),
    Defect(
        "vllm-drafts-not-counted-in-state-blocks",
        DefectLink.BACKEND,
        Harm.WEAKENS,
        "The start-up check of --max-num-seqs counts one state block a sequence, and drafts take K more",
        "none known",
        ("0.26.0", "0.33.0"),
        f"the check of state blocks in {COMPILATION}",
        _counts_a_block_a_sequence,
        _has_recurrent,
        "fewer sequences run at once than the check promises; the others wait or are preempted",
        "--max-num-seqs of at most the state blocks divided by K + 1",
    ),
)
