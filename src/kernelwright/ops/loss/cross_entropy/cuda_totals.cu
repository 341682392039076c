// Values that concern all tokens, computed by one block: the factor of their gradients before their
// rows are read, and the sum of their losses afterwards. Added in a fixed order: deterministic.
#include "cross_entropy.cuh"

constexpr int kThreads = 1024;

// The sum of a thread's part of n values, UNROLL of which are in flight at a time.
template <int UNROLL = 8, typename Get>
__device__ __forceinline__ float share(long long n, Get get) {
  float sums[UNROLL] = {};
  for (long long i = threadIdx.x; i < n; i += kThreads * UNROLL)
#pragma unroll
    for (int k = 0; k < UNROLL; k++)
      if (i + k * kThreads < n) sums[k] += get(i + k * kThreads);
#pragma unroll
  for (int half = UNROLL / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; k++) sums[k] += sums[k + half];
  return sums[0];
}

template <typename F, typename Index>
__device__ float weight_of_targets(const Index *target, const float *weight, long long n_rows,
                                   long long n_cols, long long ignore_index, float *scratch) {
  const auto get = [=](long long i) {
    return kw::weight_of<F>(target[i], weight, n_cols, ignore_index);
  };
  return kw::block_reduce<kw::Sum>(share(n_rows, get), scratch);
}

template <typename Index, typename F, bool MEAN>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_scale(const Index *__restrict__ target, const float *__restrict__ weight,
                        float *__restrict__ g, long long n_rows, long long n_cols,
                        long long ignore_index) {
  __shared__ float scratch[32];
  float divisor = 1.0f;
  if constexpr (MEAN)
    divisor = weight_of_targets<F>(target, weight, n_rows, n_cols, ignore_index, scratch);
  if (threadIdx.x == 0) *g = 1.0f / divisor;
}

template <typename Index, typename Loss, typename F, bool SUM, bool MEAN, bool TOTALS>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_reduce(const float *__restrict__ losses, const Index *__restrict__ target,
                         const float *__restrict__ weight, Loss *__restrict__ loss,
                         float *__restrict__ totals, long long n_rows, long long n_cols,
                         long long ignore_index) {
  __shared__ float scratch[32];
  float divisor = 1.0f, every = float(n_cols);
  if constexpr (MEAN)
    divisor = weight_of_targets<F>(target, weight, n_rows, n_cols, ignore_index, scratch);
  if constexpr (SUM) {
    const auto get = [=](long long i) { return losses[i]; };
    const float sum = kw::block_reduce<kw::Sum>(share(n_rows, get), scratch);
    if (threadIdx.x == 0) *loss = kw::from_float<Loss>(sum / divisor);
  }
  if constexpr (TOTALS && F::weighted) {
    const auto get = [=](long long j) { return weight[j]; };
    every = kw::block_reduce<kw::Sum>(share(n_cols, get), scratch);
  }
  if constexpr (TOTALS)
    if (threadIdx.x == 0) totals[0] = divisor, totals[1] = every;
}
