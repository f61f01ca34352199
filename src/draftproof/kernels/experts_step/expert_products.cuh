// Products of a tile of expert weights with up to N = 4 or 8 rows of activations, in spans of 128 inputs.
//
// Activations lie in shared memory as rows of BF16; a lane reads what belongs to its 16 bytes of weights:
//   BF16   row g, of every 32 inputs 8t .. 8t + 7
//   FP8    row g, of every 64 inputs 16t .. 16t + 15
//   NVFP4  8 rows: row g, of every 16 inputs 4t .. 4t + 3
//          4 rows ("folded"): row g % 4; columns 0 to 3 of the product carry the even groups of 16 inputs (with their
//          block scales), columns 4 to 7 the odd ones, so that half of the scalings are needed. Column n + 4 is added to
//          column n at the end.
// With 4 rows in another format columns 4 to 7 repeat columns 0 to 3 and are not used.
// Before FP8 and NVFP4 weights, whose decodes are tiny, activations are raised by 2^64.
#pragma once
#include "matrix.cuh"
#include "memory.cuh"

constexpr int BF16 = 0, FP8 = 1, NVFP4 = 2;
constexpr float RAISE = 18446744073709551616.f;  // 2^64

template <int F> struct Chunk {
  static constexpr int columns = F == NVFP4 ? 128 : F == FP8 ? 64 : 32;
  static constexpr int bytes = F == NVFP4 ? 1152 : 1024;
  static constexpr int span_bytes = 128 / columns * bytes;
  // Behind each row of activations, so that lanes of different rows meet different banks.
  static constexpr int padding = F == NVFP4 ? 32 : F == FP8 ? 16 : 64;
};
// What products come out too small by: weights of format F, activations prepared for weights of format ORDER.
template <int F, int ORDER> __device__ __forceinline__ constexpr float undo() {
  return F == NVFP4 ? NVFP4_UNDO : F == FP8 ? FP8_UNDO : ORDER == BF16 ? 1.f : 1.f / RAISE;
}

// A lane's right operand of one span: for each 32 inputs the registers of two products. Folded, the first product is that
// of the even group and the second that of the odd one.
template <int F, int N> struct Operand {
  static constexpr bool folded = F == NVFP4 && N == 4;
  uint4 x[4];
  __device__ __forceinline__ Operand() {
#pragma unroll
    for (int q = 0; q < 4; q++) x[q] = make_uint4(0, 0, 0, 0);
  }
  static __device__ __forceinline__ int row(int lane) { return N == 4 ? lane >> 2 & 3 : lane >> 2; }
  // Bytes from the beginning of a span of a row to the lane's first input.
  static __device__ __forceinline__ int offset(int lane) {
    const int t = lane & 3;
    return F == BF16 ? t * 16 : F == FP8 ? t * 32 : t * 8 + (folded ? (lane >> 4) * 32 : 0);
  }
  // Folded, a lane fills only its half of the registers; the other half stays zero.
  __device__ __forceinline__ void load(uint32_t address, int lane) {
#pragma unroll
    for (int q = 0; q < 4; q++) {
      if (folded) {
        load_if(x[q].x, x[q].y, address + q * 64, lane < 16);
        load_if(x[q].z, x[q].w, address + q * 64, lane >= 16);
      } else if (F == NVFP4) {
        load_if(x[q].x, x[q].y, address + q * 64, true);
        load_if(x[q].z, x[q].w, address + q * 64 + 32, true);
      } else {
        const uint32_t at = address + (F == FP8 ? (q >> 1) * 128 + (q & 1) * 16 : q * 64);
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(x[q].x), "=r"(x[q].y), "=r"(x[q].z), "=r"(x[q].w) : "r"(at));
      }
    }
  }
  static __device__ __forceinline__ void load_if(uint32_t& a, uint32_t& b, uint32_t address, bool condition) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; @p ld.shared.v2.u32 {%0,%1}, [%2];}"
                 : "+r"(a), "+r"(b) : "r"(address), "r"((uint32_t)condition));
  }
};

// A tile's span of weights in shared memory times an operand; c accumulates.
__device__ __forceinline__ void span_bf16(const uint8_t* b, const uint4* x, int lane, float* c) {
  float d[4] = {0.f, 0.f, 0.f, 0.f};  // two chains
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint4 u = *(const uint4*)(b + i * 1024 + lane * 16), v = *(const uint4*)(b + i * 1024 + 512 + lane * 16);
    multiply(c, u.x, v.x, u.y, v.y, x[i].x, x[i].y);
    multiply(d, u.z, v.z, u.w, v.w, x[i].z, x[i].w);
  }
  c[0] += d[0]; c[1] += d[1]; c[2] += d[2]; c[3] += d[3];
}
__device__ __forceinline__ void span_fp8(const uint8_t* b, const uint4* x, int lane, float* c) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const uint4 u = *(const uint4*)(b + i * 1024 + lane * 16), v = *(const uint4*)(b + i * 1024 + 512 + lane * 16);
    const uint32_t a[4] = {u.x, u.y, u.z, u.w}, a8[4] = {v.x, v.y, v.z, v.w};
    float d[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint32_t p, q, p8, q8;
      decode_fp8(a[j], p, q); decode_fp8(a8[j], p8, q8);
      const uint4 piece = x[i * 2 + (j >> 1)];
      multiply(d, p, p8, q, q8, j & 1 ? piece.z : piece.x, j & 1 ? piece.w : piece.y);
    }
    c[0] += d[0]; c[1] += d[1]; c[2] += d[2]; c[3] += d[3];
  }
}
__device__ __forceinline__ void span_nvfp4(const uint8_t* b, const uint4* x, int lane, float* c, const Nvfp4Masks& m) {
  uint2 groups[1][8];
  float sums[1][4] = {{c[0], c[1], c[2], c[3]}};
#pragma unroll
  for (int q = 0; q < 4; q++) {
    groups[0][2 * q] = make_uint2(x[q].x, x[q].y); groups[0][2 * q + 1] = make_uint2(x[q].z, x[q].w);
  }
  multiply_nvfp4<1>(b, lane, groups, sums, m);
  c[0] = sums[0][0]; c[1] = sums[0][1]; c[2] = sums[0][2]; c[3] = sums[0][3];
}
// As multiply_nvfp4, for folded operands.
__device__ __forceinline__ void span_nvfp4_folded(const uint8_t* b, const uint4* x, int lane, float* c, const Nvfp4Masks& m) {
  const int g = lane >> 2, odd = lane >> 1 & 1;  // accumulators 2t, 2t + 1 belong to odd groups from t = 2 on
  const uint4 u = *(const uint4*)(b + lane * 16), v = *(const uint4*)(b + 512 + lane * 16);
  const uint32_t scales = *(const uint32_t*)(b + 1024 + g * 8 + odd * 4), scales8 = *(const uint32_t*)(b + 1088 + g * 8 + odd * 4);
#pragma unroll
  for (int couple = 0; couple < 2; couple++) {
    uint32_t a[8], a8[8];
    decode_nvfp4(couple ? u.z : u.x, couple ? u.w : u.y, a, m);
    decode_nvfp4(couple ? v.z : v.x, couple ? v.w : v.y, a8, m);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int q = 2 * couple + i;
      float d[4] = {0.f, 0.f, 0.f, 0.f};
      multiply(d, a[4 * i], a8[4 * i], a[4 * i + 1], a8[4 * i + 1], x[q].x, x[q].y);
      multiply(d, a[4 * i + 2], a8[4 * i + 2], a[4 * i + 3], a8[4 * i + 3], x[q].z, x[q].w);
      const float f = nvfp4_scale(scales, q, m), f8 = nvfp4_scale(scales8, q, m);
      c[0] = fmaf(d[0], f, c[0]); c[1] = fmaf(d[1], f, c[1]);
      c[2] = fmaf(d[2], f8, c[2]); c[3] = fmaf(d[3], f8, c[3]);
    }
  }
}
template <int F, int N> __device__ __forceinline__ void multiply_span(const uint8_t* b, const Operand<F, N>& operand, int lane, float* c,
                                                                      const Nvfp4Masks& m) {
  if (F == NVFP4 && N == 4) span_nvfp4_folded(b, operand.x, lane, c, m);
  else if (F == NVFP4) span_nvfp4(b, operand.x, lane, c, m);
  else if (F == BF16) span_bf16(b, operand.x, lane, c);
  else span_fp8(b, operand.x, lane, c);
}
// A warp's accumulators to sums[16 rows of the tile][N].
template <int F, int N> __device__ __forceinline__ void store_sums(float (*sums)[N], const float* c, int lane) {
  const int g = lane >> 2, t = lane & 3;
  float2 a = make_float2(c[0], c[1]), b = make_float2(c[2], c[3]);
  if (Operand<F, N>::folded) {
    a.x += __shfl_xor_sync(~0u, a.x, 2); a.y += __shfl_xor_sync(~0u, a.y, 2);
    b.x += __shfl_xor_sync(~0u, b.x, 2); b.y += __shfl_xor_sync(~0u, b.y, 2);
  }
  if (N == 4 && t >= 2) return;
  *(float2*)&sums[g][2 * t] = a; *(float2*)&sums[g + 8][2 * t] = b;
}

// Activations on their way from block to block: 8-byte words of a pair and the number of the launch that wrote it, so
// that a reader knows by the word itself whether it has come; a word is never seen half written.
__device__ __forceinline__ void send_pair(uint8_t* word, uint32_t pair, uint32_t launch) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%2};" ::"l"(word), "r"(pair), "r"(launch) : "memory");
}
