"""From what was built and copied to the fate of each tensor."""

from __future__ import annotations

from dataclasses import replace

from draftproof.stacks.code_facts import Fate, TensorLanding
from draftproof.stacks.evaluation.outcomes import LogMessage, RaisedError
from draftproof.stacks.place import Place
from draftproof.stacks.representatives import Representatives
from draftproof.stacks.served_checkpoint import StoredTensor
from draftproof.stacks.vllm.code.draft_model import BuiltParameter, DraftRun
from draftproof.stacks.vllm.code.landings import (
    Loaded,
    head_precision,
    is_about_missing,
    tensor_landings,
    unwritten_parameters,
)

LOADER, COPY, MADE = Place("head.py", 10), Place("linear.py", 20), Place("linear.py", 5)
EMPTY = DraftRun((), None, {}, (), (), {})


def parameter(
    name: str, shape: tuple[int, ...], *writes: tuple[str, int], dtype: str = "bfloat16"
) -> BuiltParameter:
    return BuiltParameter(
        name,
        shape,
        dtype,
        "Linear",
        "",
        tuple(label for label, _ in writes),
        sum(count for _, count in writes),
        False,
        MADE,
    )


def stored(*names: str) -> Representatives:
    tensors = tuple(StoredTensor(name, (2, 2), "BF16") for name in names)
    pattern_of = {name: name.replace(".experts.0.", ".experts.{e}.") for name in names}
    counts = {pattern: 256 if "{e}" in pattern else 1 for pattern in pattern_of.values()}
    return Representatives({}, tensors, pattern_of, counts, {})


def loaded(few: Representatives, run: DraftRun, singly: DraftRun | None = None) -> Loaded:
    return Loaded(few, run, singly, LOADER, Place("speculator.py", 7))


def only(subject: Loaded) -> TensorLanding:
    (landing,) = tensor_landings(subject)
    return landing


def test_a_part_of_a_fused_parameter() -> None:
    run = replace(
        EMPTY,
        parameters=(parameter("model.layers.0.self_attn.qkv_proj.weight", (6, 2), ("mtp.q_proj.weight", 4)),),
        places={"mtp.q_proj.weight": (COPY,)},
    )
    subject = loaded(stored("mtp.q_proj.weight"), run)
    landing = only(subject)
    assert (landing.fate, landing.shard, landing.built) == (Fate.LANDS, "q", "BF16")
    assert landing.places == (COPY, LOADER)
    (left,) = unwritten_parameters(subject)
    assert left.name == "model.layers.0.self_attn.qkv_proj.weight (in part)"
    assert left.place == MADE


def test_an_expert_stands_for_its_fellows() -> None:
    name = "mtp.mlp.experts.0.up_proj.weight"
    run = replace(EMPTY, parameters=(parameter("model.mlp.experts.w13_weight", (2, 4, 2), (name, 16)),))
    landing = only(loaded(stored(name), run))
    assert (landing.tensor, landing.count, landing.shard) == ("mtp.mlp.experts.{e}.up_proj.weight", 256, "w3")


def test_what_the_target_replaces_is_shared_and_not_unwritten() -> None:
    run = replace(
        EMPTY,
        parameters=(
            parameter("model.embed_tokens.weight", (2, 2), ("embed_tokens.weight", 4)),
            parameter("lm_head.weight", (2, 2)),
        ),
    )
    subject = loaded(stored("embed_tokens.weight"), run)
    assert only(subject).fate is Fate.SHARED
    assert unwritten_parameters(subject) == ()


def test_a_skip_is_silent_or_logged() -> None:
    few = stored("mtp.fc.weight")
    assert only(loaded(few, EMPTY)).fate is Fate.SKIPPED_SILENTLY
    line = LogMessage("warning_once", "Parameter fc.weight not found, skip loading", COPY)
    landing = only(loaded(few, replace(EMPTY, log=(line,))))
    assert (landing.fate, landing.places) == (Fate.SKIPPED_WITH_LOG, (COPY,))
    quiet = LogMessage("debug", "Skipping mtp.fc.weight", COPY)
    assert only(loaded(few, replace(EMPTY, log=(quiet,)))).fate is Fate.SKIPPED_SILENTLY


def test_an_error_is_the_tensors_that_raises_it_alone() -> None:
    few = stored("mtp.fc.weight", "mtp.norm.weight")
    error = RaisedError("AssertionError", ("AssertionError",), "", COPY)
    singly = replace(
        EMPTY,
        errors={"mtp.fc.weight": ("AssertionError", "")},
        parameters=(parameter("model.norm.weight", (2, 2), ("mtp.norm.weight", 4)),),
    )
    subject = loaded(few, replace(EMPTY, error=error), singly)
    fates = {landing.tensor: landing.fate for landing in tensor_landings(subject)}
    assert fates == {"mtp.fc.weight": Fate.REFUSED, "mtp.norm.weight": Fate.LANDS}
    assert not is_about_missing(subject)


def test_an_error_that_every_tensor_alone_raises_is_about_those_that_are_missing() -> None:
    few = stored("mtp.fc.weight", "mtp.norm.weight")
    same = {tensor.name: ("ValueError", "layer 61 weights missing") for tensor in few.tensors}
    error = RaisedError("ValueError", ("ValueError",), "layer 61 weights missing", COPY)
    written = tuple(parameter(f"model.{tensor.name}", (2, 2), (tensor.name, 4)) for tensor in few.tensors)
    subject = loaded(few, replace(EMPTY, error=error), replace(EMPTY, errors=same, parameters=written))
    assert is_about_missing(subject)
    assert {landing.fate for landing in tensor_landings(subject)} == {Fate.LANDS}


def test_scales_that_are_made_with_a_value_need_no_tensor() -> None:
    scale = replace(parameter("model.fc.input_scale", (1,), dtype="float32"), is_filled=True)
    bare = parameter("model.fc.weight_scale", (1,), dtype="float32")
    left = unwritten_parameters(loaded(stored(), replace(EMPTY, parameters=(scale, bare))))
    assert [entry.name for entry in left] == ["model.fc.weight_scale"]


def test_experts_beyond_those_that_were_loaded_are_named() -> None:
    few = replace(stored(), missing={"mtp.mlp.experts.{e}.up_proj.weight": 77})
    (left,) = unwritten_parameters(loaded(few, EMPTY))
    assert left.name == "mtp.mlp.experts.77.up_proj.weight"


def test_the_precision_of_a_head_in_words() -> None:
    run = replace(
        EMPTY,
        parameters=(
            parameter("model.fc.weight", (2, 2)),
            parameter("model.layers.0.self_attn.o_proj.weight", (2, 2), dtype="float8_e4m3fn"),
            parameter("model.layers.0.self_attn.o_proj.weight_scale_inv", (1, 1), dtype="float32"),
        ),
    )
    assert head_precision(run) == "fc and norms BF16, attention FP8 (block scales)"
