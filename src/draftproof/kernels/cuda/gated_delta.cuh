// Parts that both forms of the gated delta decode kernel are made of: convolution inputs by time, convolution, unit
// vectors, products between rows.
//
// Defined before: KEY_HEADS, VALUE_HEADS, ROWS, WARPS. Heads are 128 wide, the convolution has 4 taps.
#pragma once
#include "memory.cuh"

#define DIM 128
#define CONV_DIM (2 * KEY_HEADS * DIM + VALUE_HEADS * DIM)
#define QUERY_SCALE 0.08838834764831845f  // 128^-0.5

// Numbers that only this step's kernels rewrite, read early; asm keeps them above the wait.
__device__ __forceinline__ float4 load_state_16(const float* address) {
  float4 v;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(address));
  return v;
}
__device__ __forceinline__ float2 load_state_8(const float* address) {
  float2 v;
  asm volatile("ld.global.L1::no_allocate.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(address));
  return v;
}
// Small numbers that every step reads again: they should outlive in L2 the weights that stream through it.
__device__ __forceinline__ unsigned long long keep_in_l2() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ float4 load_weight_16(const float* address) {
  float4 v;
  asm volatile("ld.global.L2::cache_hint.v4.f32 {%0,%1,%2,%3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(address), "l"(keep_in_l2()));
  return v;
}
__device__ __forceinline__ uint32_t load_kept_4(const void* address) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.L2::cache_hint.u32 %0, [%1], %2;"
               : "=r"(v) : "l"(address), "l"(keep_in_l2()) : "memory");
  return v;
}

// Without the slow path of an exact division: the divisor is at least 1.
__device__ __forceinline__ float quick_silu(float value) { return __fdividef(value, 1.f + __expf(-value)); }

// The inputs of N neighbouring channels at one time.
template <int N>
struct Inputs {
  uint32_t pair[(N + 1) / 2];
  __device__ __forceinline__ float at(int i) const {
    return i & 1 ? high_half(pair[i / 2]) : low_half(pair[i / 2]);
  }
  __device__ __forceinline__ void load(const bfloat16* address) {
    if constexpr (N == 4) { const uint2 v = load_fresh_8(address); pair[0] = v.x; pair[1] = v.y; }
    else if constexpr (N == 2) pair[0] = load_fresh_4(address);
    else pair[0] = load_fresh_2(address);
  }
  __device__ __forceinline__ void store(bfloat16* address) const {
    if constexpr (N == 4) *(uint2*)address = make_uint2(pair[0], pair[1]);
    else if constexpr (N == 2) *(uint32_t*)address = pair[0];
    else *address = (bfloat16)pair[0];
  }
};

template <int N>
struct Taps {
  float4 of[N];
  __device__ __forceinline__ void load(const float* weights, int channel) {
#pragma unroll
    for (int i = 0; i < N; i++) of[i] = load_weight_16(weights + (channel + i) * 4);
  }
  // Convolution and SiLU of one time, given its inputs and those of the three times before.
  __device__ __forceinline__ void apply(const Inputs<N>* x, float* y) const {
#pragma unroll
    for (int i = 0; i < N; i++)
      y[i] = quick_silu(fmaf(x[0].at(i), of[i].x, fmaf(x[1].at(i), of[i].y,
                        fmaf(x[2].at(i), of[i].z, x[3].at(i) * of[i].w))));
  }
};

__device__ __forceinline__ float sum_of_warp(float value) {
#pragma unroll
  for (int o = 16; o; o >>= 1) value += __shfl_xor_sync(~0u, value, o);
  return value;
}

// To a unit vector times `scale`; a warp holds the vector, 4 elements a lane.
__device__ __forceinline__ void normalise(float* y, float scale) {
  const float square = sum_of_warp(y[0] * y[0] + y[1] * y[1] + y[2] * y[2] + y[3] * y[3]);
  const float factor = rsqrtf(square + 1e-6f) * scale;
#pragma unroll
  for (int i = 0; i < 4; i++) y[i] *= factor;
}

template <int N>
__device__ __forceinline__ void put(float* address, const float* y) {
  if constexpr (N == 4) *(float4*)address = make_float4(y[0], y[1], y[2], y[3]);
  else if constexpr (N == 2) *(float2*)address = make_float2(y[0], y[1]);
  else *address = y[0];
}

// Where a sequence's inputs lie by time: the committed ones before the pending rows, the stash, the new rows.
struct Times {
  const bfloat16* committed;  // times -3 .. -1
  const bfloat16* stash;      // times 0 .. pending - 1
  const bfloat16* projected;  // times pending ..
  size_t stride;
  int pending;
  __device__ __forceinline__ bool is_old(int time) const { return time < pending; }
  __device__ __forceinline__ const bfloat16* at(int time) const {
    return time < 0 ? committed + (time + 3) * CONV_DIM
           : time < pending ? stash + time * CONV_DIM
                            : projected + (size_t)(time - pending) * stride;
  }
};

struct Gate { float log_decay, beta; };
__device__ __forceinline__ Gate gate_of(float a, float b, float negative_a, float dt_bias) {
  const float biased = a + dt_bias;
  // softplus; the logarithm's absolute error is what counts
  return {negative_a * (fmaxf(biased, 0.f) + __logf(1.f + __expf(-fabsf(biased)))), __fdividef(1.f, 1.f + __expf(-b))};
}

// Products between ROWS queries and keys, times the decays between them, by all WARPS warps; 8 lanes make one.
// pairs[i][j]: q_i . k_j for j <= i, k_i . k_j for j > i.
__device__ __forceinline__ void make_pairs(float (*pairs)[ROWS], const float (*q)[DIM], const float (*k)[DIM],
                                           const float* decay, int warp, int lane) {
#pragma unroll
  for (int n = 0; n < (ROWS * ROWS + 4 * WARPS - 1) / (4 * WARPS); n++) {
    const int pair = (n * WARPS + warp) * 4 + lane / 8, i = pair / ROWS, j = pair % ROWS, part = lane % 8;
    float sum = 0.f;
    if (pair < ROWS * ROWS) {
      const float* a = j <= i ? q[i] : k[i];
#pragma unroll
      for (int g = 0; g < 4; g++) {
        const float4 x = *(const float4*)(a + 4 * part + 32 * g), y = *(const float4*)(k[j] + 4 * part + 32 * g);
        sum = fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, sum))));
      }
    }
#pragma unroll
    for (int o = 4; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (part == 0 && pair < ROWS * ROWS) {
      const int first = i < j ? i : j, last = i < j ? j : i;
#pragma unroll
      for (int r = 1; r < ROWS; r++) if (r > first && r <= last) sum *= decay[r];
      pairs[i][j] = sum;
    }
  }
}
