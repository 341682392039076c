// A matrix product whose left operand is never written: an implicit GEMM.
//
// Idea: a convolution is the product of the weight and a matrix with one row per output pixel,
// which holds the input elements under the filter. Tiles of this matrix are assembled in shared
// memory: k counts filter positions and, within them, channels, so that 8 consecutive elements are
// 8 channels of one input pixel (16 bytes), or zeros where the filter extends past the image.
// Traffic: the input once per filter position and per 64 output channels, nearly all of it from L1
// and L2; if the matrix were in memory, it would be written and read that often.
// Compared with `cuda_naive`: tensor cores, and each element from memory is used 64 times.
// Limit: mma.sync in tiles of 64 x 64, and one integer division per 16 bytes along k.
#include "../gemm/mma.cuh"
#include "geometry.cuh"
#include "kw/async.cuh"

constexpr int kTile = 64, kSlice = 64, kThreads = 128, kStages = 3;
constexpr int kBytes = kTile * kSlice * 2;     // one operand's slice
constexpr int kEach = kTile / (kThreads / 8);  // rows of a tile per thread

__device__ __forceinline__ int place(int row, int unit) {
  return row * (kSlice * 2) + 16 * (unit ^ (row & 1) << 2);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    conv2d_implicit(const T *__restrict__ x, const T *__restrict__ weight,
                    const T *__restrict__ bias, T *__restrict__ y, const Geometry g,
                    long long pixels) {
  alignas(16) __shared__ char tiles[kStages][2][kBytes];
  const long long first_pixel = static_cast<long long>(blockIdx.x) * kTile;
  const int left = blockIdx.y * kTile, k = g.rows * g.cols * g.channels;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int down = warp / 2 * 32, across = warp % 2 * 32;
  const int unit = threadIdx.x % 8, row = threadIdx.x / 8;

  // the position of the filter for the pixels of this thread's rows
  const T *image[kEach];
  int top[kEach], begin[kEach];
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    long long pixel = first_pixel + row + i * (kThreads / 8);
    const bool inside = pixel < pixels;
    pixel = inside ? pixel : 0;
    begin[i] = pixel % g.out_width * g.stride_x - g.pad_x;
    pixel /= g.out_width;
    top[i] = inside ? pixel % g.out_height * g.stride_y - g.pad_y : -(1 << 30);
    image[i] = x + pixel / g.out_height * g.height * g.width * g.channels;
  }
  const auto copy = [&](int slot, int first) {
    const int at = first + 8 * unit, filter = at / g.channels, c = at - filter * g.channels;
    const int r = filter / g.cols, s = filter - r * g.cols;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int h = top[i] + r * g.dilation_y, w = begin[i] + s * g.dilation_x;
      const bool inside = at < k && h >= 0 && h < g.height && w >= 0 && w < g.width;
      const T *from =
          image[i] + (inside ? (static_cast<long long>(h) * g.width + w) * g.channels + c : 0);
      const int to = place(row + i * (kThreads / 8), unit),
                channel = left + row + i * (kThreads / 8);
      matmul::copy_async_16(tiles[slot][0] + to, from, inside ? 16 : 0);
      const bool exists = at < k && channel < g.out_channels;
      matmul::copy_async_16(tiles[slot][1] + to,
                            weight + (exists ? static_cast<long long>(channel) * k + at : 0),
                            exists ? 16 : 0);
    }
  };
  const auto start = [&](int slot, int first) {
    if (first < k) copy(slot, first);
    kw::copy_async_commit();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; i++) start(i, i * kSlice);

  float sums[2][4][4] = {};
  int slot = 0;
  for (int first = 0; first < k; first += kSlice) {
    kw::copy_async_wait_all_but<kStages - 2>();
    __syncthreads();  // this slice has arrived, and no thread uses the previous one
    start((slot + kStages - 1) % kStages, first + (kStages - 1) * kSlice);
    const auto load = [&](int operand, int from, int step) {
      return *reinterpret_cast<const uint4 *>(tiles[slot][operand] +
                                              place(from + lane / 4, 4 * step + lane % 4));
    };
#pragma unroll
    for (int step = 0; step < 2; step++) {
      uint4 low[2], high[2];
#pragma unroll
      for (int t = 0; t < 2; t++) {
        low[t] = load(0, down + 16 * t, step);
        high[t] = load(0, down + 16 * t + 8, step);
      }
#pragma unroll
      for (int s = 0; s < 4; s++) {
        const uint4 of_col = load(1, across + 8 * s, step);
#pragma unroll
        for (int t = 0; t < 2; t++) {
          const unsigned one[4] = {low[t].x, high[t].x, low[t].y, high[t].y};
          const unsigned two[4] = {low[t].z, high[t].z, low[t].w, high[t].w};
          matmul::multiply_add<T>(sums[t][s], one, of_col.x, of_col.y);
          matmul::multiply_add<T>(sums[t][s], two, of_col.z, of_col.w);
        }
      }
    }
    slot = (slot + 1) % kStages;
  }
#pragma unroll
  for (int t = 0; t < 2; t++)
#pragma unroll
    for (int s = 0; s < 4; s++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const long long pixel = first_pixel + down + 16 * t + lane / 4 + i / 2 * 8;
        const int channel = left + across + 8 * s + lane % 4 * 2 + i % 2;
        if (pixel >= pixels || channel >= g.out_channels) continue;
        const float sum = sums[t][s][i] + (bias ? kw::to_float(bias[channel]) : 0.0f);
        y[pixel * g.out_channels + channel] = kw::from_float<T>(sum);
      }
}
