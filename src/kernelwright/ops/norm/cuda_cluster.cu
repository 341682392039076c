// A row in the registers, backward the shared memories, of a cluster's blocks.
//
// Idea: as `cuda_block`, with CLUSTER blocks on as many multiprocessors sharing a row. Each warp
// sends its sums to the shared memory of every block of the cluster, which reduces all parts by
// itself as soon as they have come. Backward: clusters walk over the rows with two mailboxes in
// turn; a block's message of the next turn never meets a box that is still open for this one.
// Traffic: as `cuda_block`, for rows that no multiprocessor holds.
// Limit: the shared memory of sixteen multiprocessors, and compute capability 9.0.
#include "kw/cluster.cuh"
#include "kw/norm.cuh"
#include "kw/norm_backward.cuh"

template <typename N, int VEC, int VECS, int THREADS, int CLUSTER>
__global__ void __launch_bounds__(THREADS)
    norm_fwd_cluster(const typename N::T *__restrict__ x, const typename N::T *__restrict__ r,
                     const typename N::W *__restrict__ w, const typename N::W *__restrict__ b,
                     typename N::T *__restrict__ y, typename N::T *__restrict__ h,
                     float *__restrict__ means, float *__restrict__ rstds, long long n_rows,
                     long long n_cols_, long long x_stride, long long r_stride, float eps,
                     float offset, int given) {
  constexpr int kWarps = THREADS / 32, kParts = kWarps * CLUSTER;
  __shared__ kw::Moments parts[kParts];
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int n_cols = static_cast<int>(n_cols_), first = rank * VECS * THREADS + threadIdx.x;
  const long long row = blockIdx.x / CLUSTER;
  box.open(sizeof(parts));

  kw::Vec<typename N::T, VEC> kept[VECS];
  kw::load_row<N, THREADS>(kept, x + row * x_stride, r + row * r_stride, h + row * n_cols, first,
                           n_cols);

  const kw::Moments part = kw::moments<N, THREADS>(kept, first, n_cols);
  box.ready();
  if (lane < CLUSTER) box.send(&parts[rank * kWarps + warp], part, lane);
  box.wait();
  const kw::Statistics s = kw::merge<N, kParts, THREADS, VEC, VECS>(
      parts, n_cols, eps,
      [](int part) { return part / kWarps * VECS * THREADS + part % kWarps * 32; });
  if (first == 0) {
    if (N::kCenter) means[row] = s.mean;
    rstds[row] = s.rstd;
  }

#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = (v * THREADS + first) * VEC;
    float wf[VEC], bf[VEC];
    kw::parameters<N>(w, b, given, col, n_cols, offset, wf, bf);
    kw::store_if(y + row * n_cols + col, col < n_cols,
                 kw::normalise<N>(kw::again(kept[v]), s, wf, bf));
  }
}

template <typename N, int VEC, int VECS, int THREADS, int CLUSTER, int ROWS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    norm_bwd_cluster(const typename N::T *__restrict__ gy, const typename N::T *__restrict__ gh,
                     const typename N::T *__restrict__ x, const typename N::W *__restrict__ w,
                     const float *__restrict__ means, const float *__restrict__ rstds,
                     typename N::T *__restrict__ gx, float *__restrict__ gw_parts,
                     float *__restrict__ gb_parts, long long n_rows, long long n_cols_,
                     long long gy_stride, long long gh_stride, long long x_stride, float offset,
                     int given) {
  constexpr int kWarps = THREADS / 32, kParts = kWarps * CLUSTER;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ float parts[2][ROWS][2][kParts];
  __shared__ kw::Mailbox boxes[2];
  const int rank = kw::cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int n_cols = static_cast<int>(n_cols_), first = rank * VECS * THREADS + threadIdx.x;
  constexpr unsigned kBytes = sizeof(parts[0]) / (N::kCenter ? 1 : 2);
  kw::Mailbox::open_all(boxes, kBytes);
  const kw::Streams<N> streams = {gy,        gh,        x,        means,  rstds,
                                  gy_stride, gh_stride, x_stride, n_rows, n_cols};
  kw::Flight<N, VEC, VECS, THREADS, THREADS, ROWS> flight(dynamic_shared, first, n_cols);
  kw::Gradients<N, VEC, VECS> g;
  flight.keep_weights(w, given, offset);

  const long long step = static_cast<long long>(gridDim.x / CLUSTER) * ROWS;
  long long row = static_cast<long long>(blockIdx.x / CLUSTER) * ROWS;
  kw::Statistics s[ROWS];
  flight.fetch(streams, row, s);
  kw::Mailbox::ready();
  for (unsigned turn = 0; row < n_rows; row += step, turn++) {
    kw::Mailbox &box = boxes[turn % 2];
    kw::Sums sums[ROWS];
    flight.sums(g, streams, row, s, sums);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      const float dot = kw::warp_reduce<kw::Sum>(sums[i].dot);
      const float sum = N::kCenter ? kw::warp_reduce<kw::Sum>(sums[i].sum) : 0.0f;
      if (lane < CLUSTER) {
        box.send(&parts[turn % 2][i][0][rank * kWarps + warp], dot, lane);
        if (N::kCenter) box.send(&parts[turn % 2][i][1][rank * kWarps + warp], sum, lane);
      }
    }
    box.wait(turn / 2 % 2);
    box.expect(kBytes);  // of the turn after the next
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      sums[i].dot = kw::reduce_parts<kParts>(parts[turn % 2][i][0]) / n_cols;
      if (N::kCenter) sums[i].sum = kw::reduce_parts<kParts>(parts[turn % 2][i][1]) / n_cols;
    }
    flight.gradients(gx, streams, row, step, s, sums);
  }

  const long long part = blockIdx.x / CLUSTER;
  if (given & kw::kWeight)
    kw::store_part<THREADS>(g.weight, gw_parts + part * n_cols_, first, n_cols);
  if constexpr (N::kCenter)
    if (given & kw::kBias)
      kw::store_part<THREADS>(g.bias, gb_parts + part * n_cols_, first, n_cols);
}
