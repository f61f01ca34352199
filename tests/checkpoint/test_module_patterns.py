"""Which entry of a list covers which module."""

from __future__ import annotations

import time

import pytest

from draftproof.checkpoint.module_patterns import ModulePatterns, canonical

HEAD = "mtp.layers.0.self_attn.q_proj"
TRUNK = "model.language_model.layers.3.self_attn.q_proj"


def covers(pattern: str, module: str) -> bool:
    return ModulePatterns([pattern]).match(module) == pattern


@pytest.mark.parametrize(
    ("pattern", "head", "trunk"),
    [
        ("*.self_attn.q_proj", True, True),
        ("re:.*self_attn.*", True, True),
        ("model.layers.3*", False, True),
        ("language_model.layers.3.self_attn.q_proj", False, True),
        ("model.language_model.layers.3.self_attn", False, True),
        ("mtp.layers.0*", True, False),
        ("mtp*", True, False),
        ("mtp", True, False),
        ("re:^mtp.*", True, False),
        ("re:model.layers.3.*", False, True),
        ("model.language_model.*", False, True),
        ("layers.3", False, True),
        ("q_proj", True, True),
        ("self_attn.q_proj", True, True),
        ("self_attn.qkv_proj", True, True),
        ("model.layers.3.self_attn.qkv_proj", False, True),
        ("model.layers.3.self_attn.q_proj.linear", False, True),
        ("attn.q_proj", False, False),
        ("q_pro", False, False),
        ("layers.3.self_attn.k_proj", False, False),
        ("self_attn", True, True),
        ("*q_pro?", True, True),
        ("*.layers.[34].*", False, True),
        ("*.layers.[!3].*", True, False),
    ],
)
def test_the_match_matrix(pattern: str, head: bool, trunk: bool) -> None:
    assert (covers(pattern, HEAD), covers(pattern, TRUNK)) == (head, trunk)


@pytest.mark.parametrize(
    ("pattern", "module"),
    [
        ("mtp.layers.3*", "mtp.layers.30.mlp.up_proj"),
        ("model.layers.3*", "model.language_model.layers.31.mlp.up_proj"),
        ("*layers.3*", "model.layers.30.mlp.up_proj"),
        ("*layers.3*up_proj", "model.layers.30.mlp.up_proj"),
        ("mtp.layers.3", "mtp.layers.30"),
    ],
)
def test_a_number_is_never_continued(pattern: str, module: str) -> None:
    assert not covers(pattern, module)
    assert covers(pattern, module.replace("30", "3").replace("31", "3"))


def test_members_that_are_all_listed_stand_for_the_fused_module() -> None:
    listed = ModulePatterns([f"model.layers.0.self_attn.{name}_proj" for name in "qkv"])
    assert listed.match("model.layers.0.self_attn.qkv_proj")
    assert not ModulePatterns(["model.layers.0.self_attn.q_proj"]).match("model.layers.0.self_attn.qkv_proj")


def test_fused_experts_are_covered_by_their_block_or_by_single_experts() -> None:
    block = "mtp.layers.0.mlp.experts"
    for patterns in (
        [block],
        ["mtp.layers.0.mlp*"],
        [f"{block}.{expert}.{name}_proj" for expert in range(4) for name in ("gate", "up", "down")],
    ):
        for tensor in ("gate_up_proj", "down_proj"):
            assert ModulePatterns(patterns).match(f"{block}.{tensor}"), (patterns, tensor)
    assert not ModulePatterns([f"{block}.0.gate_proj"]).match(f"{block}.gate_up_proj")


def test_a_list_that_tells_experts_apart_is_asked_about_each() -> None:
    patterns = ModulePatterns(["mtp.layers.0.mlp.experts.7.up_proj"])
    assert patterns.match("mtp.layers.0.mlp.experts.7.up_proj")
    assert not patterns.match("mtp.layers.0.mlp.experts.8.up_proj")


@pytest.mark.parametrize(
    "module",
    [
        "model.layers.3.mlp",
        "language_model.layers.3.mlp",
        "model.language_model.layers.3.mlp",
        "language_model.model.layers.3.mlp",
        "layers.3.mlp.linear",
    ],
)
def test_spellings_of_one_module(module: str) -> None:
    assert canonical(module) == "layers.3.mlp"


@pytest.mark.parametrize(
    "pattern",
    [
        r"re:(a+)+$",
        r"re:(a|aa)*$",
        r"re:(.*).*\1",
        r"re:.*.*.*.*x",
        r"re:[",
        "re:" + "(" * 400,
        "*" * 30 + "x",
        "x" * 1000,
        "",
    ],
)
def test_entries_that_could_take_for_ever_are_refused_by_name(pattern: str) -> None:
    patterns = ModulePatterns([pattern, "mtp.fc"])
    assert patterns.refused == (pattern,)
    started = time.perf_counter()
    assert patterns.match("model.layers.0." + "a" * 150) is None
    assert patterns.match("mtp.fc") == "mtp.fc"
    assert time.perf_counter() - started < 0.1


def test_the_slowest_accepted_expression_ends_on_the_longest_names() -> None:
    patterns = ModulePatterns([r"re:.*a.*a.*ab", "*a*a*b"])
    assert patterns.refused == ()
    started = time.perf_counter()
    assert patterns.match("a" * 190) is None
    assert patterns.match("a" * 10_000) is None
    assert time.perf_counter() - started < 5


def test_a_hundred_thousand_experts_are_answered_within_a_second() -> None:
    patterns = ModulePatterns(
        [
            f"model.language_model.layers.{i}.{kind}*"
            for i in range(60)
            for kind in ("linear_attn", "self_attn")
        ]
        + ["re:.*visual.*", "*.mlp.gate", "mtp.layers.0*"]
    )
    names = [
        f"model.language_model.layers.{layer}.mlp.experts.{expert}.up_proj"
        for layer in range(60)
        for expert in range(1700)
    ]
    started = time.perf_counter()
    assert not any(patterns.match(name) for name in names)
    assert time.perf_counter() - started < 3
