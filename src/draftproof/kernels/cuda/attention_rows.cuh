// Parts of the attention kernel: norm and rotation of a head by a warp, and the running softmax of 16 rows of queries
// over slabs of 16 positions.
//
// Defined before: DIM, PITCH, ROTATED, WIDE, STEP, LOWEST.
#pragma once
#include "matrix.cuh"
#include "memory.cuh"

__device__ __forceinline__ void load_matrices(uint32_t* r, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_matrices_turned(uint32_t* r, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
// Into shared memory in the background, past L1.
__device__ __forceinline__ void copy_lane_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void load_8(float* to, const float* from) {
  *(float4*)to = __ldg((const float4*)from);
  *(float4*)(to + 4) = __ldg((const float4*)from + 1);
}

struct Inputs {
  const bfloat16* projected;
  size_t stride;
  const float *query_weight, *key_weight, *cos, *sin;
  int angle_count;
  float query_epsilon, key_epsilon;
};

// Of a lane's 8 dimensions; where nothing turns, cos is 1 and sin is 0. No branch: loads of several rows overlap.
struct Angles {
  float cos[8], sin[8];
  __device__ __forceinline__ void load(const Inputs& in, int position, int lane) {
    const size_t place = (size_t)min(position, in.angle_count - 1) * ROTATED + lane * 8 % ROTATED;
    load_8(cos, in.cos + place);
    load_8(sin, in.sin + place);
  }
  __device__ __forceinline__ void settle(int lane) {
    const bool turns = lane * 8 < ROTATED;
#pragma unroll
    for (int i = 0; i < 8; i++) { cos[i] = turns ? cos[i] : 1.f; sin[i] = turns ? sin[i] : 0.f; }
  }
};

// A lane's 8 neighbouring dimensions of a head, normed and rotated: 8 BF16. The other half of a rotated pair is
// ROTATED / 2 dimensions away, in another lane.
__device__ __forceinline__ uint4 norm_and_rotate(uint4 raw, const float* weight, float epsilon, const Angles& angles) {
  const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
  float x[8], squares = 0.f;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    x[i] = i & 1 ? high_half(word[i / 2]) : low_half(word[i / 2]);
    squares = fmaf(x[i], x[i], squares);
  }
#pragma unroll
  for (int o = 16; o; o >>= 1) squares += __shfl_xor_sync(~0u, squares, o);
  const float factor = rsqrtf(squares / DIM + epsilon);
  uint32_t result[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t own = pack_pair(x[2 * i] * factor * weight[2 * i], x[2 * i + 1] * factor * weight[2 * i + 1]);
    const uint32_t other = __shfl_xor_sync(~0u, own, ROTATED / 16);
    result[i] = pack_pair(fmaf(low_half(other), angles.sin[2 * i], low_half(own) * angles.cos[2 * i]),
                          fmaf(high_half(other), angles.sin[2 * i + 1], high_half(own) * angles.cos[2 * i + 1]));
  }
  return make_uint4(result[0], result[1], result[2], result[3]);
}

struct Slab { uint8_t keys[STEP * PITCH], values[STEP * PITCH]; };

// Rows g and g + 8 of a warp's tile: softmax so far.
struct Sums {
  float largest[2], total[2], value[WIDE / 8][4];
  __device__ __forceinline__ void clear() {
    largest[0] = largest[1] = LOWEST; total[0] = total[1] = 0.f;
#pragma unroll
    for (int n = 0; n < WIDE / 8; n++) value[n][0] = value[n][1] = value[n][2] = value[n][3] = 0.f;
  }
};

// Scores with a slab's 16 positions, columns 8 n + 2 t, + 1 in c[n].
__device__ __forceinline__ void make_scores(const Slab& slab, const uint32_t (*query)[4], int lane, float (*c)[4]) {
  float odd[2][4];
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) c[n][e] = odd[n][e] = 0.f;
  const uint32_t key = shared_address(slab.keys) + (lane & 7) * PITCH + (lane >> 3) * 16;
#pragma unroll
  for (int k = 0; k < DIM / 32; k++)
#pragma unroll
    for (int n = 0; n < 2; n++) {
      uint32_t b[4];
      const uint32_t *even = query[2 * k], *next = query[2 * k + 1];
      load_matrices(b, key + n * 8 * PITCH + k * 64);
      multiply(c[n], even[0], even[1], even[2], even[3], b[0], b[1]);
      multiply(odd[n], next[0], next[1], next[2], next[3], b[2], b[3]);
    }
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) c[n][e] += odd[n][e];
}

// One step of a warp: `last[h]` is the last position that row g + 8 h sees.
__device__ __forceinline__ void add_step(const Slab& slab, const uint32_t (*query)[4], int first, const int* last,
                                         float scale, int dim, int lane, Sums& sums) {
  const int t = lane & 3;
  float c[2][4], shrink[2];
  make_scores(slab, query, lane, c);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float top = sums.largest[h];
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float& score = c[n][2 * h + e];
        score = first + 8 * n + 2 * t + e <= last[h] ? score * scale : LOWEST;
        top = fmaxf(top, score);
      }
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    shrink[h] = exp2f(sums.largest[h] - top);
    sums.largest[h] = top;
    float added = 0.f;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float& score = c[n][2 * h + e];
        // A row that has seen nothing yet has no largest score: its weights are zeros.
        score = score > LOWEST ? exp2f(score - top) : 0.f;
        added += score;
      }
    sums.total[h] = fmaf(sums.total[h], shrink[h], added);
  }
  if (__any_sync(~0u, shrink[0] < 1.f || shrink[1] < 1.f)) {
#pragma unroll
    for (int n = 0; n < WIDE / 8; n++) {
      sums.value[n][0] *= shrink[0]; sums.value[n][1] *= shrink[0];
      sums.value[n][2] *= shrink[1]; sums.value[n][3] *= shrink[1];
    }
  }
  const uint32_t a0 = pack_pair(c[0][0], c[0][1]), a1 = pack_pair(c[0][2], c[0][3]);
  const uint32_t a2 = pack_pair(c[1][0], c[1][1]), a3 = pack_pair(c[1][2], c[1][3]);
  const uint32_t value = shared_address(slab.values) + (lane & 15) * PITCH + dim * 2 + (lane >> 4) * 16;
#pragma unroll
  for (int n = 0; n < WIDE / 8; n += 2) {
    uint32_t b[4];
    load_matrices_turned(b, value + n * 16);
    multiply(sums.value[n], a0, a1, a2, a3, b[0], b[1]);
    multiply(sums.value[n + 1], a0, a1, a2, a3, b[2], b[3]);
  }
}
