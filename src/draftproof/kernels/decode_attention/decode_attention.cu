// Attention of a device step: blocks share the context of one sequence and key/value head and serve all its query
// heads and rows at once. The blocks of a cluster merge through each other's shared memory: one launch. Where a cluster
// is too small for a long context, any number of blocks leave their parts to a second launch.
//
// Inside a block, teams of warps take 16 positions at a time and know nothing of each other until they merge. A warp
// keeps 16 rows of queries and of sums in registers; the warps of a team share keys and values and differ in their rows
// (or, with 16 rows, in the dimensions of the values).
//
// Defined by the host: HEADS, KEY_VALUE_HEADS, GATED, ROTATED, PAGE_SIZE (a multiple of 16), ROWS (rows placed for each
// sequence), SELECTED (1: only row_index[sequence] of them attends), TILE (rows x heads of the group in a block: 16,
// 32, 64), TILES (blocks that split them), CLUSTER (0: parts for merge_parts), STAGES, SETTLED (1: lengths, pages and
// committed rows were written before the step).
#define DIM 256
#define WARPS 8
#define THREADS (WARPS * 32)
#define RANKS 256                    // most blocks that share a context
#define STEP 16                      // positions of a team at a time
#define TALL (TILE / 16)             // tiles of the matrix units on top of each other
#define TEAM (TALL > 2 ? TALL : 2)   // warps
#define TEAMS (WARPS / TEAM)
#define WIDE (TALL == 1 ? DIM / 2 : DIM)  // dimensions of a warp's sums
#define BLOCK (STEP * TEAMS)         // positions of a block at a time
#define PITCH (DIM * 2 + 16)         // bytes between rows in shared memory: no two of 8 rows meet in a bank
#define SUM_PITCH (DIM + 8)          // floats
#define GROUP (HEADS / KEY_VALUE_HEADS)
#define QUERY_ROWS (SELECTED ? 1 : ROWS)
#define HEAD_STRIDE (GATED ? 2 * DIM : DIM)
#define QUERY_WIDTH (HEADS * HEAD_STRIDE)
#define KEY_WIDTH (KEY_VALUE_HEADS * DIM)
#define LOWEST (-1.0e30f)
#include "attention_rows.cuh"

struct Shared {
  float largest[TEAMS][TILE], total[TEAMS][TILE];  // of the teams; in the end [0] is the block's
  uint8_t query[TILE * PITCH];
  uint8_t fresh[2][ROWS * PITCH];                  // the window's own keys and values
  Slab slab[TEAMS][STAGES];                        // in the end: sums of values, [TEAMS][TILE][SUM_PITCH] floats
};
static_assert(TILE * SUM_PITCH * 4 <= STAGES * sizeof(Slab), "the sums lie over keys and values");

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

// Sequence, its place, and what of it this block and this team do.
struct Place {
  int sequence, kv_head, tile, rank, ranks, length, context, team, steps;
  const int* pages;
  int pages_each;
  __device__ __forceinline__ int first(int step) const { return ((step * ranks + rank) * TEAMS + team) * STEP; }
  // Page of a position; of the last one past the table. Nothing waits for it before it is used.
  __device__ __forceinline__ int page_of(int position) const {
    return (int)load_fresh_4(pages + min(position / PAGE_SIZE, pages_each - 1));
  }
  // Place of a position in a pool, in elements.
  __device__ __forceinline__ size_t place(int page, int position) const {
    return (((size_t)page * PAGE_SIZE + position % PAGE_SIZE) * KEY_VALUE_HEADS + kv_head) * DIM;
  }
};

// Asks for the committed rows of one step, which lie in one page: every TEAM-th row by this warp.
__device__ __forceinline__ void fetch_step(Slab& slab, const Place& at, const bfloat16* keys, const bfloat16* values,
                                           int step, int page, int member, int lane) {
  const int committed = step < at.steps ? min(STEP, at.length - at.first(step)) : 0;
  const size_t place = at.place(page, at.first(step)) + member * KEY_WIDTH + lane * 8;
  const bfloat16 *key = keys + place, *value = values + place;
  const uint32_t to_keys = shared_address(slab.keys) + member * PITCH + lane * 16;
  const uint32_t to_values = shared_address(slab.values) + member * PITCH + lane * 16;
  if (committed == STEP) {
#pragma unroll
    for (int n = 0; n < STEP; n += TEAM) {
      copy_lane_16(to_keys + n * PITCH, key + n * KEY_WIDTH);
      copy_lane_16(to_values + n * PITCH, value + n * KEY_WIDTH);
    }
  } else {
    for (int n = 0; n + member < committed; n += TEAM) {
      copy_lane_16(to_keys + n * PITCH, key + n * KEY_WIDTH);
      copy_lane_16(to_values + n * PITCH, value + n * KEY_WIDTH);
    }
  }
  close_group();
}

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

__device__ __forceinline__ void place_queries(Shared& s, const Raw& raw, const Inputs& in, const Place& at, int selected,
                                              int warp, int lane) {
  constexpr int EACH = TILE / WARPS, ANGLES = GROUP % EACH == 0 ? 1 : EACH;  // rows of one position turn alike
  float weight[8];
  Angles angles[ANGLES];
  load_8(weight, in.query_weight + lane * 8);
#pragma unroll
  for (int i = 0; i < ANGLES; i++) {
    const int j = SELECTED ? selected : (at.tile * TILE + warp * EACH + i) / GROUP;
    angles[i].load(in, at.length + min(j, ROWS - 1), lane);
  }
#pragma unroll
  for (int i = 0; i < ANGLES; i++) angles[i].settle(lane);
#pragma unroll
  for (int i = 0; i < EACH; i++)
    *(uint4*)(s.query + (warp * EACH + i) * PITCH + lane * 16) =
        norm_and_rotate(raw.query[i], weight, in.query_epsilon, angles[i % ANGLES]);
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
  angles.settle(lane);
  const uint4 key = norm_and_rotate(raw.key, weight, in.key_epsilon, angles);
  *(uint4*)(s.fresh[0] + warp * PITCH + lane * 16) = key;
  *(uint4*)(s.fresh[1] + warp * PITCH + lane * 16) = raw.value;
  if (at.tile == 0 && position / BLOCK % at.ranks == at.rank && position / PAGE_SIZE < at.pages_each) {
    const size_t there = at.place(page, position) + lane * 8;
    *(uint4*)(keys + there) = key;
    *(uint4*)(values + there) = raw.value;
  }
}

// Rows of a step that are not committed: the window's own, and zeros.
__device__ __forceinline__ void fill_step(Slab& slab, const Shared& s, const Place& at, int first, int member, int lane) {
  for (int n = max(0, at.length - first) + member; n < STEP; n += TEAM) {
    const int j = first + n - at.length;
    uint4 key = make_uint4(0, 0, 0, 0), value = key;
    if (j < ROWS) {
      key = *(const uint4*)(s.fresh[0] + j * PITCH + lane * 16);
      value = *(const uint4*)(s.fresh[1] + j * PITCH + lane * 16);
    }
    *(uint4*)(slab.keys + n * PITCH + lane * 16) = key;
    *(uint4*)(slab.values + n * PITCH + lane * 16) = value;
  }
}

// Sums of all teams to shared memory, then added in their order; afterwards the block's lie at the first team's place.
__device__ __forceinline__ void merge_teams(Shared& s, Sums& sums, int team, int tall, int dim, int thread) {
  const int lane = thread % 32, g = lane >> 2, t = lane & 3;
  float* values = (float*)s.slab;
  __syncthreads();
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int row = tall * 16 + 8 * h + g;
    float total = sums.total[h];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    if (t == 0 && dim == 0) { s.largest[team][row] = sums.largest[h]; s.total[team][row] = total; }
#pragma unroll
    for (int n = 0; n < WIDE / 8; n++)
      *(float2*)(values + (team * TILE + row) * SUM_PITCH + dim + n * 8 + 2 * t) =
          make_float2(sums.value[n][2 * h], sums.value[n][2 * h + 1]);
  }
  __syncthreads();
  float largest = LOWEST, total = 0.f;
  if (thread < TILE) {
#pragma unroll
    for (int i = 0; i < TEAMS; i++) largest = fmaxf(largest, s.largest[i][thread]);
#pragma unroll
    for (int i = 0; i < TEAMS; i++) total = fmaf(s.total[i][thread], exp2f(s.largest[i][thread] - largest), total);
  }
#pragma unroll 2
  for (int e = thread; e < TILE * (DIM / 4); e += THREADS) {
    const int row = e / (DIM / 4), d = e % (DIM / 4) * 4;
    float top = LOWEST;
#pragma unroll
    for (int i = 0; i < TEAMS; i++) top = fmaxf(top, s.largest[i][row]);
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int i = 0; i < TEAMS; i++) {
      const float factor = exp2f(s.largest[i][row] - top);
      const float4 part = *(const float4*)(values + (i * TILE + row) * SUM_PITCH + d);
      sum.x = fmaf(part.x, factor, sum.x); sum.y = fmaf(part.y, factor, sum.y);
      sum.z = fmaf(part.z, factor, sum.z); sum.w = fmaf(part.w, factor, sum.w);
    }
    *(float4*)(values + row * SUM_PITCH + d) = sum;
  }
  __syncthreads();
  if (thread < TILE) { s.largest[0][thread] = largest; s.total[0][thread] = total; }
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
      largest[r] = load_there(address_in(shared_address(&s.largest[0][local]), r));
      all = fmaxf(all, largest[r]);
    }
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    float total = 0.f;
#pragma unroll
    for (int r = 0; r < CLUSTER; r++) {
      const float factor = exp2f(largest[r] - all);
      const float4 part = load_there_16(address_in(shared_address((float*)s.slab + local * SUM_PITCH + d), r));
      total = fmaf(load_there(address_in(shared_address(&s.total[0][local]), r)), factor, total);
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
    *(float4*)(partial + place * DIM + d) = *(const float4*)((const float*)s.slab + local * SUM_PITCH + d);
    if (d == 0) { statistics[place] = s.largest[0][local]; statistics[at.ranks * plane + place] = s.total[0][local]; }
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
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, member = warp % TEAM;
  const Inputs in = {projected, (size_t)stride, query_weight, key_weight, cos, sin, angle_count, query_epsilon, key_epsilon};
  Place at;
  at.rank = blockIdx.x; at.ranks = gridDim.x; at.sequence = blockIdx.z;
  at.kv_head = blockIdx.y / TILES; at.tile = blockIdx.y % TILES; at.team = warp / TEAM;
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
  const int units = (at.context + STEP - 1) / STEP;
  at.steps = max(0, (units - at.rank * TEAMS - at.team + at.ranks * TEAMS - 1) / (at.ranks * TEAMS));
  if (CLUSTER == 0 && at.rank * BLOCK >= at.context) return;
  int page[STAGES];
#pragma unroll
  for (int i = 0; i < STAGES; i++) page[i] = at.page_of(at.first(i));
  const int own_page = at.page_of(at.length + warp);
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) fetch_step(s.slab[at.team][i], at, keys, values, i, page[i], member, lane);
  int coming = page[STAGES - 1];  // looked up a step before it is needed
  if (SETTLED) {
    wait_for_predecessors();
    if (SELECTED) selected = (int)load_fresh_4(row_index + at.sequence);
    raw.load(in, at, selected, warp, lane);
  }
  place_queries(s, raw, in, at, selected, warp, lane);
  const int block_end = ((units - 1 - at.rank * TEAMS) / (at.ranks * TEAMS) * at.ranks + at.rank + 1) * BLOCK;
  if (warp < ROWS && block_end > at.length) place_keys(s, raw, in, at, keys, values, own_page, warp, lane);
  __syncthreads();

  const int tall = TALL == 1 ? 0 : member, dim = TALL == 1 ? member * WIDE : 0;
  uint32_t query[DIM / 16][4];
#pragma unroll
  for (int k = 0; k < DIM / 16; k++)
    load_matrices(query[k], shared_address(s.query + (tall * 16 + (lane & 15)) * PITCH + (lane >> 4) * 16 + k * 32));
  int last[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int j = SELECTED ? selected : (at.tile * TILE + tall * 16 + 8 * h + (lane >> 2)) / GROUP;
    last[h] = min(at.length + j, at.context - 1);
  }
  Sums sums;
  sums.clear();
  for (int step = 0; step < at.steps; step++) {
    const int first = at.first(step);
    Slab& slab = s.slab[at.team][step % STAGES];
    if (first + STEP > at.length) fill_step(slab, s, at, first, member, lane);
    wait_groups<STAGES - 2>();
    sync_threads_of(1 + at.team, TEAM * 32);
    // The team is done with the step before this one: its slab is free.
    fetch_step(s.slab[at.team][(step + STAGES - 1) % STAGES], at, keys, values, step + STAGES - 1, coming, member, lane);
    coming = at.page_of(at.first(step + STAGES));
    add_step(slab, query, first, last, scale, dim, lane, sums);
  }
  merge_teams(s, sums, at.team, tall, dim, thread);
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
