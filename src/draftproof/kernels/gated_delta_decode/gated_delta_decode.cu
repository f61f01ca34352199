// One Gated DeltaNet layer's work on a window of ROWS rows: convolution, SiLU, normalised queries and keys, gates,
// replay of the pending rows, recurrence, gated norm. Heads are 128 wide, the convolution has 4 taps.
//
// A cluster of SPLIT blocks works on a value head of a sequence, each on a part of its value columns; the parts meet
// once, in the norm. A thread keeps GROUPS groups of 4 key rows x VEC value columns of the state in registers: key rows
// 4 * slice + 4 * SLICES * j + 0..3, so that lanes read consecutive 16 bytes of a key in shared memory.
//
// Pending rows are replayed one by one before the wait for the predecessor: all they need was written in earlier
// steps, and a step begins with a full dependency. The new rows then only read the state: their corrections solve a
// unit lower triangular system of ROWS unknowns.
//
// Defined from outside: KEY_HEADS, VALUE_HEADS, ROWS, WINDOW (room of the stash), STASH (else the new rows are
// certain and enter the state), SPLIT, SLICES, VEC, BLOCKS (resident blocks to compile for).
#define DIM 128
#define COLUMNS (DIM / SPLIT)                  // value columns of a block
#define WARP_COLUMNS (VEC * 32 / SLICES)       // value columns of a warp
#define WARPS (COLUMNS / WARP_COLUMNS)
#define GROUPS (DIM / SLICES / 4)
#define CHANNELS (COLUMNS / 32)                // value channels of a lane in the convolution
#define KEY_UNITS ((2 * ROWS + WARPS - 1) / WARPS)
#define VALUE_UNITS ((ROWS + WARPS - 1) / WARPS)
#define OUT_ROWS ((ROWS + SLICES - 1) / SLICES)  // rows whose outputs a lane writes
#define TAILS ((2 + WARPS) / WARPS)
#define ROOM (WINDOW > 0 ? WINDOW : 1)
#include "gated_delta.cuh"

// The part of the state that a thread keeps, and where its value columns stand in its block's.
struct Tile {
  float s[GROUPS][4][VEC];
  int slice, column;

  __device__ __forceinline__ int row(int group) const { return 4 * slice + 4 * SLICES * group; }
  __device__ __forceinline__ void load(const float* state) {
#pragma unroll
    for (int n = 0; n < GROUPS * 4; n++) {
      const float* address = state + (row(n / 4) + n % 4) * DIM + column;
      float* to = s[n / 4][n % 4];
      if constexpr (VEC == 4) {
        const float4 v = load_state_16(address);
        to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
      } else {
        const float2 v = load_state_8(address);
        to[0] = v.x; to[1] = v.y;
      }
    }
  }
  __device__ __forceinline__ void store(float* state) const {
#pragma unroll
    for (int n = 0; n < GROUPS * 4; n++) put<VEC>(state + (row(n / 4) + n % 4) * DIM + column, s[n / 4][n % 4]);
  }
  // sum[e] = sum over this thread's key rows of state * x
  __device__ __forceinline__ void read(const float* x, float* sum) const {
#pragma unroll
    for (int e = 0; e < VEC; e++) sum[e] = 0.f;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      const float4 v = *(const float4*)(x + row(g));
#pragma unroll
      for (int e = 0; e < VEC; e++) {
        sum[e] = fmaf(s[g][0][e], v.x, sum[e]); sum[e] = fmaf(s[g][1][e], v.y, sum[e]);
        sum[e] = fmaf(s[g][2][e], v.z, sum[e]); sum[e] = fmaf(s[g][3][e], v.w, sum[e]);
      }
    }
  }
  // state = state * decay + x (outer) correction
  __device__ __forceinline__ void update(const float* x, float decay, const float* correction) {
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      const float4 v = *(const float4*)(x + row(g));
#pragma unroll
      for (int e = 0; e < VEC; e++) {
        const float c = correction[e];
        s[g][0][e] = fmaf(v.x, c, s[g][0][e] * decay); s[g][1][e] = fmaf(v.y, c, s[g][1][e] * decay);
        s[g][2][e] = fmaf(v.z, c, s[g][2][e] * decay); s[g][3][e] = fmaf(v.w, c, s[g][3][e] * decay);
      }
    }
  }
};

// Over the lanes that hold the same columns.
__device__ __forceinline__ float sum_of_slices(float value) {
#pragma unroll
  for (int o = 32 / SLICES; o < 32; o <<= 1) value += __shfl_xor_sync(~0u, value, o);
  return value;
}

// A cluster's blocks meet: nobody waits at the arrival.
__device__ __forceinline__ void arrive_at_cluster() {
  if constexpr (SPLIT > 1) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  if constexpr (SPLIT > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  else __syncthreads();
}
// To the same place of a block of this cluster.
__device__ __forceinline__ void store_in_block(float* address, int block, float value) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(address)), "r"(block));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
}

struct Shared {
  float q[ROWS][DIM], k[ROWS][DIM], v[ROWS][COLUMNS];
  float old_k[ROOM][DIM], old_v[ROOM][COLUMNS];
  float decay[ROWS], beta[ROWS], old_decay[ROOM], old_beta[ROOM];
  float pairs[ROWS][ROWS];  // [i][j]: q_i . k_j for j <= i, k_i . k_j for j > i, times the decay between them
  float squares[SPLIT * WARPS][ROWS];
};

// Where this lane's inputs stand in a column of them, and which of them its block keeps for the next window.
struct Channels {
  int query, key, value;
  bool keeps_keys;  // one block of a key head's value heads
};

// Replay the pending rows into the tile; the block's threads all come here.
__device__ __forceinline__ void replay(Shared& shared, Tile& tile, const Times& times, const float* weights,
                                       const Channels& at, int warp, int lane) {
  for (int i = warp; i < times.pending; i += WARPS) {
    Inputs<4> x[4]; Inputs<CHANNELS> xv[4];
    Taps<4> taps; Taps<CHANNELS> value_taps;
    float y[4];
#pragma unroll
    for (int j = 0; j < 4; j++) { x[j].load(times.at(i + j - 3) + at.key); xv[j].load(times.at(i + j - 3) + at.value); }
    taps.load(weights, at.key); value_taps.load(weights, at.value);
    taps.apply(x, y); normalise(y, 1.f); put<4>(shared.old_k[i] + lane * 4, y);
    value_taps.apply(xv, y); put<CHANNELS>(shared.old_v[i] + lane * CHANNELS, y);
  }
  __syncthreads();
  for (int i = 0; i < times.pending; i++) {
    float c[VEC];
    tile.read(shared.old_k[i], c);
#pragma unroll
    for (int e = 0; e < VEC; e++)
      c[e] = (shared.old_v[i][tile.column + e] - shared.old_decay[i] * sum_of_slices(c[e])) * shared.old_beta[i];
    tile.update(shared.old_k[i], shared.old_decay[i], c);
  }
}

// What a warp convolves of the new rows: UNITS units, of which PER_ROW make a row.
template <int N, int UNITS, int PER_ROW>
struct Units {
  Inputs<N> x[UNITS][4];
  Taps<N> taps;
  int channel, warp;

  __device__ __forceinline__ int row(int n) const { return (n * WARPS + warp) / PER_ROW; }
  // The inputs that were there before this step, or the others.
  template <bool OLD>
  __device__ __forceinline__ void load(const Times& times) {
#pragma unroll
    for (int n = 0; n < UNITS; n++) if (row(n) < ROWS)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int time = times.pending + row(n) + j - 3;
        if (times.is_old(time) == OLD) x[n][j].load(times.at(time) + channel);
      }
  }
  __device__ __forceinline__ void keep(bfloat16* stash) const {
#pragma unroll
    for (int n = 0; n < UNITS; n++) if (row(n) < ROWS) x[n][3].store(stash + row(n) * CONV_DIM + channel);
  }
};

// The last committed inputs, for the next window: a warp keeps every WARPS-th of the three times.
struct Tail {
  Inputs<CHANNELS> value[TAILS];
  Inputs<4> key[TAILS], query[TAILS];

  __device__ __forceinline__ void load(const Times& times, int end, const Channels& at, int warp) {
#pragma unroll
    for (int n = 0; n < TAILS; n++) if (n * WARPS + warp < 3) {
      const bfloat16* from = times.at(end - 3 + n * WARPS + warp);
      value[n].load(from + at.value);
      if (at.keeps_keys) { key[n].load(from + at.key); query[n].load(from + at.query); }
    }
  }
  __device__ __forceinline__ void store(bfloat16* kept, const Channels& at, int warp) const {
#pragma unroll
    for (int n = 0; n < TAILS; n++) if (n * WARPS + warp < 3) {
      bfloat16* to = kept + (n * WARPS + warp) * CONV_DIM;
      value[n].store(to + at.value);
      if (at.keeps_keys) { key[n].store(to + at.key); query[n].store(to + at.query); }
    }
  }
};

// A thread's columns of what the new rows' keys (c) and queries (r) read from the state; then c holds the corrections
// and r the outputs before the norm.
struct Rows {
  float c[ROWS][VEC], r[ROWS][VEC];

  __device__ __forceinline__ void read(const Shared& shared, const Tile& tile) {
#pragma unroll
    for (int i = 0; i < ROWS; i++) { tile.read(shared.k[i], c[i]); tile.read(shared.q[i], r[i]); }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int e = 0; e < VEC; e++) { c[i][e] = sum_of_slices(c[i][e]); r[i][e] = sum_of_slices(r[i][e]); }
  }
  __device__ __forceinline__ void solve(const Shared& shared, int column) {
    float decay = 1.f;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      decay *= shared.decay[i];
      const float beta = shared.beta[i];
#pragma unroll
      for (int e = 0; e < VEC; e++) {
        float seen = decay * c[i][e], given = decay * r[i][e];
#pragma unroll
        for (int j = 0; j < i; j++) {
          seen = fmaf(shared.pairs[j][i], c[j][e], seen);
          given = fmaf(shared.pairs[i][j], c[j][e], given);
        }
        c[i][e] = (shared.v[i][column + e] - seen) * beta;
        r[i][e] = fmaf(shared.pairs[i][i], c[i][e], given);
      }
    }
  }
  // This warp's sums of squared outputs to all blocks of the cluster.
  __device__ __forceinline__ void share_squares(Shared& shared, int block, int warp, int lane) const {
    float squares[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      squares[i] = 0.f;
#pragma unroll
      for (int e = 0; e < VEC; e++) squares[i] = fmaf(r[i][e], r[i][e], squares[i]);
#pragma unroll
      for (int o = 1; o < 32 / SLICES; o <<= 1) squares[i] += __shfl_xor_sync(~0u, squares[i], o);
    }
    if constexpr (SPLIT > 1) wait_for_cluster();
    if (lane < SPLIT)
#pragma unroll
      for (int i = 0; i < ROWS; i++) {
        if constexpr (SPLIT == 1) shared.squares[warp][i] = squares[i];
        else store_in_block(&shared.squares[block * WARPS + warp][i], lane, squares[i]);
      }
    arrive_at_cluster();
  }
  // The outputs of row n * SLICES + slice, which this lane writes; zeros when there is none.
  __device__ __forceinline__ void select(int n, int slice, float* o) const {
#pragma unroll
    for (int e = 0; e < VEC; e++) {
      o[e] = 0.f;
#pragma unroll
      for (int i = n * SLICES; i < ROWS && i < (n + 1) * SLICES; i++) o[e] = i == n * SLICES + slice ? r[i][e] : o[e];
    }
  }
  // All rows into the state.
  __device__ __forceinline__ void commit(const Shared& shared, Tile& tile) {
    float fade = 1.f;
#pragma unroll
    for (int i = ROWS - 1; i >= 0; i--) {
#pragma unroll
      for (int e = 0; e < VEC; e++) c[i][e] *= fade;
      fade *= shared.decay[i];
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) tile.update(shared.k[i], i == 0 ? fade : 1.f, c[i]);
  }
};

extern "C" __global__ __launch_bounds__(WARPS * 32, BLOCKS)
#if SPLIT > 1
__cluster_dims__(SPLIT, 1, 1)
#endif
void gated_delta_decode(
    const bfloat16* projected, int stride, int inputs_at, int gate_at, int a_at, int b_at, const float* weights,
    const float* negative_a, const float* dt_bias, const float* norm, float epsilon, float* recurrent,
    bfloat16* convolution, bfloat16* stash_inputs, float* stash_log_decay, float* stash_beta, const int* slots,
    const int* all_pending, const int* parity, int slot_count, bfloat16* out) {
  __shared__ __align__(16) Shared shared;
  const int head = blockIdx.x / SPLIT, block = blockIdx.x % SPLIT, sequence = blockIdx.y;
  const int key_head = head / (VALUE_HEADS / KEY_HEADS), first_column = head * DIM + block * COLUMNS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  arrive_at_cluster();  // this block runs: others may store into its shared memory
  const int slot = load_kept_4(slots + sequence);
  // Weights need no slot: they are asked for while it comes.
  const int query_channel = key_head * DIM + lane * 4;
  const Channels at = {query_channel, KEY_HEADS * DIM + query_channel,
                       2 * KEY_HEADS * DIM + first_column + lane * CHANNELS,
                       head % (VALUE_HEADS / KEY_HEADS) == 0 && block == 0};
  // Queries and keys: a warp makes whole rows, always of the same kind.
  const bool is_key = warp & 1;
  Units<4, KEY_UNITS, 2> keys; Units<CHANNELS, VALUE_UNITS, 1> values;
  keys.warp = values.warp = warp;
  keys.channel = is_key ? at.key : at.query; values.channel = at.value;
  keys.taps.load(weights, keys.channel); values.taps.load(weights, values.channel);
  Tile tile;
  tile.slice = lane / (32 / SLICES); tile.column = warp * WARP_COLUMNS + lane % (32 / SLICES) * VEC;
  float norm_weight[VEC];
#pragma unroll
  for (int e = 0; e < VEC; e++) norm_weight[e] = norm[block * COLUMNS + tile.column + e];
  const float my_negative_a = negative_a[head], my_dt_bias = dt_bias[head];
  float* state = recurrent + ((size_t)slot * VALUE_HEADS + head) * DIM * DIM + block * COLUMNS;
  tile.load(state);
  const int pending = WINDOW ? min((int)load_kept_4(all_pending + slot), WINDOW) : 0;
  const int side = load_kept_4(parity + slot) & 1;
  release_dependents();

  const size_t read_at = (size_t)side * slot_count + slot, write_at = (size_t)(1 - side) * slot_count + slot;
  const bfloat16* rows_in = projected + (size_t)sequence * ROWS * stride;
  const Times times = {convolution + read_at * 3 * CONV_DIM, stash_inputs + read_at * WINDOW * CONV_DIM,
                       rows_in + inputs_at, (size_t)stride, pending};
  bfloat16* kept = convolution + write_at * 3 * CONV_DIM;
  bfloat16* stash = stash_inputs + write_at * WINDOW * CONV_DIM;
  if (WINDOW && pending) {
    if ((int)threadIdx.x < pending) {
      const size_t gates_at = (read_at * WINDOW + threadIdx.x) * VALUE_HEADS + head;
      shared.old_decay[threadIdx.x] = __expf(stash_log_decay[gates_at]);
      shared.old_beta[threadIdx.x] = stash_beta[gates_at];
    }
    replay(shared, tile, times, weights, at, warp, lane);
    if (STASH) tile.store(state);
  }

  // Old inputs now, new ones after the wait.
  Tail tail;
  keys.load<true>(times); values.load<true>(times);
  if (STASH) tail.load(times, pending, at, warp);
  wait_for_predecessors();

  keys.load<false>(times); values.load<false>(times);
  Inputs<VEC> z[OUT_ROWS];  // gates of the rows whose outputs this lane will write
#pragma unroll
  for (int n = 0; n < OUT_ROWS; n++) if (n * SLICES + tile.slice < ROWS)
    z[n].load(rows_in + (size_t)(n * SLICES + tile.slice) * stride + gate_at + first_column + tile.column);
  if (!STASH) tail.load(times, pending + ROWS, at, warp);
  if (warp == WARPS - 1 && lane < ROWS) {
    const bfloat16* row = rows_in + (size_t)lane * stride;
    const float a = widen(load_fresh_2(row + a_at + head)), b = widen(load_fresh_2(row + b_at + head));
    const Gate gate = gate_of(a, b, my_negative_a, my_dt_bias);
    shared.decay[lane] = __expf(gate.log_decay); shared.beta[lane] = gate.beta;
    if (STASH && block == 0) {
      const size_t gates_at = (write_at * WINDOW + lane) * VALUE_HEADS + head;
      stash_log_decay[gates_at] = gate.log_decay; stash_beta[gates_at] = gate.beta;
    }
  }
#pragma unroll
  for (int n = 0; n < KEY_UNITS; n++) if (keys.row(n) < ROWS) {
    float y[4];
    keys.taps.apply(keys.x[n], y); normalise(y, is_key ? 1.f : QUERY_SCALE);
    put<4>((is_key ? shared.k[keys.row(n)] : shared.q[keys.row(n)]) + lane * 4, y);
  }
#pragma unroll
  for (int n = 0; n < VALUE_UNITS; n++) if (values.row(n) < ROWS) {
    float y[4];
    values.taps.apply(values.x[n], y);
    put<CHANNELS>(shared.v[values.row(n)] + lane * CHANNELS, y);
  }
  __syncthreads();

  make_pairs(shared.pairs, shared.q, shared.k, shared.decay, warp, lane);
  Rows rows;
  rows.read(shared, tile);
  __syncthreads();
  rows.solve(shared, tile.column);
  rows.share_squares(shared, block, warp, lane);
  float o[OUT_ROWS][VEC];
#pragma unroll
  for (int n = 0; n < OUT_ROWS; n++) {
    rows.select(n, tile.slice, o[n]);
#pragma unroll
    for (int e = 0; e < VEC; e++) o[n][e] *= norm_weight[e] * quick_silu(z[n].at(e));
  }
  tail.store(kept, at, warp);
  if (STASH) {
    if (at.keeps_keys) keys.keep(stash);
    values.keep(stash);
  } else {
    rows.commit(shared, tile);
    tile.store(state);
  }
  wait_for_cluster();
#pragma unroll
  for (int n = 0; n < OUT_ROWS; n++) {
    const int row = n * SLICES + tile.slice;
    if (row < ROWS) {
      float square = 0.f;
#pragma unroll
      for (int m = 0; m < SPLIT * WARPS; m++) square += shared.squares[m][row];
      const float factor = rsqrtf(square * (1.f / DIM) + epsilon);
      Inputs<VEC> rounded;
#pragma unroll
      for (int e = 0; e < VEC; e += 2) rounded.pair[e / 2] = pack_pair(o[n][e] * factor, o[n][e + 1] * factor);
      rounded.store(out + ((size_t)sequence * ROWS + row) * VALUE_HEADS * DIM + first_column + tile.column);
    }
  }
}
