// Channels last: a slab of channels in the registers of a cluster.
//
// Idea: as `cuda_channels`, but a thread keeps the vectors that it loads in registers, all of them
// in flight together. A thread first adds up its channels of a group; then a warp adds up the
// threads' sums of a group, through a few bytes of shared memory per thread. The blocks of a
// cluster exchange the mean and squares of each group.
// Traffic: x read once, y written once; rows of a slab are whole sectors where channels allow it.
// Compared with `cuda_channels`: no reads or writes of shared memory per element, and two barriers
// per sum instead of five.
// Limit: the registers of eight multiprocessors, 1.5 MiB per slab.
#include "kw/cluster.cuh"
#include "registers.cuh"

// `step`: elements between rows of x; `channels`: of all slabs of a sample.
template <typename N, int VEC, int COLUMNS, int PER, int VECTORS, int THREADS, int CLUSTER>
__global__ void __launch_bounds__(
    THREADS, (kw::resident_blocks<THREADS, VECTORS, sizeof(typename N::T) * VEC>()))
    group_norm_fwd_channels_registers(const typename N::T *__restrict__ x,
                                      const typename N::W *__restrict__ w,
                                      const typename N::W *__restrict__ b,
                                      typename N::T *__restrict__ y, float *__restrict__ means,
                                      float *__restrict__ rstds, float *__restrict__ vars, int rows,
                                      long long step, int channels, float eps, int given) {
  using T = typename N::T;
  using H = kw::Held<VEC, COLUMNS, PER, THREADS>;
  constexpr int kGroups = H::kGroups;
  __shared__ float lanes[H::kParts * THREADS], total[kGroups];
  __shared__ kw::Sums parts[CLUSTER * kGroups];  // mean and squares
  __shared__ float2 normal[kGroups];             // scale and shift, of xhat or of y
  __shared__ kw::Mailbox box;
  const int rank = CLUSTER > 1 ? kw::cluster_rank() : 0, lane = threadIdx.x % 32;
  const unsigned which = blockIdx.x / CLUSTER, of_sample = channels / H::kSlab;
  const unsigned sample = which / of_sample, slab = (which - sample * of_sample) * H::kSlab;
  const H held;
  const kw::Rows<CLUSTER> mine(rows, rank);
  const int left = held.row < H::kRows ? mine.count - held.row : 0;
  const long long first = sample * static_cast<long long>(rows) + mine.first + held.row;
  const int at = static_cast<int>(slab) + held.column * VEC;
  if constexpr (CLUSTER > 1) box.open(sizeof(parts));

  kw::Vec<T, VEC> v[VECTORS];
  const T *from = x + first * step + at;
#pragma unroll
  for (int u = 0; u < VECTORS; u++) {
    v[u] = kw::load_or<T, VEC>(from, u * H::kRows < left, 0.0f);
    from += H::kRows * step;
  }

  const float count = static_cast<float>(mine.count) * PER,
              inverse = count > 0.0f ? 1.0f / count : 0.0f;
  float sum[VEC] = {}, mean[VEC], f[VEC];
#pragma unroll
  for (int u = 0; u < VECTORS; u++) {
    kw::to_float(v[u], f);
#pragma unroll
    for (int i = 0; i < VEC; i++) sum[i] += f[i];
  }
  held.add_groups(sum, lanes, [&](int g, float of_group) {
    if (lane == 0) total[g] = of_group * inverse;
  });
  __syncthreads();
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    mean[i] = left > 0 ? total[held.group() + held.part(i)] : 0.0f;
    sum[i] = 0.0f;
  }
#pragma unroll
  for (int u = 0; u < VECTORS; u++) {
    if (u * H::kRows >= left) break;
    kw::to_float(kw::opaque(v[u]), f);
#pragma unroll
    for (int i = 0; i < VEC; i++) sum[i] = fmaf(f[i] - mean[i], f[i] - mean[i], sum[i]);
  }
  if constexpr (CLUSTER > 1) kw::Mailbox::ready();
  held.add_groups(sum, lanes, [&](int g, float squares) {
    const kw::Sums both = {total[g], squares};
    if constexpr (CLUSTER > 1) {
      if (lane < CLUSTER) box.send(&parts[rank * kGroups + g], both, lane);
    } else {
      if (lane == 0) parts[g] = both;
    }
  });

  const int g = threadIdx.x,
            set = static_cast<int>(slab) / PER + g;  // thread g merges the sums of group g
  kw::Raw<typename N::W, VEC> weight, bias;
  if constexpr (!N::kPerSet) {
    weight.read(w + at, given & kw::kWeight && left > 0);
    bias.read(b + at, given & kw::kBias && left > 0);
  }
  const kw::Affine of_set(w, b, N::kPerSet && g < kGroups ? given : 0, set);
  if constexpr (CLUSTER > 1)
    box.wait();
  else
    __syncthreads();
  if (g < kGroups) {
    const float whole = static_cast<float>(rows) * PER, inverse = 1.0f / whole;
    float of_group = 0.0f, squares = 0.0f;
    // four at a time, because the vectors leave few registers
#pragma unroll 4
    for (int r = 0; r < CLUSTER; r++) {
      const float share = static_cast<float>(kw::Rows<CLUSTER>(rows, r).count) * PER * inverse;
      of_group = fmaf(parts[r * kGroups + g].sum, CLUSTER > 1 ? share : 1.0f, of_group);
    }
#pragma unroll 4
    for (int r = 0; r < CLUSTER; r++) {
      const kw::Sums part = parts[r * kGroups + g];
      const float distance = CLUSTER > 1 ? part.sum - of_group : 0.0f;
      const float of_part = static_cast<float>(kw::Rows<CLUSTER>(rows, r).count) * PER;
      squares += fmaf(of_part, distance * distance, part.dot);
    }
    const float rstd = rsqrtf(squares * inverse + eps);
    const float scale = rstd * of_set.weight;
    normal[g] = {scale, fmaf(-of_group, scale, of_set.bias)};
    const long long to = static_cast<long long>(sample) * (channels / PER) + set;
    if (rank == 0) {
      means[to] = of_group, rstds[to] = rstd;
      if constexpr (N::kPerSet) vars[to] = squares / (whole - 1.0f);
    }
  }
  __syncthreads();
  if (left <= 0) return;

  float scale[VEC], shift[VEC];
  if constexpr (!N::kPerSet) {
    weight.get(given & kw::kWeight, 0.0f, 1.0f, scale);
    bias.get(given & kw::kBias, 0.0f, 0.0f, shift);
  }
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    const float2 of_group = normal[held.group() + held.part(i)];
    if constexpr (N::kPerSet)
      scale[i] = of_group.x, shift[i] = of_group.y;
    else
      shift[i] = fmaf(of_group.y, scale[i], shift[i]), scale[i] *= of_group.x;
  }
  T *to = y + first * channels + at;
#pragma unroll
  for (int u = 0; u < VECTORS; u++) {
    if (u * H::kRows >= left) break;
    kw::to_float(kw::opaque(v[u]), f);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      f[i] = fmaf(f[i], scale[i], shift[i]);
      if constexpr (N::kSilu) f[i] = kw::silu<T>(f[i]);
    }
    kw::store_whole(to, true, kw::from_float<T>(f));
    to += static_cast<long long>(H::kRows) * channels;
  }
}
