// The gradient by blocks of stride by stride pixels.
//
// Idea: stride, size and padding are constants, so that the windows that contain the pixels of a
// block are known at compile time: each window's gradient and index are loaded once per block, and
// compared with constants. Works on single pixels of planes, or on vectors of channels.
// Traffic: as `cuda_naive`.
// Compared with `cuda_naive`: gy and the indices are loaded once for all pixels of a block, with
// multiplications instead of divisions, and none in the loop over windows.
// Limit: DRAM bandwidth; for planes of 16-bit types, instructions.
#include "maximum.cuh"

// PIXELS: pixels of a row of the block that one store moves.
template <typename T, int WIDTH, int HIGH, int WIDE, int STRIDE_H, int STRIDE_W, int PADDING_H,
          int PADDING_W, int PIXELS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    max_bwd_blocks(const T *gy, const unsigned char *at, T *gx, unsigned count, long long pixel,
                   long long pixel_at, kw::Divisor channels, kw::Divisor across, kw::Divisor down,
                   kw::Windows of) {
  using H = kw::Block<HIGH, STRIDE_H, PADDING_H>;
  using W = kw::Block<WIDE, STRIDE_W, PADDING_W>;
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  unsigned image = i;
  const unsigned c = channels.divide(image) * WIDTH;
  const int right = across.divide(image), row = down.divide(image);
  kw::Vec<T, WIDTH> g[H::COUNT][W::COUNT];
  kw::Vec<unsigned char, WIDTH> numbers[H::COUNT][W::COUNT];
#pragma unroll
  for (int o = 0; o < H::COUNT; ++o) {
#pragma unroll
    for (int p = 0; p < W::COUNT; ++p) {
      const int y = row + H::FIRST + o, x = right + W::FIRST + p;
      const bool there = unsigned(y) < unsigned(of.h.to) && unsigned(x) < unsigned(of.w.to);
      const long long window = ((long long)image * of.h.to + y) * of.w.to + x;
      if (there) {
        g[o][p] = kw::load<T, WIDTH>(gy + window * pixel + c);
        numbers[o][p] = kw::load<unsigned char, WIDTH>(at + window * pixel_at + c);
      } else {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) g[o][p][e] = T(0.0f), numbers[o][p][e] = 255;
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
          constexpr int none = -1;
          const int j = H::at(r, H::FIRST + o), k = W::at(s, W::FIRST + p);
          const int number = j >= 0 && j < HIGH && k >= 0 && k < WIDE ? j * WIDE + k : none;
          if (number == none) continue;
          float of_g[WIDTH];
          kw::to_float(g[o][p], of_g);
#pragma unroll
          for (int e = 0; e < WIDTH; ++e)
            if (numbers[o][p][e] == number) sum[e] += of_g[e];
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
