// The products of a unit, and the loop of the warps that multiply.
#pragma once
#include "packed_linear_finish.cuh"
#include "packed_linear_stream.cuh"

template <int N>
__device__ __forceinline__ void clear_sums(float (*c)[SETS][4]) {
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int n = 0; n < SETS; n++) c[i][n][0] = c[i][n][1] = c[i][n][2] = c[i][n][3] = 0.f;
}
__device__ __forceinline__ void join_chains(float (*c)[SETS][4]) {
#pragma unroll
  for (int i = 1; i < CHAINS; i++)
#pragma unroll
    for (int n = 0; n < SETS; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[0][n][e] += c[i][n][e];
}

// One unit of a tile times this warp's inputs, added to the chains of c. `scale`: of rows g and g + 8, where a unit
// has one.
__device__ __forceinline__ void multiply_unit(const uint8_t* unit, int chunks, const Inputs& x, float (*c)[SETS][4],
                                              float2 scale, const Lane& me, const Nvfp4Masks& masks) {
#if FORMAT == 3
#if FOLD
  multiply_nvfp4_folded(unit, x.part[0], me.lane, c[0][0], masks);
#else
  multiply_nvfp4<SETS>(unit, me.lane, x.part, c[0], masks);
#endif
#else
#if SCALED
  float sum[CHAINS][SETS][4];
  clear_sums<CHAINS>(sum);
#else
  float (*sum)[SETS][4] = c;
#endif
#pragma unroll
  for (int i = 0; i < UNIT_CHUNKS; i++) {
    if (CHUNKS % UNIT_CHUNKS && i >= chunks) break;
    const uint4 av = *(const uint4*)(unit + i * 1024 + me.lane * 16);
    const uint4 bv = *(const uint4*)(unit + i * 1024 + 512 + me.lane * 16);
#if FORMAT == 0
#pragma unroll
    for (int n = 0; n < SETS; n++) {
      multiply(sum[2 * i % CHAINS][n], av.x, bv.x, av.y, bv.y, x.part[n][i].x, x.part[n][i].y);
      multiply(sum[(2 * i + 1) % CHAINS][n], av.z, bv.z, av.w, bv.w, x.part[n][i].z, x.part[n][i].w);
    }
#else
    const uint32_t a[4] = {av.x, av.y, av.z, av.w}, b[4] = {bv.x, bv.y, bv.z, bv.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint32_t a0, a1, b0, b1;
#if HALVES
      decode_fp8_halves(a[j], a0, a1);
      decode_fp8_halves(b[j], b0, b1);
#elif FORMAT == 1
      decode_fp8(a[j], a0, a1);
      decode_fp8(b[j], b0, b1);
#else
      decode_int8(a[j], a0, a1);
      decode_int8(b[j], b0, b1);
#endif
#pragma unroll
      for (int n = 0; n < SETS; n++) {
        const uint4 v = x.part[n][2 * i + (j >> 1)];
        (HALVES ? multiply_halves : multiply)(sum[j % CHAINS][n], a0, b0, a1, b1, j & 1 ? v.z : v.x, j & 1 ? v.w : v.y);
      }
    }
#endif
  }
#if SCALED
  join_chains(sum);
#pragma unroll
  for (int n = 0; n < SETS; n++) {
    c[0][n][0] = fmaf(sum[0][n][0], scale.x, c[0][n][0]);
    c[0][n][1] = fmaf(sum[0][n][1], scale.x, c[0][n][1]);
    c[0][n][2] = fmaf(sum[0][n][2], scale.y, c[0][n][2]);
    c[0][n][3] = fmaf(sum[0][n][3], scale.y, c[0][n][3]);
  }
#endif
#endif
}

#if BEHIND
// 8 rows of a unit of the BF16 matrix behind, in shared memory [4 blocks][row g][32 inputs], with inputs that stand where
// FP8 wants them.
__device__ __forceinline__ void multiply_behind(const uint8_t* unit, const Inputs& x, float (*c)[SETS][4], const Lane& me) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int block = (i & 2) + (me.t >> 1), piece = (me.t & 1) * 2 + (i & 1);
    const uint4 v = *(const uint4*)(unit + block * 512 + me.g * 64 + piece * 16);
#pragma unroll
    for (int n = 0; n < SETS; n++) {
      const uint4 u = x.part[n][i];
      multiply(c[2 * i % CHAINS][n], v.x, 0, v.y, 0, pair_of_halves(u.x), pair_of_halves(u.y));
      multiply(c[(2 * i + 1) % CHAINS][n], v.z, 0, v.w, 0, pair_of_halves(u.z), pair_of_halves(u.w));
    }
  }
}
#endif

// Scales of rows g and g + 8 of a tile for one unit, where they are shared by blocks of 128 x 128.
__device__ __forceinline__ float2 unit_scale(const float* block_scale, int tile, int unit, int scale_rows) {
#if BLOCK_SCALE == 1
  const float s = block_scale[(size_t)(tile / 8) * UNITS + unit];
  return make_float2(s, s);
#elif BLOCK_SCALE == 2  // gate's rows of scales, then up's
  const float* at = block_scale + (size_t)(tile / 16) * UNITS + unit;
  return make_float2(at[0], at[(size_t)scale_rows * UNITS]);
#else
  return make_float2(1.f, 1.f);
#endif
}

// `unit_scale` of this block's tile `i`, or anything where there is no such tile or unit.
__device__ __forceinline__ float2 block_scale_of(const float* block_scale, int i, int unit, int scale_rows, int mine,
                                                 int main_tiles) {
  if (!BLOCK_SCALE || i >= mine || unit >= UNITS) return make_float2(1.f, 1.f);
  const int tile = blockIdx.x + i * gridDim.x;
  if (BEHIND && tile >= main_tiles) return make_float2(1.f, 1.f);
  return unit_scale(block_scale, tile, unit, scale_rows);
}

#if GROUP
#define INPUTS now
#define SCALE_AT i
#else
#define INPUTS inputs[unit]
#define SCALE_AT unit
#endif
// The warps that multiply.
__device__ __forceinline__ void multiply_tiles(Sums& sums, Squares& squares, const uint8_t* ring, uint32_t barrier,
                                               const float* norms, const bfloat16* x, int x_stride, int rows,
                                               const float* block_scale, int scale_rows, int mine, int main_tiles,
                                               Cursor next, const Lane& me) {
  const uint32_t ring_at = shared_address(ring);
  const int total = mine * STEPS;
  const Nvfp4Masks masks = nvfp4_masks();
  float square[SETS];
#pragma unroll
  for (int n = 0; n < SETS; n++) square[n] = 0.f;
#if GROUP == 0
  Inputs inputs[MOST];
#pragma unroll
  for (int u = 0; u < MOST; u++)
    if (UNITS % WARPS == 0 || u < me.units) read_inputs(inputs[u], x, x_stride, rows, me.first + u, me);
#endif
  if (RELEASE) release_dependents();
#if NORM
  barrier_wait(barrier + STAGES * 8, 0);
#endif
#if GROUP == 0
#pragma unroll
  for (int u = 0; u < MOST; u++) {
    if (UNITS % WARPS == 0 || u < me.units)
      prepare_inputs(inputs[u], norms + (me.first + u) * 128, me.first + u, square, me);
    asm volatile("" ::: "memory");  // or all weights of the norm would be read at once, into too many registers
  }
#endif
#if HALVES
  const Lifts lifts = to_halves(inputs, me);
#else
  const Lifts lifts;
#endif
#if GROUP == 0
  float2 scales_ahead[MOST];
#pragma unroll
  for (int u = 0; u < MOST; u++) scales_ahead[u] = block_scale_of(block_scale, 0, me.first + u, scale_rows, mine, main_tiles);
#endif
  int stage = 0, parity = 0, q = 0;
  for (int group = 0; group < mine; group += GROUP_TILES) {
    const int size = min(GROUP_TILES, mine - group), side = (group / GROUP_TILES) & 1;
    float c[GROUP_TILES * CHAINS][SETS][4];
    clear_sums<GROUP_TILES * CHAINS>(c);
#if GROUP
    Inputs ahead;
    read_inputs(ahead, x, x_stride, rows, me.first, me);
    float2 scales_ahead[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; i++) scales_ahead[i] = block_scale_of(block_scale, group + i, me.first, scale_rows, mine, main_tiles);
#pragma unroll 1
#else
    float2 scales[MOST];
#pragma unroll
    for (int u = 0; u < MOST; u++) {
      scales[u] = scales_ahead[u];
      scales_ahead[u] = block_scale_of(block_scale, group + 1, me.first + u, scale_rows, mine, main_tiles);
    }
#pragma unroll
#endif
    for (int step = 0; step < STEPS; step++) {
#if GROUP
      Inputs now = ahead;
      float2 scales[GROUP];
#pragma unroll
      for (int i = 0; i < GROUP; i++) {
        scales[i] = scales_ahead[i];
        scales_ahead[i] = block_scale_of(block_scale, group + i, me.first + step + 1, scale_rows, mine, main_tiles);
      }
      if (step + 1 < me.units) read_inputs(ahead, x, x_stride, rows, me.first + step + 1, me);
      float again[SETS];
#pragma unroll
      for (int n = 0; n < SETS; n++) again[n] = 0.f;
      if (step < me.units)
        prepare_inputs(now, norms + (me.first + step) * 128, me.first + step, group ? again : square, me);
#endif
#pragma unroll
      for (int i = 0; i < GROUP_TILES; i++) {
        if (GROUP > 1 && i >= size) break;
        barrier_wait(barrier + stage * 8, parity);
#pragma unroll
        for (int u = 0; u < STEP; u++) {
          const int unit = step * STEP + u;
          if (unit >= MOST || (UNITS % WARPS && unit >= me.units)) break;
          const uint8_t* source = ring + stage * STAGE_BYTES + u * UNIT_CHUNKS * CHUNK_BYTES;
          const int chunks = CHUNKS - (me.first + unit) * UNIT_CHUNKS;
#if FORMAT == 2
          const float* at = (const float*)(ring + stage * STAGE_BYTES + WEIGHT_BYTES + u * SCALE_BYTES) + me.g;
          const float2 scale = make_float2(at[0], at[8]);
#else
          const float2 scale = scales[SCALE_AT];
#endif
#if BEHIND
          if ((int)(blockIdx.x + group * gridDim.x) >= main_tiles) {
            multiply_behind(source, inputs[unit], c, me);
            continue;
          }
#endif
          multiply_unit(source, chunks, INPUTS, c + i * CHAINS, scale, me, masks);
        }
        __syncwarp();
        if (me.lane == 0 && q + STAGES < total) {
          fetch(next, ring_at + stage * STAGE_BYTES, barrier + stage * 8, me);
          advance(next, mine);
        }
        q++;
        if (++stage == STAGES) { stage = 0; parity ^= 1; }
      }
    }
#if NORM
    if (group == 0) {
#pragma unroll
      for (int n = 0; n < SETS; n++) {
        square[n] += __shfl_xor_sync(~0u, square[n], 1);
        square[n] += __shfl_xor_sync(~0u, square[n], 2);
        if (FOLD || SPREAD) square[n] += __shfl_xor_sync(~0u, square[n], 16);
        if (me.t == 0 && n * 8 + me.g < COLUMNS) squares[me.warp][n * 8 + me.g] = square[n];
      }
    }
#endif
#pragma unroll
    for (int i = 0; i < GROUP_TILES; i++) join_chains(c + i * CHAINS);
    if (group >= 2 * GROUP_TILES) meet(READ(side));
    hand_over(sums[side], c, lifts, me);
    announce(FULL(side));
  }
}
