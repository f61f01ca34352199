// out = residual + epilogue(RMSNorm(x) W^T + bias) for up to 16 rows of x: weights stream once, at the speed of memory.
//
// One block per multiprocessor (or a few) walks over every gridDim-th tile of 16 outputs. The inputs are cut
// into units of 128; each warp has a run of units, keeps its part of x in registers and multiplies it with its part
// of every tile, which lane 0 fetches STAGES steps ahead into the warp's own ring of shared memory. Warps meet once a
// tile to add their parts, in order. Weights are fetched before the wait for the predecessor, and dependents are
// released at once: with half of an SM's shared memory in use the next kernel's ring fills while this one runs.
//
// Macros: FORMAT 0 BF16, 1 FP8, 2 INT8, 3 NVFP4; K inputs; WARPS; STEP units of a stage; STAGES of a ring; SETS of 8
// rows; FOLD (NVFP4, at most 4 rows); NORM; BLOCK_SCALE 0, 1 (128 x 128), 2 (128 x 128, paired matrix); PAIRS
// (SiLU of pairs); RESIDUAL; WIDE (float32 out); RESIDENT blocks that must fit on a multiprocessor; GROUP tiles that share a pass over x (0: x stays in registers).
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
#define SUM_STRIDE 20  // rows of a column of sums, padded against bank conflicts
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

// Multiply a pair by the norm's weights and add its squares to the row's sum.
__device__ __forceinline__ uint32_t weighted(uint32_t pair, float2 weight, float& square) {
  const float a = low_half(pair), b = high_half(pair);
  square = fmaf(a, a, square);
  square = fmaf(b, b, square);
  return pack_pair(a * weight.x, b * weight.y);
}
__device__ __forceinline__ uint32_t prepared(uint32_t pair, const float* norm, int k, float& square) {
#if NORM
  pair = weighted(pair, *(const float2*)(norm + k), square);
#endif
#if RAISED
  pair = raise(pair);
#endif
  return pair;
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
      const uint32_t a = prepared(x.part[n][i].x, norm, k, square[n]);
      const uint32_t b = prepared(x.part[n][i].y, norm, k + 2, square[n]);
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
      v.x = prepared(v.x, norm, k, square[n]); v.y = prepared(v.y, norm, k + 2, square[n]);
      v.z = prepared(v.z, norm, k + 4, square[n]); v.w = prepared(v.w, norm, k + 6, square[n]);
    }
#endif
  }
}

// One unit of a tile times this warp's inputs, added to c. `scale`: of rows g and g + 8, where a unit has one.
__device__ __forceinline__ void multiply_unit(const uint8_t* unit, int chunks, const Inputs& x, float (*c)[4],
                                              float2 scale, const Lane& me, const Nvfp4Masks& masks) {
#if FORMAT == 3
#if FOLD
  multiply_nvfp4_folded(unit, x.part[0], me.lane, c[0], masks);
#else
  multiply_nvfp4<SETS>(unit, me.lane, x.part, c, masks);
#endif
#else
#if SCALED
  float sum[SETS][4];
#pragma unroll
  for (int n = 0; n < SETS; n++) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0.f;
#else
  float (*sum)[4] = c;
#endif
#pragma unroll
  for (int i = 0; i < UNIT_CHUNKS; i++) {
    if (CHUNKS % UNIT_CHUNKS && i >= chunks) break;
    const uint4 av = *(const uint4*)(unit + i * 1024 + me.lane * 16);
    const uint4 bv = *(const uint4*)(unit + i * 1024 + 512 + me.lane * 16);
#if FORMAT == 0
#pragma unroll
    for (int n = 0; n < SETS; n++) {
      multiply(sum[n], av.x, bv.x, av.y, bv.y, x.part[n][i].x, x.part[n][i].y);
      multiply(sum[n], av.z, bv.z, av.w, bv.w, x.part[n][i].z, x.part[n][i].w);
    }
#else
    const uint32_t a[4] = {av.x, av.y, av.z, av.w}, b[4] = {bv.x, bv.y, bv.z, bv.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint32_t a0, a1, b0, b1;
#if FORMAT == 1
      decode_fp8(a[j], a0, a1); decode_fp8(b[j], b0, b1);
#else
      decode_int8(a[j], a0, a1); decode_int8(b[j], b0, b1);
#endif
#pragma unroll
      for (int n = 0; n < SETS; n++) {
        const uint4 v = x.part[n][2 * i + (j >> 1)];
        multiply(sum[n], a0, b0, a1, b1, j & 1 ? v.z : v.x, j & 1 ? v.w : v.y);
      }
    }
#endif
  }
#if SCALED
#pragma unroll
  for (int n = 0; n < SETS; n++) {
    c[n][0] = fmaf(sum[n][0], scale.x, c[n][0]); c[n][1] = fmaf(sum[n][1], scale.x, c[n][1]);
    c[n][2] = fmaf(sum[n][2], scale.y, c[n][2]); c[n][3] = fmaf(sum[n][3], scale.y, c[n][3]);
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

// Where the next fetch stands: tiles of a group take turns within each step over the inputs.
struct Cursor { int group, tile, step; };
#define GROUP_TILES (GROUP ? GROUP : 1)
__device__ __forceinline__ void advance(Cursor& at, int mine) {
  if (++at.tile < min(GROUP_TILES, mine - at.group)) return;
  at.tile = 0;
  if (++at.step < STEPS) return;
  at.step = 0;
  at.group += GROUP_TILES;
}

__device__ __forceinline__ void fetch(const uint8_t* blocks, const Cursor& at, uint32_t ring, uint32_t barrier,
                                      const Lane& me) {
  const int chunks_before = me.first * UNIT_CHUNKS + at.step * STEP * UNIT_CHUNKS;
  const int units = min(STEP, me.units - at.step * STEP);
  const int chunks = min(units * UNIT_CHUNKS, CHUNKS - chunks_before);
  const uint32_t bytes = chunks > 0 ? chunks * CHUNK_BYTES : 0;
  barrier_expect(barrier, bytes);
  const size_t tile = blockIdx.x + (size_t)(at.group + at.tile) * gridDim.x;
  if (bytes) copy_bulk(ring, blocks + tile * TILE_BYTES + (size_t)chunks_before * CHUNK_BYTES, bytes, barrier);
}

// Everything behind the product, for one output: `part` points at the warps' sums of its row and column.
__device__ __forceinline__ float finished(const float* part, const float* factor, const float* bias, int row, float norm) {
  float value = 0.f;
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    value += part[w * (SETS * 8 * SUM_STRIDE)];
#if FOLD
    value += part[w * (SETS * 8 * SUM_STRIDE) + 4 * SUM_STRIDE];
#endif
  }
  value *= norm * UNDO;
  if (factor) value *= factor[row];
  if (bias) value += bias[row];
  return value;
}

extern "C" __global__ __launch_bounds__(WARPS * 32, RESIDENT) void packed_linear(
    const bfloat16* __restrict__ x, int x_stride, const float* __restrict__ norm, float epsilon,
    const uint8_t* __restrict__ blocks, const float* __restrict__ row_scale, const float* __restrict__ block_scale,
    int scale_rows, const float* __restrict__ bias, const bfloat16* residual, int residual_stride, void* out,
    int out_stride, int rows, int outputs, int tiles) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ float sums[2][GROUP_TILES][WARPS][SETS * 8 * SUM_STRIDE];
  __shared__ float squares[WARPS][SETS * 8];
  __shared__ __align__(8) unsigned long long barriers[WARPS][STAGES + 1];
  Lane me;
  me.warp = threadIdx.x >> 5; me.lane = threadIdx.x & 31; me.g = me.lane >> 2; me.t = me.lane & 3;
  me.first = me.warp * (UNITS / WARPS) + min(me.warp, UNITS % WARPS);
  me.units = UNITS / WARPS + (me.warp < UNITS % WARPS);
  const uint8_t* ring = shared + (size_t)me.warp * STAGES * STAGE_BYTES;
  const float* norms = (const float*)(shared + (size_t)WARPS * STAGES * STAGE_BYTES);
  const uint32_t ring_at = shared_address(ring), barrier_at = shared_address(&barriers[me.warp][0]);
  const int mine = (tiles - 1 - (int)blockIdx.x) / (int)gridDim.x + 1, total = mine * STEPS;
  Cursor next = {0, 0, 0};
  if (me.lane == 0) {
    for (int q = 0; q <= STAGES; q++) barrier_init(barrier_at + q * 8);
    barrier_init_done();
#if NORM
    const int inputs = min(me.units * 128, K - me.first * 128);
    barrier_expect(barrier_at + STAGES * 8, inputs > 0 ? inputs * 4 : 0);
    if (inputs > 0) copy_bulk(shared_address(norms + me.first * 128), norm + me.first * 128, inputs * 4, barrier_at + STAGES * 8);
#endif
    for (int q = 0; q < STAGES && q < total; q++) {
      fetch(blocks, next, ring_at + q * STAGE_BYTES, barrier_at + q * 8, me);
      advance(next, mine);
    }
  }
  __syncwarp();
#if RELEASE == 0
  release_dependents();
#endif
  float square[SETS];
#pragma unroll
  for (int n = 0; n < SETS; n++) square[n] = 0.f;
  const Nvfp4Masks masks = nvfp4_masks();
  wait_for_predecessors();
#if GROUP == 0
  Inputs inputs[MOST];
#pragma unroll
  for (int u = 0; u < MOST; u++)
    if (UNITS % WARPS == 0 || u < me.units) read_inputs(inputs[u], x, x_stride, rows, me.first + u, me);
#if NORM
  barrier_wait(barrier_at + STAGES * 8, 0);
#endif
#pragma unroll
  for (int u = 0; u < MOST; u++)
    if (UNITS % WARPS == 0 || u < me.units) prepare_inputs(inputs[u], norms + (me.first + u) * 128, me.first + u, square, me);
#elif NORM
  barrier_wait(barrier_at + STAGES * 8, 0);
#endif
  int stage = 0, parity = 0, q = 0;
  for (int group = 0; group < mine; group += GROUP_TILES) {
    const int size = min(GROUP_TILES, mine - group);
    float c[GROUP_TILES][SETS][4];
#pragma unroll
    for (int i = 0; i < GROUP_TILES; i++)
#pragma unroll
      for (int n = 0; n < SETS; n++) c[i][n][0] = c[i][n][1] = c[i][n][2] = c[i][n][3] = 0.f;
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
      float unused[SETS];
      if (step < me.units)
        prepare_inputs(now, norms + (me.first + step) * 128, me.first + step, group ? unused : square, me);
#endif
#pragma unroll
      for (int i = 0; i < GROUP_TILES; i++) {
        if (GROUP > 1 && i >= size) break;
#if SCALED && GROUP
        const float2 scale = unit_scale(block_scale, blockIdx.x + (group + i) * gridDim.x, me.first + step, scale_rows, me);
#endif
        barrier_wait(barrier_at + stage * 8, parity);
#pragma unroll
        for (int u = 0; u < STEP; u++) {
          const int unit = step * STEP + u;
          if (unit >= MOST || (UNITS % WARPS && unit >= me.units)) break;
          const uint8_t* source = ring + stage * STAGE_BYTES + u * UNIT_CHUNKS * CHUNK_BYTES;
          const int chunks = CHUNKS - (me.first + unit) * UNIT_CHUNKS;
#if GROUP
#if SCALED
          multiply_unit(source, chunks, now, c[i], scale, me, masks);
#else
          multiply_unit(source, chunks, now, c[i], make_float2(1.f, 1.f), me, masks);
#endif
#elif SCALED
          multiply_unit(source, chunks, inputs[unit], c[i], scales[unit], me, masks);
#else
          multiply_unit(source, chunks, inputs[unit], c[i], make_float2(1.f, 1.f), me, masks);
#endif
        }
        __syncwarp();
        if (me.lane == 0 && q + STAGES < total) {
          fetch(blocks, next, ring_at + stage * STAGE_BYTES, barrier_at + stage * 8, me);
          advance(next, mine);
        }
        q++;
        if (++stage == STAGES) { stage = 0; parity ^= 1; }
      }
    }
#if RELEASE == 1
    if (q + STAGES >= total) release_dependents();
#endif
#if NORM
    if (group == 0) {
#pragma unroll
      for (int n = 0; n < SETS; n++) {
        square[n] += __shfl_xor_sync(~0u, square[n], 1);
        square[n] += __shfl_xor_sync(~0u, square[n], 2);
#if FOLD
        square[n] += __shfl_xor_sync(~0u, square[n], 16);
#endif
        if (me.t == 0) squares[me.warp][n * 8 + me.g] = square[n];
      }
    }
#endif
    const int side = (group / GROUP_TILES) & 1;
#pragma unroll
    for (int i = 0; i < GROUP_TILES; i++)
#pragma unroll
      for (int n = 0; n < SETS; n++) {
        float* at = &sums[side][i][me.warp][(n * 8 + 2 * me.t) * SUM_STRIDE + me.g];
        at[0] = c[i][n][0]; at[SUM_STRIDE] = c[i][n][1];
        at[8] = c[i][n][2]; at[SUM_STRIDE + 8] = c[i][n][3];
      }
    // A thread's outputs: row `o % width` of its tile for column `o / width`.
    const int width = PAIRS ? 8 : 16, per_tile = width * rows;
#if RESIDUAL
    bfloat16 before = 0;
    if ((int)threadIdx.x < per_tile * size) {
      const int i = threadIdx.x / per_tile, o = threadIdx.x % per_tile;
      const int row = (blockIdx.x + (group + i) * gridDim.x) * width + o % width;
      if (row < outputs) before = load_fresh_2(residual + (size_t)(o / width) * residual_stride + row);
    }
#endif
    __syncthreads();
    for (int at = threadIdx.x; at < per_tile * size; at += WARPS * 32) {
      const int i = at / per_tile, o = at % per_tile, column = o / width, rr = o % width;
      const int tile = blockIdx.x + (group + i) * gridDim.x, row = tile * width + rr;
      if (row >= outputs) continue;
      float scale = 1.f;
#if NORM
      float square_sum = 0.f;
#pragma unroll
      for (int w = 0; w < WARPS; w++) square_sum += squares[w][column];
      scale = rsqrtf(square_sum / K + epsilon);
#endif
      const float* part = &sums[side][i][0][column * SUM_STRIDE + rr];
      float value = finished(part, row_scale, bias, tile * 16 + rr, scale);
#if PAIRS
      value = silu(value) * finished(part + 8, row_scale, bias, tile * 16 + rr + 8, scale);
#endif
#if RESIDUAL
      if (at != (int)threadIdx.x) before = load_fresh_2(residual + (size_t)column * residual_stride + row);
      value += widen(before);
#endif
      const size_t place = (size_t)column * out_stride + row;
#if WIDE
      ((float*)out)[place] = value;
#else
      ((bfloat16*)out)[place] = narrow(value);
#endif
    }
  }
}
