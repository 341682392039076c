// A row in the registers of a block; in the backward, in its shared memory.
//
// Idea: as `cuda_warp`, but the warps of a block share a row. Mean and variance are exchanged
// together, as sums and squared deviations from each warp's own mean: one barrier per row. In the
// backward a block iterates over the rows, ROWS at a time with one barrier; a thread keeps its
// columns' part of gweight and gbias in registers, so that no teams have to be added up.
// Traffic: forward: x read once, y written once; backward: gy and x read once, gx written once,
// also for rows that do not fit in a warp's registers.
// Compared with `cuda_warp`: longer rows, and more threads per row.
// Limit: the registers and shared memory of one multiprocessor.
#include "../norm.cuh"
#include "norm_backward.cuh"

template <typename N, int VEC, int VECS, int THREADS, bool WHOLE>
__global__ void __launch_bounds__(THREADS)
    norm_fwd_block(const typename N::T *__restrict__ x, const typename N::T *__restrict__ r,
                   const typename N::W *__restrict__ w, const typename N::W *__restrict__ b,
                   typename N::T *__restrict__ y, typename N::T *__restrict__ h,
                   float *__restrict__ means, float *__restrict__ rstds, long long n_rows,
                   long long n_cols_, long long x_stride, long long r_stride, float eps,
                   float offset, int given) {
  __shared__ kw::Moments parts[THREADS / 32];
  // WHOLE: the row fills the vectors of every thread, so that the code contains no bounds checks
  const int n_cols = WHOLE ? VEC * VECS * THREADS : static_cast<int>(n_cols_);
  const int first = threadIdx.x;
  const long long row = blockIdx.x;

  kw::Vec<typename N::T, VEC> kept[VECS];
  kw::load_row<N, THREADS>(kept, x + row * x_stride, r + row * r_stride, h + row * n_cols, first,
                           n_cols);

  // few parameters are loaded together with the row; many are loaded after its reduction
  kw::Early<N, VEC, VECS, VECS * sizeof(kw::Raw<typename N::W, VEC>) * (N::kCenter ? 2 : 1) <= 64>
      parameters(w, b, given, n_cols, offset);
#pragma unroll
  for (int v = 0; v < VECS; v++) parameters.read(v, (v * THREADS + first) * VEC);

  const kw::Moments part = kw::moments<N, THREADS, WHOLE>(kept, first, n_cols);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  const kw::Counts<THREADS / 32, THREADS, VEC, VECS, WHOLE> counts(
      n_cols, [](int warp) { return 32 * warp; });
  const kw::Statistics s = kw::merge<N>(parts, counts, n_cols, eps);
  if (threadIdx.x == 0) {
    if (N::kCenter) means[row] = s.mean;
    rstds[row] = s.rstd;
  }

#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = (v * THREADS + first) * VEC;
    float wf[VEC], bf[VEC];
    parameters.get(v, col, wf, bf);
    kw::store_if(y + row * n_cols + col, col < n_cols,
                 kw::normalise<N>(kw::opaque(kept[v]), s, wf, bf));
  }
}

template <typename N, int VEC, int VECS, int THREADS, int ROWS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    norm_bwd_block(const typename N::T *__restrict__ gy, const typename N::T *__restrict__ gh,
                   const typename N::T *__restrict__ x, const typename N::W *__restrict__ w,
                   const float *__restrict__ means, const float *__restrict__ rstds,
                   typename N::T *__restrict__ gx, float *__restrict__ gw_parts,
                   float *__restrict__ gb_parts, long long n_rows, long long n_cols_,
                   long long gy_stride, long long gh_stride, long long x_stride, float offset,
                   int given) {
  constexpr int kWarps = THREADS / 32;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ float parts[2][ROWS][2][kWarps];  // two arrays in turn: one barrier per iteration
  const int n_cols = static_cast<int>(n_cols_), warp = threadIdx.x / 32, first = threadIdx.x;
  const kw::Streams<N> streams = {gy,        gh,        x,        means,  rstds,
                                  gy_stride, gh_stride, x_stride, n_rows, n_cols};
  kw::Flight<N, VEC, VECS, THREADS, THREADS, ROWS> flight(dynamic_shared, first, n_cols);
  kw::Gradients<N, VEC, VECS> g;
  const float share = 1.0f / n_cols;

  const long long step = static_cast<long long>(gridDim.x) * ROWS;
  long long row = static_cast<long long>(blockIdx.x) * ROWS;
  kw::Statistics s[ROWS];
  flight.fetch(streams, row, s);
  flight.keep_weights(w, given, offset);  // while the first rows are in flight
  for (int turn = 0; row < n_rows; row += step, turn ^= 1) {
    kw::Sums sums[ROWS];
    flight.sums(g, streams, row, s, sums);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      const float dot = kw::warp_reduce<kw::Sum>(sums[i].dot);
      const float sum = N::kCenter ? kw::warp_reduce<kw::Sum>(sums[i].sum) : 0.0f;
      if (threadIdx.x % 32 == 0) parts[turn][i][0][warp] = dot, parts[turn][i][1][warp] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      sums[i].dot = kw::reduce_parts<kWarps>(parts[turn][i][0]) * share;
      if (N::kCenter) sums[i].sum = kw::reduce_parts<kWarps>(parts[turn][i][1]) * share;
    }
    flight.gradients(gx, streams, row, step, s, sums);
  }

  kw::let_next_launch_start();
  if (given & kw::kWeight)
    kw::store_part<THREADS>(g.weight, gw_parts + blockIdx.x * n_cols_, first, n_cols);
  if constexpr (N::kCenter)
    if (given & kw::kBias)
      kw::store_part<THREADS>(g.bias, gb_parts + blockIdx.x * n_cols_, first, n_cols);
}
