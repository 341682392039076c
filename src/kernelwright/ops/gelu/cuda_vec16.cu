// 16-byte vectors, several in flight, and a gelu of few instructions.
//
// Idea: each thread loads UNROLL independent vectors before it uses the first, so that an SM has
// its 30 KB in flight; addresses are computed once a vector; `kw/gelu.cuh` needs one exponential
// where `cuda_thread` has erff or tanhf.
// Traffic: x read once, y written once, four 128-byte lines to a warp's instruction.
// Over `triton_block`: full vectors at any size, and loads in flight that nobody reorders.
// Limit: DRAM. STREAM tells the caches that nobody reads the data again soon.
#include "kw/gelu.cuh"
#include "kw/vec.cuh"

template <bool STREAM, typename T, int WIDTH = kw::kVecWidth<T>>
__device__ __forceinline__ kw::Vec<T, WIDTH> read(const T *p) {
  if constexpr (STREAM) return kw::load_streaming<T, WIDTH>(p);
  return kw::load<T, WIDTH>(p);
}

template <bool STREAM, typename T, int WIDTH>
__device__ __forceinline__ void write(T *p, const kw::Vec<T, WIDTH> &x) {
  if constexpr (STREAM) return kw::store_streaming(p, x);
  kw::store(p, x);
}

template <typename T, bool TANH, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK) gelu_fwd_vec16(const T *x, T *y, long long n) {
  constexpr int WIDTH = kw::kVecWidth<T>, STEP = BLOCK * WIDTH, TILE = STEP * UNROLL;
  const long long start = (long long)blockIdx.x * TILE;
  const int left = min(n - start, (long long)TILE);  // elements of this block
  const int first = threadIdx.x * WIDTH;
  x += start, y += start;
  kw::Vec<T, WIDTH> in[UNROLL];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const int i = first + k * STEP;
    if (i + WIDTH <= left) in[k] = read<STREAM>(x + i);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const int i = first + k * STEP;
    if (i + WIDTH > left) continue;
    float v[WIDTH];
    kw::to_float(in[k], v);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) v[j] = kw::gelu<T, TANH>(v[j]);
    write<STREAM>(y + i, kw::from_float<T, WIDTH>(v));
  }
  const int i = left - left % WIDTH + threadIdx.x;  // the last block's elements short of a vector
  if (i < left) y[i] = kw::from_float<T>(kw::gelu<T, TANH>(kw::to_float(x[i])));
}

template <typename T, bool TANH, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    gelu_bwd_vec16(const T *gy, const T *x, T *gx, long long n) {
  constexpr int WIDTH = kw::kVecWidth<T>, STEP = BLOCK * WIDTH, TILE = STEP * UNROLL;
  const long long start = (long long)blockIdx.x * TILE;
  const int left = min(n - start, (long long)TILE);
  const int first = threadIdx.x * WIDTH;
  gy += start, x += start, gx += start;
  kw::Vec<T, WIDTH> in[UNROLL], grad[UNROLL];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const int i = first + k * STEP;
    if (i + WIDTH > left) continue;
    in[k] = read<STREAM>(x + i);
    grad[k] = read<STREAM>(gy + i);
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const int i = first + k * STEP;
    if (i + WIDTH > left) continue;
    float v[WIDTH], g[WIDTH];
    kw::to_float(in[k], v), kw::to_float(grad[k], g);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) v[j] = g[j] * kw::gelu_slope<T, TANH>(v[j]);
    write<STREAM>(gx + i, kw::from_float<T, WIDTH>(v));
  }
  const int i = left - left % WIDTH + threadIdx.x;
  if (i < left)
    gx[i] = kw::from_float<T>(kw::to_float(gy[i]) * kw::gelu_slope<T, TANH>(kw::to_float(x[i])));
}
