// A row in the registers, or in the shared memory, of a cluster of blocks.
//
// Idea: as `cuda_block`, with CLUSTER blocks per row. Each warp sends its sums to every block of
// the cluster, which reduces them on arrival. In the walking variant clusters iterate over the
// rows: the sums of a row are in flight during the first pass over the next row, and further rows
// are prefetched. This takes four mailboxes: a block may be two iterations ahead of another.
// Traffic: as `cuda_block`, for rows too long for one multiprocessor. Their parameters exceed L1
// and are read from L2 once per ROWS rows, or once for all rows of a walk.
// Compared with `cuda_block`: the registers and shared memory of up to sixteen multiprocessors.
// Limit: the shared memory of sixteen multiprocessors; compute capability 9.0 is required.
#include "kw/cluster.cuh"
#include "../norm.cuh"
#include "norm_backward.cuh"
#include "norm_forward.cuh"

template <typename N, int VEC, int VECS, int THREADS, int CLUSTER, int ROWS>
__global__ void __launch_bounds__(THREADS, kw::resident<N, VEC, VECS * ROWS>() / THREADS)
    norm_fwd_cluster(const typename N::T *__restrict__ x, const typename N::T *__restrict__ r,
                     const typename N::W *__restrict__ w, const typename N::W *__restrict__ b,
                     typename N::T *__restrict__ y, typename N::T *__restrict__ h,
                     float *__restrict__ means, float *__restrict__ rstds, long long n_rows,
                     long long n_cols_, long long x_stride, long long r_stride, float eps,
                     float offset, int given) {
  constexpr int kWarps = THREADS / 32, kParts = kWarps * CLUSTER;
  __shared__ kw::Moments parts[ROWS][kParts];
  __shared__ kw::Mailbox box;
  const int rank = kw::cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int n_cols = static_cast<int>(n_cols_), first = rank * VECS * THREADS + threadIdx.x;
  const long long row = blockIdx.x / CLUSTER * static_cast<long long>(ROWS);
  box.open(sizeof(parts));

  kw::Vec<typename N::T, VEC> kept[ROWS][VECS];
#pragma unroll
  for (int i = 0; i < ROWS; i++)
    kw::load_row<N, THREADS>(kept[i], x + (row + i) * x_stride, r + (row + i) * r_stride,
                             h + (row + i) * n_cols, first, n_cols, row + i < n_rows);

  kw::Moments part[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++) part[i] = kw::moments<N, THREADS>(kept[i], first, n_cols);
  box.ready();
#pragma unroll
  for (int i = 0; i < ROWS; i++)
    if (lane < CLUSTER) box.send(&parts[i][rank * kWarps + warp], part[i], lane);
  box.wait();
  const kw::Counts<kParts, THREADS, VEC, VECS> counts(
      n_cols, [](int part) { return part / kWarps * VECS * THREADS + part % kWarps * 32; });
  kw::Statistics s[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    s[i] = kw::merge<N>(parts[i], counts, n_cols, eps);
    if (first == 0 && row + i < n_rows) {
      if (N::kCenter) means[row + i] = s[i].mean;
      rstds[row + i] = s[i].rstd;
    }
  }

#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = (v * THREADS + first) * VEC;
    float wf[VEC], bf[VEC];
    kw::parameters<N>(w, b, given, col, n_cols, offset, wf, bf);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
      kw::store_if(y + (row + i) * n_cols + col, row + i < n_rows && col < n_cols,
                   kw::normalise<N>(kw::opaque(kept[i][v]), s[i], wf, bf));
  }
}

// WHOLE: no vector is past the end of a row.
template <typename N, int VEC, int VECS, int THREADS, int CLUSTER, int ROWS, int BLOCKS, bool WHOLE>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    norm_fwd_walk_cluster(const typename N::T *__restrict__ x, const typename N::T *__restrict__ r,
                          const typename N::W *__restrict__ w, const typename N::W *__restrict__ b,
                          typename N::T *__restrict__ y, typename N::T *__restrict__ h,
                          float *__restrict__ means, float *__restrict__ rstds, long long n_rows,
                          long long n_cols_, long long x_stride, long long r_stride, float eps,
                          float offset, int given) {
  constexpr int kWarps = THREADS / 32, kParts = kWarps * CLUSTER, kBoxes = 4;
  constexpr int kAhead = ROWS > 1 ? 1 : 0;  // rows whose first pass is done early
  extern __shared__ uint4 dynamic_shared[];
  __shared__ kw::Moments parts[kBoxes][kParts];
  __shared__ kw::Mailbox boxes[kBoxes];
  // % tells the compiler the range of the values, so that it removes checks that WHOLE makes
  // needless
  const int rank = kw::cluster_rank() % CLUSTER, thread = threadIdx.x % THREADS;
  const int warp = thread / 32, lane = thread % 32, first = rank * VECS * THREADS + thread;
  const int n_cols = WHOLE ? VEC * VECS * THREADS * CLUSTER : static_cast<int>(n_cols_);
  const long long step = gridDim.x / CLUSTER;
  long long row = blockIdx.x / CLUSTER;
  kw::Mailbox::open_all(boxes, sizeof(parts[0]),
                        [&](int turn) { return row + turn * step < n_rows; });
  const kw::Rows<N> rows = {x, r, h, x_stride, r_stride, n_rows, n_cols};
  const kw::Arrivals<N, VEC, VECS, THREADS, ROWS> arrivals(dynamic_shared, first, n_cols);

#pragma unroll
  for (int i = 0; i < ROWS; i++) arrivals.start(rows, i, row + i * step);
  kw::Parameters<N, VEC, VECS> parameters = {w, b, given, n_cols, offset};
#pragma unroll
  for (int v = 0; v < VECS; v++) parameters.hold(v, arrivals.column(v));
  const kw::Counts<kParts, THREADS, VEC, VECS, WHOLE> counts(
      n_cols, [](int part) { return part / kWarps * VECS * THREADS + part % kWarps * 32; });

  const auto send = [&](unsigned turn, int i, long long row) {
    kw::Vec<typename N::T, VEC> part[VECS];
    arrivals.take(part, rows, i, row);
    const kw::Moments moments = kw::moments<N, THREADS, WHOLE>(part, first, n_cols);
    __syncwarp();  // all lanes have read the previous sums, which the other blocks may overwrite
                   // after the send
    if (lane < CLUSTER)
      boxes[turn % kBoxes].send(&parts[turn % kBoxes][rank * kWarps + warp], moments, lane);
  };
  kw::Mailbox::ready();
  if constexpr (kAhead) {
    kw::copy_async_wait_all_but<ROWS - 1>();
    if (row < n_rows) send(0, 0, row);
  }

  // one iteration per row: the moments of the next row are sent before this row's are waited for
  int i = 0;
  for (unsigned turn = 0; row < n_rows; row += step, turn++) {
    const int i_next = i + 1 < ROWS ? i + 1 : 0;
    kw::copy_async_wait_all_but<ROWS - 1 - kAhead>();
    if constexpr (kAhead) {
      if (row + step < n_rows) send(turn + 1, i_next, row + step);
    } else {
      send(turn, 0, row);
    }
    kw::Mailbox &box = boxes[turn % kBoxes];
    box.wait(turn / kBoxes % 2);
    if (row + kBoxes * step < n_rows) box.expect(sizeof(parts[0]));
    const kw::Statistics s = kw::merge<N>(parts[turn % kBoxes], counts, n_cols, eps);
    if (first == 0) {
      if (N::kCenter) means[row] = s.mean;
      rstds[row] = s.rstd;
    }
    typename N::T *const to = y + row * n_cols + arrivals.column(0);
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const int col = arrivals.column(v);
      kw::store_if(to + v * THREADS * VEC, col < n_cols,
                   parameters.normalise(arrivals.slot(i, v), s, v, col));
    }
    arrivals.start(rows, i, row + ROWS * step);
    i = i_next;
  }
}

// The sums of all parts, in every thread of a warp.
template <int PARTS, int SUMS>
__device__ __forceinline__ kw::Vec<float, SUMS> sum_of(const kw::Vec<float, SUMS> *parts) {
  const int lane = threadIdx.x % 32;
  kw::Vec<float, SUMS> all = parts[lane % PARTS];
#pragma unroll
  for (int k = 0; k < SUMS; k++) {
#pragma unroll
    for (int i = 32; i < PARTS; i += 32) all[k] += parts[lane + i][k];
    all[k] = kw::warp_reduce<kw::Sum, (PARTS < 32 ? PARTS : 32)>(all[k]);
  }
  return all;
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
  constexpr int kWarps = THREADS / 32, kParts = kWarps * CLUSTER, kBoxes = 4;
  constexpr int kAhead = ROWS > 1 ? 1 : 0;          // rows whose first pass is done early
  using Part = kw::Vec<float, N::kCenter ? 2 : 1>;  // a warp's sums: one message
  extern __shared__ uint4 dynamic_shared[];
  __shared__ Part parts[kBoxes][kParts];
  __shared__ kw::Mailbox boxes[kBoxes];
  const int rank = kw::cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int n_cols = static_cast<int>(n_cols_), first = rank * VECS * THREADS + threadIdx.x;
  const long long step = gridDim.x / CLUSTER;
  long long row = blockIdx.x / CLUSTER;
  kw::Mailbox::open_all(boxes, sizeof(parts[0]),
                        [&](int turn) { return row + turn * step < n_rows; });
  const kw::Streams<N> streams = {gy,        gh,        x,        means,  rstds,
                                  gy_stride, gh_stride, x_stride, n_rows, n_cols};
  kw::Flight<N, VEC, VECS, THREADS, THREADS, ROWS> flight(dynamic_shared, first, n_cols);
  kw::Gradients<N, VEC, VECS> g;
  flight.keep_weights(w, given, offset);

  kw::Statistics s = kw::statistics(streams, row), next = kw::statistics(streams, row + step);
#pragma unroll
  for (int i = 0; i < ROWS; i++) flight.start(streams, i, row + i * step);
  const auto send = [&](unsigned turn, kw::Sums sums) {
    __syncwarp();  // all lanes have read the previous sums, which the other blocks may overwrite
                   // after the send
    Part part;
    part[0] = kw::warp_reduce<kw::Sum>(sums.dot);
    if constexpr (N::kCenter) part[1] = kw::warp_reduce<kw::Sum>(sums.sum);
    if (lane < CLUSTER)
      boxes[turn % kBoxes].send(&parts[turn % kBoxes][rank * kWarps + warp], part, lane);
  };
  kw::Mailbox::ready();
  if constexpr (kAhead) {
    kw::copy_async_wait_all_but<ROWS - 1>();
    if (row < n_rows) send(0, flight.sums(g, 0, s));
  }

  // one iteration per row: the sums of the next row are sent before this row's are waited for
  int slot = 0;
  for (unsigned turn = 0; row < n_rows; row += step, turn++) {
    const int slot_next = slot + 1 < ROWS ? slot + 1 : 0;
    kw::copy_async_wait_all_but<ROWS - 1 - kAhead>();
    if constexpr (kAhead) {
      if (row + step < n_rows) send(turn + 1, flight.sums(g, slot_next, next));
    } else {
      send(turn, flight.sums(g, 0, s));
    }
    const kw::Statistics later = kw::statistics(streams, row + 2 * step);
    kw::Mailbox &box = boxes[turn % kBoxes];
    box.wait(turn / kBoxes % 2);
    if (row + kBoxes * step < n_rows) box.expect(sizeof(parts[0]));
    const Part all = sum_of<kParts>(parts[turn % kBoxes]);
    kw::Sums mean = {all[0] / n_cols, 0.0f};
    if constexpr (N::kCenter) mean.sum = all[1] / n_cols;
    flight.gradient(gx, slot, row, s, mean);
    flight.start(streams, slot, row + ROWS * step);
    s = next, next = later, slot = slot_next;
  }

  kw::let_next_launch_start();
  const long long part = blockIdx.x / CLUSTER;
  if (given & kw::kWeight)
    kw::store_part<THREADS>(g.weight, gw_parts + part * n_cols_, first, n_cols);
  if constexpr (N::kCenter)
    if (given & kw::kBias)
      kw::store_part<THREADS>(g.bias, gb_parts + part * n_cols_, first, n_cols);
}
