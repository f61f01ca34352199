// Products of a 16-row tile of weights (left operand) with up to 8 rows of activations (right operand, a column
// each), BF16 with float32 accumulators, and the decodes of weights for them.
//
// A lane is (g = lane / 4, t = lane % 4). Of the left operand it holds rows g and g + 8, of the right operand column
// g; of the accumulators c[0], c[1] are (row g, columns 2t, 2t + 1) and c[2], c[3] the same of row g + 8. Which real
// input stands at which k is free as long as both operands agree: blocks are laid out so that a lane's 16
// consecutive bytes are all of its operand.
#pragma once
#include "numbers.cuh"

__device__ __forceinline__ void multiply(float* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four e4m3 to two BF16 pairs, each 2^-120 times its value: the fields fit BF16's by a shift, subnormals included.
__device__ __forceinline__ void decode_fp8(uint32_t four, uint32_t& first, uint32_t& second) {
  const uint32_t v0 = __byte_perm(four, 0, 0x1404), v1 = __byte_perm(four, 0, 0x3424);
  first = (v0 & 0x80008000u) | ((v0 >> 4) & 0x07F007F0u);
  second = (v1 & 0x80008000u) | ((v1 >> 4) & 0x07F007F0u);
}
#define FP8_UNDO 1.329227995784916e36f  // 2^120

// NVFP4. Weights become BF16 times 2^-126 by masks and shifts (the bits of e2m1 under BF16's exponent), so the
// activations are raised by 2^64 beforehand, and block scales are kept as 2^-9 times their value.
#define NVFP4_BLOCK_BYTES 1152
#define NVFP4_UNDO (4.611686018427388e18f * 512.f)  // 2^126 / 2^64 * 2^9

// A pair of activations times 2^64.
__device__ __forceinline__ uint32_t raise(uint32_t pair) {
  uint32_t raised;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(raised) : "r"(pair), "r"(0x5f805f80u));
  return raised;
}

struct Nvfp4Masks { uint32_t value, rest, spread, scale, one; };
__device__ __forceinline__ Nvfp4Masks nvfp4_masks() {
  Nvfp4Masks m;
  m.value = opaque(0x81C081C0u); m.rest = opaque(0x6C006C00u); m.spread = opaque((1u << 29) | (1u << 24) | (1u << 2));
  m.scale = opaque(0x0FF00000u); m.one = opaque(0x30000000u);
  return m;
}
// The four pairs of a 32-bit word (8 weights of one row): inputs 4t, 4t + 1 | 4t + 2, 4t + 3 of an even group of
// 16, then of the odd one. The fourth pair's bits are scattered into what the masks of the others leave; one 64-bit
// product moves them left by 2, right by 3 and right by 8 (its high word), and none of its sums carries.
__device__ __forceinline__ uint32_t nvfp4_pair0(uint32_t word, const Nvfp4Masks& m) { return word & m.value; }
__device__ __forceinline__ uint32_t nvfp4_pair1(uint32_t word, const Nvfp4Masks& m) { return (word << 3) & m.value; }
__device__ __forceinline__ uint32_t nvfp4_pair2(uint32_t word, const Nvfp4Masks& m) { return (word << 6) & m.value; }
__device__ __forceinline__ uint32_t nvfp4_pair3(uint32_t word, const Nvfp4Masks& m) {
  const unsigned long long moved = (unsigned long long)(word & m.rest) * m.spread;
  return ((uint32_t)moved | (uint32_t)(moved >> 32)) & m.value;
}
// Byte `index` of four block scales.
__device__ __forceinline__ float nvfp4_scale(uint32_t four, int index, const Nvfp4Masks& m) {
  const int shift = 20 - 8 * index;
  return __uint_as_float(and_or(shift >= 0 ? four << shift : four >> -shift, m.scale, m.one));
}

// One NVFP4 block in shared memory (16 rows x 128 inputs) times up to 8 columns, added to c.
// x[j]: this lane's inputs 16 j + 4t .. + 3 of column g, raised.
__device__ __forceinline__ void multiply_nvfp4(const uint8_t* block, int lane, const uint2* x, float* c,
                                               const Nvfp4Masks& m) {
  const int g = lane >> 2;
  const uint4 av = *(const uint4*)(block + lane * 16), bv = *(const uint4*)(block + 512 + lane * 16);
  const uint2 sa = *(const uint2*)(block + 1024 + g * 8), sb = *(const uint2*)(block + 1088 + g * 8);
  const uint32_t a[4] = {av.x, av.y, av.z, av.w}, b[4] = {bv.x, bv.y, bv.z, bv.w};
  float even[4][4], odd[4][4];
#pragma unroll
  for (int q = 0; q < 4; q++) {
    even[q][0] = even[q][1] = even[q][2] = even[q][3] = odd[q][0] = odd[q][1] = odd[q][2] = odd[q][3] = 0.f;
    multiply(even[q], nvfp4_pair0(a[q], m), nvfp4_pair0(b[q], m), nvfp4_pair1(a[q], m), nvfp4_pair1(b[q], m),
             x[2 * q].x, x[2 * q].y);
    multiply(odd[q], nvfp4_pair2(a[q], m), nvfp4_pair2(b[q], m), nvfp4_pair3(a[q], m), nvfp4_pair3(b[q], m),
             x[2 * q + 1].x, x[2 * q + 1].y);
  }
#pragma unroll
  for (int q = 0; q < 4; q++) {
    const uint32_t wa = q < 2 ? sa.x : sa.y, wb = q < 2 ? sb.x : sb.y;
    const float fa = nvfp4_scale(wa, (2 * q) & 3, m), fb = nvfp4_scale(wb, (2 * q) & 3, m);
    const float ga = nvfp4_scale(wa, (2 * q + 1) & 3, m), gb = nvfp4_scale(wb, (2 * q + 1) & 3, m);
    c[0] = fmaf(even[q][0], fa, c[0]); c[1] = fmaf(even[q][1], fa, c[1]);
    c[2] = fmaf(even[q][2], fb, c[2]); c[3] = fmaf(even[q][3], fb, c[3]);
    c[0] = fmaf(odd[q][0], ga, c[0]); c[1] = fmaf(odd[q][1], ga, c[1]);
    c[2] = fmaf(odd[q][2], gb, c[2]); c[3] = fmaf(odd[q][3], gb, c[3]);
  }
}

// The same for up to 4 columns: columns 0 to 3 carry the even groups and 4 to 7 the odd ones, so half of the
// scalings are needed; the caller adds column n + 4 to column n at the end.
// x: shared memory, [4 groups of 32 inputs][32 lanes] 16 bytes: the right operands of the two products, raised;
// lanes below 16 have (inputs of the even group, zeros) interleaved as {pair, 0, pair, 0}, the others {0, pair, 0, pair}.
__device__ __forceinline__ void multiply_nvfp4_folded(const uint8_t* block, const uint8_t* x, int lane, float* c,
                                                      const Nvfp4Masks& m) {
  const int g = lane >> 2, t = lane & 3;
  const uint4 av = *(const uint4*)(block + lane * 16), bv = *(const uint4*)(block + 512 + lane * 16);
  uint2 sa = *(const uint2*)(block + 1024 + g * 8), sb = *(const uint2*)(block + 1088 + g * 8);
  if (t >= 2) { sa.x >>= 8; sa.y >>= 8; sb.x >>= 8; sb.y >>= 8; }
  const uint32_t a[4] = {av.x, av.y, av.z, av.w}, b[4] = {bv.x, bv.y, bv.z, bv.w};
  float d[4][4];
#pragma unroll
  for (int q = 0; q < 4; q++) {
    const uint4 xq = *(const uint4*)(x + q * 512 + lane * 16);
    d[q][0] = d[q][1] = d[q][2] = d[q][3] = 0.f;
    multiply(d[q], nvfp4_pair0(a[q], m), nvfp4_pair0(b[q], m), nvfp4_pair2(a[q], m), nvfp4_pair2(b[q], m), xq.x, xq.y);
    multiply(d[q], nvfp4_pair1(a[q], m), nvfp4_pair1(b[q], m), nvfp4_pair3(a[q], m), nvfp4_pair3(b[q], m), xq.z, xq.w);
  }
#pragma unroll
  for (int q = 0; q < 4; q++) {
    const float fa = nvfp4_scale(q < 2 ? sa.x : sa.y, (2 * q) & 3, m);
    const float fb = nvfp4_scale(q < 2 ? sb.x : sb.y, (2 * q) & 3, m);
    c[0] = fmaf(d[q][0], fa, c[0]); c[1] = fmaf(d[q][1], fa, c[1]);
    c[2] = fmaf(d[q][2], fb, c[2]); c[3] = fmaf(d[q][3], fb, c[3]);
  }
}
