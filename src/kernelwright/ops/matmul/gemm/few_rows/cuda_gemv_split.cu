// One block per eight rows of the weight; its warps divide k.
//
// Idea: a thread loads the same 16 bytes of eight rows before it multiplies, and multiplies all of
// them by each vector of x that it loads. The threads of a block process adjacent positions along
// k. Lanes add their sums, halving the number of values that each keeps; warps add theirs in shared
// memory.
// Traffic: the weight once, with 128 bytes per thread in flight; x once per eight rows.
// Compared with `cuda_gemv_warp`: an eighth of the loads of x, eight times as many bytes in flight,
// and several warps share a row with a long k.
// Limit: multiply-adds on values that are converted to float32 one by one: from four rows of 16-bit
// values on, tensor cores are needed.
#include "dot.cuh"
#include "result.cuh"

constexpr int kWarps = 8, kThreads = 32 * kWarps, kRows = 8;

template <typename T, int MOST, class STORE>
__device__ __forceinline__ void gemv(const T *weight, const T *x, int m, int n, int k,
                                     long long weight_line, long long x_line, const STORE &store) {
  constexpr int kEach = kw::kVecWidth<T>, kSums = kRows * MOST;
  using Lanes = few_rows::LaneSums<kSums>;
  __shared__ float of_warps[kWarps][kSums];
  const int top = blockIdx.x * kRows;

  float sums[kSums] = {};
  for (int j = threadIdx.x * kEach; j < k; j += kThreads * kEach) {
    kw::Vec<T, kEach> w[kRows];
#pragma unroll
    for (int i = 0; i < kRows; i++)  // rows outside repeat the last row
      w[i] = kw::load_streaming<T, kEach>(weight + min(top + i, n - 1) * weight_line + j);
#pragma unroll
    for (int r = 0; r < MOST; r++) {
      if (r >= m) continue;
      const auto v = kw::load<T, kEach>(x + r * x_line + j);
#pragma unroll
      for (int i = 0; i < kRows; i++)
        sums[i * MOST + r] = few_rows::dot(w[i], v, sums[i * MOST + r]);
    }
  }
  Lanes::add(sums);
#pragma unroll
  for (int i = 0; i < Lanes::kept(); i++)
    if (kSums >= 32 || threadIdx.x % (32 / kSums) == 0)
      of_warps[threadIdx.x / 32][Lanes::first() + i] = sums[i];
  __syncthreads();
  for (int s = threadIdx.x; s < kSums; s += kThreads) {
    const int i = top + s / MOST, r = s % MOST;
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; warp++) total += of_warps[warp][s];
    if (i < n && r < m) store(total, i, r, n);
  }
}

template <typename T, int MOST>
__global__ void __launch_bounds__(kThreads, 2)
    gemv_split(const T *__restrict__ weight, const T *__restrict__ x, T *__restrict__ c, int m,
               int n, int k, long long weight_line, long long x_line, long long i_stride,
               long long r_stride) {
  gemv<T, MOST>(weight, x, m, n, k, weight_line, x_line,
                few_rows::Product<T>{c, i_stride, r_stride});
}

template <typename T, int MOST, matmul::Activation ACTIVATION>
__global__ void __launch_bounds__(kThreads, 2)
    linear_gemv_split(const T *__restrict__ x, const T *__restrict__ weight,
                      const T *__restrict__ bias, const T *__restrict__ gate,
                      const T *__restrict__ residual, T *__restrict__ y, T *__restrict__ z, int m,
                      int n, int k, long long x_line, long long weight_line) {
  gemv<T, MOST>(weight, x, m, n, k, weight_line, x_line,
                few_rows::Linear<ACTIVATION, T>{{bias, gate, residual, z}, y});
}
