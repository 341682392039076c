// A row of any length in 16-byte vectors.
//
// Idea: if a row starts or ends off a 16-byte boundary, the vectors that overlap it are moved
// whole; only those at the two ends are moved element by element. The number of warps that share a
// row need not be a power of two; within a warp, a power of two of lanes shares a row.
// Traffic: x read once, y written once, 16 bytes per access.
// Compared with `cuda_block`: that rung falls back to accesses of 2 or 4 bytes if the row length is
// not divisible by a vector.
// Limit: rows of inputs and results must have the same offset from a 16-byte boundary; the
// registers of a block.
#include "kw/superset.cuh"

template <typename T, int VECS, int TEAM, int THREADS>
__global__ void __launch_bounds__(THREADS)
    softmax_fwd_superset(const T *__restrict__ x, T *__restrict__ y, long long n_rows, int n_cols,
                         long long x_stride) {
  __shared__ kw::MaxSum parts[THREADS / 32];
  const int first = threadIdx.x % TEAM;
  const long long row = blockIdx.x * static_cast<long long>(THREADS / TEAM) + threadIdx.x / TEAM;
  x += row * x_stride;
  y += row * n_cols;
  const kw::Superset<T> superset(x, row < n_rows ? n_cols : 0);

  typename kw::Superset<T>::V kept[VECS];
  superset.template load<TEAM>(kept, x, first, -kw::kInfinity);

  kw::MaxSum part = {kw::warp_reduce<kw::Max, kw::kLanes<TEAM>>(kw::max_of(kept)), 0.0f};
  part.sum = kw::warp_reduce<kw::Sum, kw::kLanes<TEAM>>(kw::sum_of_exp(kept, part.base()));
  const kw::MaxSum all = kw::team_max_sum<TEAM>(part, parts);

  const float scale = kw::reciprocal<T>(all.sum);
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    float f[superset.kWidth];
    kw::to_float(kw::opaque(kept[v]), f);
#pragma unroll
    for (float &e : f) e = kw::exp_scaled<T>(e - all.max) * scale;
    superset.store(y, superset.column(v * TEAM + first), kw::from_float<T>(f));
  }
}

template <typename T, int VECS, int TEAM, int THREADS>
__global__ void __launch_bounds__(THREADS)
    softmax_bwd_superset(const T *__restrict__ gy, const T *__restrict__ y, T *__restrict__ gx,
                         long long n_rows, int n_cols, long long gy_stride, long long y_stride) {
  __shared__ float parts[THREADS / 32];
  const int first = threadIdx.x % TEAM;
  const long long row = blockIdx.x * static_cast<long long>(THREADS / TEAM) + threadIdx.x / TEAM;
  gy += row * gy_stride;
  y += row * y_stride;
  gx += row * n_cols;
  const kw::Superset<T> superset(gy, row < n_rows ? n_cols : 0);

  typename kw::Superset<T>::V kept_g[VECS], kept_y[VECS];
  superset.template load<TEAM>(kept_g, gy, first, 0.0f);
  superset.template load<TEAM>(kept_y, y, first, 0.0f);

  float dot = 0.0f;
#pragma unroll
  for (int v = 0; v < VECS; v++) dot += kw::dot(kept_g[v], kept_y[v]);
  dot = kw::team_sum<TEAM>(dot, parts);

#pragma unroll
  for (int v = 0; v < VECS; v++)
    superset.store(gx, superset.column(v * TEAM + first),
                   kw::gradient(kw::opaque(kept_g[v]), kw::opaque(kept_y[v]), dot));
}
