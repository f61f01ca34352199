// out = residual + epilogue(RMSNorm(x) W^T + bias) for 17 to 256 rows of x.
//
// `prepare_rows` writes x, the norm's weight multiplied in, in the order in which the matrix units read it, and each
// row's 1 / rms. `many_rows`: the PARTS blocks of a cluster divide the inputs; each keeps its part of x, the right
// operand, in shared memory, while the cluster walks over every so many-th 128 outputs. Each of a block's 8 warps, two
// warpgroups, streams tiles of 16 outputs through a ring of its own and decodes them into registers, the left operand.
// After each 128 outputs the blocks add their parts of some rows each, in order, out of the others' shared memory.
//
// Macros: FORMAT 0 BF16, 1 FP8 (row scales), 3 NVFP4; K inputs; ROWS 32, 64 or 128; STAGES of a ring, in units of 128
// inputs; PARTS; NORM; PAIRS; RESIDUAL; WIDE.
#include "matrix.cuh"
#include "memory.cuh"
#include "warpgroup.cuh"

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
#define UNIT_BYTES (UNIT_CHUNKS * CHUNK_BYTES)
#define X_BYTES (ROWS * 256)
#define WARPS 8
#define MOST ((UNITS + PARTS - 1) / PARTS)  // units of a block
#define WIDTH (ROWS < 64 ? ROWS : 64)  // rows of one product
#define PRODUCTS (ROWS / WIDTH)
#define SUM_STRIDE 132                 // outputs of a row of sums, padded against bank conflicts
#define SIDES (ROWS > 64 ? 1 : 2)      // turns whose sums have room
#define UNDO (FORMAT == 0 ? 1.f : FORMAT == 1 ? FP8_UNDO : 512.f)

// The input at place `p` of a unit: k of the products in the order of the packed blocks' lanes.
__device__ __forceinline__ int input_at(int p) {
  const int half = p % 16 / 8, t = p % 8 / 2, e = p % 2;
#if FORMAT == 0
  return p / 32 * 32 + 8 * t + 4 * (p % 32 / 16) + 2 * half + e;
#elif FORMAT == 3
  return p / 16 * 16 + 4 * t + 2 * half + e;
#else
  return p / 64 * 64 + 16 * t + 4 * (p % 64 / 16) + 2 * half + e;
#endif
}

// One block for each of ROWS rows; those past `rows` become zeros. prepared: [units][16 of 8 inputs][ROWS / 8][8][8].
extern "C" __global__ __launch_bounds__(256) void prepare_rows(const bfloat16* __restrict__ x, int x_stride,
                                                               const float* __restrict__ norm, float epsilon,
                                                               bfloat16* prepared, float* factors, int rows) {
  __shared__ float squares[8];
  const int row = blockIdx.x;
  release_dependents();
  wait_for_predecessors();
  float square = 0.f;
  for (int place = threadIdx.x * 2; place < UNITS * 128; place += 512) {
    const int k = place / 128 * 128 + input_at(place % 128);
    uint32_t pair = 0;
    if (row < rows && k < K) {
      pair = load_fresh_4(x + (size_t)row * x_stride + k);
#if NORM
      const float a = low_half(pair), b = high_half(pair);
      square = fmaf(a, a, square);
      square = fmaf(b, b, square);
      const float2 weight = *(const float2*)(norm + k);
      pair = pack_pair(a * weight.x, b * weight.y);
#endif
#if FORMAT == 1
      pair = raise(pair);
#endif
    }
    const int p = place % 128;
    const size_t at = (size_t)(place / 128) * (ROWS * 128) + ((p / 8) * (ROWS / 8) + row / 8) * 64 + row % 8 * 8 + p % 8;
    *(uint32_t*)(prepared + at) = pair;
  }
#if NORM
#pragma unroll
  for (int o = 16; o; o >>= 1) square += __shfl_xor_sync(~0u, square, o);
  if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = square;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0.f;
    for (int w = 0; w < 8; w++) sum += squares[w];
    factors[row] = rsqrtf(sum / K + epsilon);
  }
#endif
}

// Block scale `index` of four as a pair of BF16, 2^117 times its value; its product with a weight is exact.
__device__ __forceinline__ uint32_t scale_pair(uint32_t four, int index) {
  return __byte_perm(four, 0, 0x4040 | index | (index << 8)) * 16u + 0x6F006F00u;
}
__device__ __forceinline__ uint32_t multiply_pair(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// The left operands of a unit's 8 products out of a tile's blocks.
__device__ __forceinline__ void decode_unit(const uint8_t* unit, int chunks, int lane, uint32_t (*a)[4],
                                            const Nvfp4Masks& masks) {
#if FORMAT == 3
  const int g = lane >> 2;
  const uint4 av = *(const uint4*)(unit + lane * 16), bv = *(const uint4*)(unit + 512 + lane * 16);
  const uint2 sa = *(const uint2*)(unit + 1024 + g * 8), sb = *(const uint2*)(unit + 1088 + g * 8);
#pragma unroll
  for (int couple = 0; couple < 2; couple++) {
    uint32_t low[8], high[8];
    decode_nvfp4(couple ? av.z : av.x, couple ? av.w : av.y, low, masks);
    decode_nvfp4(couple ? bv.z : bv.x, couple ? bv.w : bv.y, high, masks);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const uint32_t s = scale_pair(j & 1 ? sa.y : sa.x, 2 * couple + (j >> 1));
      const uint32_t r = scale_pair(j & 1 ? sb.y : sb.x, 2 * couple + (j >> 1));
      uint32_t* to = a[4 * couple + j];
      to[0] = multiply_pair(low[2 * j], s); to[1] = multiply_pair(high[2 * j], r);
      to[2] = multiply_pair(low[2 * j + 1], s); to[3] = multiply_pair(high[2 * j + 1], r);
    }
  }
#else
#pragma unroll
  for (int i = 0; i < UNIT_CHUNKS; i++) {
    const bool real = CHUNKS % UNIT_CHUNKS == 0 || i < chunks;
    const uint4 zero = make_uint4(0, 0, 0, 0);
    const uint4 av = real ? *(const uint4*)(unit + i * 1024 + lane * 16) : zero;
    const uint4 bv = real ? *(const uint4*)(unit + i * 1024 + 512 + lane * 16) : zero;
#if FORMAT == 0
    a[2 * i][0] = av.x; a[2 * i][1] = bv.x; a[2 * i][2] = av.y; a[2 * i][3] = bv.y;
    a[2 * i + 1][0] = av.z; a[2 * i + 1][1] = bv.z; a[2 * i + 1][2] = av.w; a[2 * i + 1][3] = bv.w;
#else
    const uint32_t low[4] = {av.x, av.y, av.z, av.w}, high[4] = {bv.x, bv.y, bv.z, bv.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      decode_fp8(low[j], a[4 * i + j][0], a[4 * i + j][2]);
      decode_fp8(high[j], a[4 * i + j][1], a[4 * i + j][3]);
    }
#endif
  }
#endif
}

struct Output {
  const float* row_scale;
  const float* factors;
  const float* bias;
  const bfloat16* residual;
  void* out;
  int residual_stride, out_stride, rows, outputs;
};

// Sum of all parts of one output of this cluster, in order. sums: [ROWS][SUM_STRIDE] of this block.
__device__ __forceinline__ float added(uint32_t sums, int row, int output) {
  const uint32_t at = sums + (row * SUM_STRIDE + output) * 4;
  float value = 0.f;
#pragma unroll
  for (int part = 0; part < PARTS; part++) value += load_of_cluster(at, part);
  return value;
}
__device__ __forceinline__ float scaled(const Output& to, float value, int packed_row, float factor) {
  value *= factor * UNDO;
  if (to.row_scale) value *= to.row_scale[packed_row];
  if (to.bias) value += to.bias[packed_row];
  return value;
}

// Everything behind the product, for the rows that are this block's to finish.
__device__ __forceinline__ void finish(const Output& to, uint32_t sums, int block, int part) {
  constexpr int kWide = PAIRS ? 64 : 128;  // outputs of the block
  const int o = threadIdx.x % kWide, first = block * kWide;
  const int row_of_sums = PAIRS ? o / 8 * 16 + o % 8 : o;
  if (first + o >= to.outputs) return;
  for (int n = part * (ROWS / PARTS) + threadIdx.x / kWide; n < (part + 1) * (ROWS / PARTS); n += WARPS * 32 / kWide) {
    if (n >= to.rows) break;
#if NORM
    const float factor = load_fresh_float(to.factors + n);
#else
    const float factor = 1.f;
#endif
    float value = scaled(to, added(sums, n, row_of_sums), block * 128 + row_of_sums, factor);
#if PAIRS
    value = silu(value) * scaled(to, added(sums, n, row_of_sums + 8), block * 128 + row_of_sums + 8, factor);
#endif
#if RESIDUAL
    value += widen(load_fresh_2(to.residual + (size_t)n * to.residual_stride + first + o));
#endif
    const size_t at = (size_t)n * to.out_stride + first + o;
#if WIDE
    ((float*)to.out)[at] = value;
#else
    ((bfloat16*)to.out)[at] = narrow(value);
#endif
  }
}

extern "C" __global__ __launch_bounds__(WARPS * 32, 1) __cluster_dims__(PARTS, 1, 1) void many_rows(
    const bfloat16* __restrict__ prepared, const float* factors, const uint8_t* __restrict__ blocks,
    const float* __restrict__ row_scale, const float* __restrict__ bias, const bfloat16* residual, int residual_stride,
    void* out, int out_stride, int rows, int outputs, int tiles) {
  // x, then the sums of one turn or two, then the rings.
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ __align__(8) unsigned long long barriers[WARPS][STAGES], x_full[MOST];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int part = blockIdx.x % PARTS, cluster = blockIdx.x / PARTS, clusters = gridDim.x / PARTS;
  const int first = part * (UNITS / PARTS) + min(part, UNITS % PARTS), mine = UNITS / PARTS + (part < UNITS % PARTS);
  const int turns = ((tiles + WARPS - 1) / WARPS - 1 - cluster) / clusters + 1;
  const uint32_t x_at = shared_address(shared);
  float* sums = (float*)(shared + MOST * X_BYTES);
  const uint8_t* ring = (const uint8_t*)(sums + SIDES * ROWS * SUM_STRIDE) + warp * STAGES * UNIT_BYTES;
  const uint32_t ring_at = shared_address(ring), barrier = shared_address(&barriers[warp][0]);
  // Where the next fetch of this warp stands. A tile twice is harmless: what lies behind the last is not stored.
  int next_turn = 0, next_unit = 0, next_stage = 0;
  const auto fetch_next = [&]() {
    const int tile = min((cluster + next_turn * clusters) * WARPS + warp, tiles - 1), chunk = (first + next_unit) * UNIT_CHUNKS;
    const uint32_t bytes = min(UNIT_CHUNKS, CHUNKS - chunk) * CHUNK_BYTES;
    fetch_bulk(ring_at + next_stage * UNIT_BYTES, blocks + ((size_t)tile * CHUNKS + chunk) * CHUNK_BYTES, bytes,
               barrier + next_stage * 8);
    if (++next_stage == STAGES) next_stage = 0;
    if (++next_unit == mine) { next_unit = 0; next_turn++; }
  };
  if (lane == 0) {
    for (int q = 0; q < STAGES; q++) barrier_init(barrier + q * 8);
    if (warp == 0)
      for (int q = 0; q < MOST; q++) barrier_init(shared_address(x_full + q));
    barrier_init_done();
    for (int q = 0; q < STAGES && next_turn < turns; q++) fetch_next();
  }
  __syncthreads();
  wait_for_predecessors();
  fence_async_proxy();
  if (threadIdx.x == 0)
    for (int u = 0; u < mine; u++)
      fetch_bulk(x_at + u * X_BYTES, prepared + (size_t)(first + u) * (ROWS * 128), X_BYTES, shared_address(x_full + u));
  release_dependents();
  const Nvfp4Masks masks = nvfp4_masks();
  const Output to = {row_scale, factors, bias, residual, out, residual_stride, out_stride, rows, outputs};
  int stage = 0, parity = 0;
  for (int turn = 0; turn < turns; turn++) {
    float c[PRODUCTS][WIDTH / 2];
#pragma unroll
    for (int n = 0; n < PRODUCTS; n++)
#pragma unroll
      for (int i = 0; i < WIDTH / 2; i++) c[n][i] = 0.f;
    for (int u = 0; u < mine; u++) {
      uint32_t a[8][4];
      barrier_wait(barrier + stage * 8, parity);
      decode_unit(ring + stage * UNIT_BYTES, CHUNKS - (first + u) * UNIT_CHUNKS, lane, a, masks);
      __syncwarp();
      if (lane == 0 && next_turn < turns) fetch_next();
      if (++stage == STAGES) { stage = 0; parity ^= 1; }
      __syncwarp();
      barrier_wait(shared_address(x_full + u), 0);
      warpgroup_fence();
#pragma unroll
      for (int s = 0; s < 8; s++)
#pragma unroll
        for (int n = 0; n < PRODUCTS; n++)
          warpgroup_multiply(c[n], a[s], right_operand(x_at + u * X_BYTES + s * (ROWS * 32) + n * (WIDTH * 16), ROWS * 16, 128));
      warpgroup_commit();
      warpgroup_wait();
    }
    float* side = sums + turn % SIDES * (ROWS * SUM_STRIDE);
#pragma unroll
    for (int n = 0; n < PRODUCTS; n++)
#pragma unroll
      for (int i = 0; i < WIDTH / 8; i++) {
        float* at = side + (n * WIDTH + 8 * i + 2 * t) * SUM_STRIDE + warp * 16 + g;
        at[0] = c[n][4 * i]; at[SUM_STRIDE] = c[n][4 * i + 1];
        at[8] = c[n][4 * i + 2]; at[SUM_STRIDE + 8] = c[n][4 * i + 3];
      }
    // The other side is written again only after the next meeting, when everybody has read this one.
    cluster_sync();
    finish(to, shared_address(side), cluster + turn * clusters, part);
    if (SIDES == 1) cluster_sync();
  }
  cluster_sync();  // nobody leaves while others read
}
