// Backward with channels last, positions split over blocks that do not wait for each other.
//
// Idea: as `cuda_channels_split`. The first launch adds up g and g xhat of each channel and group,
// and the last block of a slab merges its groups; the second launch computes gx, from the end of
// the tensor to its start. Each block writes the sums of its channels for gweight and gbias.
// Traffic: gy and x read twice, gx written once; the second read comes in part from L2.
// Compared with `cuda_block`: 16 bytes per access, and many blocks per group.
// Limit: five accesses per element instead of the three of `cuda_channels`.
#include "kw/last_block.cuh"
#include "kw/launch.cuh"
#include "slabs.cuh"

// `total`: the means of g and g xhat of each group, times the weight. With PER_SET, gw and gb are
// these sums.
template <typename N, int VEC, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
    group_norm_bwd_channels_split(const typename N::T *__restrict__ gy,
                                  const typename N::T *__restrict__ x,
                                  const typename N::W *__restrict__ w,
                                  const typename N::W *__restrict__ b,
                                  const float *__restrict__ means, const float *__restrict__ rstds,
                                  kw::Sums *partial, unsigned *arrived, kw::Sums *total,
                                  kw::Sums *left, typename N::W *gw, typename N::W *gb,
                                  kw::Slabs slabs, int blocks, int given) {
  using V = kw::Vec<typename N::T, VEC>;
  extern __shared__ float lanes[];
  const kw::Place place(slabs, blocks, blockIdx.x);
  const kw::Column<VEC> column(slabs);
  const kw::Range range(slabs.rows, blocks, place.block);
  const int groups = slabs.groups();
  float *const kept = lanes + column.rows * slabs.slab, *const sums = kept + slabs.slab;
  float *const dots = sums + groups;
  const kw::ColumnAffine<VEC> affine(w, b, given, place.slab, column, slabs.per, [&](int g) {
    return kw::Statistics{means[place.group(slabs) + g], rstds[place.group(slabs) + g]};
  });

  const long long start = place.sample * slabs.rows;
  const int offset = place.slab + column.first;
  float sum[VEC] = {}, dot[VEC] = {};
  for (long long row = column.live ? range.first + column.row : range.last; row < range.last;
       row += UNROLL * column.rows) {
    V gs[UNROLL], xs[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const long long here = row + u * column.rows, i = start + here;
      const bool inside = here < range.last;
      gs[u] = kw::load_or<typename N::T, VEC>(gy + i * slabs.gy_step + offset, inside, 0.0f);
      xs[u] = kw::load_or<typename N::T, VEC>(x + i * slabs.x_step + offset, inside, 0.0f);
    }
    float gs_of_rows[VEC] = {}, dots_of_rows[VEC] = {};  // short sums first: smaller errors
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      if (row + u * column.rows >= range.last) break;
      float g[VEC], xhat[VEC];
      affine.template gradients<N>(gs[u], xs[u], g, xhat);
#pragma unroll
      for (int i = 0; i < VEC; i++)
        gs_of_rows[i] += g[i], dots_of_rows[i] = fmaf(g[i], xhat[i], dots_of_rows[i]);
    }
#pragma unroll
    for (int i = 0; i < VEC; i++) sum[i] += gs_of_rows[i], dot[i] += dots_of_rows[i];
  }
  const auto weighted = [&](int channel) {
    const bool given_here = !N::kPerSet && (given & kw::kWeight);
    return lanes[channel] * (given_here ? kw::to_float(w[place.slab + channel]) : 1.0f);
  };
  kw::add_columns(sum, column, slabs.slab, lanes);
  for (int k = threadIdx.x; k < slabs.slab; k += THREADS) kept[k] = lanes[k];
  kw::add_groups(slabs, sums, weighted);
  kw::add_columns(dot, column, slabs.slab, lanes);
  if (!N::kPerSet && given)
    for (int k = threadIdx.x; k < slabs.slab; k += THREADS)
      left[(place.sample * blocks + place.block) * slabs.channels + place.slab + k] = {kept[k],
                                                                                       lanes[k]};
  kw::add_groups(slabs, dots, weighted);
  const long long slab = blockIdx.x / blocks;
  kw::Sums *const parts = partial + slab * blocks * groups;
  for (int g = threadIdx.x; g < groups; g += THREADS)
    parts[place.block * groups + g] = {sums[g], dots[g]};
  __syncthreads();
  if (!kw::is_last_block(arrived + slab, blocks)) return;

  const int down = max(THREADS / groups, 1);
  kw::Sums *const merged = reinterpret_cast<kw::Sums *>(lanes);
  for (int k = threadIdx.x; k < down * groups; k += THREADS) {
    kw::Sums all = {0.0f, 0.0f};
    for (int first = k / groups; first < blocks; first += kw::kPartsInFlight * down) {
      kw::Sums of[kw::kPartsInFlight];
#pragma unroll
      for (int i = 0; i < kw::kPartsInFlight; i++) {
        const int j = first + i * down;
        of[i] = j < blocks ? parts[j * groups + k % groups] : kw::Sums{0.0f, 0.0f};
      }
      const kw::Sums more = kw::added(of);
      all.sum += more.sum, all.dot += more.dot;
    }
    merged[k] = all;
  }
  __syncthreads();
  for (int g = threadIdx.x; g < groups; g += THREADS) {
    kw::Sums all = merged[g];
    for (int j = 1; j < down; j++) {
      all.sum += merged[j * groups + g].sum, all.dot += merged[j * groups + g].dot;
    }
    const long long set = place.group(slabs) + g;
    float scale = 1.0f / (static_cast<float>(slabs.rows) * slabs.per);
    if constexpr (N::kPerSet) {
      if (given & kw::kWeight) gw[set] = kw::from_float<typename N::W>(all.dot);
      if (given & kw::kBias) gb[set] = kw::from_float<typename N::W>(all.sum);
      scale *= kw::Affine(w, b, given, static_cast<int>(set)).weight;
    }
    total[set] = {all.sum * scale, all.dot * scale};
  }
}

// It starts before the first launch ends, and waits; therefore `total` is not __restrict__.
template <typename N, int VEC, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS) group_norm_bwd_channels_split_apply(
    const typename N::T *__restrict__ gy, const typename N::T *__restrict__ x,
    const typename N::W *__restrict__ w, const typename N::W *__restrict__ b,
    const float *__restrict__ means, const float *__restrict__ rstds, const kw::Sums *total,
    typename N::T *__restrict__ gx, kw::Slabs slabs, int blocks, int given) {
  using V = kw::Vec<typename N::T, VEC>;
  const kw::Place place(slabs, blocks, gridDim.x - 1 - blockIdx.x);
  const kw::Column<VEC> column(slabs);
  const kw::Range range(slabs.rows, blocks, place.block);
  if (!column.live) return;
  const kw::ColumnAffine<VEC> affine(w, b, given, place.slab, column, slabs.per, [&](int g) {
    return kw::Statistics{means[place.group(slabs) + g], rstds[place.group(slabs) + g]};
  });
  const long long start = place.sample * slabs.rows;
  const int offset = place.slab + column.first;
  kw::wait_for_launch_before();
  kw::Sums mean[VEC];
#pragma unroll
  for (int i = 0; i < VEC; i++)
    mean[i] = total[place.group(slabs) + (column.first + i) / slabs.per];
  for (long long row = range.last - 1 - column.row; row >= range.first;
       row -= UNROLL * column.rows) {
    V gs[UNROLL], xs[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const long long here = row - u * column.rows, i = start + here;
      const bool inside = here >= range.first;
      gs[u] = kw::load_or<typename N::T, VEC>(gy + i * slabs.gy_step + offset, inside, 0.0f);
      xs[u] = kw::load_or<typename N::T, VEC>(x + i * slabs.x_step + offset, inside, 0.0f);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const long long here = row - u * column.rows;
      kw::store_whole(gx + (start + here) * slabs.channels + offset, here >= range.first,
                      affine.template gradient<N>(gs[u], xs[u], mean));
    }
  }
  kw::let_next_launch_start();
}
