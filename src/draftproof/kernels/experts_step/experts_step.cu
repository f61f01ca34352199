// The experts of a step in one launch: norm, gate and up with SiLU, down, weighted sum, residual.
//
// One block per multiprocessor. Its warps are GROUPS groups of four; each group has a ring of STAGES stages of weights
// in shared memory, filled by bulk copies, and walks through one list of stages: first tiles of gate_up (16 rows, the
// whole hidden width, a quarter of every stage a warp), then the block's tiles of down (16 rows, every GROUPS-th
// expert, a quarter of the intermediate width a warp). The ring does not end between the two: weights of down arrive
// while gate_up is still being multiplied. Activations pass from block to block through memory; `arrivals` counts
// each expert's finished tiles. All blocks must be resident: the grid is at most one block per multiprocessor.
// The shared expert comes first: its weights are known before the routing is.
//
// Definitions: HIDDEN, INTERMEDIATE; FORMAT, SHARED_FORMAT (0 BF16, 1 FP8, 2 NVFP4, SHARED_FORMAT 3 for none);
// BLOCK_SCALED, SHARED_BLOCK_SCALED (0 or 1, FP8); ROWS (4 or 8); ROOM (experts listed); GROUPS, STAGES.
#include "expert_products.cuh"

constexpr bool HAS_SHARED = SHARED_FORMAT < 3;
constexpr int SHARED = HAS_SHARED ? SHARED_FORMAT : FORMAT;
constexpr int WARPS = GROUPS * 4, THREADS = WARPS * 32;
constexpr int TILES = INTERMEDIATE / 8, OUT_TILES = HIDDEN / 16;
constexpr int STAGE_BYTES = 16 * (FORMAT == NVFP4 || SHARED == NVFP4 ? 1152 : 1024);
constexpr int STRIDE = (INTERMEDIATE + 255) / 256 * 256;  // of a row of activations
static_assert(ROOM <= 32 * GROUPS, "a lane watches one expert");
typedef Piece<FORMAT, ROWS> X;

struct Matrix { const uint8_t* blocks; const float* row_scale; const float* block_scale; };
struct Layer { Matrix gate_up, down, shared_gate_up, shared_down; };
struct Exchange { bfloat16* routed; bfloat16* shared; int* arrivals; };
struct Table {  // of the step, in shared memory; entry 0 is the shared expert, if there is one
  int expert[ROOM + 1];
  float weight[ROOM + 1][8];
  float inverse[8];
  int routed;  // experts listed
};
typedef float Sums[WARPS][16][ROWS];

// How one format's tiles are cut into stages of up to 16 blocks.
template <int F> struct Cut {
  static constexpr int wide = HIDDEN / Chunk<F>::columns;        // blocks of a tile of gate_up
  static constexpr int part = wide % 16 == 0 ? 16 : 12;          // of them in a stage
  static constexpr int parts = wide / part;
  static constexpr int part_bytes = part * Chunk<F>::bytes;
  static constexpr int spans = part / 4 * Chunk<F>::columns / 128;  // of a warp in a stage
  static constexpr int deep = INTERMEDIATE / Chunk<F>::columns;  // blocks of a tile of down
  static constexpr int units = deep < 16 ? 16 / deep : 1;        // experts of a stage
  static constexpr int slices = deep > 16 ? deep / 16 : 1;       // stages of an expert
  static constexpr int slice_bytes = deep / slices * Chunk<F>::bytes;
  static constexpr int down_spans = INTERMEDIATE / slices / 4 / 128;  // of a warp, an expert and a stage
};
typedef Cut<FORMAT> R;
typedef Cut<SHARED> S;

__device__ __forceinline__ int load_acquire(const int* address) {
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
}
__device__ __forceinline__ void add_release(int* address) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(address) : "memory");
}
__device__ __forceinline__ int add_and_get(int* address) {
  int v;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(v) : "l"(address) : "memory");
  return v;
}

// Into L2: scales that a warp will read with ordinary loads when the weights have arrived.
__device__ __forceinline__ void prefetch(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// One group of warps and its ring.
struct Group {
  const Layer& layer;
  const Table& table;
  const Exchange& exchange;
  const uint8_t* ring;
  uint32_t data, full;  // shared addresses of the ring and its barriers
  int group, warp, lane;
  int slot, slots;      // among the groups of the grid
  int stage = 0;        // next of the list
  int shared_stages = 0, routed_stages = 0, first = 0, experts = 0, tiles = 0;

  static __device__ __forceinline__ constexpr int down_shared_stages(int group) { return HAS_SHARED && group == GROUPS - 1 ? S::slices : 0; }
  __device__ __forceinline__ bool leads() const { return warp == 0 && lane == 0; }
  __device__ __forceinline__ int down_routed_stages() const { return (experts + R::units - 1) / R::units * R::slices; }
  __device__ __forceinline__ int tile_stages() const { return down_shared_stages(group) + down_routed_stages(); }
  __device__ __forceinline__ int tile_of(int number) const { return gridDim.x - 1 - blockIdx.x + number * gridDim.x; }

  // The list of stages; the table is complete.
  __device__ __forceinline__ void plan() {
    first = HAS_SHARED ? (slot - TILES + slots) % slots : slot;
    const int units = table.routed * TILES;
    routed_stages = first < units ? ((units - 1 - first) / slots + 1) * R::parts : 0;
    experts = table.routed > group ? (table.routed - 1 - group) / GROUPS + 1 : 0;
    tiles = tile_of(0) < OUT_TILES ? (OUT_TILES - 1 - tile_of(0)) / (int)gridDim.x + 1 : 0;
  }
  __device__ __forceinline__ void copy(int number, int offset, const uint8_t* source, int bytes) const {
    copy_bulk(data + number % STAGES * STAGE_BYTES + offset, source, bytes, full + number % STAGES * 8);
  }
  __device__ __forceinline__ void expect(int number, int bytes) const { barrier_expect(full + number % STAGES * 8, bytes); }

  __device__ __forceinline__ void fetch_shared(int number) const {
    expect(number, S::part_bytes);
    if (layer.shared_gate_up.row_scale != nullptr) prefetch(layer.shared_gate_up.row_scale + slot * 16);
    copy(number, 0, layer.shared_gate_up.blocks + ((size_t)slot * S::parts + number) * S::part_bytes, S::part_bytes);
  }
  __device__ void fetch(int number) const {
    if (number < shared_stages) { fetch_shared(number); return; }
    int q = number - shared_stages;
    if (q < routed_stages) {
      const int unit = first + q / R::parts * slots;
      const size_t tile = (size_t)table.expert[HAS_SHARED + unit / TILES] * TILES + unit % TILES;
      expect(number, R::part_bytes);
      if (layer.gate_up.row_scale != nullptr) prefetch(layer.gate_up.row_scale + tile * 16);
      copy(number, 0, layer.gate_up.blocks + (tile * R::parts + q % R::parts) * R::part_bytes, R::part_bytes);
      return;
    }
    q -= routed_stages;
    const int each = tile_stages();
    if (each == 0 || q >= tiles * each) return;
    const int tile = tile_of(q / each);
    q %= each;
    if (q < down_shared_stages(group)) {
      expect(number, S::slice_bytes);
      if (layer.shared_down.row_scale != nullptr) prefetch(layer.shared_down.row_scale + tile * 16);
      copy(number, 0, layer.shared_down.blocks + ((size_t)tile * S::slices + q) * S::slice_bytes, S::slice_bytes);
      return;
    }
    q -= down_shared_stages(group);
    const int index = q / R::slices * R::units, count = min(R::units, experts - index);
    expect(number, count * R::slice_bytes);
    for (int j = 0; j < count; j++) {
      const size_t expert = table.expert[HAS_SHARED + group + (index + j) * GROUPS];
      if (layer.down.row_scale != nullptr) prefetch(layer.down.row_scale + expert * HIDDEN + tile * 16);
      copy(number, j * R::slice_bytes,
           layer.down.blocks + ((expert * OUT_TILES + tile) * R::slices + q % R::slices) * R::slice_bytes, R::slice_bytes);
    }
  }
  __device__ __forceinline__ const uint8_t* wait_stage() const {
    barrier_wait(full + stage % STAGES * 8, stage / STAGES & 1);
    return ring + stage % STAGES * STAGE_BYTES;
  }
  // All warps of the group are done with the stage: its room goes to the stage STAGES further on.
  __device__ __forceinline__ void pass_stage() {
    sync_threads_of(group + 1, 128);
    if (leads()) fetch(stage + STAGES);
    stage++;
  }

  // One tile of gate_up to 8 activations of each row.
  template <int F, bool SCALED> __device__ __forceinline__ void gate_up_tile(const Matrix& matrix, size_t expert, int tile,
      int entry, bfloat16* activations, const uint8_t* x, Sums& sums, const Nvfp4Masks& masks) {
    typedef Cut<F> C;
    float gate_scale = 1.f, up_scale = 1.f, c[4] = {0.f, 0.f, 0.f, 0.f};
    if (warp == 3 && matrix.row_scale != nullptr) {
      const float* scale = matrix.row_scale + (expert * TILES + tile) * 16 + (lane & 7);
      gate_scale = __ldg(scale); up_scale = __ldg(scale + 8);
    }
    for (int part = 0; part < C::parts; part++) {
      const int span = (part * 4 + warp) * C::spans;
      const float* scale = matrix.block_scale;
      if (SCALED) scale += (expert * 2 * (INTERMEDIATE / 128) + tile / 16) * (HIDDEN / 128) + span;
      const uint8_t* b = wait_stage() + warp * (C::part_bytes / 4);
#pragma unroll
      for (int i = 0; i < C::spans; i++, b += Chunk<F>::span_bytes) {
        uint4 piece[4];
#pragma unroll
        for (int q = 0; q < 4; q++) piece[q] = *(const uint4*)(x + (((span + i) * 4 + q) * 32 + lane) * 16);
        if (SCALED) multiply_span_scaled<F, FORMAT, ROWS>(b, piece, lane, c, masks, __ldg(scale + i),
                                                          __ldg(scale + i + (INTERMEDIATE / 128) * (HIDDEN / 128)));
        else multiply_span<F, FORMAT, ROWS>(b, piece, lane, c, masks);
      }
      if (part == C::parts - 1) store_sums<ROWS>(sums[group * 4 + warp], c, lane);
      pass_stage();
    }
    if (warp == 3) finish_tile<F>(sums, tile, entry, gate_scale, up_scale, activations);
  }
  template <int F> __device__ __forceinline__ void finish_tile(const Sums& sums, int tile, int entry, float gate_scale,
                                                              float up_scale, bfloat16* activations) const {
#pragma unroll
    for (int half = 0; half < ROWS / 4; half++) {
      const int row = half * 4 + (lane >> 3), feature = lane & 7;
      float gate = 0.f, up = 0.f;
#pragma unroll
      for (int w = 0; w < 4; w++) {
        gate += sums[group * 4 + w][feature][row]; up += sums[group * 4 + w][feature + 8][row];
      }
      const float weight = table.weight[entry][row], factor = table.inverse[row] * undo<F, FORMAT>();
      const float value = silu(gate * (factor * gate_scale)) * (up * (factor * up_scale)) * weight;
      if (weight != 0.f) activations[(size_t)row * STRIDE + tile * 8 + feature] = narrow(F == BF16 ? value : value * RAISE);
    }
    __syncwarp();
    if (lane == 0) add_release(exchange.arrivals + 1 + entry);
  }
  __device__ __forceinline__ void gate_up(const uint8_t* x, Sums* sums, const Nvfp4Masks& masks) {
    int number = 0;
    if (HAS_SHARED && shared_stages > 0)
      gate_up_tile<SHARED, SHARED_BLOCK_SCALED>(layer.shared_gate_up, 0, slot, 0, exchange.shared, x, sums[number++ & 1], masks);
    const int units = routed_stages / R::parts;
    for (int j = 0; j < units; j++) {
      const int unit = first + j * slots, index = unit / TILES;
      gate_up_tile<FORMAT, BLOCK_SCALED>(layer.gate_up, table.expert[HAS_SHARED + index], unit % TILES, HAS_SHARED + index,
                                         exchange.routed + (size_t)index * 8 * STRIDE, x, sums[number++ & 1], masks);
    }
  }

  // A warp's share of one expert's activations, and of its scales, for one slice of a tile of down.
  template <int F> struct Share {
    typedef Piece<F, ROWS> P;
    static constexpr int spans = Cut<F>::down_spans;
    uint4 v[spans * 4];
    float scale, scale8;
    __device__ __forceinline__ void load(const Group& at, const Matrix& matrix, size_t expert, int entry,
                                         const bfloat16* activations, int tile, int slice) {
      const int row = P::row(at.lane), offset = (slice * 4 + at.warp) * spans * 128;
      const bool live = at.table.weight[entry][row] != 0.f;
#pragma unroll
      for (int q = 0; q < spans * 4; q++)
        v[q] = live ? P::load(activations + (size_t)row * STRIDE + offset, q, at.lane) : make_uint4(0, 0, 0, 0);
      scale = scale8 = undo<F, F>();
      if (matrix.row_scale != nullptr) {
        const float* rows = matrix.row_scale + expert * HIDDEN + tile * 16 + (at.lane >> 2);
        scale *= __ldg(rows); scale8 *= __ldg(rows + 8);
      }
    }
    template <bool SCALED> __device__ __forceinline__ void multiply(const Group& at, const Matrix& matrix, size_t expert, int tile,
        int slice, const uint8_t* b, float* total, const Nvfp4Masks& masks) const {
      float c[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
      for (int i = 0; i < spans; i++, b += Chunk<F>::span_bytes) {
        uint4 piece[4];
#pragma unroll
        for (int q = 0; q < 4; q++) piece[q] = P::arrange(v[i * 4 + q], at.lane);
        float s = 1.f;
        if (SCALED) s = __ldg(matrix.block_scale + (expert * (HIDDEN / 128) + tile / 8) * (INTERMEDIATE / 128) +
                              (slice * 4 + at.warp) * spans + i);
        if (SCALED) multiply_span_scaled<F, F, ROWS>(b, piece, at.lane, c, masks, s, s);
        else multiply_span<F, F, ROWS>(b, piece, at.lane, c, masks);
      }
      total[0] = fmaf(c[0], scale, total[0]); total[1] = fmaf(c[1], scale, total[1]);
      total[2] = fmaf(c[2], scale8, total[2]); total[3] = fmaf(c[3], scale8, total[3]);
    }
  };
  // Until the activations of an entry are complete.
  __device__ __forceinline__ void wait_shared() const {
    while (load_acquire(exchange.arrivals + 1) < TILES) {}
    __syncwarp();
  }
  __device__ __forceinline__ void wait_routed(int index, uint32_t& ready) const {
    while (!(ready >> index & 1)) {
      const int watched = group + lane * GROUPS;
      ready = __ballot_sync(~0u, watched < table.routed && load_acquire(exchange.arrivals + 1 + HAS_SHARED + watched) >= TILES);
    }
    __syncwarp();
  }
  __device__ __forceinline__ void down_shared(int tile, float* total, const Nvfp4Masks& masks) {
    wait_shared();
    for (int slice = 0; slice < S::slices; slice++) {
      Share<SHARED> share;
      share.load(*this, layer.shared_down, 0, 0, exchange.shared, tile, slice);
      const uint8_t* b = wait_stage() + warp * (S::slice_bytes / 4);
      share.template multiply<SHARED_BLOCK_SCALED>(*this, layer.shared_down, 0, tile, slice, b, total, masks);
      pass_stage();
    }
  }
  __device__ __forceinline__ void load_share(Share<FORMAT>& share, int item, int tile, uint32_t& ready) const {
    const int index = item / R::slices;
    if (index >= experts) return;
    wait_routed(index, ready);
    const int place = group + index * GROUPS, entry = HAS_SHARED + place;
    share.load(*this, layer.down, table.expert[entry], entry, exchange.routed + (size_t)place * 8 * STRIDE, tile, item % R::slices);
  }
  // The share of the next item is asked for before the current one is multiplied.
  __device__ __forceinline__ void down_routed(int tile, float* total, uint32_t& ready, const Nvfp4Masks& masks) {
    Share<FORMAT> next;
    load_share(next, 0, tile, ready);
    const int stages = down_routed_stages();
    for (int i = 0; i < stages; i++) {
      const uint8_t* b = wait_stage() + warp * (R::slice_bytes / 4);
#pragma unroll
      for (int j = 0; j < R::units; j++, b += R::slice_bytes) {
        const int item = i * R::units + j;
        if (item / R::slices >= experts) break;
        const Share<FORMAT> share = next;
        load_share(next, item + 1, tile, ready);
        share.template multiply<BLOCK_SCALED>(*this, layer.down, table.expert[HAS_SHARED + group + item / R::slices * GROUPS], tile,
                                              item % R::slices, b, total, masks);
      }
      pass_stage();
    }
  }
};

// Rows times the norm's weight into shared memory as right operands; 1 / rms into the table.
__device__ __forceinline__ void prepare_rows(const uint4* raw, const uint4* norm, float epsilon, uint8_t* x, float (*squares)[8],
                                             Table& table, int warp, int lane) {
  constexpr int pieces = (HIDDEN / 32 + WARPS - 1) / WARPS;
  float sum = 0.f;
#pragma unroll
  for (int q = 0; q < pieces; q++) {
    const int piece = q * WARPS + warp;
    if (piece < HIDDEN / 32)
      *(uint4*)(x + (piece * 32 + lane) * 16) = X::arrange(X::scale(raw[q], norm + q * X::weights, sum), lane);
  }
  sum += __shfl_xor_sync(~0u, sum, 1); sum += __shfl_xor_sync(~0u, sum, 2);
  if (X::folded) sum += __shfl_xor_sync(~0u, sum, 16);
  if ((lane & 3) == 0) squares[warp][lane >> 2] = sum;
  __syncthreads();
  if (threadIdx.x < ROWS) {
    float total = 0.f;
    for (int w = 0; w < WARPS; w++) total += squares[w][threadIdx.x];
    table.inverse[threadIdx.x] = rsqrtf(total / HIDDEN + epsilon);
  }
  __syncthreads();
}
// The sums of all warps of a tile of down, added to the residual.
__device__ __forceinline__ void add_to_residual(bfloat16* residual, const Sums& sums, int tile, int rows) {
  __syncthreads();
  const int row = threadIdx.x >> 4, feature = threadIdx.x & 15;
  if (row >= rows) return;
  float value = 0.f;
#pragma unroll
  for (int w = 0; w < WARPS; w++) value += sums[w][feature][row];
  bfloat16* at = residual + (size_t)row * HIDDEN + tile * 16 + feature;
  *at = narrow(widen(load_fresh_2(at)) + value);
}

extern "C" __global__ __launch_bounds__(THREADS, 1) void experts_step(
    bfloat16* residual, const float* norm, float epsilon, int rows, const uint8_t* gate_up, const float* gate_up_scale,
    const float* gate_up_block_scale, const uint8_t* down, const float* down_scale, const float* down_block_scale,
    const uint8_t* shared_gate_up, const float* shared_gate_up_scale, const float* shared_gate_up_block_scale,
    const uint8_t* shared_down, const float* shared_down_scale, const float* shared_down_block_scale, const int* distinct,
    const float* row_weights, const float* shared_weight, bfloat16* activations, bfloat16* shared_activations, int* arrivals) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ Sums sums[2];
  __shared__ Table table;
  __shared__ __align__(8) unsigned long long barriers[GROUPS][STAGES];
  const Layer layer = {{gate_up, gate_up_scale, gate_up_block_scale}, {down, down_scale, down_block_scale},
                       {shared_gate_up, shared_gate_up_scale, shared_gate_up_block_scale},
                       {shared_down, shared_down_scale, shared_down_block_scale}};
  const Exchange exchange = {activations, shared_activations, arrivals};
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  uint8_t* x = memory + GROUPS * STAGES * STAGE_BYTES;
  const uint8_t* ring = memory + (warp >> 2) * STAGES * STAGE_BYTES;
  Group group{layer, table, exchange, ring, shared_address(ring), shared_address(barriers[warp >> 2]), warp >> 2, warp & 3, lane,
              (warp >> 2) * (int)gridDim.x + (int)blockIdx.x, GROUPS * (int)gridDim.x};
  if (HAS_SHARED && group.slot < TILES) group.shared_stages = S::parts;
  if (group.leads()) {
    for (int q = 0; q < STAGES; q++) barrier_init(group.full + q * 8);
    barrier_init_done();
    for (int q = 0; q < STAGES && q < group.shared_stages; q++) group.fetch_shared(q);
  }
  for (int q = threadIdx.x * 32; q < HIDDEN; q += THREADS * 32) prefetch(norm + q);
  wait_for_predecessors();
  release_dependents();
  constexpr int pieces = (HIDDEN / 32 + WARPS - 1) / WARPS;
  uint4 raw[pieces], weights[pieces * X::weights];
  for (int q = threadIdx.x; q < ROOM; q += THREADS) table.expert[HAS_SHARED + q] = load_fresh_4(distinct + 1 + q);
  for (int q = threadIdx.x; q < ROOM * 8; q += THREADS) table.weight[HAS_SHARED + q / 8][q % 8] = load_fresh_float(row_weights + q);
  if (threadIdx.x == 0) table.routed = load_fresh_4(distinct);
  if (HAS_SHARED && threadIdx.x < 8) table.weight[0][threadIdx.x] = load_fresh_float(shared_weight + threadIdx.x);
#pragma unroll
  for (int q = 0; q < pieces; q++) {
    const int piece = q * WARPS + warp, row = X::row(lane);
    raw[q] = row < rows && piece < HIDDEN / 32 ? X::load(residual + (size_t)row * HIDDEN, piece, lane) : make_uint4(0, 0, 0, 0);
    if (piece < HIDDEN / 32) X::load_norm(norm, piece, lane, weights + q * X::weights);
  }
  __syncthreads();
  group.plan();
  if (group.leads()) for (int q = group.shared_stages < STAGES ? group.shared_stages : STAGES; q < STAGES; q++) group.fetch(q);
  __syncwarp();
  prepare_rows(raw, weights, epsilon, x, (float(*)[8])&sums[0], table, warp, lane);
  const Nvfp4Masks masks = nvfp4_masks();
  group.gate_up(x, sums, masks);
  uint32_t ready = 0;
  for (int number = 0; number < group.tiles; number++) {
    const int tile = group.tile_of(number);
    float total[4] = {0.f, 0.f, 0.f, 0.f};
    if (group.down_shared_stages(group.group)) group.down_shared(tile, total, masks);
    group.down_routed(tile, total, ready, masks);
    sync_threads_of(group.group + 1, 128);
    store_sums<ROWS>(sums[number & 1][warp], total, lane);
    add_to_residual(residual, sums[number & 1], tile, rows);
  }
  // The last block leaves the counts as it found them.
  __syncthreads();
  if (warp == 0) {
    const int before = __shfl_sync(~0u, lane == 0 ? add_and_get(arrivals) : 0, 0);
    if (before == (int)gridDim.x - 1) for (int q = lane; q < ROOM + 2; q += 32) arrivals[q] = 0;
  }
}
