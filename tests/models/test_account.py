"""The account of a checkpoint's tensors: each is taken once or skipped with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.errors import AccountingError
from draftproof.models.account import NAMES_SHOWN, LoadReport, TensorAccount
from tests.support.engines import CPU

TENSORS = {name: torch.full((2, 3), float(index)) for index, name in enumerate(["a.x", "a.y", "b.x", "b.y"])}


@pytest.fixture
def account(tmp_path: Path) -> TensorAccount:
    save_file(TENSORS, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    return TensorAccount(tmp_path, open_checkpoint(str(tmp_path)).inventory.tensors, CPU)


def test_everything_taken_or_skipped_balances(account: TensorAccount) -> None:
    assert torch.equal(account.take("a.x"), TENSORS["a.x"])
    assert torch.equal(account.take("b.y", (2, 3)), TENSORS["b.y"])
    account.skip("a.y", "not needed")
    account.skip_prefix("b.", "other half")
    account.skip("never there", "not needed")
    assert account.close() == LoadReport(2, (("not needed", 1), ("other half", 1)))


def test_what_is_there_can_be_asked_without_taking_it(account: TensorAccount) -> None:
    assert account.has("a.x")
    assert not account.has("a.z")
    assert (account.entry("a.x").dtype, account.entry("a.x").shape) == ("F32", (2, 3))
    with pytest.raises(AccountingError, match=r"tensor a\.z is missing.*draftproof verify"):
        account.entry("a.z")


def test_taking_twice_is_named(account: TensorAccount) -> None:
    account.take("a.x")
    with pytest.raises(AccountingError, match=r"tensor a\.x is used twice"):
        account.take("a.x")


def test_taking_what_was_skipped_is_named(account: TensorAccount) -> None:
    account.skip("a.x", "not needed")
    with pytest.raises(AccountingError, match=r"tensor a\.x is used twice"):
        account.take("a.x")


def test_a_taken_tensor_cannot_be_skipped_away(account: TensorAccount) -> None:
    account.take("a.x")
    account.skip_prefix("", "all the rest")
    assert account.close() == LoadReport(1, (("all the rest", 3),))


def test_a_wrong_shape_is_no_use_of_the_tensor(account: TensorAccount) -> None:
    with pytest.raises(
        AccountingError, match=r"tensor a\.x has shape \[2, 3\], the config asks for \[3, 2\]"
    ):
        account.take("a.x", (3, 2))
    with pytest.raises(AccountingError, match="4 tensors of the checkpoint have no place"):
        account.close()


def test_left_over_tensors_are_named_and_beyond_a_few_counted(account: TensorAccount) -> None:
    account.take("a.x")
    with pytest.raises(AccountingError, match=r"3 tensors .* in the model: a\.y, b\.x, b\.y\. "):
        account.close()


def test_many_left_over_tensors(tmp_path: Path) -> None:
    save_file(
        {f"t{index}": torch.zeros(1) for index in range(NAMES_SHOWN + 3)}, tmp_path / "model.safetensors"
    )
    (tmp_path / "config.json").write_text("{}")
    account = TensorAccount(tmp_path, open_checkpoint(str(tmp_path)).inventory.tensors, CPU)
    with pytest.raises(AccountingError, match=r"8 tensors .* and 3 more\. "):
        account.close()


def test_a_stack_takes_each_of_its_tensors(account: TensorAccount) -> None:
    stack = account.take_stack(["a.y", "b.x"], (2, 3))
    assert torch.equal(stack, torch.stack([TENSORS["a.y"], TENSORS["b.x"]]))
    with pytest.raises(AccountingError, match=r"tensor b\.x is used twice"):
        account.take("b.x")


def test_a_stack_of_different_types_is_named(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2), "b": torch.zeros(2).half()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    account = TensorAccount(tmp_path, open_checkpoint(str(tmp_path)).inventory.tensors, CPU)
    with pytest.raises(AccountingError, match="tensor b has dtype F16, a has F32"):
        account.take_stack(["a", "b"], (2,))
