// Channels last: a slab of channels in the shared memory of a cluster.
//
// Idea: a 16-byte vector contains adjacent channels, so a thread processes the same few columns at
// all positions and keeps their statistics, weight and bias in registers. A slab consists of as
// many whole groups as give rows of whole vectors and sectors. The blocks of a cluster share its
// positions, hold them in shared memory, and exchange the mean and squares of each group.
// Traffic: x read once, y written once.
// Compared with `cuda_channels_split`: one read instead of two. PyTorch's operator first copies to
// NCHW.
// Limit: the shared memory of sixteen multiprocessors; rows of a slab shorter than 64 bytes.
#include "kw/cluster.cuh"
#include "room.cuh"

template <typename N, int VEC, int THREADS, int CLUSTER>
__global__ void __launch_bounds__(THREADS)
    group_norm_fwd_channels(const typename N::T *__restrict__ x,
                            const typename N::W *__restrict__ w,
                            const typename N::W *__restrict__ b, typename N::T *__restrict__ y,
                            float *__restrict__ means, float *__restrict__ rstds,
                            float *__restrict__ vars, kw::Slabs slabs, float eps, int given) {
  using V = kw::Vec<typename N::T, VEC>;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ kw::Mailbox box;
  const int rank = CLUSTER > 1 ? kw::cluster_rank() : 0, groups = slabs.groups();
  const int of_sample = slabs.channels / slabs.slab;
  const long long which = blockIdx.x / CLUSTER, sample = which / of_sample;
  const int slab = static_cast<int>(which - sample * of_sample) * slabs.slab;
  const kw::Column<VEC> column(slabs);
  const kw::Range range(slabs.rows, CLUSTER, rank), most(slabs.rows, CLUSTER, 0);
  const int turns = static_cast<int>((most.last - most.first + column.rows - 1) / column.rows);
  V *const slots = reinterpret_cast<V *>(dynamic_shared) + threadIdx.x;
  const kw::Room room(slots - threadIdx.x + turns * THREADS, slabs, CLUSTER, column.rows);
  if constexpr (CLUSTER > 1) box.open(CLUSTER * groups * sizeof(kw::Sums));

  const long long first = column.live ? range.first + column.row : range.last;
  const typename N::T *const from = x + sample * slabs.rows * slabs.x_step + slab + column.first;
  V *slot = slots;
  for (long long row = first; row < range.last; row += column.rows, slot += THREADS)
    kw::copy_async(slot, reinterpret_cast<const V *>(from + row * slabs.x_step));
  kw::copy_async_wait();

  const float count = range.count() * slabs.per, inverse = count > 0.0f ? 1.0f / count : 0.0f;
  float sum[VEC] = {}, own[VEC], f[VEC];
  slot = slots;
  for (long long row = first; row < range.last; row += column.rows, slot += THREADS) {
    kw::to_float(*slot, f);
#pragma unroll
    for (int i = 0; i < VEC; i++) sum[i] += f[i];
  }
  kw::add_columns(sum, column, slabs.slab, room.lanes);
  kw::add_groups(slabs, room.total, [&](int channel) { return room.lanes[channel]; });
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    own[i] = column.live ? room.total[(column.first + i) / slabs.per] * inverse : 0.0f;
    sum[i] = 0.0f;
  }
  slot = slots;
  for (long long row = first; row < range.last; row += column.rows, slot += THREADS) {
    kw::to_float(*slot, f);
#pragma unroll
    for (int i = 0; i < VEC; i++) sum[i] = fmaf(f[i] - own[i], f[i] - own[i], sum[i]);
  }
  kw::add_columns(sum, column, slabs.slab, room.lanes);
  kw::add_groups(slabs, room.squares, [&](int channel) { return room.lanes[channel]; });

  if constexpr (CLUSTER > 1) {
    kw::Mailbox::ready();
    for (int k = threadIdx.x; k < groups * CLUSTER; k += THREADS) {
      const int g = k / CLUSTER;
      box.send(&room.parts[rank * groups + g], kw::Sums{room.total[g] * inverse, room.squares[g]},
               k % CLUSTER);
    }
    box.wait();
  }
  for (int g = threadIdx.x; g < groups; g += THREADS) {
    kw::Welford all = {count, room.total[g] * inverse, room.squares[g]};
    if constexpr (CLUSTER > 1) {
      all = {0.0f, 0.0f, 0.0f};
      for (int r = 0; r < CLUSTER; r++) {
        const kw::Sums part = room.parts[r * groups + g];
        all.add({kw::Range(slabs.rows, CLUSTER, r).count() * slabs.per, part.sum, part.dot});
      }
    }
    const float rstd = rsqrtf(all.squares / all.count + eps);
    room.means[g] = {all.mean, rstd};
    const long long at = sample * (slabs.channels / slabs.per) + slab / slabs.per + g;
    if (rank > 0) continue;
    means[at] = all.mean, rstds[at] = rstd;
    if constexpr (N::kPerSet) vars[at] = all.squares / (all.count - 1.0f);
  }
  __syncthreads();

  const kw::ColumnAffine<VEC> affine(w, b, given, slab, column, slabs.per, [&](int g) {
    return kw::Statistics{room.means[g].sum, room.means[g].dot};
  });
  typename N::T *const to = y + sample * slabs.rows * slabs.channels + slab + column.first;
  slot = slots;
  for (long long row = first; row < range.last; row += column.rows, slot += THREADS)
    kw::store_whole(to + row * slabs.channels, true, affine.template normalised<N>(*slot));
}
