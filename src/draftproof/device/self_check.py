"""Kernels against their definitions at load, on the weights that were loaded: a wrong one never speaks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from draftproof.device.checks.called import CheckedCall, CheckSubject
from draftproof.device.checks.choices import check_choices
from draftproof.device.checks.mixers import check_mixers
from draftproof.device.checks.products import check_products
from draftproof.device.checks.prompts import check_prompts
from draftproof.device.shapes import StepShape
from draftproof.device.weights import DeviceModel
from draftproof.kernels.row_sampling.slot_sampling import RowChoice
from draftproof.kernels.select import StepKernels
from draftproof.runtime.state_store import StateSizes

USUAL_CHOICES = (RowChoice.LARGEST, RowChoice.DRAWN)
"""What most requests want; the kernels that cut the vocabulary take several seconds to compile."""


def self_check(
    kernels: StepKernels,
    model: DeviceModel,
    shapes: Sequence[StepShape],
    sizes: StateSizes,
    choices: Sequence[RowChoice] = USUAL_CHOICES,
) -> tuple[CheckedCall, ...]:
    """Compare the kernels of steps and of prompts with their definitions.

    Args:
        kernels: what is checked.
        model: the weights to do it on.
        shapes: of the steps that are going to run.
        sizes: of the state that they are going to run on.
        choices: how tokens are chosen.

    Raises:
        EngineFault: a kernel gave NaN, or numbers that are wrong.
    """
    steps = check_steps(kernels, model, shapes, sizes, choices)
    with torch.inference_mode():
        return (*steps, *check_prompts(CheckSubject(kernels, model, shapes, sizes)))


def check_steps(
    kernels: StepKernels,
    model: DeviceModel,
    shapes: Sequence[StepShape],
    sizes: StateSizes,
    choices: Sequence[RowChoice],
) -> tuple[CheckedCall, ...]:
    """The part of `self_check` that leaves prompts out."""
    subject = CheckSubject(kernels, model, shapes, sizes, choices)
    with torch.inference_mode():
        return (*check_products(subject), *check_mixers(subject), *check_choices(subject))
