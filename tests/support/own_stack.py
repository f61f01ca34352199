"""draftproof's own engine as a stack, and releases that it is asked about."""

from __future__ import annotations

from pathlib import Path

import draftproof
from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.spec import ExpertLayout
from draftproof.architecture.tensor_plan import ExpertLayouts
from draftproof.evidence import EvidenceItem, LinkReport
from draftproof.links.served import declared_storage, promised_tensors
from draftproof.stacks.native.rules import NativeRules
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Stack, StackKind
from tests.support.public_configs import public_config_files

SOURCE = Path(draftproof.__file__).parent
RULES = NativeRules()
ONE_BY_ONE = ExpertLayouts(ExpertLayout.PER_EXPERT, ExpertLayout.PER_EXPERT)
FUSED = ExpertLayouts(ExpertLayout.FUSED, ExpertLayout.FUSED)


def own(root: Path = SOURCE.parent) -> Stack:
    """The engine from the source that runs here, or from another folder."""
    return Stack(StackKind.NATIVE, draftproof.__version__, SourceTree(root), "running")


def release(name: str, layouts: ExpertLayouts = ONE_BY_ONE) -> ServedCheckpoint:
    """A release by its config: the tensors that it should hold."""
    files = public_config_files(name)
    spec = spec_from_config(files)
    head, trunk = promised_tensors(spec, declared_storage(files), layouts)
    return ServedCheckpoint(
        name, files.config.content, files.hf_quant_config.content, spec, head, trunk, False
    )


def claims(report: LinkReport) -> dict[str, EvidenceItem]:
    """Claims of a link by their names."""
    return {item.check: item for item in report.items}
