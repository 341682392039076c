// A warp, or part of a warp, per row.
//
// Idea: WIDTH lanes hold a row in registers and reduce it by shuffles, without barriers. In the
// backward a fixed number of warps iterate over the rows. cp.async copies the next ROWS rows to
// shared memory while the current ones are processed, so loads do not wait for a reduction; each
// lane reads only data that it has copied. Parts of gweight and gbias stay in registers; at the end
// a block adds those of its warps.
// Traffic: forward: x read once, y written once; backward: gy and x read once, gx written once.
// Compared with `triton_row`: its backward waits for its rows instead of prefetching them.
// Limit: the registers of a lane.
#include "../norm.cuh"
#include "norm_backward.cuh"

constexpr int kThreads = 128;

template <typename N, int VEC, int VECS, int WIDTH, int ROWS, bool WHOLE>
__global__ void __launch_bounds__(kThreads)
    norm_fwd_warp(const typename N::T *__restrict__ x, const typename N::T *__restrict__ r,
                  const typename N::W *__restrict__ w, const typename N::W *__restrict__ b,
                  typename N::T *__restrict__ y, typename N::T *__restrict__ h,
                  float *__restrict__ means, float *__restrict__ rstds, long long n_rows,
                  long long n_cols_, long long x_stride, long long r_stride, float eps,
                  float offset, int given) {
  // WHOLE: rows fill the vectors of every lane and all blocks: the code contains no bounds checks
  const int n_cols = WHOLE ? VEC * VECS * WIDTH : static_cast<int>(n_cols_);
  const int lane = threadIdx.x % WIDTH;
  const long long first =
      (blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x) / WIDTH * ROWS;

  // lanes past the last row or column do not exit: all lanes of a warp take part in a shuffle
  kw::Vec<typename N::T, VEC> kept[ROWS][VECS];
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    const long long row = first + i;
    kw::load_row<N, WIDTH>(kept[i], x + row * x_stride, r + row * r_stride, h + row * n_cols, lane,
                           n_cols, WHOLE || row < n_rows);
  }

  // for short rows the parameters are loaded together with the row; for longer ones, after its
  // reduction
  kw::Early<N, VEC, VECS, VECS * sizeof(kw::Raw<typename N::W, VEC>) <= 48> parameters(
      w, b, given, n_cols, offset);
#pragma unroll
  for (int v = 0; v < VECS; v++) parameters.read(v, (v * WIDTH + lane) * VEC);

  kw::Statistics s[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    float mean = 0.0f;
    if (N::kCenter) mean = kw::warp_reduce<kw::Sum, WIDTH>(kw::sum_of(kept[i])) / n_cols;
    const kw::Deviations mine = kw::deviations_from<WIDTH>(mean, kept[i], lane, n_cols);
    const kw::Moments of_row = kw::moments_about<N, WIDTH>(mean, mine, n_cols);
    s[i] = {of_row.mean, rsqrtf(of_row.squares / n_cols + eps)};
  }
  // lane i stores the statistics of row i: one access for all rows
  kw::Statistics mine = s[0];
#pragma unroll
  for (int i = 1; i < ROWS; i++) mine = lane == i ? s[i] : mine;
  if (lane < ROWS && (WHOLE || first + lane < n_rows)) {
    if (N::kCenter) means[first + lane] = mine.mean;
    rstds[first + lane] = mine.rstd;
  }

#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = (v * WIDTH + lane) * VEC;
    float wf[VEC], bf[VEC];
    parameters.get(v, col, wf, bf);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
      kw::store_if(y + (first + i) * n_cols + col, (WHOLE || first + i < n_rows) && col < n_cols,
                   kw::normalise<N>(kw::opaque(kept[i][v]), s[i], wf, bf));
  }
}

template <typename N, int VEC, int VECS, int WIDTH, int ROWS, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    norm_bwd_warp(const typename N::T *__restrict__ gy, const typename N::T *__restrict__ gh,
                  const typename N::T *__restrict__ x, const typename N::W *__restrict__ w,
                  const float *__restrict__ means, const float *__restrict__ rstds,
                  typename N::T *__restrict__ gx, float *__restrict__ gw_parts,
                  float *__restrict__ gb_parts, long long n_rows, long long n_cols_,
                  long long gy_stride, long long gh_stride, long long x_stride, float offset,
                  int given) {
  constexpr int kTeams = THREADS / WIDTH;
  extern __shared__ uint4 dynamic_shared[];
  const int n_cols = static_cast<int>(n_cols_);
  const int lane = threadIdx.x % WIDTH, team = threadIdx.x / WIDTH;
  const kw::Streams<N> streams = {gy,        gh,        x,        means,  rstds,
                                  gy_stride, gh_stride, x_stride, n_rows, n_cols};
  kw::Flight<N, VEC, VECS, WIDTH, THREADS, ROWS> flight(dynamic_shared, lane, n_cols);
  kw::Gradients<N, VEC, VECS> g;
  // the teams of a warp process consecutive rows, so that all its lanes execute the same iterations
  const long long step = static_cast<long long>(gridDim.x) * kTeams * ROWS;
  long long row = (static_cast<long long>(blockIdx.x) * kTeams + team) * ROWS;
  const int ahead = team % (32 / WIDTH) * ROWS;
  const float share = 1.0f / n_cols;
  kw::Statistics s[ROWS];
  flight.fetch(streams, row, s);
  if (team == 0) flight.keep_weights(w, given, offset);  // while the first rows are in flight
  __syncthreads();
  for (; row - ahead < n_rows; row += step) {
    kw::Sums sums[ROWS];
    flight.sums(g, streams, row, s, sums);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      sums[i].dot = kw::warp_reduce<kw::Sum, WIDTH>(sums[i].dot) * share;
      if (N::kCenter) sums[i].sum = kw::warp_reduce<kw::Sum, WIDTH>(sums[i].sum) * share;
    }
    // rows of many columns are read again: the registers of a lane do not hold them from the first
    // pass
    if constexpr (VEC * VECS > 8) __syncwarp();
    flight.gradients(gx, streams, row, step, s, sums);
  }

  kw::let_next_launch_start();
  // each block's partial sums: those of its teams in order, through the memory that held their rows
  float *const all = reinterpret_cast<float *>(dynamic_shared);
  if (given & kw::kWeight)
    kw::add_teams<VEC, VECS, WIDTH, THREADS>(g.weight, all, gw_parts + blockIdx.x * n_cols_,
                                             n_cols);
  if constexpr (N::kCenter)
    if (given & kw::kBias)
      kw::add_teams<VEC, VECS, WIDTH, THREADS>(g.bias, all, gb_parts + blockIdx.x * n_cols_,
                                               n_cols);
}
