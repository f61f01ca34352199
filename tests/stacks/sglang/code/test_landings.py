"""From a head that was loaded to the fate of each tensor."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from draftproof.stacks.built_parameter import BuiltParameter
from draftproof.stacks.classes import ClassSource, MethodSource
from draftproof.stacks.code_facts import Fate
from draftproof.stacks.place import Place
from draftproof.stacks.served_checkpoint import ServedCheckpoint, StoredTensor
from draftproof.stacks.sglang.code.few_experts import few_experts
from draftproof.stacks.sglang.code.head_loading import Failure, LoadedHead
from draftproof.stacks.sglang.code.landings import LoadedCheckpoint, tensor_landings, unwritten_parameters

SOURCE = """
class Head:
    def load_weights(self, weights):
        for name in weights:
            if name not in params_dict:
                continue
"""
FILE = "pack/head.py"
CLASS = ast.parse(SOURCE).body[0]
assert isinstance(CLASS, ast.ClassDef)
OWNER = ClassSource("Head", FILE, CLASS)
METHOD = OWNER.method("load_weights")
assert METHOD is not None
EMBEDDING = "the target's embedding"


def subject(
    tensors: dict[str, tuple[int, ...]], *parameters: BuiltParameter, **failures: Failure
) -> LoadedCheckpoint:
    head = {name: StoredTensor(name, shape, "BF16") for name, shape in tensors.items()}
    checkpoint = ServedCheckpoint("name", {"num_experts": 2}, None, None, head, {})
    loaded = LoadedHead(parameters, {name.replace("_", "."): failure for name, failure in failures.items()})
    return LoadedCheckpoint(
        checkpoint, few_experts(checkpoint), loaded, MethodSource(OWNER, METHOD), Place(FILE, 2)
    )


def parameter(name: str, shape: tuple[int, ...], **writes: int) -> BuiltParameter:
    written = tuple((tensor.replace("_", "."), count) for tensor, count in writes.items())
    return BuiltParameter(name, shape, "bfloat16", written, False, "")


def test_a_tensor_lands_where_it_was_written() -> None:
    made = subject({"mtp.fc.weight": (4, 8)}, parameter("fc.weight", (4, 8), mtp_fc_weight=32))
    landing = tensor_landings(made)[0]
    assert (landing.fate, landing.parameter) == (Fate.LANDS, "fc.weight")
    assert (landing.stored, landing.built) == ("BF16", "BF16")
    assert landing.places == (Place(FILE, 3),)
    assert not unwritten_parameters(made)


@pytest.mark.parametrize(
    ("failure", "fate"),
    [
        (Failure(error="KeyError: 'w2'"), Fate.REFUSED),
        (Failure(log="not found, skip"), Fate.SKIPPED_WITH_LOG),
        (Failure(), Fate.SKIPPED_SILENTLY),
        (Failure(error="AttributeError: 'Tensor' object has no attribute 'x'"), Fate.NOT_UNDERSTOOD),
    ],
)
def test_a_tensor_that_lands_nowhere_says_what_it_met(failure: Failure, fate: Fate) -> None:
    made = subject({"mtp.fc.weight": (4, 8)}, parameter("fc.weight", (4, 8)), mtp_fc_weight=failure)
    landing = tensor_landings(made)[0]
    assert landing.fate is fate
    assert Place(FILE, 5) in landing.places
    assert [entry.name for entry in unwritten_parameters(made)] == ["fc.weight"]


def test_a_copy_of_what_the_target_shares_is_not_lost() -> None:
    name = "model.layers.9.embed_tokens.weight"
    shared = replace(parameter("embed_tokens.weight", (1, 1)), owner=EMBEDDING)
    made = subject({name: (4, 8)}, shared)
    assert tensor_landings(made)[0].fate is Fate.SHARED
    assert not unwritten_parameters(made)


def test_a_part_and_what_only_fills_a_gap_are_not_whole() -> None:
    made = subject(
        {"mtp.q.weight": (2, 8)},
        BuiltParameter("qkv.weight", (4, 8), "bfloat16", (("mtp.q.weight", 16), ("", 16)), False, ""),
    )
    assert [entry.name for entry in unwritten_parameters(made)] == ["qkv.weight (part: 16 of 32 elements)"]


def test_a_scale_that_is_made_as_one_may_stay_one() -> None:
    scale = replace(parameter("attn.k_scale", (1,)), is_filled=True)
    norm = replace(parameter("norm.weight", (8,)), is_filled=True)
    made = subject({"mtp.fc.weight": (4, 8)}, scale, norm)
    assert [entry.name for entry in unwritten_parameters(made)] == ["norm.weight"]


def test_experts_count_together_and_the_worst_of_them_decides() -> None:
    names = {f"mtp.experts.{expert}.up.weight": (2, 4) for expert in (0, 1)}
    made = subject(names, parameter("model.experts.w13_weight", (2, 2, 4), mtp_experts_0_up_weight=8))
    landing = tensor_landings(made)[0]
    assert (landing.tensor, landing.count) == ("mtp.experts.{e}.up.weight", 2)
    assert landing.fate is Fate.SKIPPED_SILENTLY
