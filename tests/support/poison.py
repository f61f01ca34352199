"""Memory that is not initialised, made visible: every fresh floating tensor is full of NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch import Tensor


def poison_uninitialised_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes torch.empty, empty_like, empty_strided and Tensor.new_empty return NaN in floating dtypes.

    Code that reads a buffer before writing it, or writes only part of it, then computes NaN instead of a
    number that happens to be right. Calls made inside torch's own C++ code are not affected.
    """
    import torch

    for owner, name in (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch, "empty_strided"),
        (torch.Tensor, "new_empty"),
    ):
        monkeypatch.setattr(owner, name, _poisoned(getattr(owner, name)))


def _poisoned(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def allocate(*args: Any, **kwargs: Any) -> Tensor:
        tensor = original(*args, **kwargs)
        if tensor.is_floating_point():
            tensor.detach().fill_(float("nan"))
        return tensor

    return allocate
