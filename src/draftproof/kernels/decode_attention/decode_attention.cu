// Attention of a device step: blocks share the context of one sequence and key/value head and serve all its query
// heads and rows at once. The blocks of a cluster merge through each other's shared memory: one launch. Where a cluster
// is too small for a long context, any number of blocks leave their parts to a second launch.
//
// Defined by the host: HEADS, KEY_VALUE_HEADS, GATED, ROTATED, PAGE_SIZE (a multiple of 8), ROWS (rows placed for each
// sequence), SELECTED (1: only row_index[sequence] of them attends), TILE (rows x heads of the group in a block: 16,
// 32, 64), TILES (blocks that split them), CLUSTER (0: parts for merge_parts), STAGES (2, 3), SETTLED (1: lengths,
// pages and committed rows were written before the step).
#include "matrix.cuh"
#include "memory.cuh"

#define DIM 256
#define WARPS 8
#define THREADS (WARPS * 32)
#define RANKS 256                    // most blocks that share a context
#define BLOCK 64                     // positions at a time, 8 for each warp
#define PITCH (DIM * 2 + 16)         // bytes between rows in shared memory: no two of 8 rows meet in a bank
#define WEIGHT_PITCH (BLOCK * 2 + 16)
#define SUM_PITCH (DIM + 8)          // floats
#define GROUP (HEADS / KEY_VALUE_HEADS)
#define QUERY_ROWS (SELECTED ? 1 : ROWS)
#define HEAD_STRIDE (GATED ? 2 * DIM : DIM)
#define QUERY_WIDTH (HEADS * HEAD_STRIDE)
#define KEY_WIDTH (KEY_VALUE_HEADS * DIM)
#define TALL (TILE / 16)             // tiles of the matrix units on top of each other
#define LOWEST (-1.0e30f)

struct Shared {
  float largest[TILE], total[TILE];  // of this block; the cluster reads them
  float of_warp[WARPS][TILE];
  uint8_t query[TILE * PITCH];
  uint8_t weights[TILE * WEIGHT_PITCH];
  uint8_t fresh[2][ROWS * PITCH];    // the window's own keys and values
  uint8_t keys[STAGES][BLOCK * PITCH];  // in the end: sums of values, [TILE][SUM_PITCH] floats
  uint8_t values[STAGES][BLOCK * PITCH];
};
static_assert(TILE * SUM_PITCH * 4 <= STAGES * BLOCK * PITCH * 2, "the sums lie over keys and values");

__device__ __forceinline__ void load_matrices(uint32_t* r, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_matrices_turned(uint32_t* r, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void cluster_sync() {
  if (CLUSTER > 1)
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  else
    __syncthreads();
}
__device__ __forceinline__ uint32_t address_in(uint32_t address, int rank) {
  if (CLUSTER <= 1) return address;
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ __forceinline__ float load_there(uint32_t address) {
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float4 load_there_16(uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address) : "memory");
  return v;
}

// A lane's 8 neighbouring dimensions of a head, normed and rotated: 8 BF16. The other half of a rotated pair is
// ROTATED / 2 dimensions away, in another lane.
__device__ __forceinline__ uint4 norm_and_rotate(uint4 raw, const float* weight, float epsilon, const float* cos,
                                                 const float* sin, int lane) {
  const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
  float x[8], squares = 0.f;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    x[i] = i & 1 ? high_half(word[i / 2]) : low_half(word[i / 2]);
    squares = fmaf(x[i], x[i], squares);
  }
#pragma unroll
  for (int o = 16; o; o >>= 1) squares += __shfl_xor_sync(~0u, squares, o);
  const float factor = rsqrtf(squares / DIM + epsilon);
  const bool turns = lane * 8 < ROTATED;
  uint32_t result[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    result[i] = pack_pair(x[2 * i] * factor * weight[2 * i], x[2 * i + 1] * factor * weight[2 * i + 1]);
    const uint32_t other = __shfl_xor_sync(~0u, result[i], ROTATED / 16);
    if (turns)
      result[i] = pack_pair(fmaf(low_half(other), sin[2 * i], low_half(result[i]) * cos[2 * i]),
                            fmaf(high_half(other), sin[2 * i + 1], high_half(result[i]) * cos[2 * i + 1]));
  }
  return make_uint4(result[0], result[1], result[2], result[3]);
}
__device__ __forceinline__ void load_8(float* to, const float* from) {
  *(float4*)to = __ldg((const float4*)from);
  *(float4*)(to + 4) = __ldg((const float4*)from + 1);
}

// Into shared memory in the background, past L1.
__device__ __forceinline__ void copy_lane_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Sequence, its place, and what of it this block does.
struct Place {
  int sequence, kv_head, tile, rank, ranks, length, context, blocks;
  const int* pages;
  int pages_each;
  __device__ __forceinline__ int base(int turn) const { return (rank + turn * ranks) * BLOCK; }
  // Page of a position; of the last one past the table. Nothing waits for it before it is used.
  __device__ __forceinline__ int page_of(int position) const {
    return (int)load_fresh_4(pages + min(position / PAGE_SIZE, pages_each - 1));
  }
  // A warp's 8 positions of a block lie in one page.
  __device__ __forceinline__ int warp_page(int turn, int warp) const { return page_of(base(turn) + warp * 8); }
  // Place of a position in a pool, in elements.
  __device__ __forceinline__ size_t place(int page, int position) const {
    return (((size_t)page * PAGE_SIZE + position % PAGE_SIZE) * KEY_VALUE_HEADS + kv_head) * DIM;
  }
};

// Asks for the committed rows of one block: two groups, keys and values, empty past the last block.
__device__ __forceinline__ void fetch_block(Shared& s, const Place& at, const bfloat16* keys, const bfloat16* values,
                                            int turn, int page, int warp, int lane) {
  const int stage = turn % STAGES, first = at.base(turn) + warp * 8;
  const int committed = turn < at.blocks ? min(8, at.length - first) : 0;
  const size_t row = at.place(page, first) + lane * 8;
  const uint32_t place = warp * 8 * PITCH + lane * 16;
#pragma unroll
  for (int n = 0; n < 8; n++)
    if (n < committed) copy_lane_16(shared_address(s.keys[stage]) + place + n * PITCH, keys + row + n * KEY_WIDTH);
  close_group();
#pragma unroll
  for (int n = 0; n < 8; n++)
    if (n < committed) copy_lane_16(shared_address(s.values[stage]) + place + n * PITCH, values + row + n * KEY_WIDTH);
  close_group();
}

struct Inputs {
  const bfloat16* projected;
  size_t stride;
  const float *query_weight, *key_weight, *cos, *sin;
  int angle_count;
  float query_epsilon, key_epsilon;
};

// What a warp has to norm and rotate: TILE / WARPS queries, and one of the window's own keys, with its value.
struct Raw {
  uint4 query[TILE / WARPS], key, value;
  __device__ __forceinline__ void load(const Inputs& in, const Place& at, int selected, int warp, int lane) {
    const bfloat16* window = in.projected + (size_t)at.sequence * ROWS * in.stride + lane * 8;
#pragma unroll
    for (int i = 0; i < TILE / WARPS; i++) {
      const int m = at.tile * TILE + warp * (TILE / WARPS) + i, j = SELECTED ? selected : m / GROUP;
      query[i] = make_uint4(0, 0, 0, 0);
      if (m < QUERY_ROWS * GROUP)
        query[i] = load_fresh_16(window + j * in.stride + (at.kv_head * GROUP + m % GROUP) * HEAD_STRIDE);
    }
    if (warp < ROWS) {
      const bfloat16* row = window + warp * in.stride + QUERY_WIDTH + at.kv_head * DIM;
      key = load_fresh_16(row); value = load_fresh_16(row + KEY_WIDTH);
    }
  }
};

struct Angles {
  float cos[8], sin[8];
  __device__ __forceinline__ void load(const Inputs& in, int position, int lane) {
    const size_t place = (size_t)min(position, in.angle_count - 1) * ROTATED + lane * 8;
    if (lane * 8 < ROTATED) { load_8(cos, in.cos + place); load_8(sin, in.sin + place); }
  }
};

__device__ __forceinline__ void place_queries(Shared& s, const Raw& raw, const Inputs& in, const Place& at, int selected,
                                              int warp, int lane) {
  float weight[8];
  load_8(weight, in.query_weight + lane * 8);
#pragma unroll
  for (int i = 0; i < TILE / WARPS; i++) {
    const int local = warp * (TILE / WARPS) + i, j = SELECTED ? selected : (at.tile * TILE + local) / GROUP;
    Angles angles;
    angles.load(in, at.length + min(j, ROWS - 1), lane);
    *(uint4*)(s.query + local * PITCH + lane * 16) =
        norm_and_rotate(raw.query[i], weight, in.query_epsilon, angles.cos, angles.sin, lane);
  }
}

// The window's own keys and values into shared memory and, by the block whose positions they are, into the pages; a
// row a warp.
__device__ __forceinline__ void place_keys(Shared& s, const Raw& raw, const Inputs& in, const Place& at, bfloat16* keys,
                                           bfloat16* values, int page, int warp, int lane) {
  const int position = at.length + warp;
  float weight[8];
  Angles angles;
  load_8(weight, in.key_weight + lane * 8);
  angles.load(in, position, lane);
  const uint4 key = norm_and_rotate(raw.key, weight, in.key_epsilon, angles.cos, angles.sin, lane);
  *(uint4*)(s.fresh[0] + warp * PITCH + lane * 16) = key;
  *(uint4*)(s.fresh[1] + warp * PITCH + lane * 16) = raw.value;
  if (at.tile == 0 && position / BLOCK % at.ranks == at.rank && position / PAGE_SIZE < at.pages_each) {
    const size_t there = at.place(page, position) + lane * 8;
    *(uint4*)(keys + there) = key;
    *(uint4*)(values + there) = raw.value;
  }
}

// Those of a warp's 8 rows that are not committed: the window's own, and zeros.
__device__ __forceinline__ void fill_block(Shared& s, const Place& at, int base, int stage, int warp, int lane) {
  const int first = base + warp * 8;
  for (int n = max(0, at.length - first); n < 8; n++) {
    const int j = first + n - at.length, place = (warp * 8 + n) * PITCH + lane * 16;
    uint4 key = make_uint4(0, 0, 0, 0), value = key;
    if (j < ROWS) {
      key = *(const uint4*)(s.fresh[0] + j * PITCH + lane * 16);
      value = *(const uint4*)(s.fresh[1] + j * PITCH + lane * 16);
    }
    *(uint4*)(s.keys[stage] + place) = key;
    *(uint4*)(s.values[stage] + place) = value;
  }
}

// Scores of all rows with this warp's 8 positions of a block.
__device__ __forceinline__ void make_scores(Shared& s, int stage, int warp, int lane, float (*c)[4]) {
  float odd[TALL][4];
#pragma unroll
  for (int i = 0; i < TALL; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) c[i][e] = odd[i][e] = 0.f;
  const uint32_t key = shared_address(s.keys[stage] + (warp * 8 + (lane & 7)) * PITCH + (lane >> 3) * 16);
  const uint32_t query = shared_address(s.query + (lane & 15) * PITCH + (lane >> 4) * 16);
#pragma unroll
  for (int k = 0; k < DIM / 32; k++) {
    uint32_t b[4];
    load_matrices(b, key + k * 64);
#pragma unroll
    for (int i = 0; i < TALL; i++) {
      uint32_t a[4];
      load_matrices(a, query + i * 16 * PITCH + k * 64);
      multiply(c[i], a[0], a[1], a[2], a[3], b[0], b[1]);
      load_matrices(a, query + i * 16 * PITCH + k * 64 + 32);
      multiply(odd[i], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
  }
#pragma unroll
  for (int i = 0; i < TALL; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) c[i][e] += odd[i][e];
}

// Adds weights x values of `steps` times 16 positions to the sums of this warp's 32 dimensions.
__device__ __forceinline__ void add_values(Shared& s, int stage, int steps, int warp, int lane, float (*sums)[4][4]) {
  const uint32_t weights = shared_address(s.weights + (lane & 15) * WEIGHT_PITCH + (lane >> 4) * 16);
  const uint32_t value = shared_address(s.values[stage] + (lane & 15) * PITCH + warp * 64 + (lane >> 4) * 16);
#pragma unroll
  for (int k = 0; k < BLOCK / 16; k++) {
    if (k >= steps) break;
    uint32_t b[2][4];
    load_matrices_turned(b[0], value + k * 16 * PITCH);
    load_matrices_turned(b[1], value + k * 16 * PITCH + 32);
#pragma unroll
    for (int i = 0; i < TALL; i++) {
      uint32_t a[4];
      load_matrices(a, weights + i * 16 * WEIGHT_PITCH + k * 32);
#pragma unroll
      for (int n = 0; n < 4; n++) multiply(sums[i][n], a[0], a[1], a[2], a[3], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
  }
}

#if CLUSTER
// The blocks of the cluster put together: each its share of the outputs, added in the order of ranks.
__device__ __forceinline__ void merge(Shared& s, const Inputs& in, const Place& at, int selected, bfloat16* out,
                                      int out_stride, int thread) {
  constexpr int EACH = TILE * (DIM / 4) / CLUSTER;
  uint2 gate[(EACH + THREADS - 1) / THREADS];
#pragma unroll
  for (int n = 0; n < (EACH + THREADS - 1) / THREADS; n++) {
    const int e = at.rank * EACH + n * THREADS + thread, m = at.tile * TILE + e / (DIM / 4);
    const int j = SELECTED ? selected : m / GROUP, head = at.kv_head * GROUP + m % GROUP;
    if (GATED && n * THREADS + thread < EACH && m < QUERY_ROWS * GROUP)
      gate[n] = load_fresh_8(in.projected + (size_t)(at.sequence * ROWS + j) * in.stride + head * HEAD_STRIDE + DIM +
                             e % (DIM / 4) * 4);
  }
  cluster_sync();
#pragma unroll
  for (int n = 0; n < (EACH + THREADS - 1) / THREADS; n++) {
    const int e = at.rank * EACH + n * THREADS + thread, local = e / (DIM / 4), d = e % (DIM / 4) * 4;
    const int m = at.tile * TILE + local;
    if (n * THREADS + thread >= EACH || m >= QUERY_ROWS * GROUP) continue;
    float largest[CLUSTER], all = LOWEST;
#pragma unroll
    for (int r = 0; r < CLUSTER; r++) {
      largest[r] = load_there(address_in(shared_address(&s.largest[local]), r));
      all = fmaxf(all, largest[r]);
    }
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    float total = 0.f;
#pragma unroll
    for (int r = 0; r < CLUSTER; r++) {
      const float factor = exp2f(largest[r] - all);
      const float4 part = load_there_16(address_in(shared_address((float*)s.keys + local * SUM_PITCH + d), r));
      total = fmaf(load_there(address_in(shared_address(&s.total[local]), r)), factor, total);
      sum.x = fmaf(part.x, factor, sum.x); sum.y = fmaf(part.y, factor, sum.y);
      sum.z = fmaf(part.z, factor, sum.z); sum.w = fmaf(part.w, factor, sum.w);
    }
    float4 y = make_float4(sum.x / total, sum.y / total, sum.z / total, sum.w / total);
    if (GATED) {
      y.x /= 1.f + __expf(-low_half(gate[n].x)); y.y /= 1.f + __expf(-high_half(gate[n].x));
      y.z /= 1.f + __expf(-low_half(gate[n].y)); y.w /= 1.f + __expf(-high_half(gate[n].y));
    }
    const int row = at.sequence * QUERY_ROWS + (SELECTED ? 0 : m / GROUP), head = at.kv_head * GROUP + m % GROUP;
    *(uint2*)(out + (size_t)row * out_stride + head * DIM + d) = make_uint2(pack_pair(y.x, y.y), pack_pair(y.z, y.w));
  }
  if (CLUSTER > 1) cluster_sync();  // nobody leaves while others read
}
#else
// Parts of this block: [ranks][output rows][heads] of largest scores, then of sums of weights; the same of sums of
// values [DIM].
__device__ __forceinline__ void leave_part(Shared& s, const Place& at, float* statistics, float* partial, int thread) {
  const size_t plane = (size_t)gridDim.z * QUERY_ROWS * HEADS;
  for (int e = thread; e < TILE * (DIM / 4); e += THREADS) {
    const int local = e / (DIM / 4), d = e % (DIM / 4) * 4, m = at.tile * TILE + local;
    if (m >= QUERY_ROWS * GROUP) break;
    const size_t place = at.rank * plane + (size_t)(at.sequence * QUERY_ROWS + (SELECTED ? 0 : m / GROUP)) * HEADS +
                         at.kv_head * GROUP + m % GROUP;
    *(float4*)(partial + place * DIM + d) = *(const float4*)((const float*)s.keys + local * SUM_PITCH + d);
    if (d == 0) { statistics[place] = s.largest[local]; statistics[at.ranks * plane + place] = s.total[local]; }
  }
}
#endif

extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
__launch_bounds__(THREADS, 1)
decode_attention(const bfloat16* projected, int stride, const float* query_weight, const float* key_weight,
                 const float* cos, const float* sin, int angle_count, bfloat16* keys, bfloat16* values, const int* slots,
                 const int* lengths, const int* page_table, int pages_each, const int* row_index, bfloat16* out,
                 int out_stride, float query_epsilon, float key_epsilon, float scale, float* partial, float* statistics) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  Shared& s = *(Shared*)shared_bytes;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane >> 2, t = lane & 3;
  const Inputs in = {projected, (size_t)stride, query_weight, key_weight, cos, sin, angle_count, query_epsilon, key_epsilon};
  Place at;
  at.rank = blockIdx.x; at.ranks = gridDim.x; at.sequence = blockIdx.z;
  at.kv_head = blockIdx.y / TILES; at.tile = blockIdx.y % TILES;
  Raw raw;
  int selected = 0;
  release_dependents();
  if (!SETTLED) {
    wait_for_predecessors();
    if (SELECTED) selected = (int)load_fresh_4(row_index + at.sequence);
    raw.load(in, at, selected, warp, lane);
  }
  const int slot = (int)load_fresh_4(slots + at.sequence);
  at.length = (int)load_fresh_4(lengths + slot);
  at.context = at.length + ROWS;
  at.pages = page_table + (size_t)slot * pages_each; at.pages_each = pages_each;
  at.blocks = ((at.context + BLOCK - 1) / BLOCK - at.rank + at.ranks - 1) / at.ranks;
  if (CLUSTER == 0 && at.blocks <= 0) return;
  int page[STAGES + 1];
#pragma unroll
  for (int i = 0; i <= STAGES; i++) page[i] = at.warp_page(i, warp);
  const int own_page = at.page_of(at.length + warp);
#pragma unroll
  for (int i = 0; i < STAGES; i++) fetch_block(s, at, keys, values, i, page[i], warp, lane);
  int coming = page[STAGES];  // looked up a turn before it is needed
  if (SETTLED) {
    wait_for_predecessors();
    if (SELECTED) selected = (int)load_fresh_4(row_index + at.sequence);
    raw.load(in, at, selected, warp, lane);
  }
  place_queries(s, raw, in, at, selected, warp, lane);
  if (warp < ROWS && at.base(at.blocks - 1) + BLOCK > at.length) place_keys(s, raw, in, at, keys, values, own_page, warp, lane);
  __syncthreads();

  float largest[TALL][2], total[TALL][2], sums[TALL][4][4];
#pragma unroll
  for (int i = 0; i < TALL; i++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      largest[i][h] = LOWEST; total[i][h] = 0.f;
#pragma unroll
      for (int n = 0; n < 4; n++) sums[i][n][2 * h] = sums[i][n][2 * h + 1] = 0.f;
    }
  for (int turn = 0; turn < at.blocks; turn++) {
    const int base = at.base(turn), stage = turn % STAGES;
    if (base + warp * 8 + 8 > at.length) fill_block(s, at, base, stage, warp, lane);
    if (turn == 0) wait_groups<2 * STAGES - 1>();
    else wait_groups<2 * STAGES - 3>();
    __syncwarp();
    const int position = base + warp * 8 + 2 * t;
    float c[TALL][4];
    if (base + warp * 8 < at.context) make_scores(s, stage, warp, lane, c);
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int m = at.tile * TILE + i * 16 + h * 8 + g, last = at.length + (SELECTED ? selected : m / GROUP);
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; e++)
          c[i][e] = position + (e & 1) <= min(last, at.context - 1) ? c[i][e] * scale : LOWEST;
        float top = fmaxf(c[i][2 * h], c[i][2 * h + 1]);
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        if (t == 0) s.of_warp[warp][i * 16 + h * 8 + g] = top;
      }
    __syncthreads();
    // All warps are done with the block before this one: its stage is free.
    if (turn > 0) {
      fetch_block(s, at, keys, values, turn - 1 + STAGES, coming, warp, lane);
      coming = at.warp_page(turn + STAGES, warp);
    }
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = i * 16 + h * 8 + g;
        float now = largest[i][h];
#pragma unroll
        for (int w = 0; w < WARPS; w++) now = fmaxf(now, s.of_warp[w][row]);
        const float shrink = exp2f(largest[i][h] - now);
        // A row that has seen nothing yet has no largest score: its weights are zeros.
        const float first = c[i][2 * h] > LOWEST ? exp2f(c[i][2 * h] - now) : 0.f;
        const float second = c[i][2 * h + 1] > LOWEST ? exp2f(c[i][2 * h + 1] - now) : 0.f;
        largest[i][h] = now;
        total[i][h] = fmaf(total[i][h], shrink, first + second);
        *(uint32_t*)(s.weights + row * WEIGHT_PITCH + warp * 16 + t * 4) = pack_pair(first, second);
#pragma unroll
        for (int n = 0; n < 4; n++) { sums[i][n][2 * h] *= shrink; sums[i][n][2 * h + 1] *= shrink; }
      }
    wait_groups<2 * STAGES - 2>();
    __syncthreads();
    add_values(s, stage, (min(BLOCK, at.context - base) + 15) / 16, warp, lane, sums);
  }

  __syncthreads();
#pragma unroll
  for (int i = 0; i < TALL; i++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = i * 16 + h * 8 + g;
      float sum = total[i][h];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if (t == 0) s.of_warp[warp][row] = sum;
      if (warp == 0 && t == 0) s.largest[row] = largest[i][h];
#pragma unroll
      for (int n = 0; n < 4; n++)
        *(float2*)((float*)s.keys + row * SUM_PITCH + warp * 32 + n * 8 + 2 * t) =
            make_float2(sums[i][n][2 * h], sums[i][n][2 * h + 1]);
    }
  __syncthreads();
  if (thread < TILE) {
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += s.of_warp[w][thread];
    s.total[thread] = sum;
  }
#if CLUSTER
  merge(s, in, at, selected, out, out_stride, thread);
#else
  __syncthreads();
  leave_part(s, at, statistics, partial, thread);
#endif
}

// Grid (output rows x heads): parts of the ranks that had a block, added in their order by four teams of 64.
extern "C" __global__ void __launch_bounds__(THREADS)
merge_parts(const bfloat16* projected, int stride, const int* slots, const int* lengths, const int* row_index, bfloat16* out,
            int out_stride, const float* partial, const float* statistics, int ranks) {
  __shared__ float factors[WARPS][RANKS];
  __shared__ float4 sums[4][DIM / 4];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, team = thread / 64, d = thread % 64 * 4;
  const int row = blockIdx.x / HEADS, head = blockIdx.x % HEADS, sequence = row / QUERY_ROWS;
  const size_t plane = gridDim.x;
  release_dependents();
  wait_for_predecessors();
  const int length = (int)load_fresh_4(lengths + (int)load_fresh_4(slots + sequence));
  const int j = SELECTED ? (int)load_fresh_4(row_index + sequence) : row % QUERY_ROWS;
  const int used = min(ranks, (length + ROWS + BLOCK - 1) / BLOCK);
  float all = LOWEST, total = 0.f;
  for (int r = lane; r < used; r += 32) all = fmaxf(all, load_fresh_float(statistics + r * plane + blockIdx.x));
#pragma unroll
  for (int o = 16; o; o >>= 1) all = fmaxf(all, __shfl_xor_sync(~0u, all, o));
  for (int r = lane; r < used; r += 32) {
    const float factor = exp2f(load_fresh_float(statistics + r * plane + blockIdx.x) - all);
    factors[warp][r] = factor;
    total = fmaf(load_fresh_float(statistics + (ranks + r) * plane + blockIdx.x), factor, total);
  }
#pragma unroll
  for (int o = 16; o; o >>= 1) total += __shfl_xor_sync(~0u, total, o);
  __syncwarp();
  float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
  for (int r = team; r < used; r += 4) {
    const uint4 bits = load_fresh_16(partial + (r * plane + blockIdx.x) * DIM + d);
    const float factor = factors[warp][r];
    sum.x = fmaf(__uint_as_float(bits.x), factor, sum.x); sum.y = fmaf(__uint_as_float(bits.y), factor, sum.y);
    sum.z = fmaf(__uint_as_float(bits.z), factor, sum.z); sum.w = fmaf(__uint_as_float(bits.w), factor, sum.w);
  }
  sums[team][d / 4] = sum;
  __syncthreads();
  if (team) return;
  float4 y = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float4 part = sums[i][d / 4];
    y.x += part.x; y.y += part.y; y.z += part.z; y.w += part.w;
  }
  y.x /= total; y.y /= total; y.z /= total; y.w /= total;
  if (GATED) {
    const uint2 gate = load_fresh_8(projected + (size_t)(sequence * ROWS + j) * stride + head * HEAD_STRIDE + DIM + d);
    y.x /= 1.f + __expf(-low_half(gate.x)); y.y /= 1.f + __expf(-high_half(gate.x));
    y.z /= 1.f + __expf(-low_half(gate.y)); y.w /= 1.f + __expf(-high_half(gate.y));
  }
  *(uint2*)(out + (size_t)row * out_stride + head * DIM + d) = make_uint2(pack_pair(y.x, y.y), pack_pair(y.z, y.w));
}
