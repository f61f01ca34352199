// The sums of the warps, how they are handed over, and everything behind the product.
#pragma once
#include "packed_linear_inputs.cuh"

typedef float Sums[2][GROUP_TILES][WARPS][SUM_COLUMNS * SUM_STRIDE];
typedef float Squares[WARPS][COLUMNS];

// The barriers between the warps that multiply and those that finish: side `side` of the sums is full, or read.
#define MEETING ((WARPS + FINISHERS) * 32)
__device__ __forceinline__ void meet(int id) { sync_threads_of(id, MEETING); }
__device__ __forceinline__ void announce(int id) { arrive_for_threads_of(id, MEETING); }
#define FULL(side) (1 + (side))
#define READ(side) (3 + (side))

// This warp's part of the sums of `size` tiles.
__device__ __forceinline__ void hand_over(float (*sums)[WARPS][SUM_COLUMNS * SUM_STRIDE], float (*c)[SETS][4],
                                          const Lifts& lifts, const Lane& me) {
#pragma unroll
  for (int i = 0; i < GROUP_TILES; i++)
#pragma unroll
    for (int n = 0; n < SETS; n++) {
      const int column = n * 8 + 2 * me.t;
      if (column >= SUM_COLUMNS) continue;
      float* at = &sums[i][me.warp][column * SUM_STRIDE + me.g];
      const float* sum = c[i * CHAINS][n];
      at[0] = lifts.apply(sum[0], n, 0); at[SUM_STRIDE] = lifts.apply(sum[1], n, 1);
      at[8] = lifts.apply(sum[2], n, 0); at[SUM_STRIDE + 8] = lifts.apply(sum[3], n, 1);
    }
}

struct Output {
  const float* row_scale;
  const float* bias;
  const bfloat16* residual;
  void* out;
  int residual_stride, out_stride, rows, outputs;
  int main_tiles, main_outputs;  // of the first matrix, where there is one behind it
};

// What finishing a tile needs from memory is asked for long before: row scales SCALES_AHEAD tiles, by copies into
// shared memory, each thread its own; the rest a tile.
#define SCALES_AHEAD 8
typedef float Scales[SCALES_AHEAD][FINISHERS * 32];
#define APART (2 * FINISHERS)
#define EACH (COLUMNS / APART)  // outputs of a thread: row `thread % 16` of columns `first`, `first` + APART, ..
struct Ahead {
  float bias;
  bfloat16 before[EACH];
};
__device__ __forceinline__ bool is_behind(const Output& to, int tile) { return BEHIND && tile >= to.main_tiles; }
// Past all outputs where a tile has no such row.
__device__ __forceinline__ int output_row(const Output& to, int tile, int rr) {
  if (is_behind(to, tile)) return rr < 8 ? to.main_outputs + (tile - to.main_tiles) * 8 + rr : to.outputs;
  return PAIRS ? tile * 8 + (rr & 7) : tile * 16 + rr;
}
__device__ __forceinline__ Ahead look_ahead(const Output& to, int tile, int rr, int first) {
  Ahead ahead;
  ahead.bias = to.bias ? to.bias[tile * 16 + rr] : 0.f;
#if RESIDUAL
  const int row = output_row(to, tile, rr);
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int column = first + APART * e;
    const bool real = column < to.rows && row < to.outputs;
    ahead.before[e] = real ? load_fresh_2(to.residual + (size_t)column * to.residual_stride + row) : 0;
  }
#endif
  return ahead;
}

// Row scale of this thread's row in tile `i` of this block.
__device__ __forceinline__ void fetch_row_scale(Scales& scales, const Output& to, int i, int mine, int thread) {
  if (!to.row_scale) return;
  const int tile = blockIdx.x + i * gridDim.x;
  const float* source = to.row_scale + (size_t)tile * 16 + (thread & 15);
  if (i < mine && !is_behind(to, tile)) copy_4(shared_address(&scales[i % SCALES_AHEAD][thread]), source);
  close_group();
}

// The finishing warp: adds the others' sums of each tile, then does everything behind the product.
__device__ __forceinline__ void finish_tiles(Sums& sums, const Squares& squares, Scales& scales, const Output& to,
                                             float epsilon, int mine) {
  const int thread = threadIdx.x - WARPS * 32, rr = thread & 15, first = thread >> 4;
  for (int i = 0; i < SCALES_AHEAD; i++) fetch_row_scale(scales, to, i, mine, thread);
  wait_for_predecessors();
#if NORM
  float inverse[EACH];
#endif
  Ahead ahead = look_ahead(to, blockIdx.x, rr, first);
  for (int group = 0; group < mine; group += GROUP_TILES) {
    const int size = min(GROUP_TILES, mine - group), side = (group / GROUP_TILES) & 1;
    meet(FULL(side));
#if NORM
    if (group == 0) {
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        float square = 0.f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) square += squares[w][first + APART * e];
        inverse[e] = rsqrtf(square / K + epsilon);
      }
    }
#endif
    for (int i = 0; i < size; i++) {
      const int tile = blockIdx.x + (group + i) * gridDim.x;
      float value[EACH];
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        const int at = (first + APART * e) * SUM_STRIDE + rr;
        value[e] = 0.f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
          value[e] += sums[side][i][w][at];
          if (FOLD) value[e] += sums[side][i][w][at + 4 * SUM_STRIDE];
        }
      }
      if (i + 1 == size && group + 2 * GROUP_TILES < mine) announce(READ(side));
      float scale = UNDO;
      if (to.row_scale) {
        wait_groups<SCALES_AHEAD - 1>();
        if (!is_behind(to, tile)) scale *= scales[(group + i) % SCALES_AHEAD][thread];
        fetch_row_scale(scales, to, group + i + SCALES_AHEAD, mine, thread);
      }
      const Ahead now = ahead;
      if (group + i + 1 < mine) ahead = look_ahead(to, tile + gridDim.x, rr, first);
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        const int column = first + APART * e, row = output_row(to, tile, rr);
        float v = value[e] * scale;
#if NORM
        v *= inverse[e];
#endif
        v += now.bias;
#if PAIRS
        const float up = __shfl_down_sync(~0u, v, 8);
        v = silu(v) * up;
        if (rr >= 8) continue;
#endif
#if RESIDUAL
        v += widen(now.before[e]);
#endif
        if (column >= to.rows || row >= to.outputs) continue;
        const size_t place = (size_t)column * to.out_stride + row;
#if WIDE
        ((float*)to.out)[place] = v;
#else
        ((bfloat16*)to.out)[place] = narrow(v);
#endif
      }
    }
  }
}
