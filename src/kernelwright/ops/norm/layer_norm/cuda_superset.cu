// A row of any length in 16-byte vectors.
//
// Idea: if a row starts or ends off a 16-byte boundary, the vectors that overlap it are moved
// whole; only those at the two ends are moved element by element. A vector may then start at any
// column: weight and bias are loaded as aligned vectors too, and shifted by the same distance in
// all threads of the row. The number of warps that share a row need not be a power of two.
// Traffic: x read once, y written once, 16 bytes per access.
// Compared with `cuda_block`: that rung falls back to accesses of 2 or 4 bytes if the row length is
// not divisible by a vector.
// Limit: rows of inputs and results must have the same offset from a 16-byte boundary; the
// registers of a block.
#include "shifted.cuh"

// A warp's part of a row: its moments, and its number of elements.
struct Part {
  kw::Moments moments;
  float count;
};

template <typename N, int TEAM>
__device__ __forceinline__ kw::Statistics statistics(Part part, Part *parts, int n_cols,
                                                     float eps) {
  kw::Moments of_row = part.moments;
  if constexpr (TEAM > 32) {
    constexpr int kWarps = TEAM / 32, kWidth = kw::power_of_two(kWarps);
    const int at = threadIdx.x % kWidth;
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
    __syncthreads();
    part = at < kWarps ? parts[at] : Part{{0.0f, 0.0f}, 0.0f};
    float mean = 0.0f;
    kw::Deviations mine = {0.0f, part.moments.squares};
    if constexpr (N::kCenter) {
      mean = kw::warp_reduce<kw::Sum, kWidth>(part.count * part.moments.mean) / n_cols;
      const float distance = part.moments.mean - mean;
      mine.sum = part.count * distance;
      mine.squares += part.count * (distance * distance);
    }
    of_row = kw::moments_about<N, kWidth>(mean, mine, n_cols);
  }
  return {of_row.mean, rsqrtf(of_row.squares / n_cols + eps)};
}

template <typename N, int VECS, int TEAM, int THREADS>
__global__ void __launch_bounds__(THREADS)
    norm_fwd_superset(const typename N::T *__restrict__ x, const typename N::T *__restrict__ r,
                      const typename N::W *__restrict__ w, const typename N::W *__restrict__ b,
                      typename N::T *__restrict__ y, typename N::T *__restrict__ h,
                      float *__restrict__ means, float *__restrict__ rstds, long long n_rows,
                      long long n_cols_, long long x_stride, long long r_stride, float eps,
                      float offset, int given) {
  using T = typename N::T;
  using Superset = kw::Superset<T>;
  constexpr int kWidth = Superset::kWidth;
  __shared__ Part parts[THREADS / 32];
  const int first = threadIdx.x % TEAM, n_cols = static_cast<int>(n_cols_);
  const long long row = blockIdx.x * static_cast<long long>(THREADS / TEAM) + threadIdx.x / TEAM;
  x += row * x_stride, r += row * r_stride, y += row * n_cols, h += row * n_cols;
  const Superset superset(x, row < n_rows ? n_cols : 0);

  typename Superset::V kept[VECS];
  superset.template load<TEAM>(kept, x, first, 0.0f);
  if constexpr (N::kAdd) {
    typename Superset::V more[VECS];
    superset.template load<TEAM>(more, r, first, 0.0f);
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      float a[kWidth], c[kWidth];
      kw::to_float(kept[v], a);
      kw::to_float(more[v], c);
#pragma unroll
      for (int i = 0; i < kWidth; i++) a[i] += c[i];
      kept[v] = kw::from_float<T>(a);
      superset.store(h, superset.column(v * TEAM + first), kept[v]);
    }
  }

  constexpr int kLanes = kw::kLanes<TEAM>;
  float count = n_cols, mean = 0.0f;
  if constexpr (N::kCenter) {
    if constexpr (TEAM > 32) {
      int inside = 0;
#pragma unroll
      for (int v = 0; v < VECS; v++) {
        const int from = superset.column(v * TEAM + first - threadIdx.x % 32);
        inside += min(max(from + 32 * kWidth, 0), n_cols) - min(max(from, 0), n_cols);
      }
      count = inside;
    }
    const float sum = kw::warp_reduce<kw::Sum, kLanes>(kw::sum_of(kept));
    mean = count > 0.0f ? sum / count : 0.0f;
  }
  kw::Deviations mine = {0.0f, 0.0f};
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = superset.column(v * TEAM + first);
    float f[kWidth];
    kw::Deviations of_vector = {0.0f, 0.0f};
    kw::to_float(kw::opaque(kept[v]), f);
    if (N::kCenter && !superset.whole(col)) {
#pragma unroll
      for (int i = 0; i < kWidth; i++) f[i] = superset.inside(col + i) ? f[i] : mean;
    }
#pragma unroll
    for (int i = 0; i < kWidth; i++) {
      of_vector.sum += f[i] - mean;
      of_vector.squares += (f[i] - mean) * (f[i] - mean);
    }
    mine.sum += of_vector.sum;
    mine.squares += of_vector.squares;
  }
  const Part part = {kw::moments_about<N, kLanes>(mean, mine, count), count};
  const kw::Statistics s = statistics<N, TEAM>(part, parts, n_cols, eps);
  if (first == 0 && row < n_rows) {
    if (N::kCenter) means[row] = s.mean;
    rstds[row] = s.rstd;
  }

#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = superset.column(v * TEAM + first);
    float wf[kWidth], bf[kWidth];
    kw::load_shifted(w, given & kw::kWeight, offset, 1.0f, col, n_cols, wf);
    if constexpr (N::kCenter) kw::load_shifted(b, given & kw::kBias, 0.0f, 0.0f, col, n_cols, bf);
    superset.store(y, col, kw::normalise<N>(kw::opaque(kept[v]), s, wf, bf));
  }
}
