// The experts of a step in one launch: norm, gate and up with SiLU, down, weighted sum, residual.
//
// One block per multiprocessor. Its warps are GROUPS groups of four; each group has a ring of STAGES stages of weights
// in shared memory, filled by bulk copies, and walks through one list of stages: first tiles of gate_up (16 rows, the
// whole hidden width, a quarter of every stage a warp), then the block's tiles of down (16 rows, every GROUPS-th
// expert, a quarter of the intermediate width a warp). The ring does not end between the two: weights of down arrive
// while gate_up is still being multiplied. Activations pass from block to block through memory, as words that carry the
// number of the launch: a reader looks until they have come. All blocks must be resident (at most one a multiprocessor)
// and each must have a tile of gate_up, so that the number has been read by all when the first block moves it.
// The shared expert comes first: its weights are known before the routing is.
//
// Definitions: HIDDEN, INTERMEDIATE; FORMAT, SHARED_FORMAT (0 BF16, 1 FP8, 2 NVFP4, SHARED_FORMAT 3 for none);
// BLOCK_SCALED, SHARED_BLOCK_SCALED (0 or 1, FP8); ROWS (4 or 8); GROUPS, STAGES.
#include "expert_products.cuh"

constexpr bool HAS_SHARED = SHARED_FORMAT < 3;
constexpr int SHARED = HAS_SHARED ? SHARED_FORMAT : FORMAT;
constexpr int WARPS = GROUPS * 4, THREADS = WARPS * 32;
constexpr int ROOM = ROWS * 10;  // most experts listed
constexpr int TILES = INTERMEDIATE / 8, OUT_TILES = HIDDEN / 16;
constexpr int STAGE_BYTES = 16 * (FORMAT == NVFP4 || SHARED == NVFP4 ? 1152 : 1024);
constexpr int STRIDE = (INTERMEDIATE + 255) / 256 * 256;  // of a row of activations
typedef Piece<FORMAT, ROWS> X;

struct Matrix { const uint8_t* blocks; const float* row_scale; const float* block_scale; };
struct Layer { Matrix gate_up, down, shared_gate_up, shared_down; };
struct Table {  // of the step, in shared memory; entry 0 is the shared expert, if there is one
  int expert[ROOM + 1];
  float weight[ROOM + 1][8];
  float inverse[8];
  int routed;       // experts listed
  uint32_t launch;  // number of this launch
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

// Into L2: scales that a warp will read with ordinary loads when the weights have arrived.
__device__ __forceinline__ void prefetch(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// One group of warps and its ring.
struct Group {
  const Layer& layer;
  const Table& table;
  uint8_t* exchange;    // [entries][8 rows][STRIDE] words of 4 bytes an activation
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

  __device__ __forceinline__ uint8_t* sent(int entry, int row) const { return exchange + (size_t)(entry * 8 + row) * (STRIDE * 4); }

  // The list of stages; the table is complete.
  __device__ __forceinline__ void plan() {
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
  __device__ __forceinline__ int routed_unit(int q) const { return first + q / R::parts * slots; }
  __device__ __forceinline__ void fetch_routed(int number, int q, int expert) const {
    const size_t tile = (size_t)expert * TILES + routed_unit(q) % TILES;
    expect(number, R::part_bytes);
    if (layer.gate_up.row_scale != nullptr) prefetch(layer.gate_up.row_scale + tile * 16);
    copy(number, 0, layer.gate_up.blocks + (tile * R::parts + q % R::parts) * R::part_bytes, R::part_bytes);
  }
  // The first stages, from the list itself, before the table is there; returns how many have been asked for.
  __device__ __forceinline__ int fetch_first(const int* distinct, int room) const {
    int expert[STAGES];
#pragma unroll
    for (int q = 0; q < STAGES; q++) {
      const int index = routed_unit(q - shared_stages) / TILES;
      expert[q] = q >= shared_stages && index < room ? (int)load_fresh_4(distinct + 1 + index) : 0;
    }
    const int units = (int)load_fresh_4(distinct) * TILES;
    int number = min(shared_stages, STAGES);
#pragma unroll
    for (int q = 0; q < STAGES; q++)
      if (q >= shared_stages && routed_unit(q - shared_stages) < units) { fetch_routed(q, q - shared_stages, expert[q]); number = q + 1; }
    return number;
  }
  __device__ void fetch(int number) const {
    if (number < shared_stages) { fetch_shared(number); return; }
    int q = number - shared_stages;
    if (q < routed_stages) { fetch_routed(number, q, table.expert[HAS_SHARED + routed_unit(q) / TILES]); return; }
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
      int entry, const uint8_t* x, Sums& sums, const Nvfp4Masks& masks) {
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
    if (warp == 3) finish_tile<F>(sums, tile, entry, gate_scale, up_scale);
  }
  template <int F> __device__ __forceinline__ void finish_tile(const Sums& sums, int tile, int entry, float gate_scale,
                                                              float up_scale) const {
#pragma unroll
    for (int half = 0; half < ROWS / 4; half++) {
      const int row = half * 4 + (lane >> 3), feature = lane & 7;
      float gate = 0.f, up = 0.f;
#pragma unroll
      for (int w = 0; w < 4; w++) {
        gate += sums[group * 4 + w][feature][row]; up += sums[group * 4 + w][feature + 8][row];
      }
      const float weight = table.weight[entry][row], factor = table.inverse[row] * undo<F, FORMAT>();
      const float value = silu(gate * (factor * gate_scale)) * (up * (factor * up_scale)) * weight * (F == BF16 ? 1.f : RAISE);
      const float next = __shfl_down_sync(~0u, value, 1);
      if (weight != 0.f && feature % 2 == 0)
        send_pair(sent(entry, row) + (tile * 8 + feature) * 4, pack_pair(value, next), table.launch);
    }
  }
  __device__ __forceinline__ void gate_up(const uint8_t* x, Sums* sums, const Nvfp4Masks& masks) {
    int number = 0;
    if (HAS_SHARED && shared_stages > 0)
      gate_up_tile<SHARED, SHARED_BLOCK_SCALED>(layer.shared_gate_up, 0, slot, 0, x, sums[number++ & 1], masks);
    const int units = routed_stages / R::parts;
    for (int j = 0; j < units; j++) {
      const int unit = first + j * slots, index = unit / TILES;
      gate_up_tile<FORMAT, BLOCK_SCALED>(layer.gate_up, table.expert[HAS_SHARED + index], unit % TILES, HAS_SHARED + index,
                                         x, sums[number++ & 1], masks);
    }
  }

  // A warp's share of one expert's activations: those of one span of its part of a stage; and the scales for them.
  template <int F> struct Share {
    typedef Received<F, ROWS> Words;
    static constexpr int ahead = Words::loads == 4 ? 2 : 1;  // shares in flight: 32 registers of words
    Words words;
    float scale, scale8;
    __device__ __forceinline__ bool live(const Group& at, int entry) const { return at.table.weight[entry][Words::P::row(at.lane)] != 0.f; }
    __device__ __forceinline__ void ask(const Group& at, int entry, int span) {
      if (live(at, entry)) words.load(at.sent(entry, Words::P::row(at.lane)) + span * 512, at.lane);
    }
    __device__ __forceinline__ void load(const Group& at, const Matrix& matrix, size_t expert, int entry, int tile, int span) {
      ask(at, entry, span);
      scale = scale8 = undo<F, F>();
      if (matrix.row_scale != nullptr) {
        const float* rows = matrix.row_scale + expert * HIDDEN + tile * 16 + (at.lane >> 2);
        scale *= __ldg(rows); scale8 *= __ldg(rows + 8);
      }
    }
    // Until all words are of this launch.
    __device__ __forceinline__ void receive(const Group& at, int entry, int span, uint4* pieces) {
      const bool needed = live(at, entry);
      while (__any_sync(~0u, needed && words.missing(at.table.launch) != 0)) ask(at, entry, span);
      words.operand(pieces, at.lane, needed);
    }
  };
  template <int F, bool SCALED> __device__ __forceinline__ void multiply_down(const Matrix& matrix, size_t expert, int tile, int span,
      const uint8_t* b, const uint4* pieces, float scale, float scale8, float* total, const Nvfp4Masks& masks) const {
    float c[4] = {0.f, 0.f, 0.f, 0.f};
    multiply_span<F, F, ROWS>(b, pieces, lane, c, masks);
    if (SCALED) {
      const float block = __ldg(matrix.block_scale + (expert * (HIDDEN / 128) + tile / 8) * (INTERMEDIATE / 128) + span);
      scale *= block; scale8 *= block;
    }
    total[0] = fmaf(c[0], scale, total[0]); total[1] = fmaf(c[1], scale, total[1]);
    total[2] = fmaf(c[2], scale8, total[2]); total[3] = fmaf(c[3], scale8, total[3]);
  }
  // Which span of 128 activations an expert's part-th piece of a warp's work is; parts go through its slices.
  template <int F> __device__ __forceinline__ int span_of(int part) const {
    return (part / Cut<F>::down_spans * 4 + warp) * Cut<F>::down_spans + part % Cut<F>::down_spans;
  }
  __device__ __forceinline__ void down_shared(int tile, float* total, const Nvfp4Masks& masks) {
    const uint8_t* b = ring;
    for (int part = 0; part < S::slices * S::down_spans; part++) {
      Share<SHARED> share;
      uint4 pieces[4];
      const int span = span_of<SHARED>(part);
      share.load(*this, layer.shared_down, 0, 0, tile, span);
      share.receive(*this, 0, span, pieces);
      if (part % S::down_spans == 0) b = wait_stage() + warp * (S::slice_bytes / 4);
      multiply_down<SHARED, SHARED_BLOCK_SCALED>(layer.shared_down, 0, tile, span, b, pieces, share.scale, share.scale8, total, masks);
      b += Chunk<SHARED>::span_bytes;
      if (part % S::down_spans == S::down_spans - 1) pass_stage();
    }
  }
  static constexpr int PARTS = R::slices * R::down_spans;  // of an expert
  __device__ __forceinline__ void load_item(Share<FORMAT>& share, int item, int items, int tile) const {
    if (item >= items) return;
    const int entry = HAS_SHARED + group + item / PARTS * GROUPS;
    share.load(*this, layer.down, table.expert[entry], entry, tile, span_of<FORMAT>(item % PARTS));
  }
  // Activations are asked for `ahead` items before they are multiplied.
  __device__ __forceinline__ void down_routed(int tile, float* total, const Nvfp4Masks& masks) {
    typedef Share<FORMAT> Routed;
    Routed shares[Routed::ahead];
    const int items = experts * PARTS;
    const uint8_t* b = ring;
#pragma unroll
    for (int q = 0; q < Routed::ahead; q++) load_item(shares[q], q, items, tile);
    for (int start = 0; start < items; start += Routed::ahead) {
#pragma unroll
      for (int q = 0; q < Routed::ahead; q++) {
        const int item = start + q, entry = HAS_SHARED + group + item / PARTS * GROUPS, part = item % PARTS;
        if (item >= items) break;
        uint4 pieces[4];
        shares[q].receive(*this, entry, span_of<FORMAT>(part), pieces);
        const float scale = shares[q].scale, scale8 = shares[q].scale8;
        load_item(shares[q], item + Routed::ahead, items, tile);
        const int within = item % (R::units * R::down_spans);  // of the stage
        if (within == 0) b = wait_stage();
        multiply_down<FORMAT, BLOCK_SCALED>(layer.down, table.expert[entry], tile, span_of<FORMAT>(part),
            b + within / R::down_spans * R::slice_bytes + warp * (R::slice_bytes / 4) + part % R::down_spans * Chunk<FORMAT>::span_bytes,
            pieces, scale, scale8, total, masks);
        if (within == R::units * R::down_spans - 1 || item == items - 1) pass_stage();
      }
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
// What a thread finishes of a tile of down: one output of one row.
struct Output {
  int row = threadIdx.x >> 4, feature = threadIdx.x & 15;
  float before = 0.f;
  __device__ __forceinline__ bfloat16* place(bfloat16* residual, int tile) const { return residual + (size_t)row * HIDDEN + tile * 16 + feature; }
  __device__ __forceinline__ void load(bfloat16* residual, int tile, int rows) {
    if (row < rows) before = widen(load_fresh_2(place(residual, tile)));
  }
  __device__ __forceinline__ void store(bfloat16* residual, const Sums& sums, int tile, int rows) const {
    if (row >= rows) return;
    float value = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) value += sums[w][feature][row];
    *place(residual, tile) = narrow(before + value);
  }
};

extern "C" __global__ __launch_bounds__(THREADS, 1) void experts_step(
    bfloat16* residual, const float* norm, float epsilon, int rows, int room, const uint8_t* gate_up, const float* gate_up_scale,
    const float* gate_up_block_scale, const uint8_t* down, const float* down_scale, const float* down_block_scale,
    const uint8_t* shared_gate_up, const float* shared_gate_up_scale, const float* shared_gate_up_block_scale,
    const uint8_t* shared_down, const float* shared_down_scale, const float* shared_down_block_scale, const int* distinct,
    const float* row_weights, const float* shared_weight, uint8_t* exchange, uint32_t* launches) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ Sums sums[2];
  __shared__ Table table;
  __shared__ __align__(8) unsigned long long barriers[GROUPS][STAGES];
  const Layer layer = {{gate_up, gate_up_scale, gate_up_block_scale}, {down, down_scale, down_block_scale},
                       {shared_gate_up, shared_gate_up_scale, shared_gate_up_block_scale},
                       {shared_down, shared_down_scale, shared_down_block_scale}};
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  uint8_t* x = memory + GROUPS * STAGES * STAGE_BYTES;
  const uint8_t* ring = memory + (warp >> 2) * STAGES * STAGE_BYTES;
  Group group{layer, table, exchange, ring, shared_address(ring), shared_address(barriers[warp >> 2]), warp >> 2, warp & 3, lane,
              (warp >> 2) * (int)gridDim.x + (int)blockIdx.x, GROUPS * (int)gridDim.x};
  if (HAS_SHARED && group.slot < TILES) group.shared_stages = S::parts;
  group.first = HAS_SHARED ? (group.slot - TILES + group.slots) % group.slots : group.slot;
  if (group.leads()) {
    for (int q = 0; q < STAGES; q++) barrier_init(group.full + q * 8);
    barrier_init_done();
    for (int q = 0; q < STAGES && q < group.shared_stages; q++) group.fetch_shared(q);
  }
  for (int q = threadIdx.x * 32; q < HIDDEN; q += THREADS * 32) prefetch(norm + q);
  wait_for_predecessors();
  release_dependents();
  int asked = 0;
  if (group.leads()) asked = group.fetch_first(distinct, room);
  __syncwarp();
  constexpr int pieces = (HIDDEN / 32 + WARPS - 1) / WARPS;
  uint4 raw[pieces], weights[pieces * X::weights];
  // All loads first: each store would wait for its own.
  static_assert(ROOM <= THREADS && ROOM * 8 <= 2 * THREADS, "a thread has one expert and two weights");
  const int thread = threadIdx.x;
  const int listed = thread < room ? (int)load_fresh_4(distinct + 1 + thread) : 0;
  const float early = thread < room * 8 ? load_fresh_float(row_weights + thread) : 0.f;
  const float late = thread + THREADS < room * 8 ? load_fresh_float(row_weights + thread + THREADS) : 0.f;
  const uint32_t routed = load_fresh_4(distinct), launch = load_fresh_4(launches) + 1;
  const float share = HAS_SHARED && thread < 8 ? load_fresh_float(shared_weight + thread) : 0.f;
#pragma unroll
  for (int q = 0; q < pieces; q++) {
    const int piece = q * WARPS + warp, row = X::row(lane);
    raw[q] = row < rows && piece < HIDDEN / 32 ? X::load(residual + (size_t)row * HIDDEN, piece, lane) : make_uint4(0, 0, 0, 0);
    if (piece < HIDDEN / 32) X::load_norm(norm, piece, lane, weights + q * X::weights);
  }
  if (thread < room) table.expert[HAS_SHARED + thread] = listed;
  if (thread < room * 8) table.weight[HAS_SHARED + thread / 8][thread % 8] = early;
  if (thread + THREADS < room * 8) table.weight[HAS_SHARED + (thread + THREADS) / 8][thread % 8] = late;
  if (HAS_SHARED && thread < 8) table.weight[0][thread] = share;
  if (thread == 0) { table.routed = routed; table.launch = launch; }
  __syncthreads();
  group.plan();
  if (group.leads()) for (; asked < STAGES; asked++) group.fetch(asked);
  __syncwarp();
  prepare_rows(raw, weights, epsilon, x, (float(*)[8])&sums[0], table, warp, lane);
  const Nvfp4Masks masks = nvfp4_masks();
  group.gate_up(x, sums, masks);
  Output output;
  for (int number = 0; number < group.tiles; number++) {
    const int tile = group.tile_of(number);
    float total[4] = {0.f, 0.f, 0.f, 0.f};
    output.load(residual, tile, rows);
    if (group.down_shared_stages(group.group)) group.down_shared(tile, total, masks);
    group.down_routed(tile, total, masks);
    sync_threads_of(group.group + 1, 128);
    store_sums<ROWS>(sums[number & 1][warp], total, lane);
    __syncthreads();
    output.store(residual, sums[number & 1], tile, rows);
  }
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) *launches = table.launch;
}
