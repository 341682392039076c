// Shared by norms of channels that lie side by side (NHWC): a slab of channels, whole groups, is a
// matrix of rows (positions) and columns (channels), of which a thread has VEC.
#pragma once
#include "sets.cuh"

namespace kw {

struct Slabs {
  long long rows, x_step, gy_step;  // positions of a sample; elements between them
  int channels, slab, per;          // of a sample, of a slab, of a group

  __device__ __forceinline__ int groups() const { return slab / per; }
};

// A thread's columns, and where its rows begin: `rows` rows of threads share those of a block.
template <int VEC> struct Column {
  int first, row, rows;
  bool live;  // false in threads that are left over

  __device__ __forceinline__ Column(const Slabs &slabs) {
    const int columns = slabs.slab / VEC;
    rows = blockDim.x / columns, row = threadIdx.x / columns;
    first = (threadIdx.x - row * columns) * VEC;
    live = row < rows;
  }
};

// The positions that one of a sample's `blocks` blocks takes.
struct Range {
  long long first, last;
  __device__ __forceinline__ Range(long long rows, int blocks, int block) {
    const long long each = (rows + blocks - 1) / blocks;
    first = min(block * each, rows), last = min(first + each, rows);
  }
  __device__ __forceinline__ float count() const { return static_cast<float>(last - first); }
};

// Which part of x a block takes: its sample, the first channel of its slab, its place among the
// `blocks` blocks of that.
struct Place {
  long long sample;
  int slab, block;
  __device__ __forceinline__ Place(const Slabs &slabs, int blocks, long long which) {
    const int of_sample = slabs.channels / slabs.slab;
    const long long slab_ = which / blocks;
    block = static_cast<int>(which - slab_ * blocks);
    sample = slab_ / of_sample;
    slab = static_cast<int>(slab_ - sample * of_sample) * slabs.slab;
  }
  // The first group.
  __device__ __forceinline__ long long group(const Slabs &slabs) const {
    return sample * (slabs.channels / slabs.per) + slab / slabs.per;
  }
};

// Adds up the rows of threads: the total of each channel in `lanes`, to the whole block. In steps
// of the same order every time; each step writes where only the same thread reads.
template <int VEC>
__device__ __forceinline__ void add_columns(const float (&mine)[VEC], const Column<VEC> &c,
                                            int slab, float *lanes) {
  const int threads = blockDim.x, down = min(max(threads / slab, 1), c.rows);
  if (c.live)
#pragma unroll
    for (int i = 0; i < VEC; i++) lanes[c.row * slab + c.first + i] = mine[i];
  __syncthreads();
  for (int k = threadIdx.x; k < down * slab; k += threads) {
    float sum = lanes[k];
    for (int r = k + down * slab; r < c.rows * slab; r += down * slab) sum += lanes[r];
    lanes[k] = sum;
  }
  __syncthreads();
  for (int k = threadIdx.x; k < slab; k += threads) {
    float sum = lanes[k];
    for (int j = 1; j < down; j++) sum += lanes[j * slab + k];
    lanes[k] = sum;
  }
  __syncthreads();
}

// total[g] = the sum of of(channel) over a group's channels, to the whole block.
template <typename Of>
__device__ __forceinline__ void add_groups(const Slabs &slabs, float *total, const Of &of) {
  for (int g = threadIdx.x; g < slabs.groups(); g += blockDim.x) {
    float sum = 0.0f;
#pragma unroll 4
    for (int k = 0; k < slabs.per; k++) sum += of(g * slabs.per + k);
    total[g] = sum;
  }
  __syncthreads();
}

// Of a thread's columns: the group's statistics, and weight and bias.
template <int VEC> struct ColumnAffine {
  float mean[VEC], rstd[VEC], weight[VEC], bias[VEC];

  // stats(g): of the slab's group g. `slab`: the slab's first channel.
  template <typename W, typename Of>
  __device__ __forceinline__ ColumnAffine(const W *w, const W *b, int given, int slab,
                                          const Column<VEC> &c, int per, const Of &stats) {
    load_or(w + slab + c.first, given & kWeight && c.live, 0.0f, 1.0f, weight);
    load_or(b + slab + c.first, given & kBias && c.live, 0.0f, 0.0f, bias);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      const Statistics s = c.live ? stats((c.first + i) / per) : Statistics{0.0f, 0.0f};
      mean[i] = s.mean, rstd[i] = s.rstd;
    }
  }

  template <typename N>
  __device__ __forceinline__ Vec<typename N::T, VEC> normalised(
      const Vec<typename N::T, VEC> &x) const {
    float y[VEC];
    to_float(x, y);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      y[i] = fmaf(y[i] - mean[i], rstd[i] * weight[i], bias[i]);
      if constexpr (N::kSilu) y[i] = silu<typename N::T>(y[i]);
    }
    return from_float<typename N::T>(y);
  }

  // The gradient of what silu receives, and the normalised x.
  template <typename N>
  __device__ __forceinline__ void gradients(const Vec<typename N::T, VEC> &gy,
                                            const Vec<typename N::T, VEC> &x, float (&g)[VEC],
                                            float (&xhat)[VEC]) const {
    to_float(gy, g);
    to_float(x, xhat);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      xhat[i] = (xhat[i] - mean[i]) * rstd[i];
      if constexpr (N::kSilu)
        g[i] *= silu_and_slope<typename N::T>(fmaf(xhat[i], weight[i], bias[i])).slope;
    }
  }

  // gx, from the means over the group of g and g xhat, both times the weight.
  template <typename N>
  __device__ __forceinline__ Vec<typename N::T, VEC> gradient(const Vec<typename N::T, VEC> &gy,
                                                              const Vec<typename N::T, VEC> &x,
                                                              const Sums (&means)[VEC]) const {
    float g[VEC], xhat[VEC];
    gradients<N>(gy, x, g, xhat);
#pragma unroll
    for (int i = 0; i < VEC; i++)
      g[i] = rstd[i] * (g[i] * weight[i] - means[i].sum - xhat[i] * means[i].dot);
    return from_float<typename N::T>(g);
  }
};

}  // namespace kw
