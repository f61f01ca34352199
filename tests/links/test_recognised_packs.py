"""Packs that draftproof's engine does not load are still recognised, counted and checked."""

import random

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.evidence import Verdict
from draftproof.links.weights import check_weights
from tests.support.checkpoints import CheckpointOptions, write_checkpoint
from tests.support.faults import copy_of, protect
from tests.support.raw_safetensors import RawTensor, read_safetensors, write_safetensors

OUT, IN = 112, 64
MODULE = "model.language_model.layers.0.mlp.up_proj"


def noise(dtype, *shape, width):
    count = width
    for size in shape:
        count *= size
    return RawTensor(dtype, shape, random.Random(0).randbytes(count))


def halves(*shape):
    """Positive half-precision numbers near 1."""
    count = 1
    for size in shape:
        count *= size
    return RawTensor("F16", shape, b"".join(bytes((k % 7, 0x3C)) for k in range(count)))


def exponents(*shape):
    return RawTensor("U8", shape, bytes(120 for _ in range(shape[0] * shape[1])))


PACKS = {
    "GPTQ": {
        "qweight": noise("I32", IN // 8, OUT, width=4),
        "qzeros": noise("I32", 1, OUT // 8, width=4),
        "scales": halves(1, OUT),
        "g_idx": noise("I32", IN, width=4),
    },
    "AWQ": {
        "qweight": noise("I32", IN, OUT // 8, width=4),
        "qzeros": noise("I32", 1, OUT // 8, width=4),
        "scales": halves(1, OUT),
    },
    "INT4 (packed)": {
        "weight_packed": noise("I32", OUT, IN // 8, width=4),
        "weight_scale": halves(OUT, 1),
        "weight_shape": RawTensor("I64", (2,), OUT.to_bytes(8, "little") + IN.to_bytes(8, "little")),
    },
    "MXFP4": {"weight": noise("U8", OUT, IN // 2, width=1), "weight_scale": exponents(OUT, IN // 32)},
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packs") / "plain"
    return protect(write_checkpoint(folder, CheckpointOptions(vision=False)).folder)


def repacked(plain, folder, pack):
    """One matrix of the target in another pack."""
    copy_of(plain, folder)
    file = folder / "model.safetensors"
    tensors = {name: tensor for name, tensor in read_safetensors(file).items() if name != f"{MODULE}.weight"}
    write_safetensors(file, tensors | {f"{MODULE}.{leaf}": tensor for leaf, tensor in pack.items()})
    return folder


def claim(report, name):
    return next(item for item in report.items if item.check == name)


@pytest.mark.parametrize("name", PACKS)
def test_a_pack_is_recognised_and_named_as_not_loaded(plain, tmp_path, name):
    report = check_weights(open_checkpoint(str(repacked(plain, tmp_path / "c", PACKS[name]))))
    known = claim(report, "precision-known")
    assert report.verdict is Verdict.PROVEN, report.summary
    assert f"{name} (1)" in known.observed
    assert any(f"{name} is recognised" in note.text for note in known.notes)


@pytest.mark.parametrize("name", PACKS)
def test_a_pack_without_its_scales_is_disproved(plain, tmp_path, name):
    pack = {leaf: tensor for leaf, tensor in PACKS[name].items() if "scale" not in leaf}
    report = check_weights(open_checkpoint(str(repacked(plain, tmp_path / "c", pack))))
    item = claim(report, "scales-there")
    assert item.verdict is Verdict.DISPROVED
    assert MODULE in item.observed


@pytest.mark.parametrize("name", ["GPTQ", "INT4 (packed)"])
def test_a_pack_that_was_never_written_is_dead(plain, tmp_path, name):
    weight = "qweight" if name == "GPTQ" else "weight_packed"
    dead = RawTensor("I32", PACKS[name][weight].shape, bytes(len(PACKS[name][weight].data)))
    report = check_weights(
        open_checkpoint(str(repacked(plain, tmp_path / "c", {**PACKS[name], weight: dead})))
    )
    assert claim(report, "values-alive").verdict is Verdict.DISPROVED


def test_a_dtype_of_no_known_scheme_leaves_the_precision_unknown(plain, tmp_path):
    pack = {"weight": noise("I16", OUT, IN, width=2)}
    report = check_weights(open_checkpoint(str(repacked(plain, tmp_path / "c", pack))))
    known = claim(report, "precision-known")
    assert known.verdict is Verdict.UNKNOWN
    assert "I16" in known.reason
