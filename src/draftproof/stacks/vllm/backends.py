"""Link 5 for vLLM: which kernels this version chooses for a checkpoint on a GPU."""

from __future__ import annotations

from draftproof.stacks.backend_facts import BackendFacts
from draftproof.stacks.launch_facts import LaunchJudgement
from draftproof.stacks.reading import not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack


def backends(
    stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, judgement: LaunchJudgement
) -> BackendFacts:
    """The kernels, the state layout and the requirements."""
    return BackendFacts((), not_understood("not looked for yet"))
