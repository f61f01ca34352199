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

// The same product of FP16.
__device__ __forceinline__ void multiply_halves(float* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                                uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Four e4m3 to two pairs of FP16, exactly: two instructions, where BF16 takes eight.
__device__ __forceinline__ void decode_fp8_halves(uint32_t four, uint32_t& first, uint32_t& second) {
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
      : "=r"(first), "=r"(second) : "r"(four));
}
// A pair of BF16 times `scale` as FP16, and back without it; exact between FP16's largest and smallest numbers.
__device__ __forceinline__ uint32_t pair_to_halves(uint32_t pair, float scale) {
  uint32_t halves;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high_half(pair) * scale), "f"(low_half(pair) * scale));
  return halves;
}
__device__ __forceinline__ uint32_t pair_of_halves(uint32_t halves) {
  float first, second;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(first), "=f"(second) : "r"(halves));
  return pack_pair(first, second);
}

// Decodes: weights become BF16 times a power of two, by shifts and masks alone; subnormal results are exact. So that
// their products stay far from float32's own subnormals, the activations are raised by 2^64 beforehand, and the sums
// are multiplied by the constants below.
__device__ __forceinline__ uint32_t raise(uint32_t pair) {
  uint32_t raised;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(raised) : "r"(pair), "r"(0x5f805f80u));
  return raised;
}
#define FP8_UNDO 72057594037927936.f                // 2^120 / 2^64
#define INT8_UNDO 590295810358705651712.f           // 2^133 / 2^64
#define NVFP4_UNDO (4611686018427387904.f * 512.f)  // 2^126 / 2^64, and block scales are kept as 2^-9 times them
#define NVFP4_BLOCK_BYTES 1152

// Four e4m3 to two pairs, each 2^-120 times its value.
__device__ __forceinline__ void decode_fp8(uint32_t four, uint32_t& first, uint32_t& second) {
  const uint32_t v0 = __byte_perm(four, 0, 0x1404), v1 = __byte_perm(four, 0, 0x3424);
  first = (v0 & 0x80008000u) | ((v0 >> 4) & 0x07F007F0u);
  second = (v1 & 0x80008000u) | ((v1 >> 4) & 0x07F007F0u);
}
// Four sign-and-magnitude bytes to two pairs, each 2^-133 times its value.
__device__ __forceinline__ void decode_int8(uint32_t four, uint32_t& first, uint32_t& second) {
  first = __byte_perm(four, 0, 0x1100) & 0x807F807Fu;
  second = __byte_perm(four, 0, 0x3322) & 0x807F807Fu;
}

// NVFP4.
struct Nvfp4Masks { uint32_t value, left, scale, one; };
__device__ __forceinline__ Nvfp4Masks nvfp4_masks() {
  Nvfp4Masks m;
  m.value = opaque(0x81C081C0u); m.left = opaque(0x06030603u);
  m.scale = opaque(0x0FF00000u); m.one = opaque(0x30000000u);
  return m;
}
__device__ __forceinline__ uint32_t rotate_left(uint32_t word, int by) { return __funnelshift_l(word, word, by); }

// What two neighbouring words (16 weights of one row: four groups of 16 inputs, of each this lane's 4) give:
// pair[2 j + p] is inputs 4t + 2p, 4t + 2p + 1 of group j. See packed_weights/nvfp4_blocks.py.
__device__ __forceinline__ void decode_nvfp4(uint32_t even, uint32_t odd, uint32_t* pair, const Nvfp4Masks& m) {
  // Where no kept bit goes round, a shift does: it can run on the multipliers, which have less to do.
  const uint32_t merged = (even & m.left) | (odd << 2 & ~m.left);
  pair[0] = even & m.value;
  pair[1] = even << 4 & m.value;
  pair[2] = rotate_left(even, 10) & m.value;
  pair[3] = merged << 6 & m.value;
  pair[4] = odd & m.value;
  pair[5] = odd << 4 & m.value;
  pair[6] = rotate_left(odd, 10) & m.value;
  pair[7] = rotate_left(merged, 12) & m.value;
}
// Byte `index` of four block scales, 2^-9 times the scale.
__device__ __forceinline__ float nvfp4_scale(uint32_t four, int index, const Nvfp4Masks& m) {
  const int shift = 20 - 8 * index;
  return __uint_as_float(and_or(shift >= 0 ? four << shift : four >> -shift, m.scale, m.one));
}

// One NVFP4 block in shared memory (16 rows x 128 inputs) times N sets of up to 8 columns, added to c[n].
// x[n][j]: this lane's inputs 16 j + 4t .. + 3 of column g of set n, raised.
template <int N>
__device__ __forceinline__ void multiply_nvfp4(const uint8_t* block, int lane, const uint2 (*x)[8], float (*c)[4],
                                               const Nvfp4Masks& m) {
  const int g = lane >> 2;
  const uint4 av = *(const uint4*)(block + lane * 16), bv = *(const uint4*)(block + 512 + lane * 16);
  const uint2 sa = *(const uint2*)(block + 1024 + g * 8), sb = *(const uint2*)(block + 1088 + g * 8);
#pragma unroll
  for (int couple = 0; couple < 2; couple++) {
    uint32_t a[8], b[8];
    decode_nvfp4(couple ? av.z : av.x, couple ? av.w : av.y, a, m);
    decode_nvfp4(couple ? bv.z : bv.x, couple ? bv.w : bv.y, b, m);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float fa = nvfp4_scale(j & 1 ? sa.y : sa.x, 2 * couple + (j >> 1), m);
      const float fb = nvfp4_scale(j & 1 ? sb.y : sb.x, 2 * couple + (j >> 1), m);
#pragma unroll
      for (int n = 0; n < N; n++) {
        float d[4] = {0.f, 0.f, 0.f, 0.f};
        const uint2 xj = x[n][4 * couple + j];
        multiply(d, a[2 * j], b[2 * j], a[2 * j + 1], b[2 * j + 1], xj.x, xj.y);
        c[n][0] = fmaf(d[0], fa, c[n][0]); c[n][1] = fmaf(d[1], fa, c[n][1]);
        c[n][2] = fmaf(d[2], fb, c[n][2]); c[n][3] = fmaf(d[3], fb, c[n][3]);
      }
    }
  }
}

// The same for up to 4 columns: columns 0 to 3 carry the even groups and 4 to 7 the odd ones, so half of the
// scalings are needed; the caller adds column n + 4 to column n at the end.
// x[q]: right operands of groups 2q and 2q + 1: {pair, 0, pair, 0} of column g in lanes below 16 (even group),
// {0, pair, 0, pair} of column g - 4 in the others (odd group), raised; the first two go with pair 0 of a group.
__device__ __forceinline__ void multiply_nvfp4_folded(const uint8_t* block, const uint4* x, int lane, float* c,
                                                      const Nvfp4Masks& m) {
  const int g = lane >> 2, odd = (lane >> 1) & 1;  // accumulators 2t, 2t + 1 belong to odd groups from t = 2 on
  const uint4 av = *(const uint4*)(block + lane * 16), bv = *(const uint4*)(block + 512 + lane * 16);
  const uint32_t sa = *(const uint32_t*)(block + 1024 + g * 8 + odd * 4);
  const uint32_t sb = *(const uint32_t*)(block + 1088 + g * 8 + odd * 4);
#pragma unroll
  for (int couple = 0; couple < 2; couple++) {
    uint32_t a[8], b[8];
    decode_nvfp4(couple ? av.z : av.x, couple ? av.w : av.y, a, m);
    decode_nvfp4(couple ? bv.z : bv.x, couple ? bv.w : bv.y, b, m);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int q = 2 * couple + i;
      float d[4] = {0.f, 0.f, 0.f, 0.f};
      multiply(d, a[4 * i], b[4 * i], a[4 * i + 2], b[4 * i + 2], x[q].x, x[q].y);
      multiply(d, a[4 * i + 1], b[4 * i + 1], a[4 * i + 3], b[4 * i + 3], x[q].z, x[q].w);
      const float fa = nvfp4_scale(sa, q, m), fb = nvfp4_scale(sb, q, m);
      c[0] = fmaf(d[0], fa, c[0]); c[1] = fmaf(d[1], fa, c[1]);
      c[2] = fmaf(d[2], fb, c[2]); c[3] = fmaf(d[3], fb, c[3]);
    }
  }
}
