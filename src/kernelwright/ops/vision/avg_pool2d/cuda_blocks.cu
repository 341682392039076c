// The gradient by blocks of stride by stride pixels.
//
// Idea: stride, size and padding are constants, so that the windows that contain the pixels of a
// block are known at compile time: each window's gradient is loaded, and divided, once per block.
// Works on single pixels of planes, or on vectors of channels.
// Traffic: as `cuda_naive`.
// Compared with `cuda_naive`: gy is loaded once for all pixels of a block, with multiplications
// instead of divisions, and none in the loop over windows.
// Limit: DRAM bandwidth.
#include "averages.cuh"

// PIXELS: pixels of a row of the block that one store moves.
template <typename T, int WIDTH, int HIGH, int WIDE, int STRIDE_H, int STRIDE_W, int PADDING_H,
          int PADDING_W, int PIXELS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    avg_bwd_blocks(const T *gy, T *gx, unsigned count, long long pixel, kw::Divisor channels,
                   kw::Divisor across, kw::Divisor down, kw::Windows of, kw::Average average) {
  using H = kw::Block<HIGH, STRIDE_H, PADDING_H>;
  using W = kw::Block<WIDE, STRIDE_W, PADDING_W>;
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  unsigned image = i;
  const unsigned c = channels.divide(image) * WIDTH;
  const int right = across.divide(image), row = down.divide(image);
  float g[H::COUNT][W::COUNT][WIDTH];
#pragma unroll
  for (int o = 0; o < H::COUNT; ++o) {
#pragma unroll
    for (int p = 0; p < W::COUNT; ++p) {
      const int y = row + H::FIRST + o, x = right + W::FIRST + p;
      const bool there = unsigned(y) < unsigned(of.h.to) && unsigned(x) < unsigned(of.w.to);
      const long long window = ((long long)image * of.h.to + y) * of.w.to + x;
      if (there) {
        kw::to_float(kw::load<T, WIDTH>(gy + window * pixel + c), g[o][p]);
        const float share = average.share(of, y, x);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) g[o][p][e] *= share;
      } else {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) g[o][p][e] = 0;
      }
    }
  }
  const int step = channels.by * WIDTH;
#pragma unroll
  for (int r = 0; r < STRIDE_H; ++r) {
    const int y = row * STRIDE_H + r;
    if (!of.h.inside(y)) return;
    kw::Vec<T, PIXELS * WIDTH> sums[STRIDE_W / PIXELS];
#pragma unroll
    for (int s = 0; s < STRIDE_W; ++s) {
      float sum[WIDTH] = {};
#pragma unroll
      for (int o = 0; o < H::COUNT; ++o) {
#pragma unroll
        for (int p = 0; p < W::COUNT; ++p) {
          const int j = H::at(r, H::FIRST + o), k = W::at(s, W::FIRST + p);
          if (j < 0 || j >= HIGH || k < 0 || k >= WIDE) continue;
#pragma unroll
          for (int e = 0; e < WIDTH; ++e) sum[e] += g[o][p][e];
        }
      }
#pragma unroll
      for (int e = 0; e < WIDTH; ++e)
        sums[s / PIXELS][s % PIXELS * WIDTH + e] = kw::from_float<T>(sum[e]);
    }
    const int x = right * STRIDE_W;
    T *to = gx + (((long long)image * of.h.from + y) * of.w.from + x) * step + c;
#pragma unroll
    for (int s = 0; s < STRIDE_W / PIXELS; ++s)
      if (of.w.inside(x + s * PIXELS)) kw::store(to + s * PIXELS * step, sums[s]);
  }
}
