// layer_norm, residual, dropout and gelu over pieces of a row: 16 contiguous bytes.
#pragma once
#include "kw/dropout.cuh"
#include "kw/gelu.cuh"
#include "../norm.cuh"

namespace kw {

// T is the type of the rows, W that of the parameters.
template <typename T_, typename W_, Draw DRAW, bool TANH> struct Chain {
  using T = T_;
  using W = W_;
  static constexpr Draw kDraw = DRAW;
  static constexpr bool kTanh = TANH;
};

// Weight and bias of a piece's columns; 1 and 0 if they are missing. (Adding -0 leaves every
// float unchanged, so the compiler removes the addition.)
template <typename W, int N>
__device__ __forceinline__ void piece_parameters(const W *w, const W *b, int given, int col,
                                                 float (&wf)[N], float (&bf)[N]) {
  load_or(w + col, given & kWeight, -0.0f, 1.0f, wf);
  load_or(b + col, given & kBias, -0.0f, 0.0f, bf);
}

// N floats for each of a thread's pieces of a row, in shared memory: planes of 16 bytes per thread.
template <int N, int THREADS> struct Planes {
  using Quad = Vec<float, 4>;
  static constexpr int kQuads = N / 4;
  Quad *first;  // the thread's, of its first piece

  __device__ __forceinline__ Quad &quad(int v, int i) const {
    return first[(kQuads * v + i) * THREADS];
  }
  __device__ __forceinline__ void set(int v, const float (&f)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) quad(v, i / 4)[i % 4] = f[i];
  }
  __device__ __forceinline__ void get(int v, float (&f)[N]) const {
    Quad of_piece[kQuads];
#pragma unroll
    for (int i = 0; i < kQuads; ++i) of_piece[i] = quad(v, i);
#pragma unroll
    for (int i = 0; i < N; ++i) f[i] = of_piece[i / 4][i % 4];
  }
};

// Stores weight and bias of a thread's pieces, THREADS apart, times `scale`, to shared memory.
template <int PIECES, int N, int THREADS, typename W, typename Missing>
__device__ __forceinline__ void keep_parameters(const W *w, const W *b, int given, float scale,
                                                const Planes<N, THREADS> &weights,
                                                const Planes<N, THREADS> &biases,
                                                const Missing &missing) {
#pragma unroll
  for (int v = 0; v < PIECES; ++v) {
    if (missing(v)) continue;
    float wf[N], bf[N];
    piece_parameters(w, b, given, (v * THREADS + threadIdx.x) * N, wf, bf);
#pragma unroll
    for (int i = 0; i < N; ++i) wf[i] *= scale, bf[i] *= scale;
    weights.set(v, wf), biases.set(v, bf);
  }
}

// Sum of x over the threads of a row; every thread receives it.
template <int THREADS> __device__ __forceinline__ float row_sum(float x, float *parts) {
  x = warp_reduce<Sum>(x);
  if constexpr (THREADS > 32) {
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = reduce_parts<THREADS / 32>(parts);
  }
  return x;
}

// Two sums over a block of at most 16 warps at once; every thread receives both. Half a warp adds
// up each sum. `parts` holds two floats per warp; the caller alternates between two such arrays, so
// that one barrier is enough.
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
