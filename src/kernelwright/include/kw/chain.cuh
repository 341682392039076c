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

// Two sums over a block at once, to every thread. `parts` holds two floats a warp; the caller
// alternates between two of them, so that one barrier is enough.
template <int THREADS>
__device__ __forceinline__ float2 block_sums(float a, float b, float *parts) {
  constexpr int kWarps = THREADS / 32;
  a = warp_reduce<Sum>(a), b = warp_reduce<Sum>(b);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = a, parts[kWarps + threadIdx.x / 32] = b;
  __syncthreads();
  return {reduce_parts<kWarps>(parts), reduce_parts<kWarps>(parts + kWarps)};
}

}  // namespace kw
