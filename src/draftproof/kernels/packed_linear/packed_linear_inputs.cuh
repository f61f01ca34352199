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
#define RAISED (FORMAT != 0)
#define SCALED (FORMAT == 2 || BLOCK_SCALE)  // a scale for each unit
#if FORMAT == 0
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

// First input of part i of a unit for this lane.
__device__ __forceinline__ int input_of(const Lane& me, int i) {
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

// Read unit `unit` of x as it stands in memory; rows past `rows` and inputs past K are zeros.
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
    for (int i = 0; i < 4; i++) {
      const int k = input_of(me, i);
      if (K % 128 && unit * 128 + k >= K) continue;
      uint4& v = x.part[n][i];
      prepare_four(v.x, v.y, norm + k, square[n]);
      prepare_four(v.z, v.w, norm + k + 4, square[n]);
    }
#endif
  }
}
