// The experts of a step in one launch: norm, gate and up with SiLU, down, weighted sum, residual.
//
// One block per multiprocessor walks through one list of stages of weights: the parts of its tiles of gate_up (16 rows,
// the whole hidden width), then the experts of its tiles of down (16 rows). A stage is multiplied by one of GROUPS groups
// of four warps, in turn; each group has a ring of STAGES stages in shared memory. Four more warps: one fills the rings
// with bulk copies; one finishes tiles of gate_up (sums, norm, SiLU, the row's weight); two fetch finished activations.
// The list does not end between the two matrices: weights of down arrive while gate_up is still being multiplied.
// Activations pass from block to block through memory, as words that carry the number of the launch: a reader looks until
// they have come. All blocks must be resident (at most one a multiprocessor) and each must have a tile of gate_up, so that
// the number has been read by all when the last block moves it. The shared expert comes first: its weights are known
// before the routing is.
//
// The rows are read and prepared before the wait for the kernel ahead: that is the routing, which reads them too and lets
// this one start when it has waited itself. So they must have been written before that kernel. The warp that fills the
// rings and those that fetch wait for it; what they hand over comes before the rows are overwritten.
//
// Definitions: HIDDEN, INTERMEDIATE; FORMAT, SHARED_FORMAT (0 BF16, 1 FP8, 2 NVFP4, SHARED_FORMAT 3 for none);
// BLOCK_SCALED, SHARED_BLOCK_SCALED (0 or 1, FP8); ROWS (4 or 8); GROUPS, STAGES.
#include "expert_helpers.cuh"

// One of the four warps of a group.
struct Consumer {
  Memory& memory;
  const Layer& layer;
  const uint8_t* rings;
  uint32_t x, activations, zeros;  // shared addresses of the rows, of the pairs' activations and of zeros for dead rows
  const Nvfp4Masks& masks;
  int group, warp, lane;
  int stage = 0;  // of the block's list
  __device__ __forceinline__ bool mine() const { return stage % GROUPS == group; }
  __device__ __forceinline__ const uint8_t* wait_stage() const {
    const int turn = stage / GROUPS, slot = turn % STAGES;
    barrier_wait(shared_address(&memory.full[group][slot]), turn / STAGES & 1);
    return rings + (group * STAGES + slot) * STAGE_BYTES;
  }
  __device__ __forceinline__ void pass_stage() const {
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&memory.empty[group][stage / GROUPS % STAGES]));
  }
  template <int F, bool SCALED> __device__ __forceinline__ void tile(const Matrix& matrix, size_t expert, int number,
                                                                    Operand<F, ROWS>* operand) {
    const uint32_t row = x + Operand<F, ROWS>::row(lane) * X_STRIDE + Operand<F, ROWS>::offset(lane);
    for (int part = 0; part < Cut<F>::parts; part++, stage++)
      if (mine()) part_of_tile<F, SCALED>(matrix, expert, number, (part * 4 + warp) * Cut<F>::spans, row, operand);
  }
  template <int F, bool SCALED> __device__ __forceinline__ void part_of_tile(const Matrix& matrix, size_t expert, int number, int span,
                                                                            uint32_t row, Operand<F, ROWS>* operand) const {
    const float* scale = matrix.block_scale;
    if (SCALED) scale += (expert * 2 * (INTERMEDIATE / 128) + number / 16) * (HIDDEN / 128) + span;
    float scales[Cut<F>::spans][2];
#pragma unroll
    for (int i = 0; i < Cut<F>::spans; i++) {
      scales[i][0] = SCALED ? __ldg(scale + i) : 1.f;
      scales[i][1] = SCALED ? __ldg(scale + i + (INTERMEDIATE / 128) * (HIDDEN / 128)) : 1.f;
    }
#pragma unroll
    for (int i = 0; i < Cut<F>::spans; i++) operand[i].load(row + (span + i) * 256, lane);
    const uint8_t* b = wait_stage() + warp * (Cut<F>::bytes / 4);
    float c[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int i = 0; i < Cut<F>::spans; i++, b += Chunk<F>::span_bytes) {
      if (SCALED) {
        float d[4] = {0.f, 0.f, 0.f, 0.f};
        multiply_span<F, ROWS>(b, operand[i], lane, d, masks);
        c[0] = fmaf(d[0], scales[i][0], c[0]); c[1] = fmaf(d[1], scales[i][0], c[1]);
        c[2] = fmaf(d[2], scales[i][1], c[2]); c[3] = fmaf(d[3], scales[i][1], c[3]);
      } else {
        multiply_span<F, ROWS>(b, operand[i], lane, c, masks);
      }
    }
    pass_stage();
    const int turn = stage / GROUPS;
    if (turn >= 2) barrier_wait(shared_address(&memory.read[group][turn & 1]), ((turn >> 1) - 1) & 1);
    store_sums<F, ROWS>(memory.sums[group][turn & 1][warp], c, lane);
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&memory.summed[group][turn & 1]));
  }
  __device__ __forceinline__ void gate_up(const Work& work) {
    Operand<SHARED, ROWS> shared_operand[S::spans];
    for (int j = 0; j < work.shared_tiles; j++)
      tile<SHARED, SHARED_BLOCK_SCALED>(layer.shared_gate_up, 0, Work::shared_tile(j), shared_operand);
    Operand<FORMAT, ROWS> operand[R::spans];
    for (int j = 0; j < work.routed_tiles; j++) {
      const int unit = Work::unit(j);
      tile<FORMAT, BLOCK_SCALED>(layer.gate_up, memory.expert[HAS_SHARED + unit / TILES], unit % TILES, operand);
    }
  }

  // A stage of down: part of 16 outputs of all rows, for `count` experts from `entry` on. All of them are loaded before the
  // first is multiplied, so that their latencies run side by side; where there are fewer than UNITS, the last one is taken
  // again and weighs nothing.
  template <int F, bool SCALED, int UNITS, bool IS_SHARED>
  __device__ __forceinline__ void experts(const Matrix& matrix, int entry, int count, int tile, int slice,
                                          Operand<F, ROWS> (*operand)[Cut<F>::down_spans], float* total) const {
    typedef Operand<F, ROWS> H;
    const int row = H::row(lane), span = (slice * 4 + warp) * Cut<F>::down_spans, last = entry + count - 1;
    const int end = memory.first_pair[last] + __popc((uint32_t)memory.live[last]);
#pragma unroll
    for (int w = 0; w < LOADERS; w++)
      while (load_acquire(shared_address(&memory.loaded[w])) < (end - w + LOADERS - 1) / LOADERS) {}
#pragma unroll
    for (int j = 0; j < UNITS; j++) {
      const int which = min(entry + j, last);
      const uint32_t live = memory.live[which];
      const int pair = memory.first_pair[which] + __popc(live & ((1u << row) - 1));
      const uint32_t base = (live >> row & 1 ? activations + pair * H_STRIDE + span * 256 : zeros) + H::offset(lane);
#pragma unroll
      for (int i = 0; i < Cut<F>::down_spans; i++) operand[j][i].load(base + i * 256, lane);
    }
    const uint8_t* stage_bytes = wait_stage();
    float c[UNITS][4] = {};
#pragma unroll
    for (int j = 0; j < UNITS; j++) {
      const uint8_t* b = stage_bytes + j * Cut<F>::slice_bytes + warp * (Cut<F>::slice_bytes / 4);
#pragma unroll
      for (int i = 0; i < Cut<F>::down_spans; i++, b += Chunk<F>::span_bytes) {
        static_assert(!SCALED || Cut<F>::down_spans == 1, "one block scale");
        multiply_span<F, ROWS>(b, operand[j][i], lane, c[j], masks);
      }
    }
#pragma unroll
    for (int j = 0; j < UNITS; j++) {
      float scale = undo<F, F>(), scale8 = scale;
      if (matrix.row_scale != nullptr) {
        const float* rows = (const float*)(stage_bytes + SCALES + j * 64) + (lane >> 2);
        scale *= rows[0]; scale8 *= rows[8];
      }
      if (SCALED) {
        const size_t expert = IS_SHARED ? 0 : memory.expert[min(entry + j, last)];
        const float block = __ldg(matrix.block_scale + (expert * (HIDDEN / 128) + tile / 8) * (INTERMEDIATE / 128) + span);
        scale *= block; scale8 *= block;
      }
      // Where the last sum adds columns n and n + 4, repeated columns are left out.
      if (j >= count || (X::folded && !H::folded && ROWS == 4 && (lane & 2))) scale = scale8 = 0.f;
      total[0] = fmaf(c[j][0], scale, total[0]); total[1] = fmaf(c[j][1], scale, total[1]);
      total[2] = fmaf(c[j][2], scale8, total[2]); total[3] = fmaf(c[j][3], scale8, total[3]);
    }
  }
  __device__ __forceinline__ void down(int tile, int routed, float* total) {
    Operand<SHARED, ROWS> shared_operand[1][S::down_spans];
    if (HAS_SHARED)
      for (int slice = 0; slice < S::slices; slice++, stage++)
        if (mine()) {
          experts<SHARED, SHARED_BLOCK_SCALED, 1, true>(layer.shared_down, 0, 1, tile, slice, shared_operand, total);
          pass_stage();
        }
    Operand<FORMAT, ROWS> operand[R::units][R::down_spans];
    for (int index = 0; index < routed; index += R::units)
      for (int slice = 0; slice < R::slices; slice++, stage++)
        if (mine()) {
          experts<FORMAT, BLOCK_SCALED, R::units, false>(layer.down, HAS_SHARED + index, min(R::units, routed - index), tile, slice, operand,
                                                         total);
          pass_stage();
        }
  }
};

// Rows times the norm's weight into shared memory, and sums of squares; a warp has pieces of 256 inputs.
__device__ __forceinline__ void prepare_rows(Memory& memory, const bfloat16* residual, const float* norm, uint32_t x, int rows, int warp,
                                             int lane) {
  constexpr int pieces = ROWS * HIDDEN / 256, each = (pieces + WARPS - 1) / WARPS;
  uint4 raw[each], weights[each][2];
#pragma unroll
  for (int q = 0; q < each; q++) {
    const int piece = q * WARPS + warp, row = piece % ROWS, at = piece / ROWS * 256 + lane * 8;
    if (piece >= pieces) break;
    raw[q] = weights[q][0] = weights[q][1] = make_uint4(0, 0, 0, 0);
    if (row >= rows) continue;
    raw[q] = load_fresh_16(residual + (size_t)row * HIDDEN + at);
    weights[q][0] = load_fresh_16(norm + at); weights[q][1] = load_fresh_16(norm + at + 4);
  }
#pragma unroll
  for (int q = 0; q < each; q++) {
    const int piece = q * WARPS + warp, row = piece % ROWS, at = piece / ROWS * 256 + lane * 8;
    if (piece >= pieces) break;
    const uint32_t in[4] = {raw[q].x, raw[q].y, raw[q].z, raw[q].w};
    const uint32_t w[8] = {weights[q][0].x, weights[q][0].y, weights[q][0].z, weights[q][0].w,
                           weights[q][1].x, weights[q][1].y, weights[q][1].z, weights[q][1].w};
    uint32_t out[4];
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float a = low_half(in[i]), b = high_half(in[i]);
      sum = fmaf(a, a, sum); sum = fmaf(b, b, sum);
      const uint32_t scaled = pack_pair(a * __uint_as_float(w[2 * i]), b * __uint_as_float(w[2 * i + 1]));
      out[i] = FORMAT == BF16 ? scaled : raise(scaled);
    }
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(x + row * X_STRIDE + at * 2), "r"(out[0]), "r"(out[1]), "r"(out[2]),
                 "r"(out[3]) : "memory");
#pragma unroll
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (lane == 0) memory.squares[piece] = sum;
  }
}
// What a thread finishes of a tile of down: one output of one row.
struct Output {
  bfloat16* place;
  bfloat16 before;
  int row, feature;
  __device__ __forceinline__ Output(bfloat16* residual, int tile, int rows) {
    row = threadIdx.x >> 4; feature = threadIdx.x & 15;
    place = residual + (size_t)row * HIDDEN + tile * 16 + feature;
    before = row < rows ? load_fresh_2(place) : 0;
  }
  // The sums of all warps, added to the residual.
  __device__ __forceinline__ void finish(Memory& memory, const float* total, int rows, int warp, int lane) const {
    sync_threads_of(MULTIPLIED, CONSUMERS);
    store_sums<FORMAT, ROWS>(memory.outputs[warp], total, lane);
    sync_threads_of(MULTIPLIED, CONSUMERS);
    if (row >= rows) return;
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += memory.outputs[w][feature][row];
    *place = narrow(widen(before) + sum);
  }
};

extern "C" __global__ __launch_bounds__(THREADS, 1) void experts_step(
    bfloat16* residual, const float* norm, float epsilon, int rows, int room, const uint8_t* gate_up, const float* gate_up_scale,
    const float* gate_up_block_scale, const uint8_t* down, const float* down_scale, const float* down_block_scale,
    const uint8_t* shared_gate_up, const float* shared_gate_up_scale, const float* shared_gate_up_block_scale,
    const uint8_t* shared_down, const float* shared_down_scale, const float* shared_down_block_scale, const int* distinct,
    const float* row_weights, const float* shared_weight, uint8_t* exchange, uint32_t* launches) {
  extern __shared__ __align__(128) uint8_t dynamic[];  // the rings, the rows, the pairs' activations, zeros
  __shared__ __align__(16) Memory memory;
  const Layer layer = {{gate_up, gate_up_scale, gate_up_block_scale}, {down, down_scale, down_block_scale},
                       {shared_gate_up, shared_gate_up_scale, shared_gate_up_block_scale},
                       {shared_down, shared_down_scale, shared_down_block_scale}};
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const uint32_t rings = shared_address(dynamic), x = rings + GROUPS * STAGES * STAGE_BYTES, activations = x + ROWS * X_STRIDE,
                 zeros = activations + PAIRS * H_STRIDE;
  for (int q = threadIdx.x; q < GROUPS * STAGES; q += THREADS) {
    barrier_init_for(shared_address(&memory.full[0][0] + q), 1);
    barrier_init_for(shared_address(&memory.empty[0][0] + q), 4);
  }
  if (threadIdx.x < GROUPS * 2) {
    barrier_init_for(shared_address(&memory.summed[0][0] + threadIdx.x), 4);
    barrier_init_for(shared_address(&memory.read[0][0] + threadIdx.x), 1);
  }
  if (threadIdx.x < LOADERS) memory.loaded[threadIdx.x] = 0;
  if (threadIdx.x < 160) asm volatile("st.shared.u32 [%0], 0;" ::"r"(zeros + threadIdx.x * 4) : "memory");
  barrier_init_done();
  for (int q = threadIdx.x * 32; q < HIDDEN; q += THREADS * 32) prefetch(norm + q);
  __syncthreads();
  if (warp == WARPS) { produce(memory, rings, layer, distinct, room, lane); return; }
  if (warp == WARPS + 1) { finish(memory, layer, exchange, epsilon, lane); return; }
  if (warp > WARPS + 1) {
    load_activations(memory, activations, exchange, row_weights, shared_weight, launches, room, warp - WARPS - 2, lane);
    return;
  }
  prepare_rows(memory, residual, norm, x, rows, warp, lane);
  sync_threads_of(READY, READY_THREADS);
  release_dependents();  // not earlier: their weights would delay the rows
  const Nvfp4Masks masks = nvfp4_masks();
  Consumer consumer{memory, layer, dynamic, x, activations, zeros, masks, warp >> 2, warp & 3, lane};
  const int routed = memory.routed;
  const Work work(routed);
  consumer.gate_up(work);
  sync_threads_of(LISTED_FOR_CONSUMERS, LISTED_FOR_CONSUMERS_THREADS);
  for (int j = 0; j < work.out_tiles; j++) {
    float total[4] = {0.f, 0.f, 0.f, 0.f};
    const Output output(residual, Work::out_tile(j), rows);
    consumer.down(Work::out_tile(j), routed, total);
    output.finish(memory, total, rows, warp, lane);
  }
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) *launches = memory.launch;
}
