// Blocks of packed weights times up to 16 rows: where the rows' numbers stand as right operands, and the products.
// Modes (M): 0 BF16, 1 FP8 with row scales, 2 NVFP4, 3 FP8 with block scales.
#pragma once
#include "matrix.cuh"

template <int M> struct Packed {
  static constexpr int chunk = M == 0 ? 32 : M == 2 ? 128 : 64;  // inputs of a block
  static constexpr int bytes = M == 2 ? NVFP4_BLOCK_BYTES : 1024;
  static constexpr float undo = M == 2 ? 512.f : M == 0 ? 1.f : 72057594037927936.f;
  static constexpr bool raised = M == 1 || M == 3;  // activations, by 2^64
};

struct Constants { Nvfp4Masks nvfp4; uint32_t sixteen; };

// Scale `index` of four NVFP4 scales as a pair of BF16, 2^117 times its value. `sixteen` is not known when this is
// compiled: as a constant it would make a shift of the product, for which there are fewer units.
__device__ __forceinline__ uint32_t scale_pair(uint32_t four, int index, uint32_t sixteen) {
  return __byte_perm(four, 0, 0x4040 | index | (index << 8)) * sixteen + 0x6F006F00u;
}
__device__ __forceinline__ uint32_t multiply_pair(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

template <int N>
__device__ __forceinline__ void multiply_nvfp4_block(const uint8_t* block, const uint8_t* x, int lane, float (*c)[4],
                                                     const Constants& constants) {
  const int g = lane >> 2;
  const uint4 av = *(const uint4*)(block + lane * 16), bv = *(const uint4*)(block + 512 + lane * 16);
  const uint2 sa = *(const uint2*)(block + 1024 + g * 8), sb = *(const uint2*)(block + 1088 + g * 8);
#pragma unroll
  for (int couple = 0; couple < 2; couple++) {
    uint32_t a[8], b[8];
    decode_nvfp4(couple ? av.z : av.x, couple ? av.w : av.y, a, constants.nvfp4);
    decode_nvfp4(couple ? bv.z : bv.x, couple ? bv.w : bv.y, b, constants.nvfp4);
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const int index = 2 * couple + (j >> 1);
      const uint32_t a0 = scale_pair(sa.x, index, constants.sixteen), a1 = scale_pair(sa.y, index, constants.sixteen);
      const uint32_t b0 = scale_pair(sb.x, index, constants.sixteen), b1 = scale_pair(sb.y, index, constants.sixteen);
#pragma unroll
      for (int n = 0; n < N; n++) {
        const uint4 right = *(const uint4*)(x + ((2 * couple + j / 2) * N + n) * 512 + lane * 16);
        multiply(c[n], multiply_pair(a[2 * j], a0), multiply_pair(b[2 * j], b0), multiply_pair(a[2 * j + 1], a0),
                 multiply_pair(b[2 * j + 1], b0), right.x, right.y);
        multiply(c[n], multiply_pair(a[2 * j + 2], a1), multiply_pair(b[2 * j + 2], b1),
                 multiply_pair(a[2 * j + 3], a1), multiply_pair(b[2 * j + 3], b1), right.z, right.w);
      }
    }
  }
}

// One block of weights times up to 8 N columns. x: the right operands of the block's inputs, [pair of 16 inputs]
// [N groups of 8 columns][lane] 16 bytes.
template <int M, int N>
__device__ __forceinline__ void multiply_block(const uint8_t* block, const uint8_t* x, int lane, float (*c)[4],
                                               const Constants& constants) {
  if constexpr (M == 2) {
    multiply_nvfp4_block<N>(block, x, lane, c, constants);
  } else {
    const uint8_t* at = block + (lane >> 2) * 64 + (lane & 3) * 16;
    const uint4 av = *(const uint4*)at, bv = *(const uint4*)(at + 512);
    const uint32_t a[4] = {av.x, av.y, av.z, av.w}, b[4] = {bv.x, bv.y, bv.z, bv.w};
#pragma unroll
    for (int j = 0; j < (M == 0 ? 1 : 2); j++) {
      uint32_t p[4], q[4];
      if (M == 0) {
#pragma unroll
        for (int i = 0; i < 4; i++) { p[i] = a[i]; q[i] = b[i]; }
      } else {
        decode_fp8(a[2 * j], p[0], p[1]); decode_fp8(a[2 * j + 1], p[2], p[3]);
        decode_fp8(b[2 * j], q[0], q[1]); decode_fp8(b[2 * j + 1], q[2], q[3]);
      }
#pragma unroll
      for (int n = 0; n < N; n++) {
        const uint4 right = *(const uint4*)(x + (j * N + n) * 512 + lane * 16);
        multiply(c[n], p[0], q[0], p[1], q[1], right.x, right.y);
        multiply(c[n], p[2], q[2], p[3], q[3], right.z, right.w);
      }
    }
  }
}

// Where four consecutive inputs of a column stand among the right operands of so many groups of columns, in bytes.
template <int M>
__device__ __forceinline__ int operand_place(int column, int input, int groups) {
  constexpr int size = Packed<M>::chunk;
  const int chunk = input / size, within = input % size;
  const int step = M == 2 ? within / 16 : within / 4 % (size / 16);
  const int t = M == 2 ? within / 4 % 4 : within / (size / 4);
  const int at = chunk * (size / 16) + step;
  return ((at >> 1) * groups + (column >> 3)) * 512 + ((column & 7) * 4 + t) * 16 + (at & 1) * 8;
}
