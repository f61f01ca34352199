"""vLLM's options, as its own source derives them from its config classes."""

from __future__ import annotations

import pytest

from draftproof.stacks.launch_facts import Option, ValueKind
from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.vllm.launch.option_reading import read_options
from tests.support.real_stacks import real_stack
from tests.support.vllm_launch import RULES, VERSIONS

ARGUMENTS = "vllm/engine/arg_utils.py"


def option(version: str, name: str) -> Option | None:
    table = RULES.options(real_stack("vllm", version)).value
    assert table is not None
    return table.get(name)


@pytest.mark.parametrize(("version", "count"), [("0.19.0", 290), ("0.26.0", 340), ("0.33.0", 400)])
def test_every_option_is_there_with_its_place(version: str, count: int) -> None:
    table = RULES.options(real_stack("vllm", version)).value

    assert table is not None
    assert len(table.options) >= count
    for entry in table.options:
        line = real_stack("vllm", version).tree.text(entry.place.file).splitlines()[entry.place.line - 1]
        assert "add_argument" in line or ":" in line, (entry, line)


@pytest.mark.parametrize("version", VERSIONS)
def test_types_choices_defaults_and_aliases(version: str) -> None:
    ranks = option(version, "-tp")
    assert ranks is not None
    assert (ranks.name, ranks.kind, ranks.default) == ("--tensor-parallel-size", ValueKind.INTEGER, "1")
    config = option(version, "-sc")
    assert config is not None
    assert (config.name, config.kind) == ("--speculative-config", ValueKind.JSON)
    experts = option(version, "--moe-backend")
    assert experts is not None
    assert {"auto", "marlin", "flashinfer_trtllm"} <= set(experts.choices)
    attention = option(version, "--attention-backend")
    assert attention is not None
    assert {"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN"} <= set(attention.choices)
    port = option(version, "--port")
    assert port is not None
    assert (port.kind, port.default) == (ValueKind.INTEGER, "8000")
    assert option(version, "--served-model-name").kind is ValueKind.LIST  # type: ignore[union-attr]
    assert option(version, "--gpu-memory-utilization").kind is ValueKind.NUMBER  # type: ignore[union-attr]


@pytest.mark.parametrize("version", VERSIONS)
def test_flags_can_be_switched_off(version: str) -> None:
    plain, off = option(version, "--enable-prefix-caching"), option(version, "--no-enable-prefix-caching")
    assert plain is not None
    assert off is not None
    assert plain.kind is off.kind is ValueKind.FLAG
    assert plain.place == off.place


def test_the_newest_version_pairs_enable_with_disable() -> None:
    assert option("0.33.0", "--disable-prefix-caching") is not None
    assert option("0.26.0", "--disable-prefix-caching") is None


@pytest.mark.parametrize(("name", "versions"), [
    ("--spec-method", ("0.26.0", "0.33.0")),
    ("--linear-backend", ("0.26.0", "0.33.0")),
    ("--kda-prefill-backend", ("0.33.0",)),
    ("--per-request-spec-decode-metrics", ("0.33.0",)),
    ("--gdn-prefill-backend", VERSIONS),
])  # fmt: skip
def test_options_are_in_the_versions_that_have_them(name: str, versions: tuple[str, ...]) -> None:
    assert tuple(version for version in VERSIONS if option(version, name) is not None) == versions


def test_choices_grow_with_the_versions() -> None:
    oldest, newest = option("0.19.0", "--gdn-prefill-backend"), option("0.33.0", "--gdn-prefill-backend")
    assert oldest is not None
    assert newest is not None
    assert oldest.choices == ("flashinfer", "triton")
    assert "cutedsl" in newest.choices


def test_another_form_of_declaration_is_open() -> None:
    tree = real_stack("vllm", "0.33.0").tree
    changed = tree.text(ARGUMENTS).replace("def _compute_kwargs", "def _derive_options")
    reading = read_options(OverlaidTree(tree, {ARGUMENTS: changed}))

    assert not reading.understood
    assert ARGUMENTS in reading.sentence
