// out = residual + epilogue(RMSNorm(x) W^T + bias) for up to 16 rows of x: weights stream once, at the speed of memory.
//
// One block per multiprocessor (or a few) walks over every gridDim-th tile of 16 outputs. The inputs are cut into units
// of 128; each of WARPS warps has a run of units, keeps its part of x in registers and multiplies it with its part of
// every tile, which lane 0 fetches STAGES steps ahead into the warp's own ring of shared memory. One more warp adds the
// parts of a tile, in order, and finishes it while the others are at the next one. Weights are fetched before the wait
// for the predecessor, and dependents are released at once: where half of a multiprocessor is enough for this kernel,
// the next one's rings fill while it runs.
//
// Macros: FORMAT 0 BF16, 1 FP8, 2 INT8, 3 NVFP4; K inputs; WARPS; STEP units of a stage; STAGES of a ring; COLUMNS 4,
// 8 or 16, at least the rows of x; NORM; BLOCK_SCALE 0, 1 (128 x 128), 2 (128 x 128, paired matrix); PAIRS (SiLU of
// pairs); RESIDUAL; WIDE (float32 out); RESIDENT blocks whose registers must fit on a multiprocessor; RELEASE dependents
// at once (0) or when x has been asked for (1), so that their fetches do not queue before it; GROUP tiles that
// share a pass over x, which is read anew for each group (0: x stays in registers).
#include "packed_linear_products.cuh"

extern "C" __global__ __launch_bounds__((WARPS + FINISHERS) * 32, RESIDENT) void packed_linear(
    const bfloat16* __restrict__ x, int x_stride, const float* __restrict__ norm, float epsilon,
    const uint8_t* __restrict__ blocks, const float* __restrict__ row_scale, const float* __restrict__ block_scale,
    int scale_rows, const float* __restrict__ bias, const bfloat16* residual, int residual_stride, void* out,
    int out_stride, int rows, int outputs, int tiles, const uint8_t* behind, int main_tiles, int main_outputs) {
  // The rings, the norm's weight, the sums.
  extern __shared__ __align__(128) uint8_t shared[];
  float* norms = (float*)(shared + (size_t)WARPS * STAGES * STAGE_BYTES);
  Sums& sums = *(Sums*)(norms + NORM * UNITS * 128);
  __shared__ Squares squares;
  __shared__ Scales scales;
  __shared__ __align__(8) unsigned long long barriers[WARPS][STAGES + 1];
  const int mine = (tiles - 1 - (int)blockIdx.x) / (int)gridDim.x + 1;
  Lane me;
  me.warp = threadIdx.x >> 5; me.lane = threadIdx.x & 31; me.g = me.lane >> 2; me.t = me.lane & 3;
  if (me.warp >= WARPS) {
    const Output to = {row_scale, bias, residual, out, residual_stride, out_stride, rows, outputs, main_tiles, main_outputs};
    finish_tiles(sums, squares, scales, to, epsilon, mine);
    return;
  }
  me.first = me.warp * (UNITS / WARPS) + min(me.warp, UNITS % WARPS);
  me.units = UNITS / WARPS + (me.warp < UNITS % WARPS);
  const uint8_t* ring = shared + (size_t)me.warp * STAGES * STAGE_BYTES;
  const uint32_t barrier = shared_address(&barriers[me.warp][0]);
  Cursor next = {0, 0, 0, blocks + blockIdx.x * TILE_BYTES + me.first * UNIT_CHUNKS * CHUNK_BYTES,
                 block_scale + ((size_t)blockIdx.x * UNITS + me.first) * 16};
#if BEHIND
  next.number = blockIdx.x; next.main_tiles = main_tiles; next.behind = behind;
#endif
  if (me.lane == 0) {
    for (int q = 0; q <= STAGES; q++) barrier_init(barrier + q * 8);
    barrier_init_done();
#if NORM
    const int inputs = min(me.units * 128, K - me.first * 128);
    fetch_bulk(shared_address(norms + me.first * 128), norm + me.first * 128, inputs * 4, barrier + STAGES * 8);
#endif
    for (int q = 0; q < STAGES && q < mine * STEPS; q++) {
      fetch(next, shared_address(ring) + q * STAGE_BYTES, barrier + q * 8, me);
      advance(next, mine);
    }
  }
  __syncwarp();
  if (!RELEASE) release_dependents();
  wait_for_predecessors();
  multiply_tiles(sums, squares, ring, barrier, norms, x, x_stride, rows, block_scale, scale_rows, mine, main_tiles, next, me);
}
