// Where a warp's weights stand, and their way into its ring.
#pragma once
#include "packed_linear_inputs.cuh"

// Where the next fetch stands: tiles of a group take turns within each step over the inputs. `source`: this warp's part
// of the tile; `scales`: INT8's scales of it.
struct Cursor {
  int group, tile, step;
  const uint8_t* source;
  const float* scales;
#if BEHIND
  int number, main_tiles;  // of the tile; of the first matrix
  const uint8_t* behind;
#endif
};
__device__ __forceinline__ void move_tiles(Cursor& at, int count) {
  at.source += (long long)count * gridDim.x * TILE_BYTES;
  if (FORMAT == 2) at.scales += (long long)count * gridDim.x * UNITS * 16;
#if BEHIND
  at.number += count * gridDim.x;
#endif
}
__device__ __forceinline__ void advance(Cursor& at, int mine) {
#if GROUP > 1
  const int size = min(GROUP, mine - at.group);
  move_tiles(at, 1);
  if (++at.tile < size) return;
  at.tile = 0;
  if (++at.step < STEPS) {
    move_tiles(at, -size);
    return;
  }
  at.step = 0;
  at.group += GROUP;
#else
  if (++at.step < STEPS) return;
  at.step = 0;
  move_tiles(at, 1);
#endif
}

// Bytes of the step's weights, and its units; fewer at the end of a run.
__device__ __forceinline__ uint32_t step_bytes(const Cursor& at, int& units, const Lane& me) {
#if UNITS % WARPS == 0 && MOST % STEP == 0 && CHUNKS % UNIT_CHUNKS == 0
  units = STEP;
  return WEIGHT_BYTES;
#else
  units = max(0, min(STEP, me.units - at.step * STEP));
  return min(units * UNIT_CHUNKS, CHUNKS - (me.first + at.step * STEP) * UNIT_CHUNKS) * CHUNK_BYTES;
#endif
}
__device__ __forceinline__ void fetch(const Cursor& at, uint32_t ring, uint32_t barrier, const Lane& me) {
  int units;
  const uint32_t bytes = step_bytes(at, units, me);
  barrier_expect(barrier, units ? bytes + units * SCALE_BYTES : 0);
  if (!units) return;
#if BEHIND
  if (at.number >= at.main_tiles) {
    const int half = at.number - at.main_tiles;
    const uint8_t* source = at.behind + ((size_t)(half >> 1) * UNITS + me.first + at.step * STEP) * 4096 + (half & 1) * 512;
    for (int i = 0; i < units * 4; i++) copy_bulk(ring + i * 512, source + i * 1024, 512, barrier);
    return;
  }
#endif
  copy_bulk(ring, at.source + at.step * WEIGHT_BYTES, bytes, barrier);
  if (FORMAT == 2) copy_bulk(ring + WEIGHT_BYTES, at.scales + at.step * STEP * 16, units * SCALE_BYTES, barrier);
}
