// A row in a block's registers until its gradient is known.
//
// Idea: a block loads a row once. Each warp uses its own maximum as reference, so that maximum and
// sum are exchanged together, with one barrier; then every thread converts its elements to the
// gradient. 16-bit elements stay packed in between, and their exponentials are computed again.
// Traffic: x read once, gx written once: two thirds of the traffic of two passes. gx may be x.
// Compared with `triton_online`: no second read, and a 16-bit row in half as many registers.
// Limit: the register file of one multiprocessor.
#include "cross_entropy.cuh"

template <typename T, typename Index, typename Loss, typename F, int VEC, int VECS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_grad_block(const T *x, const Index *__restrict__ target,
                             const float *__restrict__ weight, const float *__restrict__ gs,
                             Loss *__restrict__ loss, T *gx, int n_cols, long long x_stride,
                             long long gx_stride, long long g_stride, long long ignore_index,
                             float label_smoothing, float z_loss, float softcap) {
  constexpr int kStep = THREADS * VEC, kWarps = THREADS / 32;
  __shared__ kw::MaxSum parts[kWarps];
  __shared__ kw::Spread spreads[kWarps];
  const kw::LossOptions o = {label_smoothing, z_loss, softcap};
  const int first = threadIdx.x * VEC;
  x += blockIdx.x * x_stride;
  gx += blockIdx.x * gx_stride;

  kw::Vec<T, VEC> kept[VECS];
#pragma unroll
  for (int v = 0; v < VECS; v++)
    kept[v] =
        kw::load_or<T, VEC>(x + first + v * kStep, first + v * kStep < n_cols, -kw::kInfinity);
  const long long hit = target[blockIdx.x];
  const float g = gs[blockIdx.x * g_stride];
  const bool ignored = hit == ignore_index;
  float z_hit = 0.0f;  // read before the barrier: gx may be written over x after it
  if (threadIdx.x == 0) {
    kw::require_target(hit, n_cols, ignore_index);
    z_hit = kw::cap<F>(ignored ? 0.0f : kw::to_float(x[hit]), o);
  }

  kw::RowPart part = {{kw::cap<F>(kw::warp_reduce<kw::Max>(kw::max_of(kept)), o), 0.0f}, {}};
  kw::add_up<F>(part, kept, first, kStep, n_cols, weight, o);
  part = kw::warp_reduce<F>(part);
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = part.all;
    spreads[threadIdx.x / 32] = part.spread;
  }
  __syncthreads();
  const kw::RowPart row = kw::reduce_row<F, kWarps>(parts, spreads);

  const float w = F::weighted && !ignored ? weight[hit] : 1.0f;
  if (threadIdx.x == 0)
    loss[blockIdx.x] =
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
