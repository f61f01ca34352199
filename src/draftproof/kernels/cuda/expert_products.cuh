// Products of a tile of expert weights with up to N = 4 or 8 rows of activations, in spans of 128 inputs.
//
// The right operand of a span is four 16-byte pieces a lane, one for every 32 inputs, in an order of inputs that suits
// the format of the weights:
//   BF16   row g, inputs 8t .. 8t + 7
//   FP8    row g, of 64 inputs 16t .. 16t + 7, then 16t + 8 .. 16t + 15
//   NVFP4  8 rows: row g, inputs 4t .. 4t + 3 of the first 16 and of the second 16
//          4 rows ("folded"): row g % 4; columns 0 to 3 of the product carry the first 16 inputs (with their block
//          scales), columns 4 to 7 the second 16, so that half of the scalings are needed: {pair, 0, pair, 0} for
//          lanes below 16, {0, pair, 0, pair} for the others. Column n + 4 is added to column n at the end.
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
};
// What products come out too small by: weights of format F, activations prepared for weights of format ORDER.
template <int F, int ORDER> __device__ __forceinline__ constexpr float undo() {
  return F == NVFP4 ? NVFP4_UNDO : F == FP8 ? FP8_UNDO : ORDER == BF16 ? 1.f : 1.f / RAISE;
}

// Where a lane's piece of the right operand comes from.
template <int ORDER, int N> struct Piece {
  static constexpr bool folded = ORDER == NVFP4 && N == 4;
  static constexpr int second = ORDER == NVFP4 ? 16 : 4;  // from the first four inputs to the second four
  static __device__ __forceinline__ int row(int lane) { return folded ? lane >> 2 & 3 : lane >> 2; }
  static __device__ __forceinline__ int input(int piece, int lane) {
    const int t = lane & 3;
    if (ORDER == BF16) return piece * 32 + t * 8;
    if (ORDER == FP8) return (piece >> 1) * 64 + t * 16 + (piece & 1) * 8;
    return piece * 32 + t * 4 + (folded ? (lane >> 4) * 16 : 0);
  }
  static __device__ __forceinline__ uint4 load(const bfloat16* row, int piece, int lane) {
    const bfloat16* at = row + input(piece, lane);
    if (second == 4) return load_fresh_16(at);
    const uint2 a = load_fresh_8(at);
    if (folded) return make_uint4(a.x, a.y, 0, 0);
    const uint2 b = load_fresh_8(at + second);
    return make_uint4(a.x, a.y, b.x, b.y);
  }
  // From the order of `load` to the operand.
  static __device__ __forceinline__ uint4 arrange(uint4 v, int lane) {
    if (!folded) return v;
    return lane < 16 ? make_uint4(v.x, 0, v.y, 0) : make_uint4(0, v.x, 0, v.y);
  }
  // The norm's weights of a piece: of its first four inputs, then of its second.
  static constexpr int weights = folded ? 1 : 2;
  static __device__ __forceinline__ void load_norm(const float* norm, int piece, int lane, uint4* weight) {
#pragma unroll
    for (int i = 0; i < weights; i++) weight[i] = load_fresh_16(norm + input(piece, lane) + i * second);
  }
  // Times the norm's weight, rounded, raised if the order asks for it; adds to the sum of squares.
  static __device__ __forceinline__ uint4 scale(uint4 v, const uint4* weight, float& squares) {
    v.x = scale_pair(v.x, weight[0].x, weight[0].y, squares); v.y = scale_pair(v.y, weight[0].z, weight[0].w, squares);
    if (folded) return v;
    const uint4 last = weight[weights - 1];
    v.z = scale_pair(v.z, last.x, last.y, squares); v.w = scale_pair(v.w, last.z, last.w, squares);
    return v;
  }
  static __device__ __forceinline__ uint32_t scale_pair(uint32_t pair, uint32_t first, uint32_t second, float& squares) {
    const float a = low_half(pair), b = high_half(pair);
    squares = fmaf(a, a, squares); squares = fmaf(b, b, squares);
    const uint32_t scaled = pack_pair(a * __uint_as_float(first), b * __uint_as_float(second));
    return ORDER == BF16 ? scaled : raise(scaled);
  }
};

// Activations on their way from block to block: 8-byte words of a pair and the number of the launch that wrote it, so
// that a reader knows by the word itself whether it has come. Four inputs are 16 bytes, an aligned half of which is
// never seen half written.
__device__ __forceinline__ void send_pair(uint8_t* word, uint32_t pair, uint32_t launch) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%2};" ::"l"(word), "r"(pair), "r"(launch) : "memory");
}
// A lane's words of one span, in the order of the operand.
template <int ORDER, int N> struct Received {
  typedef Piece<ORDER, N> P;
  static constexpr int loads = 4 * P::weights;
  uint4 words[loads];
  __device__ __forceinline__ void load(const uint8_t* row, int lane) {
#pragma unroll
    for (int q = 0; q < loads; q++)
      words[q] = load_fresh_16(row + (P::input(q / P::weights, lane) + q % P::weights * P::second) * 4);
  }
  // Zero bits if all words are of this launch.
  __device__ __forceinline__ uint32_t missing(uint32_t launch) const {
    uint32_t different = 0;
#pragma unroll
    for (int q = 0; q < loads; q++) different |= (words[q].y ^ launch) | (words[q].w ^ launch);
    return different;
  }
  __device__ __forceinline__ void operand(uint4* pieces, int lane, bool live) const {
#pragma unroll
    for (int q = 0; q < 4; q++) {
      const uint4 a = words[q * P::weights], b = words[q * P::weights + P::weights - 1];
      const uint4 v = P::folded ? make_uint4(a.x, a.z, 0, 0) : make_uint4(a.x, a.z, b.x, b.z);
      pieces[q] = live ? P::arrange(v, lane) : make_uint4(0, 0, 0, 0);
    }
  }
};

// Tile times span, for each format of the weights and order of the activations; c accumulates.
__device__ __forceinline__ void span_bf16(const uint8_t* b, const uint4* x, int lane, float* c) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint4 u = *(const uint4*)(b + i * 1024 + lane * 16), v = *(const uint4*)(b + i * 1024 + 512 + lane * 16);
    multiply(c, u.x, v.x, u.y, v.y, x[i].x, x[i].y);
    multiply(c, u.z, v.z, u.w, v.w, x[i].z, x[i].w);
  }
}
// One piece whose two groups of 16 inputs are e and o (rows g) and e8, o8 (rows g + 8), as pairs.
template <int N> __device__ __forceinline__ void groups(uint2 e, uint2 e8, uint2 o, uint2 o8, uint4 x, float* c) {
  if (N == 4) {
    multiply(c, e.x, e8.x, o.x, o8.x, x.x, x.y);
    multiply(c, e.y, e8.y, o.y, o8.y, x.z, x.w);
  } else {
    multiply(c, e.x, e8.x, e.y, e8.y, x.x, x.y);
    multiply(c, o.x, o8.x, o.y, o8.y, x.z, x.w);
  }
}
template <int N> __device__ __forceinline__ void span_bf16_in_groups(const uint8_t* b, const uint4* x, int lane, float* c) {
  b += (lane >> 2) * 64 + (lane & 3) * 8;
#pragma unroll
  for (int i = 0; i < 4; i++, b += 1024)
    groups<N>(*(const uint2*)b, *(const uint2*)(b + 512), *(const uint2*)(b + 32), *(const uint2*)(b + 544), x[i], c);
}
__device__ __forceinline__ void span_fp8(const uint8_t* b, const uint4* x, int lane, float* c) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const uint4 u = *(const uint4*)(b + i * 1024 + lane * 16), v = *(const uint4*)(b + i * 1024 + 512 + lane * 16);
    const uint32_t a[4] = {u.x, u.y, u.z, u.w}, a8[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint32_t p, q, p8, q8;
      decode_fp8(a[j], p, q); decode_fp8(a8[j], p8, q8);
      const uint4 piece = x[i * 2 + (j >> 1)];
      multiply(c, p, p8, q, q8, j & 1 ? piece.z : piece.x, j & 1 ? piece.w : piece.y);
    }
  }
}
template <int N> __device__ __forceinline__ void span_fp8_in_groups(const uint8_t* b, const uint4* x, int lane, float* c) {
  b += (lane >> 2) * 64 + (lane & 3) * 4;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint8_t* at = b + (i >> 1) * 1024 + (i & 1) * 32;
    uint2 e, e8, o, o8;
    decode_fp8(*(const uint32_t*)at, e.x, e.y); decode_fp8(*(const uint32_t*)(at + 512), e8.x, e8.y);
    decode_fp8(*(const uint32_t*)(at + 16), o.x, o.y); decode_fp8(*(const uint32_t*)(at + 528), o8.x, o8.y);
    groups<N>(e, e8, o, o8, x[i], c);
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
template <int F, int ORDER, int N> __device__ __forceinline__ void multiply_span(const uint8_t* b, const uint4* x, int lane,
                                                                                 float* c, const Nvfp4Masks& m) {
  if (F == NVFP4 && N == 4) multiply_nvfp4_folded(b, x, lane, c, m);
  else if (F == NVFP4) span_nvfp4(b, x, lane, c, m);
  else if (F == BF16 && ORDER == BF16) span_bf16(b, x, lane, c);
  else if (F == BF16) span_bf16_in_groups<N>(b, x, lane, c);
  else if (ORDER == FP8) span_fp8(b, x, lane, c);
  else span_fp8_in_groups<N>(b, x, lane, c);
}
// The same with one scale for rows 0 to 7 of the tile and one for the others.
template <int F, int ORDER, int N> __device__ __forceinline__ void multiply_span_scaled(const uint8_t* b, const uint4* x,
    int lane, float* c, const Nvfp4Masks& m, float scale, float scale8) {
  float d[4] = {0.f, 0.f, 0.f, 0.f};
  multiply_span<F, ORDER, N>(b, x, lane, d, m);
  c[0] = fmaf(d[0], scale, c[0]); c[1] = fmaf(d[1], scale, c[1]);
  c[2] = fmaf(d[2], scale8, c[2]); c[3] = fmaf(d[3], scale8, c[3]);
}
// A warp's accumulators to sums[16 rows of the tile][N]; with 4 rows columns n and n + 4 are added first.
template <int N> __device__ __forceinline__ void store_sums(float (*sums)[N], const float* c, int lane) {
  const int g = lane >> 2, t = lane & 3;
  float2 a = make_float2(c[0], c[1]), b = make_float2(c[2], c[3]);
  if (N == 4) {
    a.x += __shfl_xor_sync(~0u, a.x, 2); a.y += __shfl_xor_sync(~0u, a.y, 2);
    b.x += __shfl_xor_sync(~0u, b.x, 2); b.y += __shfl_xor_sync(~0u, b.y, 2);
    if (t >= 2) return;
  }
  *(float2*)&sums[g][2 * t] = a; *(float2*)&sums[g + 8][2 * t] = b;
}
