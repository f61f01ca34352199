// Experts of many rows: pairs of a row and an expert, sorted by expert, in blocks of at most 16.
//
// A kernel's work is a list of (block of pairs, tile of 16 weight rows), cut into equal ranges, one for each thread
// block; within a range the activations of one block of pairs stay in shared memory while tiles of weights stream
// past them. GROUP warps share a tile, each with its part of the inputs; each warp has a ring of its own.
//
// MODE of the routed experts and SHARED_MODE of the shared one, as in sorted_pairs.cuh. INPUTS (whole chunks of both;
// the norm's width is WIDTH), TILES of an expert, WARPS, GROUP, STAGE_BLOCKS (blocks of one copy), STAGES. ROUTED: the
// sorted pairs; SHARED: one more expert on all rows, whose blocks come first (either, or both). GATED: gate and up, with
// the norm before them unless `norm` is null; else down. TOP: experts of a row, for the sum.
#include "memory.cuh"
#include "sorted_pairs.cuh"

#define GROUPS (WARPS / GROUP)
#define PAIRS 16
#define COLUMNS 8
#define ROOM 16                            // blocks of pairs in the range of a thread block, at most
#define LISTS_FIT (GATED && INPUTS >= 512)  // into the room for rows, 16 KB or more
#define STAGE_ROOM (STAGE_BLOCKS * (MODE == 2 || SHARED_MODE == 2 ? NVFP4_BLOCK_BYTES : 1024))

// How a tile of one format is cut.
template <int M> struct Cut {
  static constexpr int blocks = INPUTS / Packed<M>::chunk, part = blocks / GROUP;  // of a tile, of one warp of the group
  static constexpr int steps = part / STAGE_BLOCKS;                                // copies of a warp's part
  static constexpr int stage_bytes = STAGE_BLOCKS * Packed<M>::bytes;
  static __device__ __forceinline__ size_t at(size_t tile, int number) { return (tile * blocks + number * part) * Packed<M>::bytes; }
};

// The blocks of pairs in the range of a thread block; the shared expert is -1.
struct Segments { int expert[ROOM], first[ROOM], count[ROOM], row[ROOM][PAIRS]; };

// Rows of a block of pairs as right operands, and of the next one behind them if there is room for two (`together`: no
// more than 8 each); a warp for each row. inverse[0 or 1] gets 1 / rms. Loads come first, a batch of them together
// (loads that order memory would wait for each other).
#define PIECES ((INPUTS + 127) / 128)
#define BATCH (PIECES % 16 == 0 ? 16 : PIECES % 12 == 0 ? 12 : PIECES < 16 ? PIECES : 1)
#define SLOT (INPUTS * COLUMNS * 2)
struct Rows { const bfloat16* at; int stride; };
template <int M>
__device__ __forceinline__ void load_rows(uint8_t* x, float (*inverse)[PAIRS], const Rows& rows, const Rows& after,
                                          const float* norm, float epsilon, const Segments& segments, int segment,
                                          bool together) {
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int mine = segments.count[segment], all = mine + (together ? segments.count[segment + 1] : 0);
  const int groups = mine > COLUMNS ? 2 : 1;
  for (int i = warp; i < all; i += WARPS) {
    const int slot = i >= mine, column = slot ? i - mine : i;
    const size_t row = segments.row[segment + slot][column];
    const bfloat16* from = (slot ? after.at + row * after.stride : rows.at + row * rows.stride) + lane * 4;
    uint8_t* to = x + slot * SLOT;
    float square = 0.f;
#pragma unroll 1
    for (int start = 0; start < PIECES; start += BATCH) {
      uint2 value[BATCH];
#pragma unroll
      for (int i = 0; i < BATCH; i++) {
        const int k = (start + i) * 128 + lane * 4;
        const bool real = (INPUTS == WIDTH && INPUTS % 128 == 0) || k < WIDTH;
        value[i] = real ? __ldcg((const uint2*)(from + (start + i) * 128)) : make_uint2(0u, 0u);
      }
#pragma unroll
      for (int i = 0; i < BATCH; i++) {
        const int k = (start + i) * 128 + lane * 4;
        uint2 v = value[i];
        if (GATED) {
          const float4 factor = norm && k < WIDTH ? *(const float4*)(norm + k) : make_float4(1.f, 1.f, 1.f, 1.f);
          const float v0 = low_half(v.x), v1 = high_half(v.x), v2 = low_half(v.y), v3 = high_half(v.y);
          square += v0 * v0 + v1 * v1 + v2 * v2 + v3 * v3;
          v = make_uint2(pack_pair(v0 * factor.x, v1 * factor.y), pack_pair(v2 * factor.z, v3 * factor.w));
        }
        if (Packed<M>::raised) v = make_uint2(raise(v.x), raise(v.y));
        if (INPUTS % 128 == 0 || k < INPUTS) *(uint2*)(to + operand_place<M>(column, k, groups)) = v;
      }
    }
    if (GATED) {
#pragma unroll
      for (int step = 16; step >= 1; step /= 2) square += __shfl_xor_sync(~0u, square, step);
      if (lane == 0) inverse[slot][column] = norm ? rsqrtf(square / WIDTH + epsilon) : 1.f;
    }
  }
}

struct Ring {
  uint32_t stages, barriers;
  int stage, parity;  // of the next copy to arrive
};

// A warp's part of one tile.
template <int M, int N, typename Refill>
__device__ __forceinline__ void multiply_part(Ring& ring, const uint8_t* memory, const uint8_t* x, int lane, float (*c)[4],
                                              const float* block_scale, int scale_rows, const Constants& constants,
                                              Refill refill) {
#pragma unroll 1
  for (int s = 0; s < Cut<M>::steps; s++) {
    const int stage = ring.stage;
    barrier_wait(ring.barriers + stage * 8, ring.parity);
#pragma unroll
    for (int i = 0; i < STAGE_BLOCKS; i++) {
      const int block = s * STAGE_BLOCKS + i;
      const uint8_t* weights = memory + stage * STAGE_ROOM + i * Packed<M>::bytes;
      const uint8_t* operands = x + block * (Packed<M>::chunk / 32) * 512 * N;
      if constexpr (M == 3) {
        float d[N][4];
#pragma unroll
        for (int n = 0; n < N; n++) d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0.f;
        multiply_block<M, N>(weights, operands, lane, d, constants);
        const float first = block_scale[block / 2], second = block_scale[scale_rows + block / 2];
#pragma unroll
        for (int n = 0; n < N; n++) {
          c[n][0] = fmaf(d[n][0], first, c[n][0]); c[n][1] = fmaf(d[n][1], first, c[n][1]);
          c[n][2] = fmaf(d[n][2], second, c[n][2]); c[n][3] = fmaf(d[n][3], second, c[n][3]);
        }
      } else {
        multiply_block<M, N>(weights, operands, lane, c, constants);
      }
    }
    __syncwarp();
    refill(stage);
    if (++ring.stage == STAGES) { ring.stage = 0; ring.parity ^= 1; }
  }
}

// Sums of a tile to where they belong, as the matrix unit leaves them. scale: of rows g and g + 8.
__device__ __forceinline__ void store_outputs(const float (*c)[4], int count, int lane, float* out, float2 scale) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int n = 0; n < 2; n++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int column = n * 8 + 2 * t + i;
      if (column < count) {
        out[(size_t)column * (TILES * 16) + g] = c[n][i] * scale.x;
        out[(size_t)column * (TILES * 16) + g + 8] = c[n][2 + i] * scale.y;
      }
    }
  }
}

// Activations of a tile from the parts of the group's warps. scale: of feature `thread` % 8 of gate and of up.
__device__ __forceinline__ void store_activations(const float (*parts)[16][PAIRS + 1], int thread, int count,
                                                  const float* inverse, float2 scale, bfloat16* out, int stride) {
  for (int i = thread; i < 8 * count; i += GROUP * 32) {
    const int feature = i & 7, column = i >> 3;
    float gate = 0.f, up = 0.f;
#pragma unroll
    for (int w = 0; w < GROUP; w++) { gate += parts[w][feature][column]; up += parts[w][feature + 8][column]; }
    const float factor = inverse[column];
    out[(size_t)column * stride + feature] = narrow(silu(gate * (factor * scale.x)) * (up * (factor * scale.y)));
  }
}

// The warps of a group meet. There are 16 barriers, of which the first is the block's.
static_assert(!GATED || GROUP == 1 || GROUPS < 16, "a barrier for each group");
__device__ __forceinline__ void sync_group(int group) {
  if (GROUP == 1) __syncwarp();
  else sync_threads_of(group + 1, GROUP * 32);
}

// Matrices and outputs of one kind of experts.
struct Side {
  const float *row_scale, *block_scale;
  void* out;
  int out_stride, scale_rows, scale_columns;
};

// What a warp knows all along.
struct Worker {
  Ring ring;
  const uint8_t* memory;  // of its ring
  int lane, group, part;
};

// One tile of one expert. scale: of the tile's rows.
template <int M, typename Refill>
__device__ __forceinline__ void do_tile(Worker& worker, const uint8_t* x, const Side& side, size_t expert, int tile, int first,
                                        int count, const float* inverse, float (*parts)[16][PAIRS + 1],
                                        const Constants& constants, Refill refill) {
  const int lane = worker.lane, part = worker.part;
  float c[2][4] = {};
  float2 scale = make_float2(Packed<M>::undo, Packed<M>::undo);
  if (side.row_scale) {
    const float* at = side.row_scale + (expert * TILES + tile) * 16 + (GATED ? lane & 7 : lane >> 2);
    scale = make_float2(at[0] * Packed<M>::undo, at[8] * Packed<M>::undo);
  }
  const float* blocked = nullptr;
  if (M == 3) {
    const int scale_row = GATED ? tile * 8 / 128 : tile * 16 / 128;
    blocked = side.block_scale + (expert * side.scale_rows + scale_row) * side.scale_columns + part * Cut<M>::part / 2;
  }
  const int second = GATED ? side.scale_rows / 2 * side.scale_columns : 0;
  const uint8_t* operands = x + part * Cut<M>::part * (Packed<M>::chunk / 32) * (count <= COLUMNS ? 512 : 1024);
  if (count <= COLUMNS) multiply_part<M, 1>(worker.ring, worker.memory, operands, lane, c, blocked, second, constants, refill);
  else multiply_part<M, 2>(worker.ring, worker.memory, operands, lane, c, blocked, second, constants, refill);
#if GATED
  const int g = lane >> 2, t = lane & 3, warp = worker.group * GROUP + part;
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (n == 0 || count > COLUMNS) parts[warp][g + (i >> 1) * 8][n * 8 + 2 * t + (i & 1)] = c[n][i];
  sync_group(worker.group);
  store_activations(&parts[worker.group * GROUP], part * 32 + lane, count, inverse, scale,
                    (bfloat16*)side.out + (size_t)first * side.out_stride + tile * 8, side.out_stride);
  sync_group(worker.group);
#else
  store_outputs(c, count, lane, (float*)side.out + (size_t)first * (TILES * 16) + tile * 16, scale);
#endif
}

// First tile of the range of thread block `number`. Tiles of the shared expert lie together and take another time than
// the others: its blocks are full, which takes NVFP4 a fifth longer, and its format may be wider. So ranges have equal
// costs, counted in fifths of a routed tile.
__device__ __forceinline__ int range_start(int number, int shared_tiles, int tiles, int rows) {
  const int wider = MODE == 2 && SHARED_MODE == 0 ? 15 : MODE == 2 && SHARED_MODE != 2 ? 8 : 5;
  const long long cost = MODE == 2 && SHARED_MODE == 2 && rows > COLUMNS ? 6 : wider, shared_cost = cost * shared_tiles;
  const long long at = (shared_cost + 5LL * (tiles - shared_tiles)) * number / gridDim.x;
  return (int)(at < shared_cost ? at / cost : shared_tiles + (at - shared_cost) / 5);
}

extern "C" __global__ __launch_bounds__(WARPS * 32, RESIDENT) void experts_product(
    const bfloat16* source, const uint8_t* weights, const float* row_scale, const float* block_scale, void* out,
    int source_stride, int out_stride, const bfloat16* shared_source, const uint8_t* shared_weights,
    const float* shared_row_scale, const float* shared_block_scale, void* shared_out, int shared_source_stride,
    int shared_out_stride, const float* norm, const int* blocks, const int* offsets, const int* pair_rows, int list_room,
    int experts, int rows, int scale_rows, int scale_columns, float epsilon) {
  extern __shared__ __align__(128) uint8_t room[];
  __shared__ __align__(8) unsigned long long barriers[WARPS][STAGES];
  __shared__ float inverse[2][PAIRS];
  __shared__ Segments segment_of;
  __shared__ float parts[GATED ? WARPS : 1][16][PAIRS + 1];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, group = warp / GROUP, part = warp % GROUP;
  uint8_t* x = room;
  const uint8_t* memory = room + (size_t)INPUTS * PAIRS * 2 + (size_t)warp * STAGES * STAGE_ROOM;
  Worker worker{{shared_address(memory), shared_address(&barriers[warp][0]), 0, 0}, memory, lane, group, part};
  const Ring& ring = worker.ring;
  if (lane == 0) {
    for (int i = 0; i < STAGES; i++) barrier_init(ring.barriers + i * 8);
    barrier_init_done();
  }
#if GATED
  wait_for_predecessors();
#endif
  const int shared_blocks = SHARED ? (rows + PAIRS - 1) / PAIRS : 0;
  // All of the lists come at once, into the rows' room: looking up one after the other would take three latencies.
  int *listed = (int*)room, *begins = listed + list_room;
  if (ROUTED && LISTS_FIT) {
    for (int i = threadIdx.x; i < list_room; i += WARPS * 32) listed[i] = __ldcg(blocks + i);
    for (int i = threadIdx.x; i <= experts; i += WARPS * 32) begins[i] = __ldcg(offsets + i);
    __syncthreads();
  }
  const int count_of_blocks = shared_blocks + (!ROUTED ? 0 : LISTS_FIT ? listed[0] : __ldcg(blocks));
  const int begin = range_start(blockIdx.x, shared_blocks * TILES, count_of_blocks * TILES, rows);
  const int end = range_start(blockIdx.x + 1, shared_blocks * TILES, count_of_blocks * TILES, rows);
  const int first_block = begin / TILES, segments = end > begin ? (end - 1) / TILES - first_block + 1 : 0;
  if (threadIdx.x < segments) {
    const int block = first_block + threadIdx.x - shared_blocks;
    int expert = -1, first = (block + shared_blocks) * PAIRS, stop = rows;
    if (ROUTED && block >= 0) {
      const int entry = LISTS_FIT ? listed[1 + block] : __ldcg(blocks + 1 + block);
      expert = entry >> 16;
      first = (LISTS_FIT ? begins[expert] : __ldcg(offsets + expert)) + (entry & 0xffff) * PAIRS;
      stop = LISTS_FIT ? begins[expert + 1] : __ldcg(offsets + expert + 1);
    }
    segment_of.expert[threadIdx.x] = expert;
    segment_of.first[threadIdx.x] = first;
    segment_of.count[threadIdx.x] = min(stop - first, PAIRS);
  }
  __syncthreads();
  // The copies of this warp, in order: of every GROUPS-th tile its part.
  int ahead = begin + group, step = 0;
  const uint8_t* next = nullptr;
  bool next_shared = false;
  auto locate = [&]() {
    if (ahead >= end) return;
    const int expert = segment_of.expert[ahead / TILES - first_block];
    next_shared = SHARED && (!ROUTED || expert < 0);
    const size_t tile = (size_t)max(expert, 0) * TILES + ahead % TILES;
    next = next_shared ? shared_weights + Cut<SHARED_MODE>::at(tile, part) : weights + Cut<MODE>::at(tile, part);
  };
  auto refill = [&](int stage) {
    if (ahead >= end) return;
    const int size = next_shared ? Cut<SHARED_MODE>::stage_bytes : Cut<MODE>::stage_bytes;
    if (lane == 0) fetch_bulk(ring.stages + stage * STAGE_ROOM, next, size, ring.barriers + stage * 8);
    next += size;
    if (++step == (next_shared ? Cut<SHARED_MODE>::steps : Cut<MODE>::steps)) { step = 0; ahead += GROUPS; locate(); }
  };
  locate();
  for (int i = 0; i < STAGES; i++) refill(i);
  for (int i = threadIdx.x; i < segments * PAIRS; i += WARPS * 32) {
    const int pair = segment_of.first[i / PAIRS] + i % PAIRS;
    const bool real = i % PAIRS < segment_of.count[i / PAIRS];
    const bool sorted = GATED && ROUTED && real && segment_of.expert[i / PAIRS] >= 0;
    segment_of.row[i / PAIRS][i % PAIRS] = sorted ? __ldcg(pair_rows + pair) : pair;
  }
#if !GATED
  wait_for_predecessors();
#endif
  release_dependents();
  const Constants constants{nvfp4_masks(), gridDim.y * 16u};
  int unit = begin + group, loaded = 0, loaded_first = 0;
  for (int segment = 0; segment < segments; segment++) {
    const int first = segment_of.first[segment], count = segment_of.count[segment];
    const bool shared = SHARED && (!ROUTED || segment_of.expert[segment] < 0);
    if (segment == loaded) {
      const int after = min(segment + 1, segments - 1);
      const bool shared_after = SHARED && (!ROUTED || segment_of.expert[after] < 0);
      const bool together = after > segment && count <= COLUMNS && segment_of.count[after] <= COLUMNS &&
                            (MODE == SHARED_MODE || shared == shared_after);
      const Rows these{shared ? shared_source : source, shared ? shared_source_stride : source_stride};
      const Rows those{shared_after ? shared_source : source, shared_after ? shared_source_stride : source_stride};
      __syncthreads();
      if (MODE == SHARED_MODE || !shared)
        load_rows<MODE>(x, inverse, these, those, norm, epsilon, segment_of, segment, together);
      else
        load_rows<SHARED_MODE>(x, inverse, these, those, norm, epsilon, segment_of, segment, together);
      __syncthreads();
      loaded_first = segment;
      loaded = segment + (together ? 2 : 1);
    }
    const int slot = segment - loaded_first, stop = min(end, (first_block + segment + 1) * TILES);
    const Side side{shared ? shared_row_scale : row_scale, shared ? shared_block_scale : block_scale,
                    shared ? shared_out : out, shared ? shared_out_stride : out_stride, scale_rows, scale_columns};
    const size_t expert = max(segment_of.expert[segment], 0);
    const uint8_t* rows_at = x + slot * SLOT;
    for (; unit < stop; unit += GROUPS) {
      const int tile = unit % TILES;
      if (MODE == SHARED_MODE || !shared)
        do_tile<MODE>(worker, rows_at, side, expert, tile, first, count, inverse[slot], parts, constants, refill);
      else
        do_tile<SHARED_MODE>(worker, rows_at, side, expert, tile, first, count, inverse[slot], parts, constants, refill);
    }
  }
}

__device__ __forceinline__ void copy_async_16(void* destination, const void* source) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(destination)), "l"(source) : "memory");
}
__device__ __forceinline__ void add_weighted(float* total, const float4& value, float weight) {
  total[0] = fmaf(value.x, weight, total[0]); total[1] = fmaf(value.y, weight, total[1]);
  total[2] = fmaf(value.z, weight, total[2]); total[3] = fmaf(value.w, weight, total[3]);
}

// residual += a row's outputs by weight, in the order of its TOP choices, then the shared expert's. 4 columns a thread,
// COMBINE threads. The outputs come by asynchronous copies, all under way at once: ptxas would put plain loads between
// the sums, one latency behind another.
#define COMBINE 128
extern "C" __global__ __launch_bounds__(COMBINE) void experts_combine(
    bfloat16* residual, const float* outputs, const float* shared_outputs, const float* pair_weights,
    const int* pair_places, const float* shared_weight, int width, int stride) {
  __shared__ float4 value[TOP + 1][COMBINE];
  __shared__ int place[TOP];
  __shared__ float weight[TOP + 1];
  const int row = blockIdx.x, wanted = (blockIdx.y * COMBINE + threadIdx.x) * 4, column = min(wanted, width - 4);
  wait_for_predecessors();
  release_dependents();
  bfloat16* at = residual + (size_t)row * stride + column;
  if (threadIdx.x < TOP) place[threadIdx.x] = __ldcg(pair_places + row * TOP + threadIdx.x);
  const uint2 old = __ldcg((const uint2*)at);
  __syncthreads();
#pragma unroll
  for (int j = 0; j < TOP; j++) copy_async_16(&value[j][threadIdx.x], outputs + (size_t)place[j] * width + column);
  if (shared_outputs) copy_async_16(&value[TOP][threadIdx.x], shared_outputs + (size_t)row * width + column);
  if (threadIdx.x < TOP) weight[threadIdx.x] = __ldcg(pair_weights + place[threadIdx.x]);
  if (threadIdx.x == TOP) weight[TOP] = shared_outputs ? __ldcg(shared_weight + row) : 0.f;
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  float total[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
  for (int j = 0; j < TOP; j++) add_weighted(total, value[j][threadIdx.x], weight[j]);
  if (shared_outputs) add_weighted(total, value[TOP][threadIdx.x], weight[TOP]);
  if (wanted < width)
    *(uint2*)at = make_uint2(pack_pair(low_half(old.x) + total[0], high_half(old.x) + total[1]),
                             pack_pair(low_half(old.y) + total[2], high_half(old.y) + total[3]));
}
