// Small types and conversions. Everything is built without fast-math: the FP8 and FP4 decodes below go through
// BF16 numbers that are subnormal, and flushing those would make zeros of weights.
#pragma once

typedef unsigned int uint32_t;
typedef unsigned char uint8_t;
typedef unsigned short bfloat16;  // the bits

__device__ __forceinline__ float low_half(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_half(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ float widen(bfloat16 value) { return __uint_as_float((uint32_t)value << 16); }

// Two floats to a pair of BF16, the first in the low half, rounded to nearest even.
__device__ __forceinline__ uint32_t pack_pair(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
__device__ __forceinline__ bfloat16 narrow(float value) { return (bfloat16)(pack_pair(value, 0.f) & 0xffffu); }
__device__ __forceinline__ float silu(float value) { return value / (1.f + __expf(-value)); }

// A constant that the compiler keeps in a register instead of making it again at every use.
__device__ __forceinline__ uint32_t opaque(uint32_t value) {
  uint32_t kept;
  asm volatile("mov.u32 %0, %1;" : "=r"(kept) : "r"(value));
  return kept;
}
// (value & mask) | other in one instruction.
__device__ __forceinline__ uint32_t and_or(uint32_t value, uint32_t mask, uint32_t other) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(value), "r"(mask), "r"(other));
  return result;
}
