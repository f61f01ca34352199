"""Public releases as the hardware calculations take them."""

from __future__ import annotations

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.tensor_plan import ModelPart, TensorGroup
from draftproof.checkpoint.precision import Precision
from draftproof.hardware.roofline import Model
from draftproof.hardware.shape import Shape, shape_of
from draftproof.hardware.weights import weigh_config, weigh_precisions
from tests.support.public_configs import public_config_files

TRUNK = ModelPart.TRUNK
FP4, FP8 = Precision.NVFP4_MODELOPT, Precision.FP8_TENSOR
EXPERTS = {(TRUNK, TensorGroup.ROUTED_EXPERT): FP4, (TRUNK, TensorGroup.SHARED_EXPERT): FP4}
DENSE = {(TRUNK, TensorGroup.DENSE_MLP): FP4}
MIXERS = {(TRUNK, TensorGroup.GATED_DELTA_NET): FP8, (TRUNK, TensorGroup.ATTENTION): FP8}

PRECISIONS = {
    "BF16": {},
    "FP8": dict.fromkeys((*EXPERTS, *DENSE, *MIXERS), FP8),
    "NVFP4-V1": {**EXPERTS, **DENSE},
    "NVFP4-3.6": {**EXPERTS, **DENSE, **MIXERS, (TRUNK, TensorGroup.LM_HEAD): FP4},
}
"""Which groups are quantised in the releases that were timed; everything else, the head included, is BF16."""

RELEASES = {
    "35B": "Qwen_Qwen3.5-35B-A3B",
    "122B": "Qwen_Qwen3.5-122B-A10B",
    "397B": "Qwen_Qwen3.5-397B-A17B",
    "27B": "Qwen_Qwen3.5-27B",
}


def release_shape(name: str) -> Shape:
    """The numbers of a release, by its short name."""
    return shape_of(spec_from_config(public_config_files(RELEASES[name])))


def release_in(name: str, precision: str) -> Model:
    """A release in one of `PRECISIONS`."""
    spec = spec_from_config(public_config_files(RELEASES[name]))
    return Model(weigh_precisions(spec, PRECISIONS[precision]), shape_of(spec))


def release_as_declared(name: str) -> Model:
    """A release by its full name, in the precision that its config declares."""
    files = public_config_files(name)
    spec = spec_from_config(files)
    return Model(weigh_config(spec, files), shape_of(spec))
