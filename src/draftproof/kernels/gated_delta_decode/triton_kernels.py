"""The kernel of `triton.py`."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_operands import to_bfloat16

CONV_KERNEL: tl.constexpr = tl.constexpr(4)


@triton.jit
def _silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def _mixed(old, middle, young, new, taps, channels):
    """Convolution and SiLU of one time: inputs of four times, [width] each; taps [conv_dim, 4]."""
    at = taps + channels * 4
    sum_of_taps = old * tl.load(at) + middle * tl.load(at + 1) + young * tl.load(at + 2)
    return _silu(sum_of_taps + new * tl.load(at + 3))


@triton.jit
def _unit(x):
    return x * tl.rsqrt(tl.sum(x * x, 0) + 1e-6)


@triton.jit
def _three(base, channels, conv_dim):
    """Inputs of three consecutive times, float32."""
    return (
        tl.load(base + channels).to(tl.float32),
        tl.load(base + conv_dim + channels).to(tl.float32),
        tl.load(base + 2 * conv_dim + channels).to(tl.float32),
    )


@triton.jit
def _keep_three(base, channels, conv_dim, old, middle, young):
    kind = base.dtype.element_ty
    tl.store(base + channels, old.to(kind))
    tl.store(base + conv_dim + channels, middle.to(kind))
    tl.store(base + 2 * conv_dim + channels, young.to(kind))


@triton.jit
def _corrected(state, key, value, decay, beta):
    """The state after one row."""
    state = state * decay
    correction = (value - tl.sum(state * key[:, None], 0)) * beta
    return state + key[:, None] * correction[None, :]


@triton.jit
def run_window(
    projected,
    stride,
    inputs_at,
    gate_at,
    a_at,
    b_at,
    taps,
    negative_a,
    dt_bias,
    norm,
    epsilon,
    recurrent,
    convolution,
    stash_inputs,
    stash_log_decay,
    stash_beta,
    slots,
    pending,
    parity,
    slot_count,
    out,
    ROWS: tl.constexpr,
    WINDOW: tl.constexpr,
    STASH: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One value head of one sequence; grid (VALUE_HEADS, batch)."""
    if OVERLAP:
        gdc_launch_dependents()
    head = tl.program_id(0)
    sequence = tl.program_id(1)
    key_head = head // (VALUE_HEADS // KEY_HEADS)
    owns_keys = head % (VALUE_HEADS // KEY_HEADS) == 0
    conv_dim: tl.constexpr = 2 * KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM
    d = tl.arange(0, KEY_DIM)
    e = tl.arange(0, VALUE_DIM)
    query_at = key_head * KEY_DIM + d
    key_at = KEY_HEADS * KEY_DIM + query_at
    value_at = 2 * KEY_HEADS * KEY_DIM + head * VALUE_DIM + e

    slot = tl.load(slots + sequence).to(tl.int64)
    side = tl.load(parity + slot)
    read_at = side * slot_count + slot
    write_at = (1 - side) * slot_count + slot
    state_at = recurrent + (slot * VALUE_HEADS + head) * KEY_DIM * VALUE_DIM
    state_at = state_at + d[:, None] * VALUE_DIM + e[None, :]
    state = tl.load(state_at)
    committed = convolution + read_at * 3 * conv_dim
    q0, q1, q2 = _three(committed, query_at, conv_dim)
    k0, k1, k2 = _three(committed, key_at, conv_dim)
    v0, v1, v2 = _three(committed, value_at, conv_dim)

    # Everything so far, and all that the replay needs, was written by earlier steps.
    if WINDOW > 0:
        count = tl.load(pending + slot)
        for row in range(count):
            stashed = stash_inputs + (read_at * WINDOW + row) * conv_dim
            gates_at = (read_at * WINDOW + row) * VALUE_HEADS + head
            k3 = tl.load(stashed + key_at).to(tl.float32)
            v3 = tl.load(stashed + value_at).to(tl.float32)
            key = _unit(_mixed(k0, k1, k2, k3, taps, key_at))
            value = _mixed(v0, v1, v2, v3, taps, value_at)
            decay = tl.exp(tl.load(stash_log_decay + gates_at))
            state = _corrected(state, key, value, decay, tl.load(stash_beta + gates_at))
            q0, q1, q2 = q1, q2, tl.load(stashed + query_at).to(tl.float32)
            k0, k1, k2 = k1, k2, k3
            v0, v1, v2 = v1, v2, v3
        if STASH and count > 0:
            tl.store(state_at, state)
    kept = convolution + write_at * 3 * conv_dim
    if STASH:
        _keep_three(kept, value_at, conv_dim, v0, v1, v2)
        if owns_keys:
            _keep_three(kept, query_at, conv_dim, q0, q1, q2)
            _keep_three(kept, key_at, conv_dim, k0, k1, k2)
    if OVERLAP:
        gdc_wait()

    a_scale = tl.load(negative_a + head)
    a_bias = tl.load(dt_bias + head)
    weight = tl.load(norm + e)
    for row in range(ROWS):
        line = projected + (sequence * ROWS + row).to(tl.int64) * stride
        raw_query = tl.load(line + inputs_at + query_at)
        raw_key = tl.load(line + inputs_at + key_at)
        raw_value = tl.load(line + inputs_at + value_at)
        q3 = raw_query.to(tl.float32)
        k3 = raw_key.to(tl.float32)
        v3 = raw_value.to(tl.float32)
        query = _unit(_mixed(q0, q1, q2, q3, taps, query_at)) * (1.0 / tl.sqrt(KEY_DIM * 1.0))
        key = _unit(_mixed(k0, k1, k2, k3, taps, key_at))
        value = _mixed(v0, v1, v2, v3, taps, value_at)
        a = tl.load(line + a_at + head).to(tl.float32) + a_bias
        log_decay = a_scale * tl.where(a > 20.0, a, tl.log(1.0 + tl.exp(tl.minimum(a, 20.0))))
        beta = 1.0 / (1.0 + tl.exp(-tl.load(line + b_at + head).to(tl.float32)))
        state = _corrected(state, key, value, tl.exp(log_decay), beta)
        output = tl.sum(state * query[:, None], 0)
        gate = tl.load(line + gate_at + head * VALUE_DIM + e).to(tl.float32)
        normed = output * tl.rsqrt(tl.sum(output * output, 0) / VALUE_DIM + epsilon) * weight
        out_at = out + (sequence * ROWS + row).to(tl.int64) * (VALUE_HEADS * VALUE_DIM)
        tl.store(out_at + head * VALUE_DIM + e, to_bfloat16(normed * _silu(gate)))
        q0, q1, q2 = q1, q2, q3
        k0, k1, k2 = k1, k2, k3
        v0, v1, v2 = v1, v2, v3
        if STASH:
            place = write_at * WINDOW + row
            tl.store(stash_inputs + place * conv_dim + value_at, raw_value)
            tl.store(stash_log_decay + place * VALUE_HEADS + head, log_decay)
            tl.store(stash_beta + place * VALUE_HEADS + head, beta)
            if owns_keys:
                tl.store(stash_inputs + place * conv_dim + query_at, raw_query)
                tl.store(stash_inputs + place * conv_dim + key_at, raw_key)
    if not STASH:
        tl.store(state_at, state)
        _keep_three(kept, value_at, conv_dim, v0, v1, v2)
        if owns_keys:
            _keep_three(kept, query_at, conv_dim, q0, q1, q2)
            _keep_three(kept, key_at, conv_dim, k0, k1, k2)
