// Planes whose rows are whole vectors: adjacent windows, one load per line of their pixels.
//
// Idea: a thread processes VECTOR adjacent windows, for ROWS rows. Their pixels in a line of x are
// an aligned vector and a few neighbors. In the backward it processes the pixels of VECTOR
// adjacent blocks (cuda_blocks.cu), and stores their lines as vectors.
// Traffic: as `cuda_naive`.
// Compared with `cuda_rows` and `cuda_blocks`: accesses of up to 16 bytes, and one address per
// vector instead of per element: less than half of the instructions.
// Limit: DRAM bandwidth.
#include "averages.cuh"

template <typename T, int VECTOR, int HIGH, int WIDE, int STRIDE_H, int STRIDE_W, int PADDING,
          int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    avg_fwd_columns(const T *x, T *y, unsigned count, kw::Divisor across, kw::Divisor down,
                    kw::Windows of, kw::Average average) {
  constexpr int WIDTH = STRIDE_W * VECTOR, LINES = (ROWS - 1) * STRIDE_H + HIGH;
  constexpr int SPAN =
      STRIDE_W * (VECTOR - 1) + WIDE;  // pixels of a line, PADDING before the vector
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  unsigned plane = i;
  const int column = across.divide(plane), first = down.divide(plane) * ROWS;
  const int top = of.h.first(first), left = column * WIDTH - PADDING;
  const T *from = x + (long long)plane * of.h.from * of.w.from;
  const T none = kw::from_float<T>(0.0f);
  kw::Vec<T, WIDTH> v[LINES];
  T around[LINES][SPAN];
#pragma unroll
  for (int r = 0; r < LINES; ++r) {
    if (STRIDE_H > HIGH && r % STRIDE_H >= HIGH) continue;  // between two windows
    const bool inside = of.h.inside(top + r);
    const T *line = from + (inside ? (top + r) * of.w.from + left : left);
    v[r] = kw::load<T, WIDTH>(line + PADDING);
#pragma unroll
    for (int k = 0; k < WIDTH; ++k)
      if (!inside) v[r][k] = none;
#pragma unroll
    for (int k = 0; k < SPAN; ++k)
      if (k < PADDING || k >= PADDING + WIDTH)
        around[r][k] = inside && of.w.inside(left + k) ? line[k] : none;
  }
  float sums[LINES][VECTOR] = {};
#pragma unroll
  for (int r = 0; r < LINES; ++r) {
    if (STRIDE_H > HIGH && r % STRIDE_H >= HIGH) continue;
    float within[WIDTH], pixels[SPAN];
    kw::to_float(v[r], within);
#pragma unroll
    for (int k = 0; k < SPAN; ++k) {
      const bool inside = k >= PADDING && k < PADDING + WIDTH;
      pixels[k] = inside ? within[inside ? k - PADDING : 0] : kw::to_float(around[r][k]);
    }
#pragma unroll
    for (int w = 0; w < VECTOR; ++w) {
#pragma unroll
      for (int k = 0; k < WIDE; ++k) sums[r][w] += pixels[w * STRIDE_W + k];
    }
  }
  int wide[VECTOR];
#pragma unroll
  for (int w = 0; w < VECTOR; ++w) wide[w] = average.length(of.w, column * VECTOR + w);
#pragma unroll
  for (int o = 0; o < ROWS; ++o) {
    if (first + o >= of.h.to) return;
    const int high = average.length(of.h, first + o);
    float mean[VECTOR] = {};
#pragma unroll
    for (int w = 0; w < VECTOR; ++w) {
#pragma unroll
      for (int j = 0; j < HIGH; ++j) mean[w] += sums[o * STRIDE_H + j][w];
      mean[w] *= average.share(high, wide[w]);
    }
    const long long to = ((long long)plane * of.h.to + first + o) * of.w.to + column * VECTOR;
    kw::store(y + to, kw::from_float<T, VECTOR>(mean));
  }
}

template <typename T, int VECTOR, int HIGH, int WIDE, int STRIDE_H, int STRIDE_W, int PADDING_H,
          int PADDING_W, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    avg_bwd_columns(const T *gy, T *gx, unsigned count, kw::Divisor across, kw::Divisor down,
                    kw::Windows of, kw::Average average) {
  using H = kw::Block<HIGH, STRIDE_H, PADDING_H>;
  using W = kw::Block<WIDE, STRIDE_W, PADDING_W>;
  constexpr int WIDTH = STRIDE_W * VECTOR, SPAN = VECTOR + W::COUNT - 1;  // windows of a row
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  unsigned plane = i;
  const int right = across.divide(plane) * VECTOR, row = down.divide(plane);
  int wide[SPAN];
#pragma unroll
  for (int p = 0; p < SPAN; ++p) wide[p] = average.length(of.w, right + W::FIRST + p);
  float g[H::COUNT][SPAN];
#pragma unroll
  for (int o = 0; o < H::COUNT; ++o) {
    const int y = row + H::FIRST + o, high = average.length(of.h, y);
    const bool inside = unsigned(y) < unsigned(of.h.to);
    const T *line = gy + (((long long)plane * of.h.to + (inside ? y : 0)) * of.w.to + right);
    float within[VECTOR];
    kw::to_float(kw::load<T, VECTOR>(line), within);
#pragma unroll
    for (int p = 0; p < SPAN; ++p) {
      const int x = p + W::FIRST;
      const bool loaded = x >= 0 && x < VECTOR;
      const bool there = inside && (loaded || unsigned(right + x) < unsigned(of.w.to));
      float value = 0;
      if (there) value = loaded ? within[loaded ? x : 0] : kw::to_float(line[x]);
      g[o][p] = there ? value * average.share(high, wide[p]) : 0.0f;
    }
  }
#pragma unroll
  for (int r = 0; r < STRIDE_H; ++r) {
    const int y = row * STRIDE_H + r;
    if (!of.h.inside(y)) return;
    float sum[WIDTH] = {};
#pragma unroll
    for (int s = 0; s < WIDTH; ++s) {
#pragma unroll
      for (int o = 0; o < H::COUNT; ++o) {
#pragma unroll
        for (int p = 0; p < W::COUNT; ++p) {
          const int j = H::at(r, H::FIRST + o), k = W::at(s % STRIDE_W, W::FIRST + p);
          if (j >= 0 && j < HIGH && k >= 0 && k < WIDE) sum[s] += g[o][s / STRIDE_W + p];
        }
      }
    }
    T *to = gx + ((long long)plane * of.h.from + y) * of.w.from + right * STRIDE_W;
    kw::store(to, kw::from_float<T, WIDTH>(sum));
  }
}
