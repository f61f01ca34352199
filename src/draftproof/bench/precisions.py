"""The precision layouts of public releases: which group of modules is stored how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from draftproof.architecture.spec import ExpertLayout, ModelSpec
from draftproof.architecture.stored_plan import Storage
from draftproof.architecture.tensor_plan import ExpertLayouts, ModelPart, PlannedTensor, TensorGroup
from draftproof.checkpoint.precision import Precision
from draftproof.errors import UsageError

_TRUNK, _HEAD = ModelPart.TRUNK, ModelPart.MTP
_FP4, _FP8, _BLOCK = Precision.NVFP4_MODELOPT, Precision.FP8_TENSOR, Precision.FP8_BLOCK
_ROUTED = {(_TRUNK, TensorGroup.ROUTED_EXPERT): _FP4}
_MLPS = {**_ROUTED, (_TRUNK, TensorGroup.SHARED_EXPERT): _FP4, (_TRUNK, TensorGroup.DENSE_MLP): _FP4}
_MIXERS = (TensorGroup.GATED_DELTA_NET, TensorGroup.ATTENTION)
_BLOCK_GROUPS = (
    *_MIXERS,
    TensorGroup.ROUTED_EXPERT,
    TensorGroup.SHARED_EXPERT,
    TensorGroup.DENSE_MLP,
)


@dataclass(frozen=True)
class PrecisionLayout:
    """How a release stores its modules.

    Attributes:
        name: as typed after `--precision`.
        title: in words.
        groups: precision of each quantised group; every other group is BF16, and so are routers, the head's
            input projection and the small a and b projections of the mixers.
    """

    name: str
    title: str
    groups: Mapping[tuple[ModelPart, TensorGroup], Precision]

    def storage_of(self, planned: PlannedTensor) -> Storage:
        """How one linear of the plan is stored."""
        if planned.module.endswith(("in_proj_a", "in_proj_b")):
            return Storage(Precision.BF16)
        return Storage(self.groups.get((planned.part, planned.group), Precision.BF16))

    def expert_layouts(self, spec: ModelSpec) -> ExpertLayouts:
        """Quantised experts lie one by one on disk, BF16 ones fused; a dense model has none."""
        if spec.mtp is None or not any(hasattr(layer.mlp, "num_experts") for layer in spec.layers):
            return ExpertLayouts(ExpertLayout.NONE, ExpertLayout.NONE)
        one_by_one, fused = ExpertLayout.PER_EXPERT, ExpertLayout.FUSED
        return ExpertLayouts(
            one_by_one if (_TRUNK, TensorGroup.ROUTED_EXPERT) in self.groups else fused,
            one_by_one if (_HEAD, TensorGroup.ROUTED_EXPERT) in self.groups else fused,
        )


LAYOUTS = (
    PrecisionLayout("nvfp4", "routed and shared experts (or MLPs) NVFP4, all else BF16", _MLPS),
    PrecisionLayout(
        "nvfp4-3.6",
        "experts (or MLPs) and output head NVFP4, mixers FP8, MTP head BF16",
        {
            **_MLPS,
            **{(_TRUNK, group): _FP8 for group in _MIXERS},
            (_TRUNK, TensorGroup.LM_HEAD): _FP4,
        },
    ),
    PrecisionLayout("nvfp4-routed", "routed experts alone NVFP4, all else BF16", _ROUTED),
    PrecisionLayout(
        "fp8",
        "mixers, experts and MLPs FP8 in blocks of 128 x 128, in the MTP head too; embedding, output head, "
        "routers and the head's input projection BF16",
        {(part, group): _BLOCK for part in (_TRUNK, _HEAD) for group in _BLOCK_GROUPS},
    ),
    PrecisionLayout("bf16", "everything BF16", {}),
)


def layout_named(name: str) -> PrecisionLayout:
    """A layout by its name.

    Raises:
        UsageError: there is none.
    """
    for layout in LAYOUTS:
        if layout.name == name:
            return layout
    names = ", ".join(layout.name for layout in LAYOUTS)
    raise UsageError(f"there is no precision layout {name[:60]!r}", f"Layouts are: {names}.")
