// The gated delta decode kernel for many heads at a time (batches). Each block of 8 warps brings its head's whole
// state into shared memory by bulk copies and takes it back so, and three blocks of a multiprocessor overlap; the
// products with the state are done by tensor cores, so that little but the memory's time remains.
//
// Pending rows and new rows are one block of rows: one pass over the state gives its products with all their keys and
// queries, one unit lower triangular system gives all corrections, and a second pass adds the committed rows'.
//
// Products are float32 in effect: operands are split into two TF32 numbers, high and low, of which all products but
// low times low are summed. What is added to the state is summed apart and added in float32.
//
// Lanes are (g = lane / 4, t = lane % 4) as in the matrix units' fragments. Of the state, a lane works on value
// columns 16 * warp + 2 * g + 0..1 and, in step s = 0..15, on key rows 32 * t + 2 * s + 0..1. The four quarters of the
// state (one for each t) lie 32 bytes further apart than their size, so that no two lanes meet in a bank. A vector
// over key rows is kept in the order of steps: place 8 * s + 2 * t + e for key row 32 * t + 2 * s + e.
// Of the rows, lane t works on rows t and t + 4.
//
// Defined from outside: KEY_HEADS, VALUE_HEADS, ROWS, WINDOW (room of the stash), STASH (else the new rows are
// certain and enter the state), BLOCKS (resident blocks to compile for).
#define WARPS 8
#define ROOM (WINDOW > 0 ? WINDOW : 1)
#include "gated_delta.cuh"

#define NEW_TILES ((ROWS + 3) / 4)   // tiles of 4 keys and 4 queries
#define OLD_TILES ((WINDOW + 3) / 4) // groups of 4 pending rows
#define OLD (8 * NEW_TILES)          // first pending key among the vectors
#define VECTORS (OLD + WINDOW)
#define KEYS (ROWS + WINDOW)
#define QUARTER (32 * DIM + 8)

struct Shared {
  float state[4 * QUARTER];
  float vectors[VECTORS][DIM];  // 2i: key i, 2i + 1: query i, OLD + i: pending key i
  float v[ROWS][DIM], old_v[ROOM][DIM];
  float gram[VECTORS][KEYS];    // products of vectors with new keys and pending keys, times the decay between them
  float since[ROWS], old_since[ROOM];  // log decay since the state before the pending rows
  float beta[ROWS], old_beta[ROOM];
  float squares[WARPS][ROWS];
  unsigned long long barrier;
};

// The place of step-ordered place `place` in row `row` of the vectors: rows next to each other use other banks.
__device__ __forceinline__ int place_in(int row, int place) { return place ^ (8 * (row & 3)); }

__device__ __forceinline__ void copy_bulk_back(void* destination, uint32_t source, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               ::"l"(destination), "r"(source), "r"(bytes) : "memory");
}
__device__ __forceinline__ void finish_copies_back() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

struct Split { uint32_t high, low; };
__device__ __forceinline__ Split split(float value) {
  const uint32_t high = __float_as_uint(value) & 0xffffe000u;
  return {high, __float_as_uint(value - __uint_as_float(high))};
}
__device__ __forceinline__ void multiply_8(float* d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                           uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_4(float* d, uint32_t a0, uint32_t a1, uint32_t b0) {
  asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(b0));
}
// The three sums of products are kept apart, so that each one's chain of products is short.
struct Sums {
  float part[3][4] = {};
  __device__ __forceinline__ void add(const Split* a, Split b0, Split b1) {
    multiply_8(part[0], a[0].low, a[1].low, a[2].low, a[3].low, b0.high, b1.high);
    multiply_8(part[1], a[0].high, a[1].high, a[2].high, a[3].high, b0.low, b1.low);
    multiply_8(part[2], a[0].high, a[1].high, a[2].high, a[3].high, b0.high, b1.high);
  }
  __device__ __forceinline__ float of(int e) const { return part[0][e] + part[1][e] + part[2][e]; }
};

enum Kind { KEY, VALUE, QUERY };

// Consecutive rows of one kind through the convolution, by one warp.
template <int COUNT>
struct Part {
  Kind kind;
  int channel, lane;
  Inputs<4> columns[3 + COUNT];  // the three inputs before the rows, then theirs
  Taps<4> taps;

  // Rows from time `first` on; from time `end` on there is nothing, which is zeros.
  __device__ __forceinline__ void load(const Times& times, int first, int end) {
#pragma unroll
    for (int i = 0; i < 3 + COUNT; i++) {
      columns[i].pair[0] = columns[i].pair[1] = 0;
      if (first + i - 3 < end) columns[i].load(times.at(first + i - 3) + channel);
    }
  }
  // To places `row`, `row` + `step` .. of the vectors, or to rows 0, 1 .. of the values.
  __device__ __forceinline__ void run(float (*values)[DIM], float (*vectors)[DIM], int row, int step) const {
    float y[COUNT][4], square[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      taps.apply(columns + i, y[i]);
      square[i] = y[i][0] * y[i][0] + y[i][1] * y[i][1] + y[i][2] * y[i][2] + y[i][3] * y[i][3];
    }
    if (kind == VALUE) {
#pragma unroll
      for (int i = 0; i < COUNT; i++) put<4>(values[i] + lane * 4, y[i]);
      return;
    }
#pragma unroll
    for (int o = 16; o; o >>= 1)
#pragma unroll
      for (int i = 0; i < COUNT; i++) square[i] += __shfl_xor_sync(~0u, square[i], o);
    const int place = 16 * (lane % 8) + 2 * (lane / 8);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const float factor = rsqrtf(square[i] + 1e-6f) * (kind == QUERY ? QUERY_SCALE : 1.f);
#pragma unroll
      for (int e = 0; e < 4; e++) y[i][e] *= factor;
      put<2>(vectors[row] + place_in(row, place), y[i]); put<2>(vectors[row] + place_in(row, place + 8), y[i] + 2);
      row += step;
    }
  }
  // COUNT or fewer columns to consecutive times of a pool.
  template <int N>
  __device__ __forceinline__ void keep(bfloat16* pool, int first) const {
#pragma unroll
    for (int i = 0; i < N; i++) columns[first + i].store(pool + i * CONV_DIM + channel);
  }
};

// 16 vectors (from `first`) times 8 keys: the new ones, or the pending ones.
__device__ __forceinline__ void make_gram(Shared& shared, int first, bool old_keys, int pending, int lane) {
  const int g = lane / 4, t = lane % 4, count = old_keys ? pending : ROWS;
  const int upper = first + g, lower = min(first + g + 8, VECTORS - 1);
  const int key = old_keys ? min(OLD + g, VECTORS - 1) : 2 * min(g, ROWS - 1);
  Sums sums;
#pragma unroll 4
  for (int s = 0; s < 16; s++) {
    const float2 a = *(const float2*)&shared.vectors[upper][place_in(upper, 8 * s + 2 * t)];
    const float2 c = *(const float2*)&shared.vectors[lower][place_in(lower, 8 * s + 2 * t)];
    const float2 b = *(const float2*)&shared.vectors[key][place_in(key, 8 * s + 2 * t)];
    const Split parts[4] = {split(a.x), split(c.x), split(a.y), split(c.y)};
    sums.add(parts, split(b.x), split(b.y));
  }
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int vector = first + g + 8 * (e / 2), j = 2 * t + e % 2;
    const bool is_old = WINDOW && vector >= OLD;
    const int i = is_old ? vector - OLD : vector / 2;
    const bool needed = is_old ? old_keys && i < pending && j < i : i < ROWS && (old_keys || j <= i);
    if (needed && j < count) {
      const float from = old_keys ? shared.old_since[j] : shared.since[j];
      const float to = is_old ? shared.old_since[i] : shared.since[i];
      shared.gram[vector][(old_keys ? ROWS : 0) + j] = sums.of(e) * __expf(to - from);
    }
  }
}

// sums[tile] are the products of the state's columns with 8 vectors: of tile j the keys and queries 4j + t, of the last
// one the pending keys t and t + 4.
__device__ __forceinline__ void read_state(const Shared& shared, Sums* sums, int warp, int lane) {
  const int g = lane / 4, t = lane % 4;
  const float* state = shared.state + t * QUARTER + 16 * warp + 2 * g;
  const int old_row = WINDOW > 4 ? min(OLD + g / 2 + 4 * (g % 2), VECTORS - 1) : min(OLD + g / 2, VECTORS - 1);
#pragma unroll 4
  for (int s = 0; s < 16; s++) {
    const float2 a = *(const float2*)(state + 2 * s * DIM), b = *(const float2*)(state + (2 * s + 1) * DIM);
    const Split parts[4] = {split(a.x), split(a.y), split(b.x), split(b.y)};
#pragma unroll
    for (int j = 0; j < NEW_TILES + (WINDOW > 0); j++) {
      const int row = j < NEW_TILES ? 8 * j + g : old_row;
      const float2 x = *(const float2*)&shared.vectors[row][place_in(row, 8 * s + 2 * t)];
      sums[j].add(parts, split(x.x), split(x.y));
    }
  }
}

// state = state * decay + sum over groups of 4 rows: key (group, t) outer corrections (group, t).
template <int GROUPS>
__device__ __forceinline__ void update_state(Shared& shared, const float (*corrections)[2], const int* rows,
                                             const bool* valid, float decay, int warp, int lane) {
  const int g = lane / 4, t = lane % 4;
  float* state = shared.state + t * QUARTER + 16 * warp + 2 * g;
  Split a[GROUPS][2];
#pragma unroll
  for (int n = 0; n < GROUPS; n++) { a[n][0] = split(corrections[n][0]); a[n][1] = split(corrections[n][1]); }
#pragma unroll 4
  for (int s = 0; s < 16; s++) {
    float d[4] = {0.f, 0.f, 0.f, 0.f}, small[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
      const Split b = split(valid[n] ? shared.vectors[rows[n]][place_in(rows[n], 8 * s + g)] : 0.f);
      multiply_4(small, a[n][0].low, a[n][1].low, b.high); multiply_4(small, a[n][0].high, a[n][1].high, b.low);
      multiply_4(d, a[n][0].high, a[n][1].high, b.high);
    }
    float2* x = (float2*)(state + 2 * s * DIM); float2* y = (float2*)(state + (2 * s + 1) * DIM);
    *x = make_float2(fmaf(x->x, decay, d[0] + small[0]), fmaf(x->y, decay, d[2] + small[2]));
    *y = make_float2(fmaf(y->x, decay, d[1] + small[1]), fmaf(y->y, decay, d[3] + small[3]));
  }
}

// Corrections (to u, old_u) and outputs (to o) of this lane's rows t and t + 4, two value columns each.
struct Solution {
  float u[NEW_TILES][2], o[NEW_TILES][2], old_u[OLD_TILES + 1][2];

  // Row `j` of the block is solved: `mine` holds it, times its beta, in the lanes t = j % 4.
  __device__ __forceinline__ void apply(const Shared& shared, const float* mine, int j, bool old, int pending,
                                        int lane) {
    const int t = lane % 4, column = old ? ROWS + j : j;
    float seen[2];
#pragma unroll
    for (int m = 0; m < 2; m++) seen[m] = __shfl_sync(~0u, mine[m], (lane & ~3) | (j & 3));
    if (old)
#pragma unroll
      for (int n = 0; n < OLD_TILES; n++) {
        const int i = 4 * n + t;
        const float factor = i > j && i < pending ? shared.gram[OLD + i][column] * shared.old_beta[i] : 0.f;
#pragma unroll
        for (int m = 0; m < 2; m++) old_u[n][m] = fmaf(-factor, seen[m], old_u[n][m]);
      }
#pragma unroll
    for (int n = 0; n < NEW_TILES; n++) {
      const int i = 4 * n + t;
      const float factor = i < ROWS && (old || i > j) ? shared.gram[2 * i][column] * shared.beta[i] : 0.f;
      const float weight = i < ROWS && (old || i >= j) ? shared.gram[2 * i + 1][column] : 0.f;
#pragma unroll
      for (int m = 0; m < 2; m++) {
        u[n][m] = fmaf(-factor, seen[m], u[n][m]);
        o[n][m] = fmaf(weight, seen[m], o[n][m]);
      }
    }
  }
  __device__ __forceinline__ void solve(const Shared& shared, const Sums* sums, int pending, int warp, int lane) {
    const int g = lane / 4, t = lane % 4, column = 16 * warp + 2 * g;
#pragma unroll
    for (int n = 0; n < OLD_TILES; n++) {
      const int i = 4 * n + t;
      const bool real = i < pending;
      const float fade = real ? __expf(shared.old_since[i]) : 0.f, beta = real ? shared.old_beta[i] : 0.f;
#pragma unroll
      for (int m = 0; m < 2; m++)
        old_u[n][m] = real ? beta * (shared.old_v[i][column + m] - fade * sums[NEW_TILES].of(2 * m + n)) : 0.f;
    }
#pragma unroll
    for (int n = 0; n < NEW_TILES; n++) {
      const int i = 4 * n + t;
      const bool real = i < ROWS;
      const float fade = real ? __expf(shared.since[i]) : 0.f, beta = real ? shared.beta[i] : 0.f;
#pragma unroll
      for (int m = 0; m < 2; m++) {
        u[n][m] = real ? beta * (shared.v[i][column + m] - fade * sums[n].of(2 * m)) : 0.f;
        o[n][m] = real ? fade * sums[n].of(2 * m + 1) : 0.f;
      }
    }
#pragma unroll
    for (int j = 0; j < WINDOW; j++) if (j < pending) apply(shared, old_u[j / 4], j, true, pending, lane);
#pragma unroll
    for (int j = 0; j < ROWS; j++) apply(shared, u[j / 4], j, false, pending, lane);
  }
  // The committed rows into the state.
  __device__ __forceinline__ void commit(Shared& shared, int pending, int warp, int lane) const {
    constexpr int GROUPS = OLD_TILES + (STASH ? 0 : NEW_TILES);
    const int t = lane % 4;
    const float end = STASH ? shared.old_since[pending - 1] : shared.since[ROWS - 1];
    float corrections[GROUPS + 1][2]; int rows[GROUPS + 1]; bool valid[GROUPS + 1];
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
      const bool old = n < OLD_TILES;
      const int i = 4 * (old ? n : n - OLD_TILES) + t;
      valid[n] = old ? i < pending : i < ROWS;
      rows[n] = valid[n] ? (old ? OLD + i : 2 * i) : 0;
      const float fade = valid[n] ? __expf(end - (old ? shared.old_since[i] : shared.since[i])) : 0.f;
#pragma unroll
      for (int m = 0; m < 2; m++)
        corrections[n][m] = fade * (old ? old_u[n < OLD_TILES ? n : 0][m] : u[n < OLD_TILES ? 0 : n - OLD_TILES][m]);
    }
    update_state<GROUPS>(shared, corrections, rows, valid, __expf(end), warp, lane);
  }
};

extern "C" __global__ __launch_bounds__(WARPS * 32, BLOCKS) void gated_delta_decode_batch(
    const bfloat16* projected, int stride, int inputs_at, int gate_at, int a_at, int b_at, const float* taps,
    const float* negative_a, const float* dt_bias, const float* norm, float epsilon, float* recurrent,
    bfloat16* convolution, bfloat16* stash_inputs, float* stash_log_decay, float* stash_beta, const int* slots,
    const int* all_pending, const int* parity, int slot_count, bfloat16* out) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *(Shared*)memory;
  const int head = blockIdx.x, sequence = blockIdx.y, key_head = head / (VALUE_HEADS / KEY_HEADS);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, column = 16 * warp + 2 * g;
  const int slot = load_kept_4(slots + sequence);
  float* state = recurrent + ((size_t)slot * VALUE_HEADS + head) * DIM * DIM;
  const uint32_t barrier = shared_address(&shared.barrier);
  if (threadIdx.x == 0) {
    barrier_init(barrier); barrier_init_done();
    barrier_expect(barrier, DIM * DIM * 4);
    for (int i = 0; i < 4; i++)
      copy_bulk(shared_address(shared.state + i * QUARTER), state + i * 32 * DIM, 32 * DIM * 4, barrier);
  }
  const int pending = WINDOW ? min((int)load_kept_4(all_pending + slot), WINDOW) : 0;
  const int side = load_kept_4(parity + slot) & 1;
  release_dependents();

  const size_t read_at = (size_t)side * slot_count + slot, write_at = (size_t)(1 - side) * slot_count + slot;
  const bfloat16* rows_in = projected + (size_t)sequence * ROWS * stride;
  const Times times = {convolution + read_at * 3 * CONV_DIM, stash_inputs + read_at * WINDOW * CONV_DIM,
                       rows_in + inputs_at, (size_t)stride, pending};
  const int query_channel = key_head * DIM + lane * 4, key_channel = KEY_HEADS * DIM + query_channel;
  const int value_channel = 2 * KEY_HEADS * DIM + head * DIM + lane * 4;
  const Kind kind = warp < 4 ? (Kind)(warp & 1) : QUERY;
  const int channel = kind == KEY ? key_channel : kind == VALUE ? value_channel : query_channel;
  if (warp < 2) {
    if (WINDOW && pending) {
      Part<ROOM> part = {kind, channel, lane};
      part.taps.load(taps, channel);
      part.load(times, 0, pending);
      part.run(shared.old_v, shared.vectors, OLD, 1);
    }
    wait_for_predecessors();
  } else if (warp < 5) {
    Part<ROWS> part = {kind, channel, lane};
    part.taps.load(taps, channel);
    wait_for_predecessors();
    part.load(times, pending, pending + ROWS);
    part.run(shared.v, shared.vectors, kind == QUERY, 2);
    // One of a key head's value heads keeps the key head's inputs for the next window.
    if (kind == VALUE || head % (VALUE_HEADS / KEY_HEADS) == 0) {
      part.template keep<3>(convolution + write_at * 3 * CONV_DIM, STASH ? 0 : ROWS);
      if (STASH) part.template keep<ROWS>(stash_inputs + write_at * WINDOW * CONV_DIM, 3);
    }
  } else if (warp == 5) {
    Gate gate = {0.f, 0.f};
    if (lane < pending) {
      const size_t at = (read_at * WINDOW + lane) * VALUE_HEADS + head;
      gate.log_decay = stash_log_decay[at]; gate.beta = stash_beta[at];
    }
    const float my_negative_a = negative_a[head], my_dt_bias = dt_bias[head];
    wait_for_predecessors();
    const int row = lane - pending;
    if (row >= 0 && row < ROWS) {
      const bfloat16* line = rows_in + (size_t)row * stride;
      const float a = widen(load_fresh_2(line + a_at + head)), b = widen(load_fresh_2(line + b_at + head));
      gate = gate_of(a, b, my_negative_a, my_dt_bias);
      if (STASH) {
        const size_t at = (write_at * WINDOW + row) * VALUE_HEADS + head;
        stash_log_decay[at] = gate.log_decay; stash_beta[at] = gate.beta;
      }
    }
    float since = gate.log_decay;
#pragma unroll
    for (int o = 1; o < 16; o <<= 1) {
      const float before = __shfl_up_sync(~0u, since, o);
      if (lane >= o) since += before;
    }
    if (row < 0) { shared.old_since[lane] = since; shared.old_beta[lane] = gate.beta; }
    else if (row < ROWS) { shared.since[row] = since; shared.beta[row] = gate.beta; }
  } else {
    wait_for_predecessors();
  }
  Inputs<2> z[NEW_TILES];
#pragma unroll
  for (int n = 0; n < NEW_TILES; n++) if (4 * n + t < ROWS)
    z[n].load(rows_in + (size_t)(4 * n + t) * stride + gate_at + head * DIM + column);
  const float2 weight = *(const float2*)(norm + column);
  __syncthreads();

  if (warp == 0) make_gram(shared, 0, false, pending, lane);
  if (WINDOW && pending) {
    if (warp == 1) make_gram(shared, 0, true, pending, lane);
    if (NEW_TILES > 1 && warp == 2) make_gram(shared, OLD, true, pending, lane);
  }
  barrier_wait(barrier, 0);
  Sums sums[NEW_TILES + 1];
  read_state(shared, sums, warp, lane);
  __syncthreads();
  Solution solution;
  solution.solve(shared, sums, pending, warp, lane);
#pragma unroll
  for (int n = 0; n < NEW_TILES; n++) {
    float* o = solution.o[n];
    float square = o[0] * o[0] + o[1] * o[1];
#pragma unroll
    for (int o = 4; o < 32; o <<= 1) square += __shfl_xor_sync(~0u, square, o);
    if (g == 0 && 4 * n + t < ROWS) shared.squares[warp][4 * n + t] = square;
    o[0] *= weight.x * quick_silu(z[n].at(0)); o[1] *= weight.y * quick_silu(z[n].at(1));
  }
  const bool moves = !STASH || pending;
  if (moves) { solution.commit(shared, pending, warp, lane); fence_async_proxy(); }
  __syncthreads();
  if (moves && threadIdx.x == 0)
    for (int i = 0; i < 4; i++)
      copy_bulk_back(state + i * 32 * DIM, shared_address(shared.state + i * QUARTER), 32 * DIM * 4);
#pragma unroll
  for (int n = 0; n < NEW_TILES; n++) {
    const int row = 4 * n + t;
    if (row < ROWS) {
      float square = 0.f;
#pragma unroll
      for (int w = 0; w < WARPS; w++) square += shared.squares[w][row];
      const float factor = rsqrtf(square * (1.f / DIM) + epsilon);
      *(uint32_t*)(out + ((size_t)sequence * ROWS + row) * VALUE_HEADS * DIM + head * DIM + column) =
          pack_pair(solution.o[n][0] * factor, solution.o[n][1] * factor);
    }
  }
  if (moves && threadIdx.x == 0) finish_copies_back();
}
