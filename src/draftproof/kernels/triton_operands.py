"""bfloat16 in Triton kernels that must also run under Triton's interpreter, which multiplies bfloat16
matrices as integers and cuts numbers off instead of rounding them."""

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED: tl.constexpr = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""Whether kernels run under the interpreter; decided when they are imported."""

OPERAND: tl.constexpr = tl.constexpr(tl.float32 if INTERPRETED.value else tl.bfloat16)
"""Type of the operands of `tl.dot`: cast bfloat16 operands to it. On a GPU the cast does nothing."""


@triton.jit
def to_bfloat16(value):
    """float32 rounded to the nearest bfloat16, ties to even."""
    if INTERPRETED:
        bits = value.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -65536
        value = bits.to(tl.float32, bitcast=True)
    return value.to(tl.bfloat16)


@triton.jit
def operand_of_bits(bits):
    """int16 bits of bfloat16 numbers as an operand of `tl.dot`; the interpreter's own conversion loses
    subnormal ones."""
    if INTERPRETED:
        return (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        return bits.to(tl.bfloat16, bitcast=True)
