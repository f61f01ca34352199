// Attention of a device step in one launch: a cluster of blocks shares the context of one sequence and key/value
// head, serves all its query heads and rows at once, and merges through each other's shared memory.
//
// Defined by the host: HEADS, KEY_VALUE_HEADS, GATED, ROTATED, PAGE_SIZE, ROWS (rows placed for each sequence),
// SELECTED (1: only row_index[sequence] of them attends), TILE (rows x heads of the group in a block: 16, 32, 64),
// TILES (blocks that split them), CLUSTER, STAGES, SETTLED (1: lengths, pages and committed rows were written before
// the step).
#include "matrix.cuh"
#include "memory.cuh"

#define DIM 256
#define WARPS 8
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
  unsigned long long full[8];
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
  if (CLUSTER == 1) return address;
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

// Sequence, its place, and what of it this block does.
struct Place {
  int sequence, kv_head, tile, rank, length, context, blocks;
  const int* pages;
  int pages_each;
  __device__ __forceinline__ size_t row_of(int position) const {  // in rows of one head in a pool
    const int page = (int)load_fresh_4(pages + min(position / PAGE_SIZE, pages_each - 1));
    return ((size_t)page * PAGE_SIZE + position % PAGE_SIZE) * KEY_VALUE_HEADS + kv_head;
  }
};

// Asks for the committed rows of one block; the first warp.
__device__ __forceinline__ void fetch_block(Shared& s, const Place& at, const bfloat16* keys, const bfloat16* values,
                                            int turn, int lane) {
  const int base = (at.rank + turn * CLUSTER) * BLOCK, stage = turn % STAGES;
  const int committed = max(0, min(BLOCK, at.length - base));
  const uint32_t barrier = shared_address(&s.full[stage]);
  size_t row[2];
#pragma unroll
  for (int i = 0; i < 2; i++)
    if (lane + 32 * i < committed) row[i] = at.row_of(base + lane + 32 * i);
  if (lane == 0) barrier_expect(barrier, committed * DIM * 4);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int n = lane + 32 * i;
    if (n < committed) copy_bulk(shared_address(s.keys[stage] + n * PITCH), keys + row[i] * DIM, DIM * 2, barrier);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int n = lane + 32 * i;
    if (n < committed) copy_bulk(shared_address(s.values[stage] + n * PITCH), values + row[i] * DIM, DIM * 2, barrier);
  }
}

struct Inputs {
  const bfloat16* projected;
  size_t stride;
  const float *query_weight, *key_weight, *cos, *sin;
  int angle_count;
  float query_epsilon, key_epsilon;
};

// All of the tile's queries into shared memory, TILE / WARPS a warp.
__device__ __forceinline__ void place_queries(Shared& s, const Inputs& in, const Place& at, int selected, int warp,
                                              int lane) {
  uint4 raw[TILE / WARPS];
  float weight[8];
#pragma unroll
  for (int i = 0; i < TILE / WARPS; i++) {
    const int m = at.tile * TILE + warp * (TILE / WARPS) + i, j = SELECTED ? selected : m / GROUP;
    const bfloat16* row = in.projected + (size_t)(at.sequence * ROWS + j) * in.stride;
    raw[i] = make_uint4(0, 0, 0, 0);
    if (m < QUERY_ROWS * GROUP) raw[i] = load_fresh_16(row + (at.kv_head * GROUP + m % GROUP) * HEAD_STRIDE + lane * 8);
  }
  load_8(weight, in.query_weight + lane * 8);
#pragma unroll
  for (int i = 0; i < TILE / WARPS; i++) {
    const int local = warp * (TILE / WARPS) + i, m = at.tile * TILE + local, j = SELECTED ? selected : m / GROUP;
    const size_t angle = (size_t)min(at.length + min(j, ROWS - 1), in.angle_count - 1) * ROTATED + lane * 8;
    float cos[8], sin[8];
    if (lane * 8 < ROTATED) { load_8(cos, in.cos + angle); load_8(sin, in.sin + angle); }
    *(uint4*)(s.query + local * PITCH + lane * 16) =
        norm_and_rotate(raw[i], weight, in.query_epsilon, cos, sin, lane);
  }
}

// The window's own keys and values into shared memory and, by one block of the cluster, into the pages; a row a warp.
__device__ __forceinline__ void place_keys(Shared& s, const Inputs& in, const Place& at, bfloat16* keys,
                                           bfloat16* values, int warp, int lane) {
  if (warp >= ROWS) return;
  const int position = at.length + warp;
  const bfloat16* row = in.projected + (size_t)(at.sequence * ROWS + warp) * in.stride + QUERY_WIDTH +
                        at.kv_head * DIM + lane * 8;
  const uint4 raw = load_fresh_16(row), value = load_fresh_16(row + KEY_WIDTH);
  float weight[8], cos[8], sin[8];
  load_8(weight, in.key_weight + lane * 8);
  const size_t angle = (size_t)min(position, in.angle_count - 1) * ROTATED + lane * 8;
  if (lane * 8 < ROTATED) { load_8(cos, in.cos + angle); load_8(sin, in.sin + angle); }
  const uint4 key = norm_and_rotate(raw, weight, in.key_epsilon, cos, sin, lane);
  *(uint4*)(s.fresh[0] + warp * PITCH + lane * 16) = key;
  *(uint4*)(s.fresh[1] + warp * PITCH + lane * 16) = value;
  if (at.tile == 0 && position / BLOCK % CLUSTER == at.rank && position / PAGE_SIZE < at.pages_each) {
    const size_t there = at.row_of(position) * DIM + lane * 8;
    *(uint4*)(keys + there) = key;
    *(uint4*)(values + there) = value;
  }
}

// Rows of a block that are not committed: the window's own, and zeros up to a whole step of the matrix units.
__device__ __forceinline__ void fill_block(Shared& s, const Place& at, int base, int stage, int warp, int lane) {
  const int end = min(BLOCK, (at.context - base + 15) & ~15);
  for (int n = max(0, at.length - base) + warp; n < end; n += WARPS) {
    const int j = base + n - at.length;
    uint4 key = make_uint4(0, 0, 0, 0), value = key;
    if (j < ROWS) {
      key = *(const uint4*)(s.fresh[0] + j * PITCH + lane * 16);
      value = *(const uint4*)(s.fresh[1] + j * PITCH + lane * 16);
    }
    *(uint4*)(s.keys[stage] + n * PITCH + lane * 16) = key;
    *(uint4*)(s.values[stage] + n * PITCH + lane * 16) = value;
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

// The blocks of the cluster put together: each its share of the outputs, added in the order of ranks.
__device__ __forceinline__ void merge(Shared& s, const Inputs& in, const Place& at, int selected, bfloat16* out,
                                      int out_stride, int thread) {
  constexpr int EACH = TILE * (DIM / 4) / CLUSTER;
  uint2 gate[(EACH + 255) / 256];
#pragma unroll
  for (int n = 0; n < (EACH + 255) / 256; n++) {
    const int e = at.rank * EACH + n * 256 + thread, m = at.tile * TILE + e / (DIM / 4);
    const int j = SELECTED ? selected : m / GROUP, head = at.kv_head * GROUP + m % GROUP;
    if (GATED && n * 256 + thread < EACH && m < QUERY_ROWS * GROUP)
      gate[n] = load_fresh_8(in.projected + (size_t)(at.sequence * ROWS + j) * in.stride + head * HEAD_STRIDE + DIM +
                             e % (DIM / 4) * 4);
  }
  cluster_sync();
#pragma unroll
  for (int n = 0; n < (EACH + 255) / 256; n++) {
    const int e = at.rank * EACH + n * 256 + thread, local = e / (DIM / 4), d = e % (DIM / 4) * 4;
    const int m = at.tile * TILE + local;
    if (n * 256 + thread >= EACH || m >= QUERY_ROWS * GROUP) continue;
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

extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
__launch_bounds__(256, 1)
decode_attention(const bfloat16* projected, int stride, const float* query_weight, const float* key_weight,
                 const float* cos, const float* sin, int angle_count, bfloat16* keys, bfloat16* values, const int* slots,
                 const int* lengths, const int* page_table, int pages_each, const int* row_index, bfloat16* out,
                 int out_stride, float query_epsilon, float key_epsilon, float scale) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  Shared& s = *(Shared*)shared_bytes;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane >> 2, t = lane & 3;
  release_dependents();
  if (thread == 0) {
#pragma unroll
    for (int i = 0; i < STAGES; i++) barrier_init(shared_address(&s.full[i]));
    barrier_init_done();
  }
  if (!SETTLED) { wait_for_predecessors(); fence_async_proxy(); }
  Place at;
  at.rank = blockIdx.x; at.kv_head = blockIdx.y / TILES; at.tile = blockIdx.y % TILES; at.sequence = blockIdx.z;
  const int slot = (int)load_fresh_4(slots + at.sequence);
  at.length = (int)load_fresh_4(lengths + slot);
  at.context = at.length + ROWS;
  at.pages = page_table + (size_t)slot * pages_each; at.pages_each = pages_each;
  at.blocks = ((at.context + BLOCK - 1) / BLOCK - at.rank + CLUSTER - 1) / CLUSTER;
  __syncthreads();
  if (warp == 0)
    for (int i = 0; i < min(STAGES, at.blocks); i++) fetch_block(s, at, keys, values, i, lane);
  if (SETTLED) wait_for_predecessors();
  const Inputs in = {projected, (size_t)stride, query_weight, key_weight, cos, sin, angle_count, query_epsilon, key_epsilon};
  const int selected = SELECTED ? (int)load_fresh_4(row_index + at.sequence) : 0;
  place_queries(s, in, at, selected, warp, lane);
  place_keys(s, in, at, keys, values, warp, lane);
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
    const int base = (at.rank + turn * CLUSTER) * BLOCK, stage = turn % STAGES;
    if (base + BLOCK > at.length) { fill_block(s, at, base, stage, warp, lane); __syncthreads(); }
    barrier_wait(shared_address(&s.full[stage]), turn / STAGES & 1);
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
    if (warp == 0 && turn > 0 && turn - 1 + STAGES < at.blocks) fetch_block(s, at, keys, values, turn - 1 + STAGES, lane);
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
  merge(s, in, at, selected, out, out_stride, thread);
}
