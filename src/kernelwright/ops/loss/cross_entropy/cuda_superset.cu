// Rows of an odd vocabulary in 16-byte vectors.
//
// Idea: if a row starts or ends off a 16-byte boundary, the vectors that overlap it are moved
// whole; only those at the two ends are moved element by element. Otherwise as `cuda_online` and,
// with the gradient, as `cuda_block`; the number of warps need not be a power of two.
// Traffic: as there, with 16 bytes per access.
// Compared with `cuda_online`: that rung falls back to accesses of 2 or 4 bytes if the row length
// is not divisible by a vector.
// Limit: no label smoothing and no soft cap, for which the elements outside a row are not neutral;
// rows of logits and gradients must have the same offset from a 16-byte boundary.
#include "kw/superset.cuh"
#include "cross_entropy.cuh"

template <typename T, typename Index, typename Loss, typename F, int VECS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_fwd_superset(const T *__restrict__ x, const Index *__restrict__ target,
                               const float *__restrict__ weight, Loss *__restrict__ loss,
                               kw::MaxSum *__restrict__ max_sums, int n_cols, long long x_stride,
                               long long ignore_index, float label_smoothing, float z_loss,
                               float softcap) {
  static_assert(!F::smooth && !F::cap, "what lies beside a row must be neutral");
  __shared__ kw::MaxSum parts[THREADS / 32];
  const kw::LossOptions o = {label_smoothing, z_loss, softcap};
  x += blockIdx.x * x_stride;
  const long long hit = target[blockIdx.x];
  const kw::Superset<T> superset(x, n_cols);

  kw::RowPart part = {{-kw::kInfinity, 0.0f}, {0.0f, 0.0f}};
  for (int k = threadIdx.x; superset.touches(superset.column(k)); k += THREADS * VECS) {
    typename kw::Superset<T>::V chunk[VECS];
    superset.template load<THREADS>(chunk, x, k, -kw::kInfinity);
    const float max = kw::max_nan(part.all.max, kw::max_of(chunk));
    part.all = {max, part.all.sum * part.all.rescale(max)};
    kw::add_up<F>(part, chunk, 0, 0, n_cols, weight, o);
  }
  part.all = kw::team_max_sum<THREADS>(kw::warp_reduce<32>(part.all), parts);
  if (threadIdx.x != 0) return;
  kw::require_target(hit, n_cols, ignore_index);
  max_sums[blockIdx.x] = kw::saved(part.all);
  float of_token = 0.0f;
  if (hit != ignore_index)
    of_token =
        kw::token_loss<F>(part, kw::to_float(x[hit]), F::weighted ? weight[hit] : 1.0f, n_cols, o);
  loss[blockIdx.x] = kw::from_float<Loss>(of_token);
}

template <typename T, typename Index, typename Loss, typename F, int VECS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_bwd_superset(const Loss *__restrict__ gloss, const T *__restrict__ x,
                               const Index *__restrict__ target, const float *__restrict__ weight,
                               const kw::MaxSum *__restrict__ max_sums,
                               const float *__restrict__ totals, T *__restrict__ gx, int n_cols,
                               int pieces, long long x_stride, long long gloss_stride,
                               long long ignore_index, float label_smoothing, float z_loss,
                               float softcap) {
  static_assert(!F::smooth && !F::cap, "what lies beside a row must be neutral");
  const kw::LossOptions o = {label_smoothing, z_loss, softcap};
  const long long row = blockIdx.x / pieces;
  const int first = blockIdx.x % pieces * VECS * THREADS + threadIdx.x;
  x += row * x_stride;
  gx += row * n_cols;
  const kw::Superset<T> superset(x, n_cols);

  typename kw::Superset<T>::V kept[VECS];
  superset.template load<THREADS>(kept, x, first, 0.0f);
  const long long hit = target[row];
  const kw::MaxSum all = max_sums[row];
  const float g = kw::to_float(gloss[row * gloss_stride]) / totals[0];
  if (threadIdx.x == 0) kw::require_target(hit, n_cols, ignore_index);
  const bool ignored = hit == ignore_index;
  const float w = F::weighted && !ignored ? weight[hit] : 1.0f;
  const kw::Gradient gradient = kw::gradient_of<T, F>(g, all, hit, w, 0.0f, n_cols, o);
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = superset.column(v * THREADS + first);
    const auto of_x = kw::apply<F>(gradient, kept[v], col, weight, o);
    superset.store(gx, col, ignored ? typename kw::Superset<T>::V{} : of_x);
  }
}

template <typename T, typename Index, typename Loss, typename F, int VECS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_grad_superset(const T *x, const Index *__restrict__ target,
                                const float *__restrict__ weight, const float *__restrict__ gs,
                                Loss *__restrict__ loss, T *gx, int n_cols, long long x_stride,
                                long long gx_stride, long long g_stride, long long ignore_index,
                                float label_smoothing, float z_loss, float softcap) {
  static_assert(!F::smooth && !F::cap, "what lies beside a row must be neutral");
  __shared__ kw::MaxSum parts[THREADS / 32];
  const kw::LossOptions o = {label_smoothing, z_loss, softcap};
  x += blockIdx.x * x_stride;
  gx += blockIdx.x * gx_stride;
  const kw::Superset<T> superset(x, n_cols);

  typename kw::Superset<T>::V kept[VECS];
  superset.template load<THREADS>(kept, x, threadIdx.x, -kw::kInfinity);
  const long long hit = target[blockIdx.x];
  const float g = gs[blockIdx.x * g_stride];
  const bool ignored = hit == ignore_index;
  float z_hit = 0.0f;  // read before the barrier: gx may be written over x after it
  if (threadIdx.x == 0) {
    kw::require_target(hit, n_cols, ignore_index);
    z_hit = ignored ? 0.0f : kw::to_float(x[hit]);
  }

  kw::RowPart row = {{kw::warp_reduce<kw::Max>(kw::max_of(kept)), 0.0f}, {}};
  kw::add_up<F>(row, kept, 0, 0, n_cols, weight, o);
  row.all = kw::team_max_sum<THREADS>(kw::warp_reduce<32>(row.all), parts);

  const float w = F::weighted && !ignored ? weight[hit] : 1.0f;
  if (threadIdx.x == 0)
    loss[blockIdx.x] =
        kw::from_float<Loss>(ignored ? 0.0f : kw::token_loss<F>(row, z_hit, w, n_cols, o));
  const kw::Gradient gradient = kw::gradient_of<T, F>(g, row.all, hit, w, 0.0f, n_cols, o);
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const int col = superset.column(v * THREADS + threadIdx.x);
    const auto of_x = kw::apply<F>(gradient, kw::opaque(kept[v]), col, weight, o);
    superset.store(gx, col, ignored ? typename kw::Superset<T>::V{} : of_x);
  }
}
