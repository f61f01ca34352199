// The warps of experts_step.cu that do not multiply: one fills the rings of weights, one finishes tiles of gate_up, and
// some fetch activations of all blocks.
#pragma once
#include "expert_layout.cuh"

// The warp that fills the rings; one lane of it.
struct Producer {
  Memory& memory;
  uint32_t rings;
  int stage = 0;
  // Room for the next stage, which will be so many bytes.
  __device__ __forceinline__ void begin(int bytes) {
    const int group = stage % GROUPS, turn = stage / GROUPS, slot = turn % STAGES;
    if (turn >= STAGES) barrier_wait(shared_address(&memory.empty[group][slot]), (turn / STAGES - 1) & 1);
    barrier_expect(shared_address(&memory.full[group][slot]), bytes);
  }
  __device__ __forceinline__ void copy(int offset, const void* source, int bytes) const {
    const int group = stage % GROUPS, slot = stage / GROUPS % STAGES;
    copy_bulk(rings + (group * STAGES + slot) * STAGE_BYTES + offset, source, bytes, shared_address(&memory.full[group][slot]));
  }
  template <int F> __device__ __forceinline__ void tile(const Matrix& matrix, size_t tile, int from = 0, int to = Cut<F>::parts) {
    if (matrix.row_scale != nullptr && from == 0) prefetch(matrix.row_scale + tile * 16);
    const uint8_t* source = matrix.blocks + tile * (Cut<F>::parts * Cut<F>::bytes);
    for (int part = from; part < to; part++, stage++) {
      begin(Cut<F>::bytes);
      copy(0, source + part * Cut<F>::bytes, Cut<F>::bytes);
    }
  }
  template <int F> __device__ __forceinline__ void expert(const Matrix& matrix, size_t expert, int tile, int slice, int place) const {
    if (matrix.row_scale != nullptr) copy(SCALES + place * 64, matrix.row_scale + expert * HIDDEN + tile * 16, 64);
    copy(place * Cut<F>::slice_bytes, matrix.blocks + ((expert * OUT_TILES + tile) * Cut<F>::slices + slice) * Cut<F>::slice_bytes,
         Cut<F>::slice_bytes);
  }
  template <int F> static __device__ __forceinline__ int expert_bytes(const Matrix& matrix) {
    return Cut<F>::slice_bytes + (matrix.row_scale != nullptr ? 64 : 0);
  }
  __device__ __forceinline__ void out_tile(const Layer& layer, int tile, int routed) {
    if (HAS_SHARED)
      for (int slice = 0; slice < S::slices; slice++, stage++) {
        begin(expert_bytes<SHARED>(layer.shared_down));
        expert<SHARED>(layer.shared_down, 0, tile, slice, 0);
      }
    for (int index = 0; index < routed; index += R::units)
      for (int slice = 0; slice < R::slices; slice++, stage++) {
        begin(min(R::units, routed - index) * expert_bytes<FORMAT>(layer.down));
#pragma unroll
        for (int j = 0; j < R::units; j++)
          if (index + j < routed) expert<FORMAT>(layer.down, memory.expert[HAS_SHARED + index + j], tile, slice, j);
      }
  }
};
__device__ __forceinline__ void produce(Memory& memory, uint32_t rings, const Layer& layer, const int* distinct, int room, int lane) {
  Producer producer{memory, rings};
  // As many of the shared expert's stages as there is room for before anything is multiplied.
  constexpr int early = S::parts < GROUPS * STAGES ? S::parts : GROUPS * STAGES;
  if (lane == 0 && HAS_SHARED && blockIdx.x < TILES) producer.tile<SHARED>(layer.shared_gate_up, blockIdx.x, 0, early);
  __syncwarp();
  wait_for_predecessors();
  int listed[(ROOM + 32) / 32];  // the count, then the experts
#pragma unroll
  for (int q = 0; q < (ROOM + 32) / 32; q++) listed[q] = q * 32 + lane <= room ? (int)load_fresh_4(distinct + q * 32 + lane) : 0;
#pragma unroll
  for (int q = 0; q < (ROOM + 32) / 32; q++) {
    const int place = q * 32 + lane;
    if (place > 0 && place <= room) memory.expert[HAS_SHARED + place - 1] = listed[q];
  }
  const int routed = __shfl_sync(~0u, listed[0], 0);
  if (lane == 0) memory.routed = routed;
  // The first rows are asked for before the first weights, or they would queue behind them.
  sync_threads_of(READY, READY_THREADS);
  if (lane != 0) return;
  const Work work(routed);
  for (int j = 0; j < work.shared_tiles; j++)
    producer.tile<SHARED>(layer.shared_gate_up, Work::shared_tile(j), j == 0 ? early : 0);
  for (int j = 0; j < work.routed_tiles; j++) {
    const int unit = Work::unit(j);
    producer.tile<FORMAT>(layer.gate_up, (size_t)memory.expert[HAS_SHARED + unit / TILES] * TILES + unit % TILES);
  }
  for (int j = 0; j < work.out_tiles; j++) producer.out_tile(layer, Work::out_tile(j), routed);
}

// The warp that finishes tiles of gate_up.
struct Scales { float gate, up; };
struct Finisher {
  Memory& memory;
  uint8_t* exchange;
  int lane;
  int stage = 0;
  // Of lane % 8's rows of a tile; asked for long before they are used.
  __device__ __forceinline__ Scales scales(const Matrix& matrix, size_t tile) const {
    if (matrix.row_scale == nullptr) return {1.f, 1.f};
    const float* scale = matrix.row_scale + tile * 16 + (lane & 7);
    return {__ldg(scale), __ldg(scale + 8)};
  }
  // Those of four tiles of the routed experts: lane / 8 says which.
  __device__ __forceinline__ Scales routed_scales(const Matrix& matrix, const Work& work, int number) const {
    number += lane >> 3;
    if (number >= work.routed_tiles) return {1.f, 1.f};
    const int unit = Work::unit(number);
    return scales(matrix, (size_t)memory.expert[HAS_SHARED + unit / TILES] * TILES + unit % TILES);
  }
  static __device__ __forceinline__ Scales of_tile(Scales four, int which, int lane) {
    const int from = which * 8 + (lane & 7);
    return {__shfl_sync(~0u, four.gate, from), __shfl_sync(~0u, four.up, from)};
  }
  template <int F> __device__ __forceinline__ void tile(int entry, int number, Scales scale) {
    const int feature = lane & 7;
    float gate[ROWS / 4] = {}, up[ROWS / 4] = {};
    for (int part = 0; part < Cut<F>::parts; part++, stage++) {
      const int group = stage % GROUPS, turn = stage / GROUPS;
      barrier_wait(shared_address(&memory.summed[group][turn & 1]), turn >> 1 & 1);
#pragma unroll
      for (int half = 0; half < ROWS / 4; half++)
#pragma unroll
        for (int w = 0; w < 4; w++) {
          const WarpSums& sums = memory.sums[group][turn & 1][w];
          gate[half] += sums[feature][half * 4 + (lane >> 3)]; up[half] += sums[feature + 8][half * 4 + (lane >> 3)];
        }
      __syncwarp();
      if (lane == 0) barrier_arrive(shared_address(&memory.read[group][turn & 1]));
    }
#pragma unroll
    for (int half = 0; half < ROWS / 4; half++) {
      const int row = half * 4 + (lane >> 3);
      const float weight = memory.weight[entry][row], factor = memory.inverse[row] * undo<F, FORMAT>();
      const float value = silu(gate[half] * (factor * scale.gate)) * (up[half] * (factor * scale.up)) * weight * (F == BF16 ? 1.f : RAISE);
      const float next = __shfl_down_sync(~0u, value, 1);
      if (weight != 0.f && feature % 2 == 0)
        send_pair(sent(exchange, entry, row) + (number * 8 + feature) * 4, pack_pair(value, next), memory.launch);
    }
  }
};
__device__ __forceinline__ void finish(Memory& memory, const Layer& layer, uint8_t* exchange, float epsilon, int lane) {
  sync_threads_of(READY, READY_THREADS);
  if (lane < ROWS) {
    float total = 0.f;
    for (int q = 0; q < HIDDEN / 256; q++) total += memory.squares[q * ROWS + lane];
    memory.inverse[lane] = rsqrtf(total / HIDDEN + epsilon);
  }
  sync_threads_of(LISTED, LISTED_THREADS);
  const Work work(memory.routed);
  Finisher finisher{memory, exchange, lane};
  Scales next = finisher.routed_scales(layer.gate_up, work, 0);
  for (int j = 0; j < work.shared_tiles; j++)
    finisher.tile<SHARED>(0, Work::shared_tile(j), finisher.scales(layer.shared_gate_up, Work::shared_tile(j)));
  for (int base = 0; base < work.routed_tiles; base += 4) {
    const Scales four = next;
    next = finisher.routed_scales(layer.gate_up, work, base + 4);
    for (int j = 0; j < 4 && base + j < work.routed_tiles; j++) {
      const int unit = Work::unit(base + j);
      finisher.tile<FORMAT>(HAS_SHARED + unit / TILES, unit % TILES, Finisher::of_tile(four, j, lane));
    }
  }
}

// The warps that fetch activations: every LOADERS-th pair of an expert and a row that chose it.
__device__ __forceinline__ int list_pairs(Memory& memory, const float* row_weights, const float* shared_weight, int room, int loader, int lane) {
  constexpr int each = (ROOM + 1 + 31) / 32;  // entries of a lane
  uint4 weights[each][2];
#pragma unroll
  for (int q = 0; q < each; q++) {
    const int entry = q * 32 + lane, place = entry - HAS_SHARED;
    const float* row = place < 0 ? shared_weight : row_weights + place * 8;
    weights[q][0] = weights[q][1] = make_uint4(0, 0, 0, 0);
    if (place < room) { weights[q][0] = load_fresh_16(row); weights[q][1] = load_fresh_16(row + 4); }
  }
  int total = 0;
#pragma unroll
  for (int q = 0; q < each; q++) {
    const int entry = q * 32 + lane;
    const uint32_t bits[8] = {weights[q][0].x, weights[q][0].y, weights[q][0].z, weights[q][0].w,
                              weights[q][1].x, weights[q][1].y, weights[q][1].z, weights[q][1].w};
    uint32_t live = 0;
#pragma unroll
    for (int row = 0; row < ROWS; row++) live |= (bits[row] << 1 != 0) << row;
    int before = __popc(live);
    const int count = before;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const int other = __shfl_up_sync(~0u, before, o);
      if (lane >= o) before += other;
    }
    const int all = __shfl_sync(~0u, before, 31);
    before += total - count;
    total += all;
    if (entry <= ROOM) {
      if (loader == 0) {
        memory.first_pair[entry] = before; memory.live[entry] = live;
        *(uint4*)&memory.weight[entry][0] = weights[q][0]; *(uint4*)&memory.weight[entry][4] = weights[q][1];
      }
#pragma unroll
      for (int row = 0; row < ROWS; row++) if (live >> row & 1) memory.pair[before++] = entry * 8 + row;
    }
  }
  return total;
}
__device__ __forceinline__ void load_activations(Memory& memory, uint32_t activations, uint8_t* exchange, const float* row_weights,
    const float* shared_weight, const uint32_t* launches, int room, int loader, int lane) {
  wait_for_predecessors();
  const uint32_t launch = load_fresh_4(launches) + 1;
  const int total = list_pairs(memory, row_weights, shared_weight, room, loader, lane);
  if (loader == 0 && lane == 0) memory.launch = launch;
  __syncwarp();
  arrive_for_threads_of(LISTED, LISTED_THREADS);
  arrive_for_threads_of(LISTED_FOR_CONSUMERS, LISTED_FOR_CONSUMERS_THREADS);
  constexpr int pieces = INTERMEDIATE / 128, flight = pieces == 4 ? 3 : 2;  // 16-byte loads of a lane and a pair; pairs at a time
  int done = 0;
  for (int base = loader; base < total; base += LOADERS * flight) {
    uint4 words[flight][pieces];
    const uint8_t* source[flight];
#pragma unroll
    for (int f = 0; f < flight; f++) {
      const int number = base + f * LOADERS, pair = memory.pair[number < total ? number : base];
      source[f] = sent(exchange, pair >> 3, pair & 7) + lane * 16;
#pragma unroll
      for (int p = 0; p < pieces; p++) words[f][p] = load_fresh_16(source[f] + p * 512);
    }
#pragma unroll
    for (int f = 0; f < flight; f++) {
      const int number = base + f * LOADERS;
      if (number >= total) break;
      for (;;) {
        uint32_t different = 0;
#pragma unroll
        for (int p = 0; p < pieces; p++) different |= (words[f][p].y ^ launch) | (words[f][p].w ^ launch);
        if (!__any_sync(~0u, different != 0)) break;
        __nanosleep(100);
#pragma unroll
        for (int p = 0; p < pieces; p++) words[f][p] = load_fresh_16(source[f] + p * 512);
      }
#pragma unroll
      for (int p = 0; p < pieces; p++)
        asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(activations + number * H_STRIDE + (p * 32 + lane) * 8),
                     "r"(words[f][p].x), "r"(words[f][p].z) : "memory");
      __syncwarp();
      done++;
      if (lane == 0) store_release(shared_address(&memory.loaded[loader]), done);
    }
  }
}
