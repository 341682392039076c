// Shared by the backward kernels: rows prefetched by asynchronous copies while others are computed,
// and the formulas of the two passes.
#pragma once
#include "kw/launch.cuh"
#include "../norm.cuh"

namespace kw {

// The rows that a backward reads: gy, gh with kAdd, and the normalized input with its statistics.
template <typename N> struct Streams {
  const typename N::T *gy, *gh, *x;
  const float *means, *rstds;
  long long gy_stride, gh_stride, x_stride, n_rows;
  int n_cols;
};

// Statistics of row `row`; zeros past the last row.
template <typename N>
__device__ __forceinline__ Statistics statistics(const Streams<N> &from, long long row) {
  if (row >= from.n_rows) return {0.0f, 0.0f};
  return {N::kCenter ? from.means[row] : 0.0f, from.rstds[row]};
}

// A thread's part of the parameters' gradients, summed over all its rows.
template <typename N, int VEC, int VECS> struct Gradients {
  float weight[VECS][VEC] = {}, bias[N::kCenter ? VECS : 1][VEC] = {};
};

// Sums along a row: g xhat, and g.
struct Sums {
  float dot, sum;
};

// The gradient of one element, given its row's means of g xhat and of g. For layer_norm, w gy is
// rounded as in these means: the gradient of a row of one element is exactly 0.
template <typename N>
__device__ __forceinline__ float gradient_of(float gy, float w, float xhat, Statistics s,
                                             Sums mean) {
  if constexpr (!N::kCenter) return s.rstd * (gy * w) - xhat * (s.rstd * mean.dot);
  return s.rstd * (__fmul_rn(gy, w) - (xhat * mean.dot + mean.sum));
}

// ROWS rows in flight for a team of TEAM threads; a block has THREADS / TEAM teams. cp.async copies
// the next rows while these are computed: a thread's elements go to shared memory slots that only
// this thread uses, so no barrier is needed, and a slot is refilled as soon as the thread has read
// it. Weights are floats with their offset: in registers if the block is one team with few columns
// per thread, else in shared memory after the slots, once for all teams.
template <typename N, int VEC, int VECS, int TEAM, int THREADS, int ROWS> struct Flight {
  using T = typename N::T;
  using V = Vec<T, VEC>;
  static constexpr int kStreams = N::kAdd ? 3 : 2, kSlots = ROWS * kStreams * VECS;
  static constexpr int kPlane = VEC < 4 ? VEC : 4;  // floats that one instruction reads
  static constexpr bool kHeld = TEAM == THREADS && VECS * VEC <= 16;  // tiling.py's HELD

  V *const slots;
  float *const weights;
  float held[kHeld ? VECS : 1][VEC];
  const int first, n_cols;  // the thread's first vector; columns of the row

  __device__ __forceinline__ Flight(void *shared, int first, int n_cols)
      : slots(static_cast<V *>(shared) + threadIdx.x),
        weights(reinterpret_cast<float *>(static_cast<V *>(shared) + kSlots * THREADS) +
                threadIdx.x % TEAM * kPlane),
        first(first),
        n_cols(n_cols) {
    // slots past the row's end are never copied to: they hold zeros
#pragma unroll
    for (int v = 0; v < VECS; v++)
      if (column(v) >= n_cols)
        for (int i = 0; i < ROWS * kStreams; i++) slots[(i * VECS + v) * THREADS] = V{};
  }

  __device__ __forceinline__ int column(int v) const { return (v * TEAM + first) * VEC; }
  __device__ __forceinline__ V *slot(int i, int stream, int v) const {
    return slots + ((i * kStreams + stream) * VECS + v) * THREADS;
  }

  // One team stores the weights; the others read them after a barrier.
  __device__ __forceinline__ void keep_weights(const typename N::W *w, int given, float offset) {
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      float f[VEC];
      load_or(w + column(v), (given & kWeight) && column(v) < n_cols, offset, 1.0f, f);
#pragma unroll
      for (int i = 0; i < VEC; i++) {
        if constexpr (kHeld)
          held[v][i] = f[i];
        else
          plane(v, i) = f[i];
      }
    }
  }

  // Starts the copies of row `row` into row i of the flight.
  __device__ __forceinline__ void start(const Streams<N> &from, int i, long long row) const {
    if (row < from.n_rows) {
#pragma unroll
      for (int v = 0; v < VECS; v++) {
        const int col = column(v);
        if (col < n_cols) {
          copy(slot(i, 0, v), from.gy + row * from.gy_stride + col);
          copy(slot(i, 1, v), from.x + row * from.x_stride + col);
          if constexpr (N::kAdd) copy(slot(i, 2, v), from.gh + row * from.gh_stride + col);
        }
      }
    }
    copy_async_commit();
  }
  // The same for `row` and the rows after it, with their statistics.
  __device__ __forceinline__ void fetch(const Streams<N> &from, int i, long long row,
                                        Statistics &s) const {
    start(from, i, row);
    s = statistics(from, row);
  }
  __device__ __forceinline__ void fetch(const Streams<N> &from, long long row,
                                        Statistics (&s)[ROWS]) const {
#pragma unroll
    for (int i = 0; i < ROWS; i++) fetch(from, i, row + i, s[i]);
  }

  // First pass over row i of the flight: its sums, and its share of the parameters' gradients.
  __device__ __forceinline__ Sums sums(Gradients<N, VEC, VECS> &g, int i, Statistics s) const {
    Sums sums = {0.0f, 0.0f};
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      float gy[VEC], xhat[VEC], w[VEC], dot = 0.0f, sum = 0.0f;
      read(i, v, s, gy, xhat, w);
#pragma unroll
      for (int k = 0; k < VEC; k++) {
        g.weight[v][k] += gy[k] * xhat[k];
        if constexpr (N::kCenter) g.bias[v][k] += gy[k];
        gy[k] *= w[k];
        dot += gy[k] * xhat[k];
        if constexpr (N::kCenter) sum += gy[k];
      }
      sums.dot += dot;
      sums.sum += sum;
    }
    return sums;
  }
  // The same for all rows of the flight, which are `row` and the rows after it.
  __device__ __forceinline__ void sums(Gradients<N, VEC, VECS> &g, const Streams<N> &from,
                                       long long row, const Statistics (&s)[ROWS],
                                       Sums (&all)[ROWS]) const {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      all[i] = {0.0f, 0.0f};
      wait(i);
      if (row + i < from.n_rows) all[i] = sums(g, i, s[i]);
    }
  }

  // Second pass over row i of the flight, given the row's means of g xhat and of g. Writes
  // gx.
  __device__ __forceinline__ void gradient(T *gx, int i, long long row, Statistics s,
                                           Sums mean) const {
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      float gy[VEC], xhat[VEC], w[VEC], more[VEC];
      read(i, v, s, gy, xhat, w);
      if constexpr (N::kAdd) to_float(*slot(i, 2, v), more);
#pragma unroll
      for (int k = 0; k < VEC; k++) {
        gy[k] = gradient_of<N>(gy[k], w[k], xhat[k], s, mean);
        if constexpr (N::kAdd) gy[k] += more[k];
      }
      store_if(gx + row * n_cols + column(v), column(v) < n_cols, from_float<T>(gy));
    }
  }
  // The same for all rows; then starts the copies of the rows `step` later, with statistics.
  __device__ __forceinline__ void gradients(T *gx, const Streams<N> &from, long long row,
                                            long long step, Statistics (&s)[ROWS],
                                            const Sums (&mean)[ROWS]) const {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      if (row + i < from.n_rows) gradient(gx, i, row + i, s[i], mean[i]);
      fetch(from, i, row + i + step, s[i]);
    }
  }

 private:
  __device__ __forceinline__ float &plane(int v, int i) const {
    return weights[((v * (VEC / kPlane) + i / kPlane) * TEAM) * kPlane + i % kPlane];
  }
  __device__ __forceinline__ void read(int i, int v, Statistics s, float (&gy)[VEC],
                                       float (&xhat)[VEC], float (&w)[VEC]) const {
    to_float(*slot(i, 0, v), gy);
    to_float(*slot(i, 1, v), xhat);
#pragma unroll
    for (int k = 0; k < VEC; k++) xhat[k] = (N::kCenter ? xhat[k] - s.mean : xhat[k]) * s.rstd;
    if constexpr (kHeld) {
#pragma unroll
      for (int k = 0; k < VEC; k++) w[k] = held[v][k];
    } else {
#pragma unroll
      for (int k = 0; k < VEC; k += kPlane) {
        const auto some = load<float, kPlane>(&plane(v, k));
#pragma unroll
        for (int j = 0; j < kPlane; j++) w[k + j] = some[j];
      }
    }
  }
  static __device__ __forceinline__ void copy(V *to, const T *from) {
    copy_async(to, reinterpret_cast<const V *>(from));
  }
  // Waits for the copies of row i of the flight; those of later rows may still be in flight.
  static __device__ __forceinline__ void wait(int i) {
    switch (ROWS - 1 - i) {
      case 0:
        return copy_async_wait_all_but<0>();
      case 1:
        return copy_async_wait_all_but<1>();
      case 2:
        return copy_async_wait_all_but<2>();
      default:
        return copy_async_wait_all_but<3>();
    }
  }
};

// A block's part of a parameter's gradient: the teams' parts added in a fixed order, through shared
// memory that is no longer in use.
template <int VEC, int VECS, int TEAM, int THREADS>
__device__ __forceinline__ void add_teams(const float (&part)[VECS][VEC], float *all, float *sum,
                                          int n_cols) {
  constexpr int kCols = VECS * TEAM * VEC;
  float *const mine = all + threadIdx.x / TEAM * kCols + threadIdx.x % TEAM * VEC;
  __syncthreads();
#pragma unroll
  for (int v = 0; v < VECS; v++)
#pragma unroll
    for (int i = 0; i < VEC; i++) mine[v * TEAM * VEC + i] = part[v][i];
  __syncthreads();
  for (int col = threadIdx.x; col < n_cols; col += THREADS) {
    float total = 0.0f;
    for (int team = 0; team < THREADS / TEAM; team++) total += all[team * kCols + col];
    sum[col] = total;
  }
}

// The same where a block is one team: each thread stores its own part.
template <int STEP, int VEC, int VECS>
__device__ __forceinline__ void store_part(const float (&part)[VECS][VEC], float *sum, int first,
                                           int n_cols) {
  constexpr int kPiece = VEC < 4 ? VEC : 4;
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = (v * STEP + first) * VEC;
    if (col < n_cols)
#pragma unroll
      for (int i = 0; i < VEC; i += kPiece) {
        Vec<float, kPiece> piece;
#pragma unroll
        for (int j = 0; j < kPiece; j++) piece[j] = part[v][i + j];
        store(sum + col + i, piece);
      }
  }
}

}  // namespace kw
