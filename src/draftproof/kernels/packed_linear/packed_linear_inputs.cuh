// The sizes that follow from the macros of packed_linear.cu, and a warp's part of x.
#pragma once
#include "matrix.cuh"
#include "memory.cuh"

#if FORMAT == 0
#define UNIT_CHUNKS 4
#elif FORMAT == 3
#define UNIT_CHUNKS 1
#else
#define UNIT_CHUNKS 2
#endif
#define CHUNK_BYTES (FORMAT == 3 ? 1152 : 1024)
#define CHUNKS ((K + 128 / UNIT_CHUNKS - 1) / (128 / UNIT_CHUNKS))
#define UNITS ((K + 127) / 128)
#define MOST ((UNITS + WARPS - 1) / WARPS)  // units of a warp
#define STEPS ((MOST + STEP - 1) / STEP)    // stages of a tile
#define WEIGHT_BYTES (STEP * UNIT_CHUNKS * CHUNK_BYTES)
#define SCALE_BYTES (FORMAT == 2 ? 64 : 0)  // of a unit, behind the weights of a stage
#define STAGE_BYTES (WEIGHT_BYTES + STEP * SCALE_BYTES)
#define TILE_BYTES ((size_t)CHUNKS * CHUNK_BYTES)
#define SETS (COLUMNS == 16 ? 2 : 1)        // sets of 8 columns of the products
#define FOLD (FORMAT == 3 && COLUMNS == 4)  // 4 columns stand twice, see multiply_nvfp4_folded
#define SUM_COLUMNS (FOLD ? 8 : COLUMNS)
#define SUM_STRIDE 20  // rows of a column of sums, padded against bank conflicts
// independent sums, so that products need not wait for each other
#define CHAINS (GROUP > 1 || SETS > 1 || FORMAT == 3 ? 1 : MOST > 2 ? 2 : 4)
#define FINISHERS 1  // warps
#define GROUP_TILES (GROUP ? GROUP : 1)
#define HALVES (FORMAT == 1 && GROUP == 0)  // products of FP16, which FP8 is decoded to in few instructions
#define SPREAD (COLUMNS == 4 && FORMAT != 3 && K % 128 == 0)  // lanes of columns 4 to 7 prepare half of the others' inputs
#define PARTS (SPREAD ? 2 : 4)  // of a unit that a lane prepares
#define RAISED (FORMAT != 0 && !HALVES)
#define SCALED (FORMAT == 2 || BLOCK_SCALE)  // a scale for each unit
#if FORMAT == 0 || HALVES
#define UNDO 1.f
#elif FORMAT == 1
#define UNDO FP8_UNDO
#elif FORMAT == 2
#define UNDO INT8_UNDO
#else
#define UNDO NVFP4_UNDO
#endif

// This lane's right operands of one unit, 16 registers for each set of 8 rows.
struct Inputs {
#if FORMAT == 3 && !FOLD
  uint2 part[SETS][8];
#else
  uint4 part[SETS][4];
#endif
};

struct Lane {
  int warp, lane, g, t, first, units;  // `first`, `units`: the warp's run
};

// First input of part i of a unit for this lane, of the parts that it prepares.
__device__ __forceinline__ int input_of(const Lane& me, int i) {
  if (SPREAD) i += me.g >> 2 << 1;
#if FORMAT == 0
  return i * 32 + me.t * 8;
#elif FORMAT == 3
  return i * 16 + me.t * 4;
#else
  return (i >> 1) * 64 + me.t * 16 + (i & 1) * 8;
#endif
}

// Multiply pairs by the norm's weights and add their squares to the row's sum.
__device__ __forceinline__ uint32_t weighted(uint32_t pair, float first, float second, float& square) {
  const float a = low_half(pair), b = high_half(pair);
  square = fmaf(a, a, square);
  square = fmaf(b, b, square);
  return pack_pair(a * first, b * second);
}
__device__ __forceinline__ void prepare_four(uint32_t& first, uint32_t& second, const float* norm, float& square) {
#if NORM
  const float4 weight = *(const float4*)norm;
  first = weighted(first, weight.x, weight.y, square);
  second = weighted(second, weight.z, weight.w, square);
#endif
#if RAISED
  first = raise(first);
  second = raise(second);
#endif
}

// Read unit `unit` of x as it stands in memory; rows past `rows` and inputs past K are zeros, or repeat another row where
// nobody reads their columns.
__device__ __forceinline__ void read_inputs(Inputs& x, const bfloat16* rows_of_x, int stride, int rows, int unit,
                                            const Lane& me) {
#pragma unroll
  for (int n = 0; n < SETS; n++) {
#if FORMAT == 3
    const int row = FOLD ? me.g & 3 : n * 8 + me.g;
    const bfloat16* source = rows_of_x + (size_t)row * stride + unit * 128;
#pragma unroll
    for (int i = 0; i < (FOLD ? 4 : 8); i++) {
      const int k = input_of(me, FOLD ? 2 * i + (me.g >> 2) : i);
      const bool real = row < rows && (K % 128 == 0 || unit * 128 + k < K);
      const uint2 v = real ? load_fresh_8(source + k) : make_uint2(0, 0);
#if FOLD
      x.part[n][i] = make_uint4(v.x, v.y, 0, 0);
#else
      x.part[n][i] = v;
#endif
    }
#elif SPREAD
    const bfloat16* source = rows_of_x + (size_t)min(me.g & 3, rows - 1) * stride + unit * 128;
#pragma unroll
    for (int i = 0; i < PARTS; i++) x.part[n][i] = load_fresh_16(source + input_of(me, i));
#else
    const int row = n * 8 + me.g;
    const bfloat16* source = rows_of_x + (size_t)row * stride + unit * 128;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int k = input_of(me, i);
      const bool real = row < rows && (K % 128 == 0 || unit * 128 + k < K);
      x.part[n][i] = real ? load_fresh_16(source + k) : make_uint4(0, 0, 0, 0);
    }
#endif
  }
}

// Where lanes share the work, the other half of this lane's inputs.
__device__ __forceinline__ void gather_inputs(Inputs& x) {
#if SPREAD
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const uint4 v = x.part[0][i];
    x.part[0][2 + i] = make_uint4(__shfl_xor_sync(~0u, v.x, 16), __shfl_xor_sync(~0u, v.y, 16),
                                  __shfl_xor_sync(~0u, v.z, 16), __shfl_xor_sync(~0u, v.w, 16));
  }
#endif
}

// Norm, powers of two, and the places that the products expect. `norm`: the unit's weights in shared memory.
__device__ __forceinline__ void prepare_inputs(Inputs& x, const float* norm, int unit, float* square, const Lane& me) {
#pragma unroll
  for (int n = 0; n < SETS; n++) {
#if FORMAT == 3
#pragma unroll
    for (int i = 0; i < (FOLD ? 4 : 8); i++) {
      const int k = input_of(me, FOLD ? 2 * i + (me.g >> 2) : i);
      if (K % 128 && unit * 128 + k >= K) continue;
      uint32_t a = x.part[n][i].x, b = x.part[n][i].y;
      prepare_four(a, b, norm + k, square[n]);
#if FOLD
      x.part[n][i] = me.g < 4 ? make_uint4(a, 0, b, 0) : make_uint4(0, a, 0, b);
#else
      x.part[n][i] = make_uint2(a, b);
#endif
    }
#else
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
      const int k = input_of(me, i);
      if (K % 128 && unit * 128 + k >= K) continue;
      uint4& v = x.part[n][i];
      prepare_four(v.x, v.y, norm + k, square[n]);
      prepare_four(v.z, v.w, norm + k + 4, square[n]);
    }
#endif
  }
#if !HALVES
  gather_inputs(x);
#endif
}

// What the sums of columns 2t and 2t + 1 of each set must be multiplied by.
struct Lifts {
#if HALVES
  float of[SETS][2];
  __device__ __forceinline__ float apply(float sum, int n, int column) const { return sum * of[n][column]; }
#else
  __device__ __forceinline__ float apply(float sum, int, int) const { return sum; }
#endif
};
#if HALVES
// This warp's part of x as FP16. Each row is multiplied by a power of two that brings its largest number to 2^14, so
// that nothing overflows, and numbers down to 2^-31 of the largest keep all bits of a BF16.
__device__ __forceinline__ Lifts to_halves(Inputs* x, const Lane& me) {
  Lifts lifts;
#pragma unroll
  for (int n = 0; n < SETS; n++) {
    uint32_t most = 0;
#pragma unroll
    for (int u = 0; u < MOST; u++)
      if (UNITS % WARPS == 0 || u < me.units)
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
          const uint4 v = x[u].part[n][i];
          most = __vmaxu2(__vmaxu2(most, v.x & 0x7fff7fffu), __vmaxu2(v.y & 0x7fff7fffu, __vmaxu2(v.z & 0x7fff7fffu, v.w & 0x7fff7fffu)));
        }
    most = max(most & 0xffffu, most >> 16);
    most = max(most, __shfl_xor_sync(~0u, most, 1));
    most = max(most, __shfl_xor_sync(~0u, most, 2));
    if (SPREAD) most = max(most, __shfl_xor_sync(~0u, most, 16));
    const uint32_t exponent = min(max(most >> 7, 15u), 254u);
    const float scale = __uint_as_float((268u - exponent) << 23), back = __uint_as_float((exponent - 14u) << 23);
#pragma unroll
    for (int u = 0; u < MOST; u++)
#pragma unroll
      for (int i = 0; i < PARTS; i++) {
        uint4& v = x[u].part[n][i];
        v = make_uint4(pair_to_halves(v.x, scale), pair_to_halves(v.y, scale), pair_to_halves(v.z, scale), pair_to_halves(v.w, scale));
      }
    lifts.of[n][0] = __shfl_sync(~0u, back, me.t * 8);
    lifts.of[n][1] = __shfl_sync(~0u, back, me.t * 8 + 4);
  }
#pragma unroll
  for (int u = 0; u < MOST; u++) gather_inputs(x[u]);
  return lifts;
}
#endif
