"""How modules are stored, told from dtypes and companions alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import (
    ModulePrecision,
    Precision,
    decide,
    group_by_module,
    module_precision,
)
from tests.support.checkpoint_precision import module_group
from tests.support.checkpoints import (
    ALL_PRECISIONS,
    MTP_NVFP4,
    NVFP4_ROUTED,
    CheckpointOptions,
    Encoding,
    write_checkpoint,
)

F8, U8, BF16, F32, I32 = "F8_E4M3", "U8", "BF16", "F32", "I32"


def stored(**leaves: tuple[str, tuple[int, ...]]) -> ModulePrecision:
    """A module `m` with these tensors: leaf=(dtype, shape)."""
    return decide(
        "m",
        {leaf: TensorEntry(f"m.{leaf}", dtype, shape, "f", 0, 0) for leaf, (dtype, shape) in leaves.items()},
    )


NVFP4 = {"weight": (U8, (48, 32)), "weight_scale": (F8, (48, 4)), "weight_scale_2": (F32, ())}
COMPRESSED = {
    "weight_packed": (U8, (48, 32)),
    "weight_scale": (F8, (48, 4)),
    "weight_global_scale": (F32, (1,)),
}

SCHEMES: list[tuple[dict[str, Any], Precision, tuple[int, ...] | None, tuple[int, int] | None]] = [
    ({"weight": (BF16, (4, 8))}, Precision.BF16, (4, 8), None),
    ({"weight": ("F16", (4, 8))}, Precision.FP16, (4, 8), None),
    ({"weight": (F32, (4, 8))}, Precision.FP32, (4, 8), None),
    (
        {"weight": (F8, (256, 384)), "weight_scale_inv": (BF16, (2, 3))},
        Precision.FP8_BLOCK,
        (256, 384),
        (128, 128),
    ),
    (
        {"weight": (F8, (200, 300)), "weight_scale_inv": (F32, (2, 3))},
        Precision.FP8_BLOCK,
        (200, 300),
        (128, 128),
    ),
    ({"weight": (F8, (64, 48)), "weight_scale_inv": (F32, (4, 3))}, Precision.FP8_BLOCK, (64, 48), (16, 16)),
    (
        {"weight": (F8, (256, 384)), "weight_scale": (F32, (2, 3))},
        Precision.FP8_BLOCK,
        (256, 384),
        (128, 128),
    ),
    (
        {"weight": (F8, (100, 100)), "weight_scale_inv": (F32, (1, 1))},
        Precision.FP8_BLOCK,
        (100, 100),
        (128, 128),
    ),
    ({"weight": (F8, (4, 8)), "weight_scale": (F32, ())}, Precision.FP8_TENSOR, (4, 8), None),
    (
        {"weight": (F8, (4, 8)), "weight_scale": (F32, (1,)), "input_scale": (F32, ())},
        Precision.FP8_TENSOR,
        (4, 8),
        None,
    ),
    ({"weight": (F8, (512, 512)), "weight_scale": (F32, (1, 1))}, Precision.FP8_TENSOR, (512, 512), None),
    ({"weight": (F8, (4, 8)), "weight_scale": (BF16, (4, 1))}, Precision.FP8_CHANNEL, (4, 8), None),
    ({"weight": (F8, (4, 8)), "weight_scale": (F32, (4,))}, Precision.FP8_CHANNEL, (4, 8), None),
    (NVFP4, Precision.NVFP4_MODELOPT, (48, 64), None),
    ({**NVFP4, "input_scale": (F32, ())}, Precision.NVFP4_MODELOPT, (48, 64), None),
    (COMPRESSED, Precision.NVFP4_COMPRESSED, (48, 64), None),
    ({**COMPRESSED, "input_global_scale": (F32, (1,))}, Precision.NVFP4_COMPRESSED, (48, 64), None),
    ({"weight": (U8, (48, 32)), "weight_scale": (U8, (48, 2))}, Precision.MXFP4, (48, 64), None),
    ({"weight": (U8, (48, 32)), "weight_scale": ("F8_E8M0", (48, 2))}, Precision.MXFP4, (48, 64), None),
    ({"weight_packed": (U8, (48, 32)), "weight_scale": (U8, (48, 2))}, Precision.MXFP4, (48, 64), None),
    (
        {"weight_packed": (I32, (48, 8)), "weight_scale": (BF16, (48, 1)), "weight_shape": ("I64", (2,))},
        Precision.INT4_PACKED,
        None,
        None,
    ),
    (
        {
            "qweight": (I32, (8, 48)),
            "qzeros": (I32, (1, 6)),
            "scales": ("F16", (1, 48)),
            "g_idx": (I32, (64,)),
        },
        Precision.GPTQ,
        (48, 64),
        None,
    ),
    (
        {"qweight": (I32, (64, 6)), "qzeros": (I32, (1, 6)), "scales": ("F16", (1, 48))},
        Precision.AWQ,
        (48, 64),
        None,
    ),
    ({"weight": ("I8", (4, 8)), "weight_scale": (F32, (4, 1))}, Precision.INT8, (4, 8), None),
]


@pytest.mark.parametrize(("leaves", "precision", "shape", "block"), SCHEMES)
def test_schemes(
    leaves: dict[str, Any], precision: Precision, shape: tuple[int, ...] | None, block: tuple[int, int] | None
) -> None:
    found = stored(**leaves)
    assert (found.precision, found.logical_shape, found.block, found.problems) == (
        precision,
        shape,
        block,
        (),
    )
    assert set(found.companions) == set(leaves) - {"weight", "weight_packed", "qweight"}
    assert found.precision.is_loaded is (
        precision.value not in ("GPTQ", "AWQ", "MXFP4", "INT4 (packed)", "INT8")
    )


@pytest.mark.parametrize(
    ("leaves", "precision", "problem"),
    [
        (
            {"weight": (F8, (4, 8))},
            Precision.UNKNOWN,
            "m.weight is F8_E4M3 and has neither weight_scale_inv nor",
        ),
        ({"weight": (U8, (4, 8))}, Precision.UNKNOWN, "m.weight is U8 and has no weight_scale"),
        (
            {"weight": ("I64", (4, 8))},
            Precision.UNKNOWN,
            "m.weight has dtype I64, which no known scheme uses",
        ),
        ({"weight_scale": (F32, ())}, Precision.UNKNOWN, "m has weight_scale and no weight"),
        ({"A_log": (F32, (4,))}, Precision.UNKNOWN, "m has no weight"),
        (
            {k: v for k, v in NVFP4.items() if k != "weight_scale_2"},
            Precision.NVFP4_MODELOPT,
            "has no weight_scale_2",
        ),
        (
            {k: v for k, v in NVFP4.items() if k != "weight_scale"},
            Precision.NVFP4_MODELOPT,
            "has no weight_scale",
        ),
        (
            {k: v for k, v in COMPRESSED.items() if k != "weight_global_scale"},
            Precision.NVFP4_COMPRESSED,
            "has no weight_global_scale",
        ),
        (
            {**NVFP4, "weight_scale": (F8, (48, 5))},
            Precision.NVFP4_MODELOPT,
            r"has shape [48, 5], m.weight needs [48, 4]",
        ),
        (
            {"weight": (F8, (256, 384)), "weight_scale_inv": (F32, (3, 3))},
            Precision.FP8_BLOCK,
            "fits no block of m.weight",
        ),
        (
            {"weight": (BF16, (4, 8)), "weight_scale": (F32, ())},
            Precision.BF16,
            "m.weight is BF16 and yet has weight_scale",
        ),
        ({"weight": ("I8", (4, 8))}, Precision.INT8, "has no weight_scale"),
        ({"qweight": (I32, (8, 48))}, Precision.GPTQ, "has no scales"),
    ],
)
def test_what_is_missing_or_does_not_fit_is_a_problem(
    leaves: dict[str, Any], precision: Precision, problem: str
) -> None:
    found = stored(**leaves)
    assert found.precision is precision
    assert problem in " | ".join(found.problems)


def test_scalars_and_empty_weights_are_no_accident() -> None:
    for dtype in (F8, U8, BF16, "F4"):
        for shape in ((), (0,), (0, 0)):
            stored(weight=(dtype, shape), weight_scale=(F8, shape), weight_scale_2=(F32, ()))


def test_fused_experts_are_modules_of_one_tensor() -> None:
    names = ("mtp.layers.0.mlp.experts.gate_up_proj", "mtp.layers.0.mlp.experts.down_proj", "mtp.fc.weight")
    groups = group_by_module(TensorEntry(name, BF16, (2, 4, 8), "f", 0, 0) for name in names)
    assert {module: list(leaves) for module, leaves in groups.items()} == {
        names[0]: ["weight"],
        names[1]: ["weight"],
        "mtp.fc": ["weight"],
    }
    assert decide(names[0], groups[names[0]]).precision is Precision.BF16


EXPECTED = {
    Encoding.BF16: Precision.BF16,
    Encoding.FP32: Precision.FP32,
    Encoding.FP8_BLOCK: Precision.FP8_BLOCK,
    Encoding.FP8_TENSOR: Precision.FP8_TENSOR,
    Encoding.FP8_CHANNEL: Precision.FP8_CHANNEL,
    Encoding.NVFP4: Precision.NVFP4_MODELOPT,
    Encoding.NVFP4_WEIGHT_ONLY: Precision.NVFP4_MODELOPT,
    Encoding.NVFP4_COMPRESSED: Precision.NVFP4_COMPRESSED,
}


@pytest.mark.parametrize("precision", ALL_PRECISIONS, ids=lambda precision: precision.name)
@pytest.mark.parametrize("moe", [False, True])
def test_every_linear_of_a_generated_checkpoint_is_told_right(
    precision: Any, moe: bool, tmp_path: Path
) -> None:
    made = write_checkpoint(tmp_path / "checkpoint", CheckpointOptions(moe=moe, precision=precision))
    inventory = open_checkpoint(str(made.folder)).inventory
    told = {
        name: module_precision(name.removesuffix(".weight"), inventory)
        for name in made.tensors
        if module_group(name)
    }
    assert len(told) > 10
    for name, found in told.items():
        assert found is not None
        assert found.precision is EXPECTED[made.options.recipe.encoding_of(name)], name
        assert found.problems == ()
        assert found.logical_shape == tuple(made.tensors[name].shape)


def test_the_precision_of_the_head_is_read_from_its_own_tensors(tmp_path: Path) -> None:
    options = CheckpointOptions(moe=True, precision=NVFP4_ROUTED, mtp_precision=MTP_NVFP4)
    inventory = open_checkpoint(str(write_checkpoint(tmp_path / "checkpoint", options).folder)).inventory
    fc, query = (module_precision(name, inventory) for name in ("mtp.fc", "mtp.layers.0.self_attn.q_proj"))
    assert fc is not None
    assert query is not None
    assert (fc.precision, query.precision) == (Precision.BF16, Precision.NVFP4_MODELOPT)
    assert query.nbytes == 192 * 32 + 192 * 4 + 4 + 4
    assert module_precision("mtp.nothing", inventory) is None
