// One block per row of any length, which is read once; the backward is elementwise.
//
// Idea: a thread keeps a running maximum and sum of its part of the row; when a chunk raises the
// maximum, the sum is rescaled. The target's logit is one more load at the end. With the
// maximum and sum saved,
// the backward needs no reduction: a block processes a piece of a row and starts its loads before
// it reads the values that belong to the row.
// Traffic: forward: x read once; backward: x read, gx written: the minimum for two passes.
// Compared with `triton_online`: one ex2 per 16-bit element, VECS 16-byte loads per thread in
// flight.
// Limit: two passes read x twice. `cross_entropy_with_grad` reads it once.
#include "cross_entropy.cuh"

template <typename T, typename Index, typename Loss, typename F, int VEC, int VECS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_fwd_online(const T *__restrict__ x, const Index *__restrict__ target,
                             const float *__restrict__ weight, Loss *__restrict__ loss,
                             kw::MaxSum *__restrict__ max_sums, long long n_cols,
                             long long x_stride, long long ignore_index, float label_smoothing,
                             float z_loss, float softcap) {
  constexpr int kStep = THREADS * VEC, kWarps = THREADS / 32;
  __shared__ kw::MaxSum parts[kWarps];
  __shared__ kw::Spread spreads[kWarps];
  const kw::LossOptions o = {label_smoothing, z_loss, softcap};
  x += blockIdx.x * x_stride;
  const long long hit = target[blockIdx.x];

  kw::RowPart part = {{-kw::kInfinity, 0.0f}, {0.0f, 0.0f}};
  for (long long start = threadIdx.x * VEC; start < n_cols; start += kStep * VECS) {
    kw::Vec<T, VEC> chunk[VECS];
#pragma unroll
    for (int v = 0; v < VECS; v++) {
      const long long col = start + v * kStep;
      chunk[v] = kw::load_or<T, VEC>(x + col, col < n_cols, -kw::kInfinity);
    }
    const float max = kw::max_nan(part.all.max, kw::cap<F>(kw::max_of(chunk), o));
    const kw::MaxSum risen = {max, part.all.sum * part.all.rescale(max)};
    if constexpr (F::smooth) part.spread = part.spread.moved(part.all, risen);
    part.all = risen;
    kw::add_up<F>(part, chunk, start, kStep, n_cols, weight, o);
  }
  part = kw::warp_reduce<F>(part);
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = part.all;
    spreads[threadIdx.x / 32] = part.spread;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const kw::RowPart row = kw::reduce_row<F, kWarps>(parts, spreads);
  if (threadIdx.x != 0) return;
  kw::require_target(hit, n_cols, ignore_index);
  max_sums[blockIdx.x] = kw::saved(row.all);
  float of_token = 0.0f;
  if (hit != ignore_index) {
    const float z_hit = kw::cap<F>(kw::to_float(x[hit]), o), w = F::weighted ? weight[hit] : 1.0f;
    of_token = kw::token_loss<F>(row, z_hit, w, n_cols, o);
  }
  loss[blockIdx.x] = kw::from_float<Loss>(of_token);
}

template <typename T, typename Index, typename Loss, typename F, int VEC, int VECS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_bwd_online(const Loss *__restrict__ gloss, const T *__restrict__ x,
                             const Index *__restrict__ target, const float *__restrict__ weight,
                             const kw::MaxSum *__restrict__ max_sums,
                             const float *__restrict__ totals, T *__restrict__ gx, long long n_cols,
                             int pieces, long long x_stride, long long gloss_stride,
                             long long ignore_index, float label_smoothing, float z_loss,
                             float softcap) {
  const kw::LossOptions o = {label_smoothing, z_loss, softcap};
  const long long row = blockIdx.x / pieces;
  const long long first = (blockIdx.x % pieces * VECS * THREADS + threadIdx.x) * (long long)VEC;
  x += row * x_stride;
  gx += row * n_cols;

  kw::Vec<T, VEC> kept[VECS];
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const long long col = first + v * THREADS * VEC;
    kept[v] = kw::load_or<T, VEC>(x + col, col < n_cols, 0.0f);
  }
  const long long hit = target[row];
  const kw::MaxSum all = max_sums[row];
  const float g = kw::to_float(gloss[row * gloss_stride]) / totals[0];
  if (threadIdx.x == 0) kw::require_target(hit, n_cols, ignore_index);
  const bool ignored = hit == ignore_index;
  const float w = F::weighted && !ignored ? weight[hit] : 1.0f;
  const kw::Gradient gradient =
      kw::gradient_of<T, F>(g, all, hit, w, F::smooth ? totals[1] : 0.0f, n_cols, o);
#pragma unroll
  for (int v = 0; v < VECS; v++) {
    const long long col = first + v * THREADS * VEC;
    if (col >= n_cols) continue;
    const kw::Vec<T, VEC> of_x = kw::apply<F>(gradient, kept[v], col, weight, o);
    kw::store(gx + col, ignored ? kw::Vec<T, VEC>{} : of_x);
  }
}
