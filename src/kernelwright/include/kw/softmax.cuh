// Shared by the softmax and cross entropy kernels: the exponential, and (max, sum) pairs.
#pragma once
#include "kw/math.cuh"
#include "kw/row.cuh"

namespace kw {

// The largest element, as a float; 16-bit types are compared two at a time.
template <typename T, int VEC, int VECS>
__device__ __forceinline__ float max_of(const Vec<T, VEC> (&x)[VECS]) {
  if constexpr (sizeof(T) == 2 && VEC % 2 == 0) {
    typename Pair<T>::type max, pair;
    memcpy(&max, &x[0].v[0], 4);
#pragma unroll
    for (int v = 0; v < VECS; v++)
#pragma unroll
      for (int i = 0; i < VEC; i += 2) {
        memcpy(&pair, &x[v].v[i], 4);
        max = __hmax2_nan(max, pair);
      }
    const float2 two = to_float2(max);
    return max_nan(two.x, two.y);
  }
  float max = to_float(x[0][0]);
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    float of_vector = to_float(x[v][0]);
#pragma unroll
    for (int i = 1; i < VEC; i++) of_vector = max_nan(of_vector, to_float(x[v][i]));
    max = max_nan(max, of_vector);
  }
  return max;
}

// exp(x) times a constant that cancels in the quotient. For float it is CUDA's expf, with the
// constant 1. The rounding of 16-bit types is coarser than the error of ex2; with the constant
// 2^24, results that become subnormal numbers of the type stay out of the range that ex2 flushes to
// zero.
template <typename T> __device__ __forceinline__ float exp_scaled(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  return fast_exp2(fmaf(x, 1.4426950408889634f, 24.0f));
}

// The maximum of a part of a row, and the sum of exp_scaled(x - max) over it.
struct MaxSum {
  float max, sum;

  // The value subtracted before the exponential; if all elements are -inf, the sum is 0 and not
  // NaN.
  __device__ __forceinline__ float base() const { return max == -kInfinity ? 0.0f : max; }
  // The factor that corrects exp_scaled(x - max) when the maximum rises to `to`.
  __device__ __forceinline__ float rescale(float to) const {
    return max == to ? 1.0f : expf(max - to);
  }
};

// WIDTH lanes (a power of two up to 32) reduce their parts; all lanes receive the result.
template <int WIDTH> __device__ __forceinline__ MaxSum warp_reduce(MaxSum part) {
  const float max = warp_reduce<Max, WIDTH>(part.max);
  return {max, warp_reduce<Sum, WIDTH>(part.sum * part.rescale(max))};
}

// Every warp of a block or cluster reduces the same N parts (a power of two) from shared memory.
template <int N> __device__ __forceinline__ MaxSum reduce_parts(const MaxSum *parts) {
  const int lane = threadIdx.x % 32;
  MaxSum all = parts[lane % N];
#pragma unroll
  for (int i = 32; i < N; i += 32) {
    const MaxSum more = parts[lane + i];
    const float max = max_nan(all.max, more.max);
    all = {max, all.sum * all.rescale(max) + more.sum * more.rescale(max)};
  }
  return warp_reduce<(N < 32 ? N : 32)>(all);
}

// The sum of exp_scaled(x - base), with a partial sum per vector to shorten the chains of
// additions.
template <typename T, int VEC, int VECS>
__device__ __forceinline__ float sum_of_exp(const Vec<T, VEC> (&x)[VECS], float base) {
  float sum = 0.0f;
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    float f[VEC], of_vector = 0.0f;
    to_float(x[v], f);
#pragma unroll
    for (int i = 0; i < VEC; i++) of_vector += exp_scaled<T>(f[i] - base);
    sum += of_vector;
  }
  return sum;
}

// The two passes over a row. Between the passes a thread keeps its elements in registers: for float
// as exponentials, in the registers that held x; for a 16-bit type as x, in half as many registers,
// and computes exp again, because registers are scarcer than issue slots for ex2.
template <typename T> struct Passes {
  // The first pass over a warp's part of a row.
  template <int VEC, int VECS>
  static __device__ __forceinline__ MaxSum first(Vec<T, VEC> (&x)[VECS]) {
    MaxSum part = {warp_reduce<Max>(max_of(x)), 0.0f};
    part.sum = warp_reduce<Sum>(sum_of_exp(x, part.base()));
    return part;
  }
  static __device__ __forceinline__ float scale(MaxSum, MaxSum row) {
    return reciprocal<T>(row.sum);
  }
  template <int VEC>
  static __device__ __forceinline__ Vec<T, VEC> second(Vec<T, VEC> x, MaxSum row, float scale) {
    float f[VEC];
    to_float(opaque(x), f);
#pragma unroll
    for (int i = 0; i < VEC; i++) f[i] = exp_scaled<T>(f[i] - row.max) * scale;
    return from_float<T>(f);
  }
};
template <> struct Passes<float> {
  template <int VEC, int VECS>
  static __device__ __forceinline__ MaxSum first(Vec<float, VEC> (&x)[VECS]) {
    MaxSum part = {warp_reduce<Max>(max_of(x)), 0.0f};
    const float base = part.base();
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      float of_vector = 0.0f;
#pragma unroll
      for (int i = 0; i < VEC; i++) of_vector += x[v][i] = expf(x[v][i] - base);
      part.sum += of_vector;
    }
    part.sum = warp_reduce<Sum>(part.sum);
    return part;
  }
  static __device__ __forceinline__ float scale(MaxSum part, MaxSum row) {
    return part.rescale(row.max) / row.sum;
  }
  template <int VEC>
  static __device__ __forceinline__ Vec<float, VEC> second(Vec<float, VEC> e, MaxSum, float scale) {
#pragma unroll
    for (int i = 0; i < VEC; i++) e[i] *= scale;
    return e;
  }
};

// The two passes of the backward over one vector: the sum of gy * y, and y * (gy - sum over the
// row).
template <typename T, int VEC>
__device__ __forceinline__ float dot(const Vec<T, VEC> &gy, const Vec<T, VEC> &y) {
  float g[VEC], p[VEC], sum = 0.0f;
  to_float(gy, g);
  to_float(y, p);
#pragma unroll
  for (int i = 0; i < VEC; i++) sum += g[i] * p[i];
  return sum;
}
template <typename T, int VEC>
__device__ __forceinline__ Vec<T, VEC> gradient(const Vec<T, VEC> &gy, const Vec<T, VEC> &y,
                                                float dot) {
  float g[VEC], p[VEC];
  to_float(gy, g);
  to_float(y, p);
#pragma unroll
  for (int i = 0; i < VEC; i++) p[i] *= g[i] - dot;
  return from_float<T>(p);
}

}  // namespace kw
