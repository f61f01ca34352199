// What a launch of experts_step.cu is made of: its cut into stages, shared memory, and each block's share of the work.
#pragma once
#include "expert_products.cuh"

constexpr int PER_TOKEN = 10, ROOM = ROWS * PER_TOKEN, PAIRS = ROWS * (PER_TOKEN + 1);  // most experts, and pairs with a row
constexpr bool HAS_SHARED = SHARED_FORMAT < 3;
constexpr int SHARED = HAS_SHARED ? SHARED_FORMAT : FORMAT;
constexpr int WARPS = GROUPS * 4, CONSUMERS = WARPS * 32, LOADERS = 2, THREADS = CONSUMERS + 64 + LOADERS * 32;
constexpr int TILES = INTERMEDIATE / 8, OUT_TILES = HIDDEN / 16;
constexpr int STRIDE = (INTERMEDIATE + 255) / 256 * 256;  // of a row of activations in memory
constexpr int X_STRIDE = HIDDEN * 2 + Chunk<FORMAT>::padding, H_STRIDE = INTERMEDIATE * 2 + Chunk<FORMAT>::padding;  // bytes
constexpr int READY = 1, MULTIPLIED = 2, LISTED = 3, LISTED_FOR_CONSUMERS = 4;  // named barriers
typedef Operand<FORMAT, ROWS> X;

struct Matrix { const uint8_t* blocks; const float* row_scale; const float* block_scale; };
struct Layer { Matrix gate_up, down, shared_gate_up, shared_down; };

// How one format's tiles are cut into stages.
template <int F> struct Cut {
  static constexpr int part = F == BF16 ? 16 : 8;                   // most blocks of a stage
  static constexpr int bytes = part * Chunk<F>::bytes;
  static constexpr int parts = HIDDEN / Chunk<F>::columns / part;   // stages of a tile of gate_up
  static constexpr int spans = part / 4 * Chunk<F>::columns / 128;  // of a warp in a stage
  static constexpr int deep = INTERMEDIATE / Chunk<F>::columns;     // blocks of a tile of down
  static constexpr int units = deep < part ? part / deep : 1;       // experts of a stage
  static constexpr int slices = deep > part ? deep / part : 1;      // stages of an expert
  static constexpr int slice_bytes = deep / slices * Chunk<F>::bytes;
  static constexpr int down_spans = INTERMEDIATE / slices / 512;    // of a warp, an expert and a stage
};
typedef Cut<FORMAT> R;
typedef Cut<SHARED> S;
constexpr int SCALES = R::bytes > S::bytes ? R::bytes : S::bytes;   // where a stage's row scales of down begin
constexpr int STAGE_BYTES = SCALES + 128;
static_assert(R::units <= 2, "room for the scales of two experts");

typedef float WarpSums[16][ROWS];
struct Memory {  // static shared memory
  union {
    WarpSums sums[GROUPS][2][4];  // of stages of gate_up, on their way to the finishing warp
    WarpSums outputs[WARPS];      // of a tile of down
  };
  float squares[ROWS * HIDDEN / 256];
  float inverse[8];                // 1 / rms of the rows
  int expert[ROOM + 1];            // entry 0 is the shared expert, if there is one
  __align__(16) float weight[ROOM + 1][8];
  unsigned short pair[PAIRS];      // entry * 8 + row of each pair, in order
  uint8_t first_pair[ROOM + 1], live[ROOM + 1];  // of an entry: its first pair, and which rows chose it
  int routed;                      // experts listed
  uint32_t launch;                 // number of this launch
  int loaded[LOADERS];             // pairs whose activations are in shared memory; loader w has every LOADERS-th
  unsigned long long full[GROUPS][STAGES], empty[GROUPS][STAGES], summed[GROUPS][2], read[GROUPS][2];
};

constexpr int READY_THREADS = CONSUMERS + 64, LISTED_THREADS = LOADERS * 32 + 32, LISTED_FOR_CONSUMERS_THREADS = LOADERS * 32 + CONSUMERS;
__device__ __forceinline__ void prefetch(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }
__device__ __forceinline__ int load_acquire(uint32_t address) {
  int v;
  asm volatile("ld.acquire.cta.shared.s32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void store_release(uint32_t address, int value) {
  asm volatile("st.release.cta.shared.s32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ uint8_t* sent(uint8_t* exchange, int entry, int row) { return exchange + (entry * 8 + row) * (STRIDE * 4); }

// What a block has to do; the same for all of its warps.
struct Work {
  int shared_tiles, routed_tiles, out_tiles;
  __device__ __forceinline__ Work(int routed) {
    const int units = routed * TILES;
    shared_tiles = HAS_SHARED && blockIdx.x < TILES ? (TILES - 1 - (int)blockIdx.x) / (int)gridDim.x + 1 : 0;
    routed_tiles = first() < units ? (units - 1 - first()) / (int)gridDim.x + 1 : 0;
    out_tiles = out_tile(0) < OUT_TILES ? (OUT_TILES - 1 - out_tile(0)) / (int)gridDim.x + 1 : 0;
  }
  // Blocks without a tile of the shared expert come first with those of the routed ones.
  static __device__ __forceinline__ int first() {
    return HAS_SHARED ? ((int)blockIdx.x + (int)gridDim.x - TILES % (int)gridDim.x) % (int)gridDim.x : (int)blockIdx.x;
  }
  static __device__ __forceinline__ int shared_tile(int number) { return blockIdx.x + number * gridDim.x; }
  static __device__ __forceinline__ int unit(int number) { return first() + number * (int)gridDim.x; }
  static __device__ __forceinline__ int out_tile(int number) { return gridDim.x - 1 - blockIdx.x + number * gridDim.x; }
};
