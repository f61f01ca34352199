"""What Triton kernels multiply in: the interpreter's matrix product takes bfloat16 for integers, so there the
(rounded) numbers are multiplied as float32."""

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED: bool = bool(triton.knobs.runtime.interpret)
"""Whether kernels run under Triton's interpreter; decided when they are imported."""

OPERAND: tl.constexpr = tl.constexpr(tl.float32 if INTERPRETED else tl.bfloat16)
"""Type of the operands of `tl.dot`: cast bfloat16 operands to it. On a GPU the cast does nothing."""
