// Routing in one launch: norm, router product, the choice of each row, and the list of distinct experts (MANY 0, up
// to 8 rows) or the pairs sorted by expert (MANY 1, up to 512 rows).
//
// A thread block multiplies 16 rows (8 of few) by COLUMNS of the router's rows, each warp 128 or 256 inputs of them.
// Logits go to the blocks that choose (the first one of the same 16 rows), and choices to the block that lists (the very
// first), as words that carry the number of the launch: whoever needs one looks until it has come. The last block to
// look moves the number on. HIDDEN, EXPERTS, TOP, SHARED (0 or 1: the shared expert's gate is the router's last row), NORMALIZE,
// COLUMNS (a multiple of 8; for many rows more, because every block reads its rows anew).
#include "matrix.cuh"
#include "memory.cuh"

#define OUTPUTS (EXPERTS + SHARED)
#define CHUNKS (HIDDEN / 32)
#define WARP_CHUNKS (HIDDEN > 2048 ? 8 : 4)  // of 32 inputs
#define WARPS (CHUNKS / WARP_CHUNKS)
#define THREADS (WARPS * 32)
#define FEW 8
#define ROWS (MANY ? 16 : FEW)  // of a thread block
#define COLUMN_GROUPS (COLUMNS / 8)
#define ROUTER_ROWS ((OUTPUTS + 15) / 16 * 16)  // as packed
#define SPLIT (THREADS >= 4 * ROWS * 8 ? 4 : 2)  // threads that add up one logit
#define LANE_EXPERTS ((EXPERTS + 31) / 32)
#define WORDS ((EXPERTS + 31) / 32)
#define PAIRS 16                // of a block of sorted pairs

__device__ constexpr int power_of_two(int least) { int n = 1; while (n < least) n *= 2; return n; }
constexpr int BEST = power_of_two(TOP), MINE = power_of_two(LANE_EXPERTS) > BEST ? power_of_two(LANE_EXPERTS) : BEST;

__device__ __forceinline__ void copy_async_16(void* destination, const void* source) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(destination)), "l"(source) : "memory");
}
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

typedef unsigned long long word_t;
__device__ __forceinline__ word_t look(const word_t* address) {
  word_t word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
  return word;
}
__device__ __forceinline__ void send(word_t* address, uint32_t high, uint32_t low) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"((word_t)high << 32 | low) : "memory");
}
// A choice: weight in the high half; in the low one the number's last 22 bits and the expert.
#define EXPERT_BITS 10
__device__ __forceinline__ uint32_t choice_of(uint32_t number, int expert) { return number << EXPERT_BITS | (uint32_t)expert; }

// Unsigned integers in the order of the floats; NaN below every number, and 0 for "taken".
__device__ __forceinline__ uint32_t sortable(float value) {
  const uint32_t bits = __float_as_uint(value);
  return value != value ? 1u : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float unsorted(uint32_t key) { return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }

// Numbers in descending order: a bitonic network.
template <int N>
__device__ __forceinline__ void sort_descending(uint32_t* key) {
#pragma unroll
  for (int run = 2; run <= N; run *= 2)
#pragma unroll
    for (int half = run / 2; half >= 1; half /= 2)
#pragma unroll
      for (int i = 0; i < N; i++)
        if (!(i & half)) {
          const uint32_t a = key[i], b = key[i + half];
          key[i] = i & run ? min(a, b) : max(a, b);
          key[i + half] = i & run ? max(a, b) : min(a, b);
        }
}

// The best keys of the warp in descending order, in every lane, from those of the lane in that order.
__device__ __forceinline__ void merge_lanes(uint32_t* best) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    uint32_t other[BEST];
#pragma unroll
    for (int i = 0; i < BEST; i++) other[i] = __shfl_xor_sync(~0u, best[BEST - 1 - i], step);
#pragma unroll
    for (int i = 0; i < BEST; i++) best[i] = max(best[i], other[i]);  // rises and falls, or the other way round
#pragma unroll
    for (int half = BEST / 2; half >= 1; half /= 2)
#pragma unroll
      for (int i = 0; i < BEST; i++)
        if (!(i & half)) {
          const uint32_t a = best[i], b = best[i + half];
          best[i] = max(a, b);
          best[i + half] = min(a, b);
        }
  }
}

// Which experts have the best keys, one after the other, where keys are equal: of these the lowest expert first.
__device__ __forceinline__ void name_with_ties(uint32_t* key, int lane, int* chosen) {
#pragma unroll 1
  for (int j = 0; j < TOP; j++) {
    uint32_t best = key[0];
#pragma unroll
    for (int i = 1; i < LANE_EXPERTS; i++) best = max(best, key[i]);
    const uint32_t most = __reduce_max_sync(~0u, best);
    int at = 0;
#pragma unroll
    for (int i = LANE_EXPERTS - 1; i >= 0; i--) if (key[i] == most) at = i;
    const uint32_t mine = best == most ? (uint32_t)(at * 32 + lane) : ~0u, first = __reduce_min_sync(~0u, mine);
    if (mine == first) {
      chosen[j] = first;
#pragma unroll
      for (int i = 0; i < LANE_EXPERTS; i++) if (i == at) key[i] = 0u;
    }
  }
}

// The experts of one row by one warp: chosen[j] is written, and lane j returns the weight of the j-th best.
__device__ __forceinline__ float choose(const word_t* words, uint32_t number, int lane, int* chosen) {
  uint32_t key[LANE_EXPERTS], sorted[MINE];
  bool late;
  do {
    word_t word[LANE_EXPERTS];
    late = false;
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) word[i] = look(words + min(i * 32 + lane, EXPERTS - 1));
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
      late |= (uint32_t)word[i] != number;
      key[i] = i * 32 + lane < EXPERTS ? sortable(__uint_as_float((uint32_t)(word[i] >> 32))) : 0u;
    }
  } while (__any_sync(~0u, late));
#pragma unroll
  for (int i = 0; i < MINE; i++) sorted[i] = i < LANE_EXPERTS ? key[i] : 0u;
  sort_descending<MINE>(sorted);
  merge_lanes(sorted);
  uint32_t mine = sorted[0];
  bool distinct = true;
  int reached = 0;
#pragma unroll
  for (int j = 1; j < TOP; j++) {
    distinct = distinct && sorted[j] < sorted[j - 1];
    if (lane == j) mine = sorted[j];
  }
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; i++) reached += __popc(__ballot_sync(~0u, key[i] >= sorted[TOP - 1]));
  float all = 0.f;
#if !NORMALIZE
#pragma unroll
  for (int i = 0; i < LANE_EXPERTS; i++) if (i * 32 + lane < EXPERTS) all += __expf(unsorted(key[i]) - unsorted(sorted[0]));
#endif
  if (distinct && reached == TOP) {
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++)
      if (key[i] >= sorted[TOP - 1]) {
        int place = 0;
#pragma unroll
        for (int j = 0; j < TOP; j++) place += sorted[j] > key[i];
        chosen[place] = i * 32 + lane;
      }
  } else {
    name_with_ties(key, lane, chosen);
  }
  const float share = lane < TOP ? __expf(unsorted(mine) - unsorted(sorted[0])) : 0.f;
  if (NORMALIZE) all = share;
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) all += __shfl_xor_sync(~0u, all, step);
  return share / all;
}

// Exclusive sums over the block, two at a time; `total` gets the sums.
__device__ __forceinline__ uint2 sums_before(uint2 value, uint2* total) {
  __shared__ uint2 of_warp[32];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  uint2 sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t x = __shfl_up_sync(~0u, sum.x, step), y = __shfl_up_sync(~0u, sum.y, step);
    if (lane >= step) { sum.x += x; sum.y += y; }
  }
  __syncthreads();
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  uint2 before = make_uint2(0u, 0u), all = before;
  for (int w = 0; w < WARPS; w++) {
    if (w == warp) before = all;
    all.x += of_warp[w].x; all.y += of_warp[w].y;
  }
  *total = all;
  return make_uint2(before.x + sum.x - value.x, before.y + sum.y - value.y);
}

#if !MANY
#define LISTED_MOST (EXPERTS < FEW * TOP ? EXPERTS : FEW * TOP)
struct Choices {
  int expert[FEW][TOP];
  float weight[FEW][TOP], table[LISTED_MOST][FEW];
  uint32_t used[WORDS];  // a bit for each expert
};
__device__ __forceinline__ void clear(Choices& choices) {
  for (int i = threadIdx.x; i < LISTED_MOST * FEW; i += THREADS) choices.table[i / FEW][i % FEW] = 0.f;
  if (threadIdx.x < WORDS) choices.used[threadIdx.x] = 0u;
}
// The list of distinct experts, by the whole block, from the rows' choices.
__device__ __forceinline__ void list_distinct(Choices& choices, int rows, int listed, int* distinct, float* row_weights) {
  static_assert(FEW * TOP <= THREADS && LISTED_MOST * 2 <= THREADS, "a thread for each choice");
  int total = 0, place = 0;
  const int row = threadIdx.x / TOP, choice = threadIdx.x % TOP;
  const int expert = row < rows ? choices.expert[row][choice] : 0;
#pragma unroll
  for (int w = 0; w < WORDS; w++) {
    const uint32_t word = choices.used[w];
    if (w < expert >> 5) place += __popc(word);
    if (w == expert >> 5) place += __popc(word & ((1u << (expert & 31)) - 1u));
    total += __popc(word);
  }
  if (row < rows) {
    choices.table[place][row] = choices.weight[row][choice];
    distinct[1 + place] = expert;
  }
  if (threadIdx.x == 0) distinct[0] = total;
  if (total + threadIdx.x < listed) distinct[1 + total + threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x < listed * 2) ((float4*)row_weights)[threadIdx.x] = ((const float4*)choices.table)[threadIdx.x];
}
#else
// Pairs sorted by expert and row, by the whole block: a bit for each row that chose an expert, counts from the bits.
// rows_of: shared memory, [EXPERTS][words of rows], then room for the choices.
__device__ void sort_pairs(uint32_t* rows_of, const word_t* choices, uint32_t number, int rows, int room, int* offsets,
                           int* pair_rows, float* pair_weights, int* pair_places, int* blocks) {
  __shared__ int offset_of[EXPERTS];
  const int words = (rows + 31) / 32;
  uint2* choice = (uint2*)(rows_of + (EXPERTS * words + 1) / 2 * 2);
#pragma unroll 1
  for (int i = threadIdx.x; i < EXPERTS * words; i += THREADS) rows_of[i] = 0u;
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * TOP; i += THREADS) {
    word_t word;
    do word = look(choices + i);
    while (((uint32_t)word ^ choice_of(number, 0)) >> EXPERT_BITS);
    const int e = (uint32_t)word & ((1u << EXPERT_BITS) - 1u), row = i / TOP;
    choice[i] = make_uint2(e, (uint32_t)(word >> 32));
    atomicOr(&rows_of[e * words + (row >> 5)], 1u << (row & 31));
  }
  __syncthreads();
  uint2 base = make_uint2(0u, 0u);
#pragma unroll 1
  for (int first = 0; first < EXPERTS; first += THREADS) {
    const int e = first + threadIdx.x;
    uint2 count = make_uint2(0u, 0u), total;
    if (e < EXPERTS)
      for (int w = 0; w < words; w++) count.x += __popc(rows_of[e * words + w]);
    count.y = (count.x + PAIRS - 1) / PAIRS;
    const uint2 before = sums_before(count, &total);
    if (e < EXPERTS) {
      offset_of[e] = offsets[e] = base.x + before.x;
      for (uint32_t b = 0; b < count.y; b++) blocks[1 + base.y + before.y + b] = e * 65536 + b;
    }
    base.x += total.x; base.y += total.y;
  }
  if (threadIdx.x == 0) { offsets[EXPERTS] = base.x; blocks[0] = base.y; }
#pragma unroll 1
  for (int i = base.y + threadIdx.x; i < room; i += THREADS) blocks[1 + i] = 0;
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * TOP; i += THREADS) {
    const int e = choice[i].x, row = i / TOP;
    const uint32_t* mine = rows_of + e * words;
    int place = offset_of[e] + __popc(mine[row >> 5] & ((1u << (row & 31)) - 1u));
    for (int w = 0; w < row >> 5; w++) place += __popc(mine[w]);
    pair_rows[place] = row;
    pair_weights[place] = __uint_as_float(choice[i].y);
    pair_places[i] = place;
  }
}
#endif

// `lists`: MANY 0: distinct; else offsets. `list_weights`: row_weights or pair_weights.
extern "C" __global__ __launch_bounds__(THREADS, MANY && HIDDEN <= 2048 && COLUMNS == 8 ? 2 : 1) void route(
    const bfloat16* residual, const float* norm, const uint8_t* router, float* logits, word_t* words, word_t* choice_words,
    uint32_t* launches, int* lists, float* list_weights, int* pair_rows, int* pair_places, int* blocks,
    float* shared_weight, int rows, int residual_stride, int stride, int room, float epsilon) {
  __shared__ float parts[WARPS][ROWS][COLUMNS + 1], squares[WARPS][ROWS];
  __shared__ __align__(16) float factor[HIDDEN];
  __shared__ uint4 launched;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int first = blockIdx.x * COLUMNS, first_row = blockIdx.y * ROWS;
  uint4 w[COLUMN_GROUPS][WARP_CHUNKS];
#pragma unroll
  for (int n = 0; n < COLUMN_GROUPS; n++) {
    const int row = min(first + n * 8, ROUTER_ROWS - 8);
    const uint8_t* at = router + ((size_t)(row >> 4) * CHUNKS + warp * WARP_CHUNKS) * 1024 + (row & 8) * 64 + lane * 16;
#pragma unroll
    for (int i = 0; i < WARP_CHUNKS; i++) w[n][i] = load_once_16(at + i * 1024);
  }
#pragma unroll
  for (int i = 0; i < WARP_CHUNKS / 4; i++)
    ((float4*)factor)[threadIdx.x + i * THREADS] = ((const float4*)norm)[threadIdx.x + i * THREADS];
#if !MANY
  __shared__ __align__(16) Choices choices;
  if (blockIdx.x == 0) clear(choices);
#endif
  __syncthreads();
  wait_for_predecessors();
  release_dependents();
  // Rows come by way of shared memory: ptxas puts plain loads between the arithmetic, one latency behind another.
  extern __shared__ __align__(16) uint8_t memory[];
  uint8_t* x = memory + threadIdx.x * 16;  // [half][chunk][thread] 16 bytes, each read by the thread that copies it
#pragma unroll
  for (int half = 0; half <= MANY; half++) {
    const int row = min(first_row + g + 8 * half, rows - 1);  // a row too many is computed again and never stored
    const bfloat16* source = residual + (size_t)row * residual_stride + warp * WARP_CHUNKS * 32 + t * 8;
#pragma unroll
    for (int i = 0; i < WARP_CHUNKS; i++) copy_async_16(x + (half * WARP_CHUNKS + i) * THREADS * 16, source + i * 32);
  }
  if (threadIdx.x == 0) copy_async_16(&launched, launches);
  wait_copies();
  float c[COLUMN_GROUPS][2][4] = {}, square[2] = {0.f, 0.f};
#pragma unroll
  for (int half = 0; half <= MANY; half++) {
#pragma unroll
    for (int i = 0; i < WARP_CHUNKS; i++) {
      const uint4 word = *(const uint4*)(x + (half * WARP_CHUNKS + i) * THREADS * 16);
      const float* f = factor + (warp * WARP_CHUNKS + i) * 32 + t * 8;
      const float4 low = *(const float4*)f, high = *(const float4*)(f + 4);
      const float v[8] = {low_half(word.x), high_half(word.x), low_half(word.y), high_half(word.y),
                          low_half(word.z), high_half(word.z), low_half(word.w), high_half(word.w)};
#pragma unroll
      for (int k = 0; k < 8; k++) square[half] = fmaf(v[k], v[k], square[half]);
      const uint32_t a0 = pack_pair(v[0] * low.x, v[1] * low.y), a2 = pack_pair(v[2] * low.z, v[3] * low.w);
      const uint32_t b0 = pack_pair(v[4] * high.x, v[5] * high.y), b2 = pack_pair(v[6] * high.z, v[7] * high.w);
#pragma unroll
      for (int n = 0; n < COLUMN_GROUPS; n++) {
        multiply(c[n][0], half ? 0u : a0, half ? a0 : 0u, half ? 0u : a2, half ? a2 : 0u, w[n][i].x, w[n][i].y);
        multiply(c[n][1], half ? 0u : b0, half ? b0 : 0u, half ? 0u : b2, half ? b2 : 0u, w[n][i].z, w[n][i].w);
      }
    }
  }
#pragma unroll
  for (int half = 0; half <= MANY; half++) {
    square[half] += __shfl_xor_sync(~0u, square[half], 1);
    square[half] += __shfl_xor_sync(~0u, square[half], 2);
    if (t == 0) squares[warp][g + 8 * half] = square[half];
#pragma unroll
    for (int n = 0; n < COLUMN_GROUPS; n++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        parts[warp][g + 8 * half][n * 8 + 2 * t + i] = c[n][0][2 * half + i] + c[n][1][2 * half + i];
  }
  __syncthreads();
  const uint32_t number = launched.x + 1;
#pragma unroll 1
  for (int output = threadIdx.x / SPLIT; output < ROWS * COLUMNS; output += THREADS / SPLIT) {
    const int r = output / COLUMNS, column = output % COLUMNS;
    float sum = 0.f, all = 0.f;
#pragma unroll
    for (int k = 0; k < WARPS; k += SPLIT) {
      sum += parts[k + threadIdx.x % SPLIT][r][column];
      all += squares[k + threadIdx.x % SPLIT][r];
    }
#pragma unroll
    for (int step = 1; step < SPLIT; step *= 2) {
      sum += __shfl_xor_sync(~0u, sum, step);
      all += __shfl_xor_sync(~0u, all, step);
    }
    if (threadIdx.x % SPLIT == 0 && first_row + r < rows && first + column < OUTPUTS) {
      const size_t at = (size_t)(first_row + r) * stride + first + column;
      const float logit = sum * rsqrtf(all / HIDDEN + epsilon);
      send(words + at, __float_as_uint(logit), number);
      logits[at] = logit;
    }
  }
  if (blockIdx.x) return;
  const int count = min(ROWS, rows - first_row);
#if MANY
  __shared__ int chosen[ROWS][TOP];
#endif
  for (int r = warp; r < count; r += WARPS) {
    const size_t row = first_row + r;
#if MANY
    const float weight = choose(words + row * stride, number, lane, chosen[r]);
    __syncwarp();
    if (lane < TOP) send(choice_words + row * TOP + lane, __float_as_uint(weight), choice_of(number, chosen[r][lane]));
#else
    const float weight = choose(words + row * stride, number, lane, choices.expert[r]);
    __syncwarp();
    if (lane < TOP) {
      const int expert = choices.expert[r][lane];
      choices.weight[r][lane] = weight;
      atomicOr(&choices.used[expert >> 5], 1u << (expert & 31));
    }
#endif
    if (lane == 0) {
      float gate = 0.f;
#if SHARED
      word_t word;
      do word = look(words + row * stride + EXPERTS);
      while ((uint32_t)word != number);
      gate = 1.f / (1.f + __expf(-__uint_as_float((uint32_t)(word >> 32))));
#endif
      shared_weight[row] = gate;
    }
  }
  if (blockIdx.y) return;
  __syncthreads();
#if !MANY
  if (threadIdx.x >= rows && threadIdx.x < FEW) shared_weight[threadIdx.x] = 0.f;
  list_distinct(choices, rows, room, lists, list_weights);
#else
  sort_pairs((uint32_t*)memory, choice_words, number, rows, room, lists, pair_rows, list_weights, pair_places, blocks);
#endif
  if (threadIdx.x == 0) *launches = number;
}
