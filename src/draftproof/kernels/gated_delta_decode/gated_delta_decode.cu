// One Gated DeltaNet layer's work on a window of ROWS rows: convolution, SiLU, normalised queries and keys, gates,
// replay of the pending rows, recurrence, gated norm. Heads are 128 wide, the convolution has 4 taps.
//
// A cluster of SPLIT blocks works on a value head of a sequence, each on a part of its value columns; the parts meet
// once, in the norm. A thread keeps KJ groups of 4 key rows x VEC value columns of the state in registers: key rows
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
#define KJ (DIM / SLICES / 4)
#define CHANNELS (COLUMNS / 32)                // value channels of a lane in the convolution
#define KEY_UNITS ((2 * ROWS + WARPS - 1) / WARPS)
#define VALUE_UNITS ((ROWS + WARPS - 1) / WARPS)
#define OUT_ROWS ((ROWS + SLICES - 1) / SLICES)  // rows whose outputs a lane writes
#define ROOM (WINDOW > 0 ? WINDOW : 1)
#include "gated_delta.cuh"

// The part of the state that a thread keeps.
struct Tile {
  float s[KJ * 4][VEC];
  __device__ __forceinline__ static int row(int slice, int j) { return 4 * slice + 4 * SLICES * (j >> 2) + (j & 3); }
  __device__ __forceinline__ void load(const float* base, int slice) {
#pragma unroll
    for (int j = 0; j < KJ * 4; j++) {
      if constexpr (VEC == 4) { const float4 v = load_state_16(base + row(slice, j) * DIM); s[j][0] = v.x; s[j][1] = v.y; s[j][2] = v.z; s[j][3] = v.w; }
      else { const float2 v = load_state_8(base + row(slice, j) * DIM); s[j][0] = v.x; s[j][1] = v.y; }
    }
  }
  __device__ __forceinline__ void store(float* base, int slice) const {
#pragma unroll
    for (int j = 0; j < KJ * 4; j++) put<VEC>(base + row(slice, j) * DIM, s[j]);
  }
  // out[c] += sum over this thread's key rows of s * x
  __device__ __forceinline__ void read(const float* x, int slice, float* out) const {
#pragma unroll
    for (int g = 0; g < KJ; g++) {
      const float4 v = *(const float4*)(x + 4 * slice + 4 * SLICES * g);
#pragma unroll
      for (int c = 0; c < VEC; c++) {
        out[c] = fmaf(s[4 * g][c], v.x, out[c]); out[c] = fmaf(s[4 * g + 1][c], v.y, out[c]);
        out[c] = fmaf(s[4 * g + 2][c], v.z, out[c]); out[c] = fmaf(s[4 * g + 3][c], v.w, out[c]);
      }
    }
  }
  // s = s * decay + x (outer) correction
  __device__ __forceinline__ void update(const float* x, int slice, float decay, const float* correction) {
#pragma unroll
    for (int g = 0; g < KJ; g++) {
      const float4 v = *(const float4*)(x + 4 * slice + 4 * SLICES * g);
#pragma unroll
      for (int c = 0; c < VEC; c++) {
        s[4 * g][c] = fmaf(v.x, correction[c], s[4 * g][c] * decay); s[4 * g + 1][c] = fmaf(v.y, correction[c], s[4 * g + 1][c] * decay);
        s[4 * g + 2][c] = fmaf(v.z, correction[c], s[4 * g + 2][c] * decay); s[4 * g + 3][c] = fmaf(v.w, correction[c], s[4 * g + 3][c] * decay);
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

// Replay the pending rows into the tile; the block's threads all come here.
__device__ __forceinline__ void replay(Shared& shared, Tile& tile, const Times& times, const float* taps, int key_channel,
                                       int value_channel, int pending, int warp, int lane) {
  for (int i = warp; i < pending; i += WARPS) {
    Inputs<4> x[4]; Inputs<CHANNELS> xv[4]; Taps<4> w; Taps<CHANNELS> wv; float y[4];
#pragma unroll
    for (int j = 0; j < 4; j++) { x[j].load(times.at(i + j - 3) + key_channel); xv[j].load(times.at(i + j - 3) + value_channel); }
    w.load(taps, key_channel); wv.load(taps, value_channel);
    w.apply(x, y); normalise(y, 1.f); put<4>(shared.old_k[i] + lane * 4, y);
    wv.apply(xv, y); put<CHANNELS>(shared.old_v[i] + lane * CHANNELS, y);
  }
  __syncthreads();
  const int slice = lane / (32 / SLICES), column = warp * WARP_COLUMNS + lane % (32 / SLICES) * VEC;
  for (int i = 0; i < pending; i++) {
    float c[VEC];
#pragma unroll
    for (int e = 0; e < VEC; e++) c[e] = 0.f;
    tile.read(shared.old_k[i], slice, c);
#pragma unroll
    for (int e = 0; e < VEC; e++)
      c[e] = (shared.old_v[i][column + e] - shared.old_decay[i] * sum_of_slices(c[e])) * shared.old_beta[i];
    tile.update(shared.old_k[i], slice, shared.old_decay[i], c);
  }
}

extern "C" __global__ __launch_bounds__(WARPS * 32, BLOCKS)
#if SPLIT > 1
__cluster_dims__(SPLIT, 1, 1)
#endif
void gated_delta_decode(
    const bfloat16* projected, int stride, int inputs_at, int gate_at, int a_at, int b_at, const float* taps,
    const float* negative_a, const float* dt_bias, const float* norm, float epsilon, float* recurrent,
    bfloat16* convolution, bfloat16* stash_inputs, float* stash_log_decay, float* stash_beta, const int* slots,
    const int* all_pending, const int* parity, int slot_count, bfloat16* out) {
  __shared__ __align__(16) Shared shared;
  const int head = blockIdx.x / SPLIT, block = blockIdx.x % SPLIT, sequence = blockIdx.y;
  const int key_head = head / (VALUE_HEADS / KEY_HEADS);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int slice = lane / (32 / SLICES), column = warp * WARP_COLUMNS + lane % (32 / SLICES) * VEC;
  arrive_at_cluster();  // this block runs: others may store into its shared memory
  const int slot = load_fresh_4(slots + sequence);
  float* state = recurrent + ((size_t)slot * VALUE_HEADS + head) * DIM * DIM + block * COLUMNS + column;
  Tile tile;
  tile.load(state, slice);
  const int pending = WINDOW ? min((int)load_fresh_4(all_pending + slot), WINDOW) : 0;
  const int side = load_fresh_4(parity + slot) & 1;
  release_dependents();

  const size_t read_at = (size_t)side * slot_count + slot, write_at = (size_t)(1 - side) * slot_count + slot;
  const bfloat16* rows_in = projected + (size_t)sequence * ROWS * stride;
  const Times times = {convolution + read_at * 3 * CONV_DIM, stash_inputs + read_at * WINDOW * CONV_DIM, rows_in + inputs_at,
                       (size_t)stride, pending};
  const int query_channel = key_head * DIM + lane * 4, key_channel = KEY_HEADS * DIM + query_channel;
  const int value_channel = 2 * KEY_HEADS * DIM + head * DIM + block * COLUMNS + lane * CHANNELS;
  // One block of a key head's value heads keeps the key head's inputs for the next window.
  const bool keeps_keys = head % (VALUE_HEADS / KEY_HEADS) == 0 && block == 0;
  if (WINDOW && pending) {
    if ((int)threadIdx.x < pending) {
      const size_t at = (read_at * WINDOW + threadIdx.x) * VALUE_HEADS + head;
      shared.old_decay[threadIdx.x] = __expf(stash_log_decay[at]);
      shared.old_beta[threadIdx.x] = stash_beta[at];
    }
    replay(shared, tile, times, taps, key_channel, value_channel, pending, warp, lane);
    if (STASH) tile.store(state, slice);
  }

  // Queries and keys: a warp makes whole rows, always of the same kind. Old inputs first, new ones after the wait.
  const bool is_key = warp & 1;
  const int my_channel = is_key ? key_channel : query_channel;
  Inputs<4> x[KEY_UNITS][4]; Inputs<CHANNELS> xv[VALUE_UNITS][4];
  Taps<4> w; Taps<CHANNELS> wv;
#pragma unroll
  for (int n = 0; n < KEY_UNITS; n++)
#pragma unroll
    for (int j = 0; j < 3; j++) { const int time = pending + (n * WARPS + warp) / 2 + j - 3; if (times.is_old(time)) x[n][j].load(times.at(time) + my_channel); }
#pragma unroll
  for (int n = 0; n < VALUE_UNITS; n++)
#pragma unroll
    for (int j = 0; j < 3; j++) { const int time = pending + n * WARPS + warp + j - 3; if (times.is_old(time)) xv[n][j].load(times.at(time) + value_channel); }
  w.load(taps, my_channel); wv.load(taps, value_channel);
  float weight[VEC];
#pragma unroll
  for (int e = 0; e < VEC; e++) weight[e] = norm[block * COLUMNS + column + e];
  const float my_negative_a = negative_a[head], my_dt_bias = dt_bias[head];
  wait_for_predecessors();

#pragma unroll
  for (int n = 0; n < KEY_UNITS; n++) if ((n * WARPS + warp) / 2 < ROWS)
#pragma unroll
    for (int j = 0; j < 4; j++) { const int time = pending + (n * WARPS + warp) / 2 + j - 3; if (!times.is_old(time)) x[n][j].load(times.at(time) + my_channel); }
#pragma unroll
  for (int n = 0; n < VALUE_UNITS; n++) if (n * WARPS + warp < ROWS)
#pragma unroll
    for (int j = 0; j < 4; j++) { const int time = pending + n * WARPS + warp + j - 3; if (!times.is_old(time)) xv[n][j].load(times.at(time) + value_channel); }
  // The gates of the rows whose outputs this lane will write.
  Inputs<VEC> z[OUT_ROWS];
#pragma unroll
  for (int n = 0; n < OUT_ROWS; n++) if (n * SLICES + slice < ROWS)
    z[n].load(rows_in + (size_t)(n * SLICES + slice) * stride + gate_at + head * DIM + block * COLUMNS + column);
  if (warp == WARPS - 1 && lane < ROWS) {
    const bfloat16* row = rows_in + (size_t)lane * stride;
    const Gate gate = gate_of(widen(load_fresh_2(row + a_at + head)), widen(load_fresh_2(row + b_at + head)), my_negative_a, my_dt_bias);
    shared.decay[lane] = __expf(gate.log_decay); shared.beta[lane] = gate.beta;
    if (STASH && block == 0) {
      const size_t at = (write_at * WINDOW + lane) * VALUE_HEADS + head;
      stash_log_decay[at] = gate.log_decay; stash_beta[at] = gate.beta;
    }
  }
#pragma unroll
  for (int n = 0; n < KEY_UNITS; n++) {
    const int row = (n * WARPS + warp) / 2;
    if (row < ROWS) {
      float y[4];
      w.apply(x[n], y); normalise(y, is_key ? 1.f : QUERY_SCALE);
      put<4>((is_key ? shared.k[row] : shared.q[row]) + lane * 4, y);
    }
  }
#pragma unroll
  for (int n = 0; n < VALUE_UNITS; n++) {
    const int row = n * WARPS + warp;
    if (row < ROWS) { float y[4]; wv.apply(xv[n], y); put<CHANNELS>(shared.v[row] + lane * CHANNELS, y); }
  }
  __syncthreads();

  float c[ROWS][VEC], r[ROWS][VEC];
  make_pairs(shared.pairs, shared.q, shared.k, shared.decay, warp, lane);
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
#pragma unroll
    for (int e = 0; e < VEC; e++) c[i][e] = r[i][e] = 0.f;
    tile.read(shared.k[i], slice, c[i]); tile.read(shared.q[i], slice, r[i]);
  }
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int e = 0; e < VEC; e++) { c[i][e] = sum_of_slices(c[i][e]); r[i][e] = sum_of_slices(r[i][e]); }
  __syncthreads();

  // c becomes the corrections, r the outputs.
  float decay = 1.f;
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    decay *= shared.decay[i];
    const float beta = shared.beta[i];
#pragma unroll
    for (int e = 0; e < VEC; e++) {
      float seen = decay * c[i][e], given = decay * r[i][e];
#pragma unroll
      for (int j = 0; j < i; j++) { seen = fmaf(shared.pairs[j][i], c[j][e], seen); given = fmaf(shared.pairs[i][j], c[j][e], given); }
      c[i][e] = (shared.v[i][column + e] - seen) * beta;
      r[i][e] = fmaf(shared.pairs[i][i], c[i][e], given);
    }
  }
  float squares[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    float square = r[i][0] * r[i][0];
#pragma unroll
    for (int e = 1; e < VEC; e++) square = fmaf(r[i][e], r[i][e], square);
#pragma unroll
    for (int o = 1; o < 32 / SLICES; o <<= 1) square += __shfl_xor_sync(~0u, square, o);
    squares[i] = square;
  }
  // Outputs of the rows that this lane writes, all but the norm's factor.
  float o[OUT_ROWS][VEC];
#pragma unroll
  for (int n = 0; n < OUT_ROWS; n++)
#pragma unroll
    for (int e = 0; e < VEC; e++) {
      o[n][e] = 0.f;
#pragma unroll
      for (int i = n * SLICES; i < ROWS && i < (n + 1) * SLICES; i++) o[n][e] = i == n * SLICES + slice ? r[i][e] : o[n][e];
      o[n][e] *= weight[e] * quick_silu(z[n].at(e));
    }
  if constexpr (SPLIT > 1) wait_for_cluster();
  if (lane < SPLIT)
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      if constexpr (SPLIT == 1) shared.squares[warp][i] = squares[i];
      else store_in_block(&shared.squares[block * WARPS + warp][i], lane, squares[i]);
    }
  arrive_at_cluster();
  wait_for_cluster();
#pragma unroll
  for (int n = 0; n < OUT_ROWS; n++) {
    const int row = n * SLICES + slice;
    if (row < ROWS) {
      float square = 0.f;
#pragma unroll
      for (int m = 0; m < SPLIT * WARPS; m++) square += shared.squares[m][row];
      const float factor = rsqrtf(square * (1.f / DIM) + epsilon);
      Inputs<VEC> rounded;
#pragma unroll
      for (int e = 0; e < VEC; e += 2) rounded.pair[e / 2] = pack_pair(o[n][e] * factor, o[n][e + 1] * factor);
      rounded.store(out + ((size_t)sequence * ROWS + row) * VALUE_HEADS * DIM + head * DIM + block * COLUMNS + column);
    }
  }

  // What the next window will need.
#pragma unroll
  for (int n = 0; n < KEY_UNITS; n++) {
    const int row = (n * WARPS + warp) / 2;
    if (STASH && keeps_keys && row < ROWS) x[n][3].store(stash_inputs + (write_at * WINDOW + row) * CONV_DIM + my_channel);
  }
#pragma unroll
  for (int n = 0; n < VALUE_UNITS; n++) {
    const int row = n * WARPS + warp;
    if (STASH && row < ROWS) xv[n][3].store(stash_inputs + (write_at * WINDOW + row) * CONV_DIM + value_channel);
  }
  const int end = STASH ? pending : pending + ROWS;
  if (warp < 3) {
    bfloat16* kept = convolution + (write_at * 3 + warp) * CONV_DIM;
    const bfloat16* from = times.at(end - 3 + warp);
    Inputs<CHANNELS> value; value.load(from + value_channel); value.store(kept + value_channel);
    if (keeps_keys) {
      Inputs<4> key; key.load(from + key_channel); key.store(kept + key_channel);
      key.load(from + query_channel); key.store(kept + query_channel);
    }
  }
  if (!STASH) {
    float fade = 1.f;
#pragma unroll
    for (int i = ROWS - 1; i >= 0; i--) {
#pragma unroll
      for (int e = 0; e < VEC; e++) c[i][e] *= fade;
      fade *= shared.decay[i];
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) tile.update(shared.k[i], slice, i == 0 ? fade : 1.f, c[i]);
    tile.store(state, slice);
  }
}
