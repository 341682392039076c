// layer_norm, residual, dropout and gelu over eight neighbours of a row.
#pragma once
#include "kw/dropout.cuh"
#include "kw/gelu.cuh"
#include "kw/norm.cuh"

namespace kw {

// T is the rows' type, W the parameters'.
template <typename T_, typename W_, Draw DRAW, bool TANH> struct Chain {
  using T = T_;
  using W = W_;
  static constexpr Draw kDraw = DRAW;
  static constexpr bool kTanh = TANH;
};

template <typename W>
__device__ __forceinline__ void octet_or(const W *p, bool given, float other, float (&f)[kOctet]) {
#pragma unroll
  for (float &one : f) one = other;
  if (given) Octet<W>::template read<false>(p).floats(f);
}

// Weight and bias of an octet's columns; 1 and 0 where there are none.
template <typename W>
__device__ __forceinline__ void octet_parameters(const W *w, const W *b, int given, int col,
                                                 float (&wf)[kOctet], float (&bf)[kOctet]) {
  octet_or(w + col, given & kWeight, 1.0f, wf);
  octet_or(b + col, given & kBias, 0.0f, bf);
}

// Eight floats for each of a thread's octets of a row, in shared memory: planes of 16 bytes a
// thread.
template <int THREADS> struct Planes {
  using Half = Vec<float, kOctet / 2>;
  Half *first;  // the thread's, of the first octet

  __device__ __forceinline__ Half &half(int v, int i) const { return first[(2 * v + i) * THREADS]; }
  __device__ __forceinline__ void set(int v, const float (&f)[kOctet]) const {
#pragma unroll
    for (int i = 0; i < kOctet; ++i) half(v, i / 4)[i % 4] = f[i];
  }
  __device__ __forceinline__ void get(int v, float (&f)[kOctet]) const {
    const Half low = half(v, 0), high = half(v, 1);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) f[i] = i < 4 ? low[i] : high[i - 4];
  }
};

// Two sums over a block of up to 16 warps at once, to every thread: half a warp adds up each.
// `parts` holds two floats a warp; the caller alternates between two of them, so that one barrier
// is enough.
template <int THREADS>
__device__ __forceinline__ float2 block_sums(float a, float b, float *parts) {
  constexpr int kWarps = THREADS / 32;
  static_assert(kWarps <= 16, "half a warp reads the parts of a sum");
  const int lane = threadIdx.x % 32;
  const float own = lane < 16 ? a : b, other = lane < 16 ? b : a;
  const float x = warp_reduce<Sum, 16>(own + __shfl_xor_sync(0xffffffffu, other, 16));
  float *const of_half = parts + lane / 16 * kWarps;
  if (lane % 16 == 0) of_half[threadIdx.x / 32] = x;
  __syncthreads();
  const float all = warp_reduce<Sum, kWarps>(of_half[lane % kWarps]);
  return {__shfl_sync(0xffffffffu, all, 0), __shfl_sync(0xffffffffu, all, 16)};
}

}  // namespace kw
