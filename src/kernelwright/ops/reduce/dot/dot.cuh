// Shared by the rungs of dot: a block's partial sum, and accurate sums in 16-bit numbers.
#pragma once
#include "kw/last_block.cuh"
#include "kw/reduce.cuh"
#include "kw/vec.cuh"

namespace kw {

// The block's part of the sum of products, returned in every thread. The blocks process tiles of
// VECS pairs of vectors per thread in a grid-stride loop. The elements after the last whole vector,
// or all elements if the operands are not aligned to 16 bytes, are processed one by one.
template <typename T, int BLOCK, int VECS>
__device__ __forceinline__ float block_dot(const T *x, const T *other, long long n, bool aligned,
                                           float *scratch) {
  constexpr int N = kVecWidth<T>;
  const long long vectors = aligned ? n / N : 0, step = (long long)gridDim.x * BLOCK;
  const long long thread = (long long)blockIdx.x * BLOCK + threadIdx.x;
  double total = 0;
#pragma unroll 1
  for (long long first = thread; first < vectors; first += step * VECS) {
    Vec<T, N> a[VECS], b[VECS];
#pragma unroll
    for (int v = 0; v < VECS; ++v)
      if (first + v * step < vectors) {
        a[v] = load_streaming<T, N>(x + (first + v * step) * N);
        b[v] = load_streaming<T, N>(other + (first + v * step) * N);
      }
    float sum[2] = {};
#pragma unroll
    for (int v = 0; v < VECS; ++v)
      if (first + v * step < vectors) {
        float p[N], q[N];
        to_float(a[v], p), to_float(b[v], q);
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i % 2] = fmaf(p[i], q[i], sum[i % 2]);
      }
    total += sum[0] + sum[1];
  }
  for (long long i = vectors * N + thread; i < n; i += step)
    total += to_float(x[i]) * to_float(other[i]);
  return block_reduce<Sum>(float(total), scratch);
}

// Adds x to a sum that is stored as three 16-bit numbers. An atomic addition returns the previous
// value; from it follows what the addition has rounded off, which is added to the next number. Add
// performs the addition: it takes the level of the number and the addend, and returns the previous
// value.
constexpr int kLevels = 3;
template <typename T, typename Add> __device__ __forceinline__ void add_parts(float x, Add add) {
#pragma unroll
  for (int level = 0; level < kLevels; ++level) {
    const T part = from_float<T>(x), before = add(level, part), after = before + part;
    const float kept = to_float(after) - to_float(before);
    x = (x - to_float(part)) + (to_float(part) - kept);
    if (x != x) return;  // infinity or NaN: there is no remainder
  }
}

// Called by the last block: returns the sum and resets its numbers to zero. They are in the L2
// cache, where atomics are performed.
template <typename T, int STRIDE> __device__ __forceinline__ float take_parts(T *sums) {
  float total = 0;
#pragma unroll
  for (int level = kLevels - 1; level >= 0; --level) {
    total += to_float(sums[level * STRIDE]);
    sums[level * STRIDE] = from_float<T>(0.0f);
  }
  return total;
}

}  // namespace kw
