// A row in the registers of a cluster until its gradient is known.
//
// Idea: as `cuda_block`, but CLUSTER blocks on as many multiprocessors share a row. Each warp sends
// its maximum and sum to the shared memory of every block of the cluster, and each block reduces
// all parts itself as soon as they have arrived.
// Traffic: x read once, gx written once, for rows that do not fit on one multiprocessor: 128,256
// classes of 16 bits are 251 KiB.
// Compared with `triton_online`: one read instead of two.
// Limit: the registers of eight multiprocessors; compute capability 9.0 is required.
#include "kw/cluster.cuh"
#include "cross_entropy.cuh"

template <typename T, typename Index, typename Loss, typename F, int VEC, int VECS, int THREADS,
          int CLUSTER>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_grad_cluster(const T *x, const Index *__restrict__ target,
                               const float *__restrict__ weight, const float *__restrict__ gs,
                               Loss *__restrict__ loss, T *gx, int n_cols, long long x_stride,
                               long long gx_stride, long long g_stride, long long ignore_index,
                               float label_smoothing, float z_loss, float softcap) {
  constexpr int kStep = THREADS * VEC, kWarps = THREADS / 32, kParts = kWarps * CLUSTER;
  __shared__ kw::MaxSum parts[kParts];
  __shared__ kw::Spread spreads[kParts];
  __shared__ kw::Mailbox box;
  const kw::LossOptions o = {label_smoothing, z_loss, softcap};
  const int rank = kw::cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const long long token = blockIdx.x / CLUSTER;
  const int first = (rank * VECS * THREADS + threadIdx.x) * VEC;
  box.open(sizeof(parts) + (F::smooth ? sizeof(spreads) : 0));
  x += token * x_stride;
  gx += token * gx_stride;

  kw::Vec<T, VEC> kept[VECS];
#pragma unroll
  for (int v = 0; v < VECS; v++)
    kept[v] =
        kw::load_or<T, VEC>(x + first + v * kStep, first + v * kStep < n_cols, -kw::kInfinity);
  const long long hit = target[token];
  const float g = gs[token * g_stride];
  const bool ignored = hit == ignore_index, speaker = rank == 0 && threadIdx.x == 0;
  float z_hit = 0.0f;
  if (speaker) {
    kw::require_target(hit, n_cols, ignore_index);
    z_hit = kw::cap<F>(ignored ? 0.0f : kw::to_float(x[hit]), o);
    kw::settle(z_hit);  // read before the send: after it, gx may be written over x
  }

  kw::RowPart part = {{kw::cap<F>(kw::warp_reduce<kw::Max>(kw::max_of(kept)), o), 0.0f}, {}};
  kw::add_up<F>(part, kept, first, kStep, n_cols, weight, o);
  part = kw::warp_reduce<F>(part);
  __syncwarp();  // in place: x[hit] is read before any lane sends
  box.ready();
  if (lane < CLUSTER) {
    box.send(&parts[rank * kWarps + warp], part.all, lane);
    if constexpr (F::smooth) box.send(&spreads[rank * kWarps + warp], part.spread, lane);
  }
  box.wait();
  const kw::RowPart row = kw::reduce_row<F, kParts>(parts, spreads);

  const float w = F::weighted && !ignored ? weight[hit] : 1.0f;
  if (speaker)
    loss[token] =
        kw::from_float<Loss>(ignored ? 0.0f : kw::token_loss<F>(row, z_hit, w, n_cols, o));
  const kw::Gradient gradient = kw::gradient_of<T, F>(g, row.all, hit, w, row.spread.w, n_cols, o);
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = first + v * kStep;
    if (col >= n_cols) continue;
    const kw::Vec<T, VEC> of_x = kw::apply<F>(gradient, kw::opaque(kept[v]), col, weight, o);
    kw::store(gx + col, ignored ? kw::Vec<T, VEC>{} : of_x);
  }
}
