// Planes whose rows are whole vectors: adjacent windows, one load per line of their pixels.
//
// Idea: a thread processes VECTOR adjacent windows, for ROWS rows. Their pixels in a line of x are
// an aligned vector and a few neighbors. In the backward it processes the pixels of VECTOR
// adjacent blocks (cuda_blocks.cu), and stores their lines as vectors.
// Traffic: as `cuda_naive`.
// Compared with `cuda_rows` and `cuda_blocks`: accesses of up to 16 bytes, and one address per
// vector instead of per element: less than half of the instructions.
// Limit: DRAM bandwidth.
#include "maximum.cuh"

template <typename T, int VECTOR, int HIGH, int WIDE, int STRIDE_H, int STRIDE_W, int PADDING,
          bool KEEP, int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    max_fwd_columns(const T *x, T *y, unsigned char *at, unsigned count, kw::Divisor across,
                    kw::Divisor down, kw::Windows of) {
  constexpr int WIDTH = STRIDE_W * VECTOR, LINES = (ROWS - 1) * STRIDE_H + HIGH;
  constexpr int SPAN =
      STRIDE_W * (VECTOR - 1) + WIDE;  // pixels of a line, PADDING before the vector
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  unsigned plane = i;
  const int column = across.divide(plane), first = down.divide(plane) * ROWS;
  const int top = of.h.first(first), left = column * WIDTH - PADDING;
  const T *from = x + (long long)plane * of.h.from * of.w.from;
  int place[SPAN], rows[LINES];  // read positions; clamped to the image
#pragma unroll
  for (int k = 0; k < SPAN; ++k) {
    const bool within = k >= PADDING && k < PADDING + WIDTH;
    place[k] = within ? k : min(max(left + k, 0), of.w.from - 1) - left;
  }
  kw::Vec<T, WIDTH> v[LINES];
  T around[LINES][SPAN];
#pragma unroll
  for (int r = 0; r < LINES; ++r) {
    rows[r] = min(max(top + r, 0), of.h.from - 1);
    if (STRIDE_H > HIGH && r % STRIDE_H >= HIGH) continue;  // between two windows
    const T *line = from + (rows[r] * of.w.from + left);
    v[r] = kw::load<T, WIDTH>(line + PADDING);
#pragma unroll
    for (int k = 0; k < SPAN; ++k)
      if (k < PADDING || k >= PADDING + WIDTH) around[r][k] = line[place[k]];
  }
  float pixels[LINES][SPAN], most_of[LINES][VECTOR];
  int place_of[LINES][VECTOR];
#pragma unroll
  for (int r = 0; r < LINES; ++r) {
    if (STRIDE_H > HIGH && r % STRIDE_H >= HIGH) continue;
    float within[WIDTH];
    kw::to_float(v[r], within);
#pragma unroll
    for (int k = 0; k < SPAN; ++k) {
      const bool inside = k >= PADDING && k < PADDING + WIDTH;
      pixels[r][k] = inside ? within[inside ? k - PADDING : 0] : kw::to_float(around[r][k]);
    }
#pragma unroll
    for (int w = 0; w < VECTOR; ++w) {
#pragma unroll
      for (int k = 0; k < WIDE; ++k)
        kw::take(pixels[r][w * STRIDE_W + k], place[w * STRIDE_W + k] - w * STRIDE_W, k == 0,
                 most_of[r][w], place_of[r][w]);
    }
  }
#pragma unroll
  for (int o = 0; o < ROWS; ++o) {
    if (first + o >= of.h.to) return;
    float most[VECTOR];
    int number[VECTOR];
    bool nan = false;
#pragma unroll
    for (int w = 0; w < VECTOR; ++w) {
#pragma unroll
      for (int j = 0; j < HIGH; ++j) {
        const int r = o * STRIDE_H + j, before = (rows[r] - top - o * STRIDE_H) * WIDE;
        kw::take(most_of[r][w], before + place_of[r][w], j == 0, most[w], number[w]);
      }
      nan |= most[w] != most[w];
    }
    if (KEEP && nan) {  // the last one
#pragma unroll
      for (int n = 0; n < VECTOR * HIGH * WIDE; ++n) {
        const int w = n / (HIGH * WIDE), j = n / WIDE % HIGH, k = w * STRIDE_W + n % WIDE;
        const float found = pixels[o * STRIDE_H + j][k];
        const int line = rows[o * STRIDE_H + j] - top - o * STRIDE_H;
        if (found != found) number[w] = line * WIDE + place[k] - w * STRIDE_W;
      }
    }
    const long long to = ((long long)plane * of.h.to + first + o) * of.w.to + column * VECTOR;
    kw::store(y + to, kw::from_float<T, VECTOR>(most));
    if (KEEP) {
      kw::Vec<unsigned char, VECTOR> numbers;
#pragma unroll
      for (int w = 0; w < VECTOR; ++w) numbers[w] = number[w];
      kw::store(at + to, numbers);
    }
  }
}

template <typename T, int VECTOR, int HIGH, int WIDE, int STRIDE_H, int STRIDE_W, int PADDING_H,
          int PADDING_W, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    max_bwd_columns(const T *gy, const unsigned char *at, T *gx, unsigned count, kw::Divisor across,
                    kw::Divisor down, kw::Windows of) {
  using H = kw::Block<HIGH, STRIDE_H, PADDING_H>;
  using W = kw::Block<WIDE, STRIDE_W, PADDING_W>;
  constexpr int WIDTH = STRIDE_W * VECTOR, SPAN = VECTOR + W::COUNT - 1;  // windows of a row
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  unsigned plane = i;
  const int right = across.divide(plane) * VECTOR, row = down.divide(plane);
  float g[H::COUNT][SPAN];
  int numbers[H::COUNT][SPAN];
#pragma unroll
  for (int o = 0; o < H::COUNT; ++o) {
    const int y = row + H::FIRST + o;
    const bool inside = unsigned(y) < unsigned(of.h.to);
    const long long line = ((long long)plane * of.h.to + (inside ? y : 0)) * of.w.to + right;
    const auto values = kw::load<T, VECTOR>(gy + line);
    const auto chosen = kw::load<unsigned char, VECTOR>(at + line);
    float within[VECTOR];
    kw::to_float(values, within);
#pragma unroll
    for (int p = 0; p < SPAN; ++p) {
      const int x = p + W::FIRST;
      if (x >= 0 && x < VECTOR) {
        g[o][p] = within[x >= 0 && x < VECTOR ? x : 0];
        numbers[o][p] = inside ? chosen[x >= 0 && x < VECTOR ? x : 0] : 255;
      } else {
        const bool there = inside && unsigned(right + x) < unsigned(of.w.to);
        g[o][p] = there ? kw::to_float(gy[line + x]) : 0.0f;
        numbers[o][p] = there ? at[line + x] : 255;
      }
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
          if (j < 0 || j >= HIGH || k < 0 || k >= WIDE) continue;
          if (numbers[o][s / STRIDE_W + p] == j * WIDE + k) sum[s] += g[o][s / STRIDE_W + p];
        }
      }
    }
    T *to = gx + ((long long)plane * of.h.from + y) * of.w.from + right * STRIDE_W;
    kw::store(to, kw::from_float<T, WIDTH>(sum));
  }
}
