// 16-byte stores: one thread makes the calls of adjacent threads of PyTorch's grid.
//
// Idea: a thread makes the calls of as many adjacent threads as 16 bytes have elements (4 or 8).
// All calls use one key schedule, and share products in the first two rounds; their k-th words form
// one vector.
// Traffic: the result written once: the minimum; Bernoulli numbers read their probabilities once.
// Compared with `cuda_quad`: a quarter or an eighth of the stores, indices and keys; more calls in
// flight.
// Limit: issue slots in 16 bits and for logarithms; otherwise DRAM bandwidth.
#include "neighbours.cuh"

template <typename T, template <typename> class Distribution, int BLOCK, bool STREAM>
__device__ __forceinline__ void rand_vectors(const long long *state, T *y, long long n,
                                             long long threads,
                                             const Distribution<T> &distribution) {
  constexpr int N = kw::kVecWidth<T>;
  const kw::Stream stream(state);
  const long long thread = ((long long)blockIdx.x * BLOCK + threadIdx.x) * N;
  if (thread >= threads) return;
  uint4 calls[N];
  kw::neighbours(stream, blockIdx.y, unsigned(thread), calls);
  const long long first = blockIdx.y * 4 * threads + thread;
  const bool whole = first + 3 * threads + N <= n;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float out[2][N];
#pragma unroll
    for (int k = 0; k < N; ++k)
      kw::pair_of(distribution, half ? calls[k].z : calls[k].x, half ? calls[k].w : calls[k].y,
                  out[0][k], out[1][k]);
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const long long i = first + (half * 2 + odd) * threads;
      const kw::Vec<T, N> v = kw::from_float<T>(out[odd]);
      if (whole || i + N <= n) {
        if constexpr (STREAM)
          kw::store_streaming(y + i, v);
        else
          kw::store(y + i, v);
      } else {
#pragma unroll
        for (int k = 0; k < N; ++k)
          if (i + k < n) y[i + k] = v[k];
      }
    }
  }
}

template <typename T, template <typename> class Distribution, int BLOCK, bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    rand_vec16(const long long *state, T *y, long long n, long long threads) {
  rand_vectors<T, Distribution, BLOCK, STREAM>(state, y, n, threads, Distribution<T>{});
}

template <typename T, int BLOCK, bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    bernoulli_p_vec16(const long long *state, T *y, long long n, long long threads, float p) {
  rand_vectors<T, kw::Bernoulli, BLOCK, STREAM>(state, y, n, threads, kw::Bernoulli<T>{p});
}

// Element i uses word i % 4 of call i / 4.
template <typename T, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    bernoulli_vec16(const long long *state, const T *p, T *y, long long n) {
  constexpr int N = kw::kVecWidth<T>;
  const long long i = ((long long)blockIdx.x * BLOCK + threadIdx.x) * N;
  const bool whole = i + N <= n;
  kw::Vec<T, N> v;
  if (whole) v = kw::load<T, N>(p + i);  // in flight while the words are generated
  const kw::Stream stream(state);
  uint4 calls[N / 4];
#pragma unroll
  for (int k = 0; k < N / 4; ++k) calls[k] = stream.counter(0, i / 4 + k);
  kw::philox_rounds(stream.seed, calls);
  if (whole) {
    float out[N];
    kw::to_float(v, out);
#pragma unroll
    for (int k = 0; k < N; ++k)
      out[k] = kw::unit(kw::word(calls[k / 4], k % 4)) <= out[k] ? 1.0f : 0.0f;
    kw::store(y + i, kw::from_float<T>(out));
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (i + k < n) {
        const float u = kw::unit(kw::word(calls[k / 4], k % 4));
        y[i + k] = kw::from_float<T>(u <= kw::to_float(p[i + k]) ? 1.0f : 0.0f);
      }
  }
}
