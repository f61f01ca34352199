"""Which parts of torch are taken over by `stand_ins/torch_parts.py`, for the evaluator."""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.stacks.evaluation.settings import Named

PARTS = "draftproof_stand_ins/torch_parts.py"
"""Where the file stands in a tree that evaluated code sees."""

_CLASSES = {
    "torch.Tensor": "Tensor",
    "torch.dtype": "dtype",
    "torch.nn.parameter.Parameter": "Parameter",
    **{
        f"torch.nn.{name}": name
        for name in (
            *("Module", "ModuleList", "ModuleDict", "Sequential", "Linear", "Embedding", "LayerNorm"),
            *("Identity", "Parameter"),
        )
    },
}
_FUNCTIONS = {
    "torch.empty": "empty",
    "torch.zeros": "filled",
    "torch.ones": "filled",
    "torch.full": "full",
    "torch.empty_like": "like",
    "torch.zeros_like": "like",
    "torch.ones_like": "like",
    "torch.tensor": "tensor",
    "torch.arange": "arange",
    "torch.cat": "cat",
    "torch.split": "split",
    "torch.chunk": "chunk",
    "torch.get_default_dtype": "get_default_dtype",
}
_DTYPES = {
    **{
        f"torch.{name}": name
        for name in (
            *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
            *("float8_e8m0fnu", "uint8", "int8", "int16", "int32", "int64"),
        )
    },
    "torch.float": "float32",
    "torch.half": "float16",
    "torch.long": "int64",
    "torch.int": "int32",
    "torch.bool": "bool_",
}


def torch_substitutes() -> Mapping[str, Named]:
    """Dotted names of torch and what takes their place."""
    return {
        name: Named(PARTS, part) for table in (_CLASSES, _FUNCTIONS, _DTYPES) for name, part in table.items()
    }
