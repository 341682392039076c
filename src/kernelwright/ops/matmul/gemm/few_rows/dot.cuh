// Products of short vectors in registers, and sums over the lanes of a warp.
#pragma once
#include "kw/reduce.cuh"
#include "kw/vec.cuh"

namespace few_rows {

// sum + the dot product of a and b
template <typename T, int N>
__device__ __forceinline__ float dot(const kw::Vec<T, N> &a, const kw::Vec<T, N> &b, float sum) {
  float of_a[N], of_b[N];
  kw::to_float(a, of_a);
  kw::to_float(b, of_b);
#pragma unroll
  for (int i = 0; i < N; i++) sum = fmaf(of_a[i], of_b[i], sum);
  return sum;
}

// Adds N values per lane over the lanes that differ in bit FAR and the lower bits. Each step halves
// the number of values that a lane keeps, as long as it has more than one: N + 5 shuffles instead
// of 5 N. Afterwards v[0, N / 32) of lane l holds the sums of values first(l) and following; with
// fewer than 32 values several lanes hold the same.
template <int N, int FAR = 16> struct LaneSums {
  static __device__ __forceinline__ void add(float (&v)[N]) {
    if constexpr (FAR > 0) {
      const bool upper = threadIdx.x & FAR;
      if constexpr (N % 2 == 0) {
        float half[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
          const float mine = upper ? v[N / 2 + i] : v[i], theirs = upper ? v[i] : v[N / 2 + i];
          half[i] = mine + __shfl_xor_sync(0xffffffffu, theirs, FAR);
        }
        LaneSums<N / 2, FAR / 2>::add(half);
#pragma unroll
        for (int i = 0; i < N / 2; i++) v[i] = half[i];
      } else {
#pragma unroll
        for (int i = 0; i < N; i++) v[i] += __shfl_xor_sync(0xffffffffu, v[i], FAR);
        LaneSums<N, FAR / 2>::add(v);
      }
    }
  }
  static __device__ __forceinline__ int first() {
    if constexpr (FAR == 0)
      return 0;
    else if constexpr (N % 2 == 0)
      return (threadIdx.x & FAR ? N / 2 : 0) + LaneSums<N / 2, FAR / 2>::first();
    else
      return LaneSums<N, FAR / 2>::first();
  }
  // The number of values that each lane holds.
  static __device__ constexpr int kept() {
    if constexpr (FAR == 0)
      return N;
    else
      return LaneSums < N % 2 == 0 ? N / 2 : N, FAR / 2 > ::kept();
  }
};

}  // namespace few_rows
