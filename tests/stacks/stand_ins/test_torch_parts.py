"""The model of torch that evaluated constructors stand on does with shapes what torch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from draftproof.stacks.stand_ins import torch_parts as parts

SHAPES = ((6, 4), (6,), (2, 6, 4), (1, 6), ())

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "narrow": lambda t: t.narrow(0, 1, 2),
    "narrow the last": lambda t: t.narrow(-1, 0, 2),
    "narrow too far": lambda t: t.narrow(0, 5, 3),
    "chunk": lambda t: t.chunk(2, 0)[1],
    "chunk the last": lambda t: t.chunk(2, dim=-1)[0],
    "split by sizes": lambda t: t.split([2, 4], 0)[1],
    "unbind": lambda t: t.unbind(0)[0],
    "first": lambda t: t[0],
    "last": lambda t: t[-1],
    "beyond": lambda t: t[9],
    "slice": lambda t: t[1:3],
    "slice of the second": lambda t: t[:, :2],
    "ellipsis": lambda t: t[..., 0],
    "new axis": lambda t: t[None],
    "unsqueeze": lambda t: t.unsqueeze(0),
    "unsqueeze the last": lambda t: t.unsqueeze(-1),
    "squeeze": lambda t: t.squeeze(),
    "reshape": lambda t: t.reshape(-1),
    "reshape to one": lambda t: t.reshape(1),
    "view": lambda t: t.view(3, -1),
    "transpose": lambda t: t.transpose(0, 1),
    "t": lambda t: t.t(),
    "flatten": lambda t: t.flatten(),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_views_have_the_shape_that_torch_gives_them(name: str, shape: tuple[int, ...]) -> None:
    operation = OPERATIONS[name]
    try:
        expected = tuple(operation(torch.empty(shape)).shape)
    except (RuntimeError, IndexError):
        with pytest.raises((RuntimeError, IndexError, ZeroDivisionError)):
            operation(parts.Tensor(shape, parts.bfloat16))
        return
    assert tuple(operation(parts.Tensor(shape, parts.bfloat16)).shape) == expected


@pytest.mark.parametrize("target", [(2, 3), (3,), (1, 3), (2, 1)])
@pytest.mark.parametrize("source", [(2, 3), (3,), (1, 3), (), (1,), (2, 2), (4, 3)])
def test_a_copy_is_refused_where_torch_refuses_it(target: tuple[int, ...], source: tuple[int, ...]) -> None:
    try:
        torch.empty(target).copy_(torch.empty(source))
    except RuntimeError:
        with pytest.raises(RuntimeError):
            parts.Tensor(target, parts.bfloat16).copy_(parts.Tensor(source, parts.bfloat16))
        return
    parts.Tensor(target, parts.bfloat16).copy_(parts.Tensor(source, parts.bfloat16))


def test_a_storage_knows_what_was_copied_into_a_view_of_it() -> None:
    whole = parts.Parameter(parts.empty(4, 2))
    whole.data.narrow(0, 2, 2).copy_(parts.Tensor((2, 2), parts.bfloat16, parts.Storage("k_proj")))
    assert whole.storage.writes == [("k_proj", 4)]


class Inner(parts.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = parts.Parameter(parts.empty(2))


class Outer(parts.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = parts.ModuleList([Inner(), Inner()])
        self.tied = self.layers[0]


def test_parameters_are_named_and_counted_once_as_in_torch() -> None:
    assert [name for name, _ in Outer().named_parameters()] == ["layers.0.weight", "layers.1.weight"]
    assert [name for name, _ in Outer().named_children()] == ["layers", "tied"]
