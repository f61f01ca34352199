"""Which file of a version is read."""

from __future__ import annotations

import pytest
from packaging.version import Version

from draftproof.stacks.find.candidates import choose_file, nearest_versions
from draftproof.stacks.find.index import IndexFile


def files(*names: str, yanked: str | None = None) -> tuple[IndexFile, ...]:
    return tuple(
        IndexFile(name, f"https://host/{name}", "https://host/simple", yanked=yanked) for name in names
    )


ARM = "vllm-0.33.0-cp38-abi3-manylinux_2_28_aarch64.whl"
INTEL = "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"
OLD_PYTHON = "vllm-0.33.0-cp36-cp36m-manylinux1_x86_64.whl"
WINDOWS = "vllm-0.33.0-cp312-cp312-win_arm64.whl"
PURE = "vllm-0.33.0-py3-none-any.whl"
SOURCE = "vllm-0.33.0.tar.gz"
LOCAL = "vllm-0.33.0+cu129-cp38-abi3-manylinux_2_28_x86_64.whl"


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [
        ((SOURCE, WINDOWS, OLD_PYTHON, INTEL, PURE), PURE),
        ((SOURCE, WINDOWS, OLD_PYTHON), OLD_PYTHON),
        ((SOURCE, WINDOWS), WINDOWS),
        ((SOURCE,), SOURCE),
        ((LOCAL, SOURCE), SOURCE),
        ((LOCAL,), LOCAL),
        (("vllm-0.33.1-py3-none-any.whl", "vllm-0.33.0.exe", "vllm-broken.whl"), None),
    ],
)
def test_any_file_of_the_version_will_do_in_this_order(listed: tuple[str, ...], chosen: str | None) -> None:
    file = choose_file(files(*listed), Version("0.33"))
    assert (file.name if file else None) == chosen


def test_a_wheel_for_this_machine_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from packaging.tags import Tag

    from draftproof.stacks.find import candidates

    monkeypatch.setattr(candidates, "sys_tags", lambda: [Tag("cp38", "abi3", "manylinux_2_28_aarch64")])
    file = choose_file(files(INTEL, ARM), Version("0.33.0"))
    assert file is not None
    assert file.name == ARM


def test_a_local_version_is_met_by_itself_only() -> None:
    assert choose_file(files(INTEL), Version("0.33.0+cu129")) is None
    file = choose_file(files(INTEL, LOCAL), Version("0.33.0+cu129"))
    assert file is not None
    assert file.name == LOCAL


def test_the_nearest_versions_are_those_around_it() -> None:
    listed = files(*(f"vllm-0.{minor}.0.tar.gz" for minor in range(10)))
    withdrawn = files("vllm-0.4.9.tar.gz", yanked="")
    everything = (*listed, *withdrawn)
    assert nearest_versions(everything, Version("0.4.5")) == ("0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0")
    assert nearest_versions(everything, Version("9"), 2) == ("0.8.0", "0.9.0")
    assert nearest_versions(everything, Version("0.0.1"), 2) == ("0.0.0", "0.1.0")
    assert nearest_versions((), Version("1")) == ()
