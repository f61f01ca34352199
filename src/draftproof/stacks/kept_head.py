"""What is read from a stack's source about one checkpoint's head, in the form in which it is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.stacks.code_facts import HeadSupport, Noticing, TensorLanding, UnwrittenParameter
from draftproof.stacks.defect import Defect, DefectFinding
from draftproof.stacks.evaluation.evaluator import Evaluator
from draftproof.stacks.reading import Reading
from draftproof.stacks.recorded_reading import RecordedReading
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation


@dataclass(frozen=True)
class LoadingReadings:
    """What loading says about the head; attributes as in `HeadSupport`."""

    head_precision: Reading[str]
    landings: Reading[tuple[TensorLanding, ...]]
    unwritten: Reading[tuple[UnwrittenParameter, ...]]


@dataclass(frozen=True)
class KeptHead:
    """Everything that is read from the source for one checkpoint; attributes as in `HeadSupport`.

    `defects` holds what the queries of a table of defects saw, in the table's order.
    """

    target: Reading[str]
    draft_architecture: Reading[str]
    draft_class: Reading[str]
    registration: Reading[str]
    implementation: Reading[str]
    loading: LoadingReadings
    noticing: Reading[Noticing]
    defects: tuple[Reading[bool], ...]

    def support(
        self, defects: Sequence[Defect], checkpoint: ServedCheckpoint, situation: Situation
    ) -> HeadSupport:
        """The answer for a situation, with the rules of `defects` beside what they saw."""
        return HeadSupport(
            target=self.target,
            draft_architecture=self.draft_architecture,
            draft_class=self.draft_class,
            registration=self.registration,
            implementation=self.implementation,
            head_precision=self.loading.head_precision,
            landings=self.loading.landings,
            unwritten=self.loading.unwritten,
            noticing=self.noticing,
            defects=tuple(
                DefectFinding(defect, present, defect.applies(checkpoint, situation))
                for defect, present in zip(defects, self.defects, strict=True)
            ),
        )


@dataclass(frozen=True)
class HeadReader:
    """An evaluator, and what it has read so far; one serves all checkpoints that are asked about."""

    evaluator: Evaluator
    recorded: RecordedReading


def head_identity(checkpoint: ServedCheckpoint) -> str:
    """A digest of everything about a checkpoint that the readings depend on."""
    total = hashlib.sha256()
    total.update(json.dumps([checkpoint.config, checkpoint.hf_quant_config], default=str).encode())
    for tensor in checkpoint.head.values():
        total.update(f"{tensor.name} {tensor.shape} {tensor.dtype}\n".encode())
    return total.hexdigest()
