"""Stacks in folders: environments, editable installations, checkouts, unpacked wheels, bare trees."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from draftproof.errors import StackError, UsageError
from draftproof.stacks.find.find import StackFinder
from draftproof.stacks.request import parse_request
from draftproof.stacks.stack import Distribution, Stack, StackKind
from tests.support.stack_wheels import (
    REQUIREMENTS,
    SGLANG_FILES,
    VLLM_FILES,
    metadata_text,
    unpacked_wheel,
    write_files,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def find(text: object, **variables: str) -> Stack:
    return StackFinder(variables).find(parse_request(str(text)))


def write_environment(folder: Path, version: str = "3.12") -> Path:
    """An empty virtual environment; returns its site-packages."""
    site = folder / f"lib/python{version}/site-packages"
    site.mkdir(parents=True)
    write_files(folder, {"bin/python": "", "pyvenv.cfg": f"home = /usr/bin\nversion = {version}.1\n"})
    return site


def test_an_environment_by_its_folder_or_its_interpreter(tmp_path: Path) -> None:
    site = write_environment(tmp_path / "env")
    unpacked_wheel(site, "sglang", "0.5.12", SGLANG_FILES)
    write_files(
        site, {"flashinfer_python-0.4.0.dist-info/METADATA": "", "Sgl.Kernel-0.3.9.dist-info/RECORD": ""}
    )
    for path in (tmp_path / "env", tmp_path / "env/bin/python", site, site / "sglang"):
        stack = find(path)
        assert stack.label == "SGLang 0.5.12"
        assert stack.origin == f"installed in {tmp_path / 'env'}"
        assert stack.python == tmp_path / "env/bin/python"
        assert stack.tree.root == site
        assert stack.requires == REQUIREMENTS
        assert stack.notes == ()
        assert stack.beside == (
            Distribution("flashinfer-python", "0.4.0"),
            Distribution("sgl-kernel", "0.3.9"),
            Distribution("sglang", "0.5.12"),
        )
        assert stack.installed_version("flashinfer_python") == "0.4.0"
        assert stack.installed_version("nothing") is None


def test_an_environment_with_both_asks_which(tmp_path: Path) -> None:
    site = write_environment(tmp_path / "env")
    unpacked_wheel(site, "sglang", "0.5.12", SGLANG_FILES)
    unpacked_wheel(site, "vllm", "0.33.0", VLLM_FILES)
    with pytest.raises(UsageError, match=f"sglang@{tmp_path / 'env'} or --stack vllm@"):
        find(tmp_path / "env")
    assert find(f"vllm@{tmp_path / 'env'}").label == "vLLM 0.33.0"


def test_an_environment_without_a_stack(tmp_path: Path) -> None:
    write_environment(tmp_path / "env")
    with pytest.raises(StackError, match="neither SGLang nor vLLM is installed"):
        find(tmp_path / "env")
    with pytest.raises(StackError, match=r"vLLM is not installed in .* vllm==0\.33\.0"):
        find(f"vllm@{tmp_path / 'env'}")


def test_an_interpreter_of_the_right_python_counts(tmp_path: Path) -> None:
    """A system folder holds packages of several Python versions."""
    for version, stack in (("3.11", "0.5.9"), ("3.12", "0.5.12")):
        unpacked_wheel(tmp_path / f"lib/python{version}/dist-packages", "sglang", stack, SGLANG_FILES)
        write_files(tmp_path, {f"bin/python{version}": ""})
    assert find(tmp_path / "bin/python3.12").version == "0.5.12"
    assert find(tmp_path / "bin/python3.11").version == "0.5.9"


def test_packages_of_the_system_are_seen_where_the_environment_sees_them(tmp_path: Path) -> None:
    write_environment(tmp_path / "env")
    unpacked_wheel(tmp_path / "base/lib/python3.12/site-packages", "vllm", "0.33.0", VLLM_FILES)
    settings = f"home = {tmp_path / 'base/bin'}\nversion = 3.12.1\n"
    write_files(tmp_path / "env", {"pyvenv.cfg": settings})
    with pytest.raises(StackError):
        find(tmp_path / "env")
    write_files(tmp_path / "env", {"pyvenv.cfg": settings + "include-system-site-packages = true\n"})
    assert find(tmp_path / "env").version == "0.33.0"


def test_this_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages"), *sys.path])
    unpacked_wheel(tmp_path / "site-packages", "sglang", "0.5.12", SGLANG_FILES)
    stack = find("sglang")
    assert stack.origin == f"installed in {sys.prefix}"
    assert stack.python == Path(sys.executable)
    assert "sglang" not in sys.modules


def test_the_folder_that_a_user_stands_in_is_no_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, SGLANG_FILES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path)])
    with pytest.raises(StackError, match="SGLang is not installed"):
        find("sglang")
    assert find("sglang", PYTHONPATH=str(tmp_path)).tree.root == tmp_path


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX", "PATH"])
def test_the_environment_that_was_meant_is_named(tmp_path: Path, variable: str) -> None:
    """draftproof often has an environment of its own, beside that of the stack."""
    folder = tmp_path / "env"
    unpacked_wheel(write_environment(folder), "sglang", "0.5.12", SGLANG_FILES)
    write_files(folder, {"bin/python3": ""})
    (folder / "bin/python3").chmod(0o755)
    value = folder / "bin" if variable == "PATH" else folder
    with pytest.raises(StackError) as caught:
        find("sglang", **{variable: str(value)})
    assert caught.value.message.endswith(f"but in {folder}")
    assert caught.value.remedy == f"Write: --stack sglang@{folder}."


def test_our_own_engine() -> None:
    stack = find("native")
    assert stack.kind is StackKind.NATIVE
    assert stack.tree.has("draftproof/engine/engine.py")
    assert stack.python == Path(sys.executable)


@pytest.mark.parametrize("trace", ["direct_url", "pth", "finder"])
def test_an_editable_installation_is_followed(tmp_path: Path, trace: str) -> None:
    site = write_environment(tmp_path / "env")
    checkout = write_checkout(tmp_path / "work/sglang")
    project = checkout / "python"
    write_files(site, {"sglang-0.5.10.dist-info/METADATA": metadata_text("sglang", "0.5.10")})
    if trace == "direct_url":
        address = json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}})
        write_files(site, {"sglang-0.5.10.dist-info/direct_url.json": address})
    elif trace == "pth":
        write_files(site, {"__editable__.sglang-0.5.10.pth": f"# comment\nimport os\n{project}\n"})
    else:
        mapping = f"MAPPING: dict[str, str] = {{'sglang': {str(project / 'sglang')!r}}}\n"
        write_files(site, {"__editable___sglang_0_5_10_finder.py": mapping})
    stack = find(tmp_path / "env")
    assert stack.tree.root == project
    assert stack.version == "0.5.12"  # what the source says, not what was installed long ago
    assert stack.origin.endswith(f"editable from git checkout {checkout} at commit {COMMIT[:12]}")
    assert stack.python == tmp_path / "env/bin/python"


def write_checkout(folder: Path) -> Path:
    """SGLang's layout: the package below python/."""
    write_files(folder / "python", SGLANG_FILES)
    write_files(folder, {".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": f"{COMMIT}\n"})
    return folder


def test_a_git_checkout(tmp_path: Path) -> None:
    checkout = write_checkout(tmp_path / "sglang")
    for path in (checkout, checkout / "python", checkout / "python/sglang"):
        stack = find(path)
        assert stack.tree.root == checkout / "python"
        assert stack.origin == f"git checkout {checkout} at commit {COMMIT[:12]}"
        assert stack.version == "0.5.12"
        assert stack.beside is None


@pytest.mark.parametrize("annotated", [False, True])
def test_a_tag_on_the_commit_is_the_version(tmp_path: Path, annotated: bool) -> None:
    checkout = write_checkout(tmp_path / "sglang")
    tag = f"{'f' * 40} refs/tags/v0.5.20\n^{COMMIT}\n" if annotated else f"{COMMIT} refs/tags/v0.5.20\n"
    packed = f"# pack-refs with: peeled\n{COMMIT} refs/heads/main\n{tag}"
    (checkout / ".git/refs/heads/main").unlink()
    write_files(checkout, {".git/packed-refs": packed})
    stack = find(checkout)
    assert COMMIT[:12] in stack.origin
    assert stack.version == "0.5.20"


def test_a_worktree(tmp_path: Path) -> None:
    main = write_checkout(tmp_path / "main")
    worktree = write_files(tmp_path / "tree/python", SGLANG_FILES).parent
    private = main / ".git/worktrees/tree"
    write_files(worktree, {".git": f"gitdir: {private}\n"})
    write_files(private, {"HEAD": "ref: refs/heads/main\n", "commondir": "../..\n"})
    assert find(worktree).origin == f"git checkout {worktree} at commit {COMMIT[:12]}"


def test_a_checkout_that_does_not_say_its_commit(tmp_path: Path) -> None:
    checkout = write_checkout(tmp_path / "sglang")
    write_files(checkout, {".git/HEAD": "ref: refs/heads/../../../secret\n"})
    assert find(checkout).origin.endswith("at an unknown commit")


def test_the_version_of_a_bare_tree(tmp_path: Path) -> None:
    files = {path: text for path, text in SGLANG_FILES.items() if path != "sglang/_version.py"}
    write_files(tmp_path, {**files, "sglang/version.py": "from x import __version__\n"})
    assert find(tmp_path).label == "SGLang (version unknown)"
    write_files(tmp_path, {"pyproject.toml": '[project]\nversion = "0.5.3"\ndependencies = ["torch==2.8"]\n'})
    stack = find(tmp_path)
    assert (stack.version, stack.requires) == ("0.5.3", ("torch==2.8",))
    write_files(tmp_path, {"sglang/version.py": "__version__ = '0.5.4'\n"})
    assert find(tmp_path).version == "0.5.4"
    assert find(tmp_path).origin == f"source tree {tmp_path}"


def test_an_unpacked_wheel(tmp_path: Path) -> None:
    unpacked_wheel(tmp_path, "vllm", "0.33.0", VLLM_FILES)
    stack = find(tmp_path)
    assert stack.label == "vLLM 0.33.0"
    assert stack.requires == REQUIREMENTS
    assert stack.beside is None


def test_hidden_folders_of_a_wheel_are_no_missing_files(tmp_path: Path) -> None:
    """SGLang 0.5.12 ships scripts in multimodal_gen/.claude."""
    unpacked_wheel(tmp_path, "vllm", "0.33.0", {**VLLM_FILES, "vllm/.hidden/script.py": "x = 1\n"})
    assert find(tmp_path).notes == ()
    (tmp_path / "vllm/.hidden/script.py").unlink()
    with pytest.raises(StackError, match=r"vllm/\.hidden/script\.py of 6"):
        find(tmp_path)


def test_a_half_unpacked_wheel_names_what_is_missing(tmp_path: Path) -> None:
    unpacked_wheel(tmp_path, "vllm", "0.33.0", VLLM_FILES)
    (tmp_path / "vllm/model_executor/models/registry.py").write_text("")
    (tmp_path / "vllm/engine/more.py").write_text("")
    (tmp_path / "vllm/engine/arg_utils.py").unlink()
    with pytest.raises(StackError) as caught:
        find(tmp_path)
    assert "vllm/engine/arg_utils.py, vllm/model_executor/models/registry.py of 5 .py files" in str(
        caught.value
    )
    assert "Unpack or install it again" in str(caught.value)


def test_files_that_were_changed_since_the_installation_are_noted(tmp_path: Path) -> None:
    unpacked_wheel(tmp_path, "vllm", "0.33.0", VLLM_FILES)
    write_files(tmp_path, {"vllm/engine/arg_utils.py": "patched = True\n"})
    assert find(tmp_path).notes == ("vllm/engine/arg_utils.py differs in size from what the wheel installed",)


def test_an_unpacked_wheel_without_its_models(tmp_path: Path) -> None:
    files = {path: text for path, text in SGLANG_FILES.items() if "models" not in path}
    write_files(tmp_path, files)
    with pytest.raises(StackError, match=r"no complete SGLang source: sglang/srt/models/\*\.py is missing"):
        find(tmp_path)


def test_folders_that_hold_something_else(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="neither an sglang nor a vllm package"):
        find(tmp_path)
    write_files(tmp_path, SGLANG_FILES)
    with pytest.raises(StackError, match="holds SGLang, not vLLM"):
        find(f"vllm@{tmp_path}")
    write_files(tmp_path, {"notes.txt": ""})
    with pytest.raises(StackError, match="neither"):
        find(tmp_path / "notes.txt")
    with pytest.raises(UsageError, match="there is no"):
        find(tmp_path / "nothing")


def test_an_environment_whose_files_are_links(tmp_path: Path) -> None:
    """As setuptools' strict editable mode and uv's symlink mode leave it."""
    site = write_environment(tmp_path / "env")
    unpacked_wheel(tmp_path / "archive", "sglang", "0.5.12", SGLANG_FILES)
    for path in (*SGLANG_FILES, "sglang-0.5.12.dist-info/METADATA"):
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).symlink_to(tmp_path / "archive" / path)
    stack = find(tmp_path / "env")
    assert stack.tree.root == tmp_path / "archive"
    assert stack.tree.has("sglang/srt/server_args.py")
    assert stack.label == "SGLang 0.5.12"


def test_a_package_folder_that_is_a_link(tmp_path: Path) -> None:
    site = write_environment(tmp_path / "env")
    write_files(tmp_path / "work", SGLANG_FILES)
    (site / "sglang").symlink_to(tmp_path / "work/sglang")
    stack = find(tmp_path / "env")
    assert stack.tree.text("sglang/srt/server_args.py") == SGLANG_FILES["sglang/srt/server_args.py"]
