// Routing of up to 8 rows in one launch: norm, router product, and in the block that arrives last the choice of each
// row, the list of distinct experts and their weights.
//
// HIDDEN, ROWS, EXPERTS, TOP, SHARED (0 or 1: the shared expert's gate is the router's last row), NORMALIZE,
// ROUTER_ROWS (of the router's that one block multiplies). HIDDEN / 8 threads: each has 8 inputs of every row.
#include "memory.cuh"

#define OUTPUTS (EXPERTS + SHARED)
#define CHUNKS (HIDDEN / 32)
#define THREADS (HIDDEN / 8)
#define WARPS (THREADS / 32)
#define SUMS (ROWS * (ROUTER_ROWS + 1))
#define SUM_ROOM (SUMS <= 4 ? 4 : SUMS <= 8 ? 8 : SUMS <= 16 ? 16 : 32)
#define LANE_EXPERTS ((EXPERTS + 31) / 32)
#define LISTED (EXPERTS < ROWS * TOP ? EXPERTS : ROWS * TOP)
#define ROOM 8

__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// One value of each of SUM_ROOM sums over the lanes: every step halves the values a lane has. The sum of value i ends
// in lanes whose highest bits are i's, reversed in order of the steps: lane / (32 / SUM_ROOM) gives i.
__device__ __forceinline__ float sum_lanes(float* value, int lane) {
#pragma unroll
  for (int half = SUM_ROOM / 2, step = 16; half >= 1; half /= 2, step /= 2) {
    const bool upper = lane & step;
#pragma unroll
    for (int i = 0; i < half; i++) {
      const float sent = upper ? value[i] : value[i + half], kept = upper ? value[i + half] : value[i];
      value[i] = kept + __shfl_xor_sync(~0u, sent, step);
    }
  }
#pragma unroll
  for (int step = 16 / SUM_ROOM; step >= 1; step /= 2) value[0] += __shfl_xor_sync(~0u, value[0], step);
  return value[0];
}

// Unsigned integers in the order of the floats; NaN below every number, and 0 for "taken".
__device__ __forceinline__ uint32_t sortable(float value) {
  const uint32_t bits = __float_as_uint(value);
  return value != value ? 1u : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The experts of one row by one warp: lane j gets the j-th best and its weight.
__device__ __forceinline__ void choose(const float* logits, int lane, int& expert, float& weight) {
  uint32_t key[LANE_EXPERTS];
  float logit[LANE_EXPERTS];
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; i++) {
    const int e = i * 32 + lane;
    logit[i] = e < EXPERTS ? load_fresh_float(logits + e) : 0.f;
    key[i] = e < EXPERTS ? sortable(logit[i]) : 0u;
  }
  expert = 0;
  float mine = 0.f, first = 0.f;
#pragma unroll
  for (int j = 0; j < TOP; j++) {
    uint32_t best = key[0];
    int at = 0;
    float best_logit = logit[0];
#pragma unroll
    for (int i = 1; i < LANE_EXPERTS; i++)
      if (key[i] > best) { best = key[i]; at = i; best_logit = logit[i]; }
    const uint32_t most = __reduce_max_sync(~0u, best);
    const uint32_t winner = __reduce_min_sync(~0u, best == most ? (uint32_t)(at * 32 + lane) : ~0u);
    const float won = __shfl_sync(~0u, best_logit, winner & 31);
    if (j == 0) first = won;
    if (lane == j) { expert = winner; mine = won; }
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) if (winner == (uint32_t)(i * 32 + lane)) key[i] = 0u;
  }
  float share = lane < TOP ? __expf(mine - first) : 0.f, total = share;
#if !NORMALIZE
  total = 0.f;
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; i++) if (i * 32 + lane < EXPERTS) total += __expf(logit[i] - first);
#endif
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) total += __shfl_xor_sync(~0u, total, step);
  weight = share / total;
}

// The list of distinct experts, by the whole block.
__device__ void list_distinct(const float* logits, int stride, int* distinct, float* row_weights, float* shared_weight) {
  __shared__ uint32_t used[16], before[16];
  __shared__ int chosen[ROWS][TOP];
  __shared__ float weights[ROWS][TOP], table[LISTED][ROOM];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (threadIdx.x < 16) used[threadIdx.x] = 0u;
  for (int i = threadIdx.x; i < LISTED * ROOM; i += THREADS) table[i / ROOM][i % ROOM] = 0.f;
  __syncthreads();
  for (int row = warp; row < ROWS; row += WARPS) {
    int expert;
    float weight;
    choose(logits + row * stride, lane, expert, weight);
    if (lane < TOP) {
      chosen[row][lane] = expert;
      weights[row][lane] = weight;
      atomicOr(&used[expert >> 5], 1u << (expert & 31));
    }
  }
  if (threadIdx.x < ROOM) {
    float gate = 0.f;
#if SHARED
    if (threadIdx.x < ROWS) gate = 1.f / (1.f + __expf(-load_fresh_float(logits + threadIdx.x * stride + EXPERTS)));
#endif
    shared_weight[threadIdx.x] = gate;
  }
  __syncthreads();
  if (warp == 0) {
    const int count = lane < 16 ? __popc(used[lane]) : 0;
    int sum = count;
#pragma unroll
    for (int step = 1; step < 16; step *= 2) {
      const int other = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane < 16) before[lane] = sum - count;
    if (lane == 15) distinct[0] = sum;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < ROWS * TOP; i += THREADS) {
    const int row = i / TOP, e = chosen[row][i % TOP];
    table[before[e >> 5] + __popc(used[e >> 5] & ((1u << (e & 31)) - 1u))][row] = weights[row][i % TOP];
  }
  const int total = before[15] + __popc(used[15]);
  for (int e = threadIdx.x; e < EXPERTS; e += THREADS) {
    const uint32_t word = used[e >> 5], bit = 1u << (e & 31);
    if (word & bit) distinct[1 + before[e >> 5] + __popc(word & (bit - 1u))] = e;
  }
  for (int i = total + threadIdx.x; i < LISTED; i += THREADS) distinct[1 + i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < LISTED * ROOM; i += THREADS) row_weights[i] = table[i / ROOM][i % ROOM];
}

extern "C" __global__ __launch_bounds__(THREADS) void route_few_rows(
    const bfloat16* residual, const float* norm, const uint8_t* router, float* logits, uint32_t* arrivals,
    int* distinct, float* row_weights, float* shared_weight, int residual_stride, int stride, float epsilon) {
  __shared__ float sums[WARPS][SUM_ROOM];
  __shared__ bool last;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, first = blockIdx.x * ROUTER_ROWS;
  uint4 weight[ROUTER_ROWS];
#pragma unroll
  for (int n = 0; n < ROUTER_ROWS; n++) {
    const int output = min(first + n, OUTPUTS - 1);
    const size_t block = (size_t)(output >> 4) * CHUNKS + (threadIdx.x >> 2);
    weight[n] = load_once_16(router + block * 1024 + (output & 15) * 64 + (threadIdx.x & 3) * 16);
  }
  const float4 low = ((const float4*)norm)[threadIdx.x * 2], high = ((const float4*)norm)[threadIdx.x * 2 + 1];
  release_dependents();
  wait_for_predecessors();
  uint4 x[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) x[r] = load_fresh_16(residual + (size_t)r * residual_stride + threadIdx.x * 8);
  float sum[SUM_ROOM];
#pragma unroll
  for (int i = 0; i < SUM_ROOM; i++) sum[i] = 0.f;
  const float factor[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  // Rows in the inner loop: the compiler then keeps all loads of x together in front.
#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const uint32_t pair = word_of(x[r], i);
      const float a = low_half(pair), b = high_half(pair);
      sum[r] = fmaf(a, a, fmaf(b, b, sum[r]));
      const uint32_t scaled = pack_pair(a * factor[2 * i], b * factor[2 * i + 1]);
#pragma unroll
      for (int n = 0; n < ROUTER_ROWS; n++) {
        const uint32_t w = word_of(weight[n], i);
        float& total = sum[ROWS + r * ROUTER_ROWS + n];
        total = fmaf(low_half(scaled), low_half(w), fmaf(high_half(scaled), high_half(w), total));
      }
    }
  }
  const float part = sum_lanes(sum, lane);
  if (lane % (32 / SUM_ROOM) == 0) sums[warp][lane / (32 / SUM_ROOM)] = part;
  __syncthreads();
  if (warp == 0) {
    float total = 0.f;
    if (lane < SUM_ROOM) {
#pragma unroll
      for (int w = 0; w < WARPS; w++) total += sums[w][lane];
    }
    const int at = lane - ROWS, row = at / ROUTER_ROWS, output = first + at % ROUTER_ROWS;
    const float square = __shfl_sync(~0u, total, at < 0 ? lane : row);
    if (at >= 0 && at < ROWS * ROUTER_ROWS && output < OUTPUTS) {
      logits[row * stride + output] = total * rsqrtf(square / HIDDEN + epsilon);
      __threadfence();
    }
    __syncwarp();
    if (lane == 0) last = atomicInc(arrivals, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  list_distinct(logits, stride, distinct, row_weights, shared_weight);
}
