// The gated delta decode kernel for many heads at a time (batches): memory bound, so each block of 4 warps brings its
// head's whole state into shared memory by one bulk copy and takes it back by another, and three blocks of a
// multiprocessor overlap. The other form keeps the state in registers and is made for few heads.
//
// Pending rows and new rows each solve a unit lower triangular system. The state is read once for the pending rows'
// corrections; then one pass applies them, writes the state back and reads it for the new rows.
//
// A thread works on key rows 4 * slice + 16 * g + 0..3 (g = 0..7) of four value columns, so that a quarter of a warp
// reads 128 consecutive bytes of the state.
//
// Defined from outside: KEY_HEADS, VALUE_HEADS, ROWS, WINDOW (room of the stash), STASH (else the new rows are
// certain and enter the state), BLOCKS (resident blocks to compile for).
#define WARPS 4
#define ROOM (WINDOW > 0 ? WINDOW : 1)
#define OUT_ROWS ((ROWS + 3) / 4)
#include "gated_delta.cuh"

struct Shared {
  float state[DIM][DIM];
  float q[ROWS][DIM], k[ROWS][DIM], v[ROWS][DIM], old_k[ROOM][DIM], old_v[ROOM][DIM];
  float decay[ROWS], beta[ROWS], old_decay[ROOM], old_beta[ROOM];
  float pairs[ROWS][ROWS], old_pairs[ROOM][ROOM];
  float squares[WARPS][ROWS];
  unsigned long long barrier;
};

__device__ __forceinline__ void copy_bulk_back(void* destination, uint32_t source, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination), "r"(source), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void wait_for_copies_back() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

__device__ __forceinline__ float sum_of_slices(float value) {
  value += __shfl_xor_sync(~0u, value, 8);
  return value + __shfl_xor_sync(~0u, value, 16);
}
__device__ __forceinline__ float4 sum_of_slices(float4 v) {
  return make_float4(sum_of_slices(v.x), sum_of_slices(v.y), sum_of_slices(v.z), sum_of_slices(v.w));
}
// sum + a * b, columns side by side
__device__ __forceinline__ float4 add_product(float4 sum, float a, float4 b) {
  return make_float4(fmaf(a, b.x, sum.x), fmaf(a, b.y, sum.y), fmaf(a, b.z, sum.z), fmaf(a, b.w, sum.w));
}
__device__ __forceinline__ float4 scaled(float4 v, float a) { return make_float4(v.x * a, v.y * a, v.z * a, v.w * a); }
// sum + x . (four key rows of the state)
__device__ __forceinline__ float4 add_read(float4 sum, float4 x, const float4* s) {
  return add_product(add_product(add_product(add_product(sum, x.x, s[0]), x.y, s[1]), x.z, s[2]), x.w, s[3]);
}
__device__ __forceinline__ void add_outer(float4* s, float4 x, float4 correction) {
  s[0] = add_product(s[0], x.x, correction); s[1] = add_product(s[1], x.y, correction);
  s[2] = add_product(s[2], x.z, correction); s[3] = add_product(s[3], x.w, correction);
}
__device__ __forceinline__ void load_four(float4* s, const Shared& shared, int row, int column) {
#pragma unroll
  for (int e = 0; e < 4; e++) s[e] = *(const float4*)&shared.state[row + e][column];
}
__device__ __forceinline__ void store_four(Shared& shared, int row, int column, const float4* s) {
#pragma unroll
  for (int e = 0; e < 4; e++) *(float4*)&shared.state[row + e][column] = s[e];
}
__device__ __forceinline__ float4 key_quad(const float* x, int slice, int g) { return *(const float4*)(x + 4 * slice + 16 * g); }

// One row of one kind through the convolution: a warp's unit of work.
enum Kind { OLD_KEY, OLD_VALUE, QUERY, KEY, VALUE };
struct Unit {
  Kind kind;
  int row;
};
// Units of the pending rows come first: 2 * pending of them need nothing from the predecessor.
__device__ __forceinline__ Unit unit_at(int index, int pending) {
  if (index < 2 * pending) return {index & 1 ? OLD_VALUE : OLD_KEY, index / 2};
  const int rest = index - 2 * pending;
  return {(Kind)(QUERY + rest / ROWS), rest % ROWS};
}

struct Channels { int query, key, value; };

struct Step {
  Times times;
  Channels channels;
  const float* taps;
  bfloat16* stash;  // row 0 of this window
  bool keeps_keys;
  int pending, lane;

  __device__ __forceinline__ int channel(Kind kind) const {
    return kind == QUERY ? channels.query : kind == OLD_VALUE || kind == VALUE ? channels.value : channels.key;
  }
  __device__ __forceinline__ void load(Inputs<4>* x, Unit unit) const {
    const int time = unit.kind < QUERY ? unit.row : pending + unit.row, at = channel(unit.kind);
#pragma unroll
    for (int j = 0; j < 4; j++) x[j].load(times.at(time + j - 3) + at);
  }
  __device__ __forceinline__ void finish(Shared& shared, const Inputs<4>* x, Unit unit) const {
    const int at = channel(unit.kind);
    Taps<4> w; float y[4];
    w.load(taps, at); w.apply(x, y);
    if (unit.kind != VALUE && unit.kind != OLD_VALUE) normalise(y, unit.kind == QUERY ? QUERY_SCALE : 1.f);
    float* to = unit.kind == OLD_KEY ? shared.old_k[unit.row] : unit.kind == OLD_VALUE ? shared.old_v[unit.row]
                : unit.kind == QUERY ? shared.q[unit.row] : unit.kind == KEY ? shared.k[unit.row] : shared.v[unit.row];
    put<4>(to + lane * 4, y);
    if (STASH && (unit.kind == VALUE || (unit.kind >= QUERY && keeps_keys))) x[3].store(stash + unit.row * CONV_DIM + at);
  }
  // Units begin .. end - 1, the next one's inputs under way while one is worked on.
  __device__ __forceinline__ void run(Shared& shared, int begin, int end) const {
    Inputs<4> now[4], next[4];
    if (begin < end) load(next, unit_at(begin, pending));
    for (int u = begin; u < end; u += WARPS) {
#pragma unroll
      for (int j = 0; j < 4; j++) now[j] = next[j];
      if (u + WARPS < end) load(next, unit_at(u + WARPS, pending));
      finish(shared, now, unit_at(u, pending));
    }
  }
};

// Products between the pending rows' keys, with decays: old_pairs[i][j] for j < i.
__device__ __forceinline__ void make_old_pairs(Shared& shared, int pending, int warp, int lane) {
  for (int n = warp; n * 4 < pending * pending; n += WARPS) {
    const int pair = n * 4 + lane / 8, i = pair / pending, j = pair % pending, part = lane % 8;
    float sum = 0.f;
    if (j < i && i < pending)
#pragma unroll
      for (int g = 0; g < 4; g++) {
        const float4 x = *(const float4*)(shared.old_k[i] + 4 * part + 32 * g), y = *(const float4*)(shared.old_k[j] + 4 * part + 32 * g);
        sum = fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, sum))));
      }
#pragma unroll
    for (int o = 4; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (part == 0 && j < i && i < pending) {
      for (int r = j + 1; r <= i; r++) sum *= shared.old_decay[r];
      shared.old_pairs[i][j] = sum;
    }
  }
}

// Corrections of the pending rows, each times its decay up to the last of them; returns the decay over all of them.
__device__ __forceinline__ float solve_pending(const Shared& shared, float4* c, int pending, int slice, int column) {
  for (int g = 0; g < 8; g++) {
    float4 s[4];
    load_four(s, shared, 4 * slice + 16 * g, column);
#pragma unroll
    for (int i = 0; i < ROOM; i++) if (i < pending) c[i] = add_read(c[i], key_quad(shared.old_k[i], slice, g), s);
  }
  float decay = 1.f;
#pragma unroll
  for (int i = 0; i < ROOM; i++) if (i < pending) {
    decay *= shared.old_decay[i];
    float4 seen = scaled(sum_of_slices(c[i]), decay);
#pragma unroll
    for (int j = 0; j < i; j++) seen = add_product(seen, shared.old_pairs[i][j], c[j]);
    const float4 v = *(const float4*)&shared.old_v[i][column];
    c[i] = scaled(make_float4(v.x - seen.x, v.y - seen.y, v.z - seen.z, v.w - seen.w), shared.old_beta[i]);
  }
  float fade = 1.f;
#pragma unroll
  for (int i = ROOM - 1; i >= 0; i--) if (i < pending) { c[i] = scaled(c[i], fade); fade *= shared.old_decay[i]; }
  return decay;
}

extern "C" __global__ __launch_bounds__(WARPS * 32, BLOCKS) void gated_delta_decode_many(
    const bfloat16* projected, int stride, int inputs_at, int gate_at, int a_at, int b_at, const float* taps,
    const float* negative_a, const float* dt_bias, const float* norm, float epsilon, float* recurrent,
    bfloat16* convolution, bfloat16* stash_inputs, float* stash_log_decay, float* stash_beta, const int* slots,
    const int* all_pending, const int* parity, int slot_count, bfloat16* out) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *(Shared*)memory;
  const int head = blockIdx.x, sequence = blockIdx.y, key_head = head / (VALUE_HEADS / KEY_HEADS);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, slice = lane / 8, column = warp * 32 + lane % 8 * 4;
  const int slot = load_fresh_4(slots + sequence);
  float* state = recurrent + ((size_t)slot * VALUE_HEADS + head) * DIM * DIM;
  const uint32_t barrier = shared_address(&shared.barrier);
  if (threadIdx.x == 0) {
    barrier_init(barrier); barrier_init_done();
    fetch_bulk(shared_address(shared.state), state, sizeof(shared.state), barrier);
  }
  const int pending = WINDOW ? min((int)load_fresh_4(all_pending + slot), WINDOW) : 0;
  const int side = load_fresh_4(parity + slot) & 1;
  release_dependents();

  const size_t read_at = (size_t)side * slot_count + slot, write_at = (size_t)(1 - side) * slot_count + slot;
  const bfloat16* rows_in = projected + (size_t)sequence * ROWS * stride;
  const int query_channel = key_head * DIM + lane * 4;
  const Step step = {{convolution + read_at * 3 * CONV_DIM, stash_inputs + read_at * WINDOW * CONV_DIM, rows_in + inputs_at, (size_t)stride, pending},
                     {query_channel, KEY_HEADS * DIM + query_channel, 2 * KEY_HEADS * DIM + head * DIM + lane * 4},
                     taps, stash_inputs + write_at * WINDOW * CONV_DIM, head % (VALUE_HEADS / KEY_HEADS) == 0, pending, lane};
  if ((int)threadIdx.x < pending) {
    const size_t at = (read_at * WINDOW + threadIdx.x) * VALUE_HEADS + head;
    shared.old_decay[threadIdx.x] = __expf(stash_log_decay[at]);
    shared.old_beta[threadIdx.x] = stash_beta[at];
  }
  const float my_negative_a = negative_a[head], my_dt_bias = dt_bias[head];
  const float4 weight = *(const float4*)(norm + column);
  wait_for_predecessors();

  Inputs<4> z[OUT_ROWS];
#pragma unroll
  for (int n = 0; n < OUT_ROWS; n++) if (n * 4 + slice < ROWS)
    z[n].load(rows_in + (size_t)(n * 4 + slice) * stride + gate_at + head * DIM + column);
  if (warp == WARPS - 1 && lane < ROWS) {
    const bfloat16* row = rows_in + (size_t)lane * stride;
    const Gate gate = gate_of(widen(load_fresh_2(row + a_at + head)), widen(load_fresh_2(row + b_at + head)), my_negative_a, my_dt_bias);
    shared.decay[lane] = __expf(gate.log_decay); shared.beta[lane] = gate.beta;
    if (STASH) {
      const size_t at = (write_at * WINDOW + lane) * VALUE_HEADS + head;
      stash_log_decay[at] = gate.log_decay; stash_beta[at] = gate.beta;
    }
  }
  step.run(shared, warp, 2 * pending + 3 * ROWS);
  if (warp < 3) {  // the last committed inputs
    bfloat16* kept = convolution + (write_at * 3 + warp) * CONV_DIM;
    const bfloat16* from = step.times.at((STASH ? pending : pending + ROWS) - 3 + warp);
    Inputs<4> x;
    x.load(from + step.channels.value); x.store(kept + step.channels.value);
    if (step.keeps_keys) {
      x.load(from + step.channels.key); x.store(kept + step.channels.key);
      x.load(from + step.channels.query); x.store(kept + step.channels.query);
    }
  }
  __syncthreads();
  make_pairs(shared.pairs, shared.q, shared.k, shared.decay, warp, lane);
  if (WINDOW && pending) make_old_pairs(shared, pending, warp, lane);
  __syncthreads();
  barrier_wait(barrier, 0);

  const float4 zero = make_float4(0.f, 0.f, 0.f, 0.f);
  float4 old_c[ROOM], c[ROWS], r[ROWS];
#pragma unroll
  for (int i = 0; i < ROOM; i++) old_c[i] = zero;
  float old_decay = 1.f;
  if (WINDOW && pending) old_decay = solve_pending(shared, old_c, pending, slice, column);
#pragma unroll
  for (int i = 0; i < ROWS; i++) c[i] = r[i] = zero;
#pragma unroll 2
  for (int g = 0; g < 8; g++) {
    float4 s[4];
    load_four(s, shared, 4 * slice + 16 * g, column);
    if (WINDOW && pending) {
#pragma unroll
      for (int e = 0; e < 4; e++) s[e] = scaled(s[e], old_decay);
#pragma unroll
      for (int i = 0; i < ROOM; i++) if (i < pending) add_outer(s, key_quad(shared.old_k[i], slice, g), old_c[i]);
      store_four(shared, 4 * slice + 16 * g, column, s);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) { c[i] = add_read(c[i], key_quad(shared.k[i], slice, g), s); r[i] = add_read(r[i], key_quad(shared.q[i], slice, g), s); }
  }
  float decay = 1.f;
#pragma unroll
  for (int i = 0; i < ROWS; i++) {  // c becomes the corrections, r the outputs
    decay *= shared.decay[i];
    float4 seen = scaled(sum_of_slices(c[i]), decay), given = scaled(sum_of_slices(r[i]), decay);
#pragma unroll
    for (int j = 0; j < i; j++) { seen = add_product(seen, shared.pairs[j][i], c[j]); given = add_product(given, shared.pairs[i][j], c[j]); }
    const float4 v = *(const float4*)&shared.v[i][column];
    c[i] = scaled(make_float4(v.x - seen.x, v.y - seen.y, v.z - seen.z, v.w - seen.w), shared.beta[i]);
    r[i] = add_product(given, shared.pairs[i][i], c[i]);
    float square = r[i].x * r[i].x + r[i].y * r[i].y + r[i].z * r[i].z + r[i].w * r[i].w;
    square += __shfl_xor_sync(~0u, square, 1); square += __shfl_xor_sync(~0u, square, 2); square += __shfl_xor_sync(~0u, square, 4);
    if (lane == 0) shared.squares[warp][i] = square;
  }
  if (!STASH) {
    float fade = 1.f;
#pragma unroll
    for (int i = ROWS - 1; i >= 0; i--) { c[i] = scaled(c[i], fade); fade *= shared.decay[i]; }
#pragma unroll 2
    for (int g = 0; g < 8; g++) {
      float4 s[4];
      load_four(s, shared, 4 * slice + 16 * g, column);
#pragma unroll
      for (int e = 0; e < 4; e++) s[e] = scaled(s[e], fade);
#pragma unroll
      for (int i = 0; i < ROWS; i++) add_outer(s, key_quad(shared.k[i], slice, g), c[i]);
      store_four(shared, 4 * slice + 16 * g, column, s);
    }
  }
  fence_async_proxy();
  __syncthreads();
  const bool moved = !STASH || pending;
  if (moved && threadIdx.x == 0) copy_bulk_back(state, shared_address(shared.state), sizeof(shared.state));
#pragma unroll
  for (int n = 0; n < OUT_ROWS; n++) {
    const int row = n * 4 + slice;
    if (row < ROWS) {
      const float square = shared.squares[0][row] + shared.squares[1][row] + shared.squares[2][row] + shared.squares[3][row];
      const float factor = rsqrtf(square * (1.f / DIM) + epsilon);
      float4 o = zero;
#pragma unroll
      for (int i = n * 4; i < ROWS && i < n * 4 + 4; i++) if (row == i) o = r[i];
      Inputs<4> rounded;
      rounded.pair[0] = pack_pair(o.x * factor * weight.x * silu(z[n].at(0)), o.y * factor * weight.y * silu(z[n].at(1)));
      rounded.pair[1] = pack_pair(o.z * factor * weight.z * silu(z[n].at(2)), o.w * factor * weight.w * silu(z[n].at(3)));
      rounded.store(out + ((size_t)sequence * ROWS + row) * VALUE_HEADS * DIM + head * DIM + column);
    }
  }
  if (moved && threadIdx.x == 0) wait_for_copies_back();
}
