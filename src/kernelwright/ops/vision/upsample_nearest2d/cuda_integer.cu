// Planes enlarged by an integer: an access of 16 bytes in TIMES rows of the large image.
//
// Idea: the WIDTH / TIMES pixels of a thread are 16 bytes in each of TIMES rows of the enlarged
// image. Rows are counted across all planes: row r becomes the rows from TIMES r on, for any
// height. In the forward the pixels are repeated in registers and stored; in the backward the rows
// are added up there.
// Traffic: as `cuda_naive`; every access is contiguous over a warp, with UNROLL groups in flight.
// Compared with `cuda_columns`: no pixel is loaded twice, one division per TIMES vectors.
// Limit: DRAM bandwidth.
#include "nearest.cuh"

template <typename T, int TIMES, int UNROLL, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    nearest_fwd_integer(const T *x, T *y, unsigned count, kw::Divisor across) {
  constexpr int WIDTH = kw::kVecWidth<T>, PIXELS = WIDTH / TIMES;
  const unsigned first = blockIdx.x * (BLOCK * UNROLL) + threadIdx.x;
  kw::Vec<T, PIXELS> v[UNROLL];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const unsigned i = first + k * BLOCK;
    if (i < count) v[k] = kw::load<T, PIXELS>(x + (long long)i * PIXELS);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    unsigned row = first + k * BLOCK;
    if (row >= count) return;
    const unsigned right = across.divide(row);
    T *to = y + ((long long)row * TIMES * across.by + right) * WIDTH;
    kw::Vec<T, WIDTH> wide;
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) wide[e] = v[k][e / TIMES];
#pragma unroll
    for (int r = 0; r < TIMES; ++r)
      kw::store_streaming(to + (long long)r * across.by * WIDTH, wide);
  }
}

template <typename T, int TIMES, int UNROLL, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    nearest_bwd_integer(const T *gy, T *gx, unsigned count, kw::Divisor across) {
  constexpr int WIDTH = kw::kVecWidth<T>, PIXELS = WIDTH / TIMES;
  const unsigned first = blockIdx.x * (BLOCK * UNROLL) + threadIdx.x;
  kw::Vec<T, WIDTH> v[UNROLL][TIMES];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    unsigned row = first + k * BLOCK;
    if (row >= count) break;
    const unsigned right = across.divide(row);
    const T *from = gy + ((long long)row * TIMES * across.by + right) * WIDTH;
#pragma unroll
    for (int r = 0; r < TIMES; ++r)
      v[k][r] = kw::load_streaming<T, WIDTH>(from + (long long)r * across.by * WIDTH);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const unsigned i = first + k * BLOCK;
    if (i >= count) return;
    float sum[PIXELS] = {};
#pragma unroll
    for (int r = 0; r < TIMES; ++r) {
      float of[WIDTH];
      kw::to_float(v[k][r], of);
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) sum[e / TIMES] += of[e];
    }
    kw::store(gx + (long long)i * PIXELS, kw::from_float<T, PIXELS>(sum));
  }
}
