// Channels last, positions split over blocks that do not wait for each other, in two launches.
//
// Idea: as `cuda_split`, where a thread has columns as in `cuda_channels`; for samples that do not
// fit in a cluster. A thread sums its columns relative to their first elements; the block merges
// them into its groups, and the last block of a slab merges those of all blocks.
// Traffic: x read twice, y written once; the second read comes in part from L2.
// Compared with `cuda_block`: 16 bytes per access, and many blocks per group.
// Limit: three accesses per element instead of the two of `cuda_channels`.
#include "kw/last_block.cuh"
#include "kw/launch.cuh"
#include "slabs.cuh"

// `vars`: with PER_SET, the variance over `correction` fewer elements.
template <typename N, int VEC, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
    group_norm_fwd_channels_split(const typename N::T *__restrict__ x, kw::Moments *partial,
                                  unsigned *arrived, float *means, float *rstds, float *vars,
                                  kw::Slabs slabs, int blocks, float eps, float correction) {
  extern __shared__ float lanes[];
  const kw::Place place(slabs, blocks, blockIdx.x);
  const kw::Column<VEC> column(slabs);
  const kw::Range range(slabs.rows, blocks, place.block);
  const int groups = slabs.groups();
  float *const total = lanes + column.rows * slabs.slab, *const squares = total + groups;

  const typename N::T *const from =
      x + place.sample * slabs.rows * slabs.x_step + place.slab + column.first;
  kw::Compensated sum[VEC];
  float shift[VEC] = {}, about[VEC] = {}, f[VEC];
  const long long first = range.first + column.row;
  const bool any = column.live && first < range.last;
  if (any) {
    kw::to_float(kw::load<typename N::T, VEC>(from + first * slabs.x_step), f);
#pragma unroll
    for (int i = 0; i < VEC; i++) shift[i] = fabsf(f[i]) < kw::kInfinity ? f[i] : 0.0f;
  }
  for (long long row = any ? first : range.last; row < range.last; row += UNROLL * column.rows) {
    kw::Vec<typename N::T, VEC> v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const long long here = row + u * column.rows;
      v[u] = kw::load_or<typename N::T, VEC>(from + here * slabs.x_step, here < range.last, 0.0f);
    }
    float of_rows[VEC] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      if (row + u * column.rows >= range.last) break;
      kw::to_float(v[u], f);
#pragma unroll
      for (int i = 0; i < VEC; i++) {
        const float d = f[i] - shift[i];
        of_rows[i] += d, about[i] = fmaf(d, d, about[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < VEC; i++) sum[i].add(of_rows[i]);
  }
  // sums of a thread's columns, then squared deviations from the mean of the block's group
  const float mine = any ? (range.last - first + column.rows - 1) / column.rows : 0.0f;
  const float of_mine = any ? 1.0f / mine : 0.0f;
  const float count = range.count() * slabs.per, inverse = count > 0.0f ? 1.0f / count : 0.0f;
#pragma unroll
  for (int i = 0; i < VEC; i++) f[i] = fmaf(mine, shift[i], sum[i].sum) + sum[i].error();
  kw::add_columns(f, column, slabs.slab, lanes);
  kw::add_groups(slabs, total, [&](int channel) { return lanes[channel] * inverse; });
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    const float mean = sum[i].sum * of_mine, inside = about[i] - sum[i].sum * mean;
    const float distance = any ? shift[i] + mean - total[(column.first + i) / slabs.per] : 0.0f;
    f[i] = fmaf(mine, distance * distance, inside < 0.0f ? 0.0f : inside);
  }
  kw::add_columns(f, column, slabs.slab, lanes);
  kw::add_groups(slabs, squares, [&](int channel) { return lanes[channel]; });
  const long long slab = blockIdx.x / blocks;
  kw::Moments *const parts = partial + slab * blocks * groups;
  for (int g = threadIdx.x; g < groups; g += THREADS)
    parts[place.block * groups + g] = {total[g], squares[g]};
  __syncthreads();
  if (!kw::is_last_block(arrived + slab, blocks)) return;

  const int down = max(THREADS / groups, 1);
  kw::Welford *const merged = reinterpret_cast<kw::Welford *>(lanes);
  for (int k = threadIdx.x; k < down * groups; k += THREADS) {
    kw::Welford all = {0.0f, 0.0f, 0.0f};
    for (int first = k / groups; first < blocks; first += kw::kPartsInFlight * down) {
      kw::Welford of[kw::kPartsInFlight];
#pragma unroll
      for (int i = 0; i < kw::kPartsInFlight; i++) {
        const int j = first + i * down;
        const float count = j < blocks ? kw::Range(slabs.rows, blocks, j).count() : 0.0f;
        const kw::Moments part = j < blocks ? parts[j * groups + k % groups] : kw::Moments{};
        of[i] = {count * slabs.per, part.mean, part.squares};
      }
      all.add(kw::merged(of));
    }
    merged[k] = all;
  }
  __syncthreads();
  for (int g = threadIdx.x; g < groups; g += THREADS) {
    kw::Welford all = merged[g];
    for (int j = 1; j < down; j++) all.add(merged[j * groups + g]);
    const long long set = place.group(slabs) + g;
    means[set] = all.mean;
    rstds[set] = rsqrtf(all.squares / all.count + eps);
    if constexpr (N::kPerSet) vars[set] = all.squares / (all.count - correction);
  }
}

// It starts before the first launch ends, and waits; therefore the statistics are not __restrict__.
template <typename N, int VEC, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
    group_norm_fwd_channels_split_apply(const typename N::T *__restrict__ x,
                                        const typename N::W *__restrict__ w,
                                        const typename N::W *__restrict__ b,
                                        typename N::T *__restrict__ y, const float *means,
                                        const float *rstds, kw::Slabs slabs, int blocks,
                                        int given) {
  const kw::Place place(slabs, blocks, gridDim.x - 1 - blockIdx.x);
  const kw::Column<VEC> column(slabs);
  const kw::Range range(slabs.rows, blocks, place.block);
  if (!column.live) return;
  kw::wait_for_launch_before();
  const kw::ColumnAffine<VEC> affine(w, b, given, place.slab, column, slabs.per, [&](int g) {
    return kw::Statistics{means[place.group(slabs) + g], rstds[place.group(slabs) + g]};
  });
  const long long start = place.sample * slabs.rows;
  const typename N::T *const from = x + start * slabs.x_step + place.slab + column.first;
  typename N::T *const to = y + start * slabs.channels + place.slab + column.first;
  for (long long row = range.last - 1 - column.row; row >= range.first;
       row -= UNROLL * column.rows) {
    kw::Vec<typename N::T, VEC> v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const long long here = row - u * column.rows;
      v[u] = kw::load_or<typename N::T, VEC>(from + here * slabs.x_step, here >= range.first, 0.0f);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const long long here = row - u * column.rows;
      kw::store_whole(to + here * slabs.channels, here >= range.first,
                      affine.template normalised<N>(v[u]));
    }
  }
}
