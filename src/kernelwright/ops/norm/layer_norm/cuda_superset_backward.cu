// A row of any length in 16-byte vectors, realigned in shared memory.
//
// Idea: blocks iterate over the rows. cp.async copies the vectors that overlap the next rows to
// shared memory. A thread has the same columns of every row, so that its parts of gweight and gbias
// stay in registers: it reads the two vectors around its columns and shifts them together. gx is
// written to shared memory by columns and from there by vectors of the result, element by element
// at the ends of a row.
// Traffic: gy and x read once, gx written once, 16 bytes per access.
// Compared with `cuda_block`: that rung falls back to accesses of 2 or 4 bytes if the row length is
// not divisible by a vector.
// Limit: three barriers per row; 8,192 columns; rows must have the same offset from a 16-byte
// boundary in all tensors.
#include "shifted.cuh"
#include "norm_backward.cuh"

namespace {

// A vector composed of two neighbors: the elements of `low` from `by` on, the rest from `high`.
template <typename T, int N>
__device__ __forceinline__ kw::Vec<T, N> joined(const kw::Vec<T, N> &low, const kw::Vec<T, N> &high,
                                                int by) {
  kw::Vec<T, N> both[2] = {low, high};
  unsigned words[8];
  memcpy(words, both, sizeof(words));
  kw::shift_down<sizeof(T)>(words, by);
  memcpy(both, words, sizeof(both[0]));
  return both[0];
}

// Rows of one tensor, copied to shared memory in the vectors that overlap them.
template <typename T, int TEAM> struct Arriving {
  using V = typename kw::Superset<T>::V;
  static constexpr int kWidth = kw::Superset<T>::kWidth;
  const T *const rows;
  const long long stride,
      end;  // end: of the last row, from the first one

  __device__ __forceinline__ Arriving(const T *rows, long long stride, long long n_rows, int n_cols)
      : rows(rows), stride(stride), end((n_rows - 1) * stride + n_cols) {}

  // A vector may contain elements of adjacent rows, but none of another tensor.
  __device__ __forceinline__ void start(V *slots, long long row, int past, int touched) const {
    for (int k = threadIdx.x; k < touched; k += TEAM) {
      const long long at = row * stride + k * kWidth - past;
      if (at + kWidth <= end) {
        kw::copy_async(slots + k, reinterpret_cast<const V *>(rows + at));
      } else {
#pragma unroll
        for (int i = 0; i < kWidth; i++)
          slots[k][i] = at + i < end ? rows[at + i] : kw::from_float<T>(0.0f);
      }
    }
  }
};

}  // namespace

template <typename N, int VECS, int TEAM, int ROWS, int BLOCKS>
__global__ void __launch_bounds__(TEAM, BLOCKS)
    norm_bwd_superset(const typename N::T *__restrict__ gy, const typename N::T *__restrict__ gh,
                      const typename N::T *__restrict__ x, const typename N::W *__restrict__ w,
                      const float *__restrict__ means, const float *__restrict__ rstds,
                      typename N::T *__restrict__ gx, float *__restrict__ gw_parts,
                      float *__restrict__ gb_parts, long long n_rows, long long n_cols_,
                      long long gy_stride, long long gh_stride, long long x_stride, float offset,
                      int given) {
  using T = typename N::T;
  using Superset = kw::Superset<T>;
  using V = typename Superset::V;
  constexpr int kWidth = Superset::kWidth, kStreams = N::kAdd ? 3 : 2, kSlots = VECS * TEAM + 1;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ float dots[2][TEAM / 32], sums[2][TEAM / 32];  // two arrays in turn
  V *const slots = reinterpret_cast<V *>(dynamic_shared);
  const int n_cols = static_cast<int>(n_cols_), warp = threadIdx.x / 32;
  const kw::Streams<N> streams = {gy,        gh,        x,        means,  rstds,
                                  gy_stride, gh_stride, x_stride, n_rows, n_cols};
  const Arriving<T, TEAM> of_gy(gy, gy_stride, n_rows, n_cols), of_x(x, x_stride, n_rows, n_cols),
      of_gh(gh, gh_stride, n_rows, n_cols);
  const auto past = [&](long long row) { return Superset(gx + row * n_cols, n_cols).past; };
  const auto touched = [&](int past) { return (past + n_cols + kWidth - 1) / kWidth; };
  const auto start = [&](int i, long long row) {
    if (row < n_rows) {
      const int p = past(row), n = touched(p);
      of_gy.start(slots + (i * kStreams) * kSlots, row, p, n);
      of_x.start(slots + (i * kStreams + 1) * kSlots, row, p, n);
      if constexpr (N::kAdd) of_gh.start(slots + (i * kStreams + 2) * kSlots, row, p, n);
    }
    kw::copy_async_commit();
  };

  const long long step = gridDim.x;
  long long row = blockIdx.x;
#pragma unroll
  for (int i = 0; i + 1 < ROWS; i++) start(i, row + i * step);
  float weight[VECS][kWidth];
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = (v * TEAM + threadIdx.x) * kWidth;
    kw::load_shifted(w, given & kw::kWeight, offset, 1.0f, col, n_cols, weight[v]);
  }
  kw::Gradients<N, kWidth, VECS> g;
  const float share = 1.0f / n_cols;
  kw::Statistics s = kw::statistics(streams, row);

  int now = 0;
  for (int turn = 0; row < n_rows; row += step, turn ^= 1) {
    kw::copy_async_wait_all_but<ROWS - 2>();
    __syncthreads();  // all threads see this row, and have finished with the previous one
    start(now == 0 ? ROWS - 1 : now - 1, row + (ROWS - 1) * step);
    const kw::Statistics next = kw::statistics(streams, row + step);
    V *const of_row = slots + now * kStreams * kSlots;
    const int p = past(row), n = touched(p);
    // the vector of columns from k * kWidth on, with zeros past the end of the row
    const auto columns = [&](const V *slot, int k) {
      V found{};
      if (k * kWidth >= n_cols) return found;
      found = joined(slot[k], p > 0 && k + 1 < n ? slot[k + 1] : V{}, p);
      if ((k + 1) * kWidth > n_cols)
#pragma unroll
        for (int i = 0; i < kWidth; i++)
          if (k * kWidth + i >= n_cols) found[i] = kw::from_float<T>(0.0f);
      return found;
    };

    V kept_g[VECS], kept_x[VECS];
    float dot = 0.0f, sum = 0.0f;
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      kept_g[v] = columns(of_row, v * TEAM + threadIdx.x);
      kept_x[v] = columns(of_row + kSlots, v * TEAM + threadIdx.x);
      float f[kWidth], xhat[kWidth];
      kw::to_float(kept_g[v], f);
      kw::to_float(kept_x[v], xhat);
#pragma unroll
      for (int i = 0; i < kWidth; i++) {
        xhat[i] = (N::kCenter ? xhat[i] - s.mean : xhat[i]) * s.rstd;
        g.weight[v][i] += f[i] * xhat[i];
        if constexpr (N::kCenter) g.bias[v][i] += f[i];
        f[i] *= weight[v][i];
        dot += f[i] * xhat[i];
        if constexpr (N::kCenter) sum += f[i];
      }
    }
    dot = kw::warp_reduce<kw::Sum>(dot);
    if constexpr (N::kCenter) sum = kw::warp_reduce<kw::Sum>(sum);
    if (threadIdx.x % 32 == 0) dots[turn][warp] = dot, sums[turn][warp] = sum;
    __syncthreads();  // all threads have read the row: its memory receives gx
    kw::Sums mean = {kw::sum_of_warps<TEAM / 32>(dots[turn]) * share, 0.0f};
    if constexpr (N::kCenter) mean.sum = kw::sum_of_warps<TEAM / 32>(sums[turn]) * share;

#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const int k = v * TEAM + threadIdx.x;
      float f[kWidth], xhat[kWidth], more[kWidth];
      kw::to_float(kw::opaque(kept_g[v]), f);
      kw::to_float(kw::opaque(kept_x[v]), xhat);
      if constexpr (N::kAdd) kw::to_float(columns(of_row + 2 * kSlots, k), more);
#pragma unroll
      for (int i = 0; i < kWidth; i++) {
        xhat[i] = (N::kCenter ? xhat[i] - s.mean : xhat[i]) * s.rstd;
        f[i] = kw::gradient_of<N>(f[i], weight[v][i], xhat[i], s, mean);
        if constexpr (N::kAdd) f[i] += more[i];
      }
      if (k * kWidth < n_cols) of_row[k] = kw::from_float<T>(f);
    }
    __syncthreads();
    T *const to = gx + row * n_cols;
    const Superset superset(to, n_cols);
    for (int k = threadIdx.x; k < n; k += TEAM) {
      const V own = k * kWidth < n_cols ? of_row[k] : V{};
      superset.store(to, superset.column(k),
                     p > 0 ? joined(k > 0 ? of_row[k - 1] : V{}, own, kWidth - p) : own);
    }
    s = next, now = now + 1 < ROWS ? now + 1 : 0;
  }

  kw::let_next_launch_start();
#pragma unroll
  for (int v = 0; v < VECS; v++)
#pragma unroll
    for (int i = 0; i < kWidth; i++) {
      const long long col = (v * TEAM + threadIdx.x) * kWidth + i;
      if (col >= n_cols) continue;
      if (given & kw::kWeight) gw_parts[blockIdx.x * n_cols_ + col] = g.weight[v][i];
      if constexpr (N::kCenter)
        if (given & kw::kBias) gb_parts[blockIdx.x * n_cols_ + col] = g.bias[v][i];
    }
}
