// out = residual + epilogue(RMSNorm(x) W^T + bias) for up to 16 rows of x: weights stream once, at the speed of memory.
//
// One block per multiprocessor (or a few) walks over every gridDim-th tile of 16 outputs. The inputs are cut into units
// of 128; each of WARPS warps has a run of units, keeps its part of x in registers and multiplies it with its part of
// every tile, which lane 0 fetches STAGES steps ahead into the warp's own ring of shared memory. One more warp adds the
// parts of a tile, in order, and finishes it while the others are at the next one. Weights are fetched before the wait
// for the predecessor, and dependents are released at once: where half of an SM is enough for this kernel, the next
// one's rings fill while it runs.
//
// Macros: FORMAT 0 BF16, 1 FP8, 2 INT8, 3 NVFP4; K inputs; WARPS; STEP units of a stage; STAGES of a ring; COLUMNS 4, 8
// or 16, at least the rows of x; NORM; BLOCK_SCALE 0, 1 (128 x 128), 2 (128 x 128, paired matrix); PAIRS (SiLU of
// pairs); RESIDUAL; WIDE (float32 out); RESIDENT blocks whose registers must fit on a multiprocessor; GROUP tiles that
// share a pass over x, which is read anew for each group (0: x stays in registers).
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
#define STAGE_BYTES (STEP * UNIT_CHUNKS * CHUNK_BYTES)
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
      x.part[n][i].x = v.x; x.part[n][i].y = v.y;
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
#if FORMAT == 1
      decode_fp8(a[j], a0, a1);
      decode_fp8(b[j], b0, b1);
#else
      decode_int8(a[j], a0, a1);
      decode_int8(b[j], b0, b1);
#endif
#pragma unroll
      for (int n = 0; n < SETS; n++) {
        const uint4 v = x.part[n][2 * i + (j >> 1)];
        multiply(sum[j % CHAINS][n], a0, b0, a1, b1, j & 1 ? v.z : v.x, j & 1 ? v.w : v.y);
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

// Scales of rows g and g + 8 of a tile for one unit.
__device__ __forceinline__ float2 unit_scale(const float* block_scale, int tile, int unit, int scale_rows, const Lane& me) {
#if FORMAT == 2
  const float* at = block_scale + ((size_t)tile * UNITS + unit) * 16 + me.g;
  return make_float2(at[0], at[8]);
#elif BLOCK_SCALE == 1
  const int row = tile * 16 / 128;
  const float s = block_scale[(size_t)row * UNITS + unit];
  return make_float2(s, s);
#elif BLOCK_SCALE == 2  // gate's rows of scales, then up's
  const int row = tile * 8 / 128;
  return make_float2(block_scale[(size_t)row * UNITS + unit], block_scale[(size_t)(row + scale_rows) * UNITS + unit]);
#else
  return make_float2(1.f, 1.f);
#endif
}

// Where the next fetch stands: tiles of a group take turns within each step over the inputs. `source`: this warp's part
// of the tile.
struct Cursor {
  int group, tile, step;
  const uint8_t* source;
};
__device__ __forceinline__ size_t tiles_apart() { return gridDim.x * TILE_BYTES; }
__device__ __forceinline__ void advance(Cursor& at, int mine) {
#if GROUP > 1
  const int size = min(GROUP, mine - at.group);
  at.source += tiles_apart();
  if (++at.tile < size) return;
  at.tile = 0;
  if (++at.step < STEPS) {
    at.source -= size * tiles_apart();
    return;
  }
  at.step = 0;
  at.group += GROUP;
#else
  if (++at.step < STEPS) return;
  at.step = 0;
  at.source += tiles_apart();
#endif
}

__device__ __forceinline__ void fetch(const Cursor& at, uint32_t ring, uint32_t barrier, const Lane& me) {
  const uint8_t* source = at.source + at.step * STAGE_BYTES;
#if UNITS % WARPS == 0 && MOST % STEP == 0 && CHUNKS % UNIT_CHUNKS == 0
  fetch_bulk(ring, source, STAGE_BYTES, barrier);
#else
  const int units = min(STEP, me.units - at.step * STEP);
  const int chunks = min(units * UNIT_CHUNKS, CHUNKS - (me.first + at.step * STEP) * UNIT_CHUNKS);
  const uint32_t bytes = chunks > 0 ? chunks * CHUNK_BYTES : 0;
  barrier_expect(barrier, bytes);
  if (bytes) copy_bulk(ring, source, bytes, barrier);
#endif
}

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
                                          const Lane& me) {
#pragma unroll
  for (int i = 0; i < GROUP_TILES; i++)
#pragma unroll
    for (int n = 0; n < SETS; n++) {
      const int column = n * 8 + 2 * me.t;
      if (column >= SUM_COLUMNS) continue;
      float* at = &sums[i][me.warp][column * SUM_STRIDE + me.g];
      at[0] = c[i * CHAINS][n][0]; at[SUM_STRIDE] = c[i * CHAINS][n][1];
      at[8] = c[i * CHAINS][n][2]; at[SUM_STRIDE + 8] = c[i * CHAINS][n][3];
    }
}

struct Output {
  const float* row_scale;
  const float* bias;
  const bfloat16* residual;
  void* out;
  int residual_stride, out_stride, rows, outputs;
};

// What finishing a tile needs from memory, asked for long before.
#define APART (2 * FINISHERS)
#define EACH (COLUMNS / APART)  // outputs of a thread: row `thread % 16` of columns `first`, `first` + APART, ..
struct Ahead {
  float scale, bias;
  bfloat16 before[EACH];
};
__device__ __forceinline__ int output_row(int tile, int rr) { return PAIRS ? tile * 8 + (rr & 7) : tile * 16 + rr; }
__device__ __forceinline__ Ahead look_ahead(const Output& to, int tile, int rr, int first) {
  Ahead ahead;
  ahead.scale = to.row_scale ? to.row_scale[tile * 16 + rr] : 1.f;
  ahead.bias = to.bias ? to.bias[tile * 16 + rr] : 0.f;
#if RESIDUAL
  const int row = output_row(tile, rr);
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int column = first + APART * e;
    const bool real = column < to.rows && row < to.outputs;
    ahead.before[e] = real ? load_fresh_2(to.residual + (size_t)column * to.residual_stride + row) : 0;
  }
#endif
  return ahead;
}

// The finishing warp: adds the others' sums of each tile, then does everything behind the product.
__device__ __forceinline__ void finish_tiles(Sums& sums, const Squares& squares, const Output& to, float epsilon,
                                             int mine) {
  const int thread = threadIdx.x - WARPS * 32, rr = thread & 15, first = thread >> 4;
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
      const Ahead now = ahead;
      if (group + i + 1 < mine) ahead = look_ahead(to, tile + gridDim.x, rr, first);
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        const int column = first + APART * e, row = output_row(tile, rr);
        float v = value[e] * UNDO * now.scale;
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

// The warps that multiply.
__device__ __forceinline__ void multiply_tiles(Sums& sums, Squares& squares, const uint8_t* ring, uint32_t barrier,
                                               const float* norms, const bfloat16* x, int x_stride, int rows,
                                               const float* block_scale, int scale_rows, int mine, Cursor next,
                                               const Lane& me) {
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
  int stage = 0, parity = 0, q = 0;
  for (int group = 0; group < mine; group += GROUP_TILES) {
    const int size = min(GROUP_TILES, mine - group), side = (group / GROUP_TILES) & 1;
    float c[GROUP_TILES * CHAINS][SETS][4];
    clear_sums<GROUP_TILES * CHAINS>(c);
#if SCALED && GROUP == 0
    float2 scales[MOST];
#pragma unroll
    for (int u = 0; u < MOST; u++)
      if (UNITS % WARPS == 0 || u < me.units)
        scales[u] = unit_scale(block_scale, blockIdx.x + group * gridDim.x, me.first + u, scale_rows, me);
#endif
#if GROUP
    Inputs ahead;
    read_inputs(ahead, x, x_stride, rows, me.first, me);
#pragma unroll 1
#else
#pragma unroll
#endif
    for (int step = 0; step < STEPS; step++) {
#if GROUP
      Inputs now = ahead;
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
#if SCALED && GROUP
        const int tile = blockIdx.x + (group + i) * gridDim.x;
        const float2 scale = unit_scale(block_scale, tile, min(me.first + step, UNITS - 1), scale_rows, me);
#endif
        barrier_wait(barrier + stage * 8, parity);
#pragma unroll
        for (int u = 0; u < STEP; u++) {
          const int unit = step * STEP + u;
          if (unit >= MOST || (UNITS % WARPS && unit >= me.units)) break;
          const uint8_t* source = ring + stage * STAGE_BYTES + u * UNIT_CHUNKS * CHUNK_BYTES;
          const int chunks = CHUNKS - (me.first + unit) * UNIT_CHUNKS;
#if GROUP && SCALED
          multiply_unit(source, chunks, now, c + i * CHAINS, scale, me, masks);
#elif GROUP
          multiply_unit(source, chunks, now, c + i * CHAINS, make_float2(1.f, 1.f), me, masks);
#elif SCALED
          multiply_unit(source, chunks, inputs[unit], c, scales[unit], me, masks);
#else
          multiply_unit(source, chunks, inputs[unit], c, make_float2(1.f, 1.f), me, masks);
#endif
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
        if (FOLD) square[n] += __shfl_xor_sync(~0u, square[n], 16);
        if (me.t == 0 && n * 8 + me.g < COLUMNS) squares[me.warp][n * 8 + me.g] = square[n];
      }
    }
#endif
#pragma unroll
    for (int i = 0; i < GROUP_TILES; i++) join_chains(c + i * CHAINS);
    if (group >= 2 * GROUP_TILES) meet(READ(side));
    hand_over(sums[side], c, me);
    announce(FULL(side));
  }
}

extern "C" __global__ __launch_bounds__((WARPS + FINISHERS) * 32, RESIDENT) void packed_linear(
    const bfloat16* __restrict__ x, int x_stride, const float* __restrict__ norm, float epsilon,
    const uint8_t* __restrict__ blocks, const float* __restrict__ row_scale, const float* __restrict__ block_scale,
    int scale_rows, const float* __restrict__ bias, const bfloat16* residual, int residual_stride, void* out,
    int out_stride, int rows, int outputs, int tiles) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ Sums sums;
  __shared__ Squares squares;
  __shared__ __align__(8) unsigned long long barriers[WARPS][STAGES + 1];
  const int mine = (tiles - 1 - (int)blockIdx.x) / (int)gridDim.x + 1;
  Lane me;
  me.warp = threadIdx.x >> 5; me.lane = threadIdx.x & 31; me.g = me.lane >> 2; me.t = me.lane & 3;
  if (me.warp >= WARPS) {
    release_dependents();
    wait_for_predecessors();
    const Output to = {row_scale, bias, residual, out, residual_stride, out_stride, rows, outputs};
    finish_tiles(sums, squares, to, epsilon, mine);
    return;
  }
  me.first = me.warp * (UNITS / WARPS) + min(me.warp, UNITS % WARPS);
  me.units = UNITS / WARPS + (me.warp < UNITS % WARPS);
  const uint8_t* ring = shared + (size_t)me.warp * STAGES * STAGE_BYTES;
  const float* norms = (const float*)(shared + (size_t)WARPS * STAGES * STAGE_BYTES);
  const uint32_t barrier = shared_address(&barriers[me.warp][0]);
  Cursor next = {0, 0, 0, blocks + blockIdx.x * TILE_BYTES + me.first * UNIT_CHUNKS * CHUNK_BYTES};
  if (me.lane == 0) {
    for (int q = 0; q <= STAGES; q++) barrier_init(barrier + q * 8);
    barrier_init_done();
#if NORM
    const int inputs = min(me.units * 128, K - me.first * 128);
    fetch_bulk(shared_address(norms + me.first * 128), norm + me.first * 128, inputs * 4, barrier + STAGES * 8);
#endif
    for (int q = 0; q < STAGES && q < mine * STEPS; q++) {
      fetch(next, shared_address(ring) + q * STAGE_BYTES, barrier + q * 8, me);
      advance(next, mine);
    }
  }
  __syncwarp();
  release_dependents();
  wait_for_predecessors();
  multiply_tiles(sums, squares, ring, barrier, norms, x, x_stride, rows, block_scale, scale_rows, mine, next, me);
}
