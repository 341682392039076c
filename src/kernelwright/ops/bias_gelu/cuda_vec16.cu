// 16-byte vectors; the bias's gradient in one partial row a block, added up in a fixed order.
//
// Idea: the bias is a row that all rows share, and stays in the caches. In the backward a block is
// a strip of 32 vectors of columns by DOWN rows: a thread walks down its columns, writes the
// gradient of x and adds it up in registers; the block adds its DOWN rows of threads and writes
// one partial row, and a second kernel adds the partial rows.
// Traffic: x read once, y written once; backward gy and x read, gx written once, and a partial row
// a block, about a hundredth of that. PyTorch writes and reads the sum, and reads gx again.
// Over `triton_rows`: a thread's loads are in flight together, and gx is summed unrounded.
// Limit: DRAM; rows of a whole number of vectors.
#include "kw/bias_gelu.cuh"

template <typename T, bool TANH, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    bias_gelu_fwd_vec16(T *x, T *bias, T *y, long long rows, int cols, long long stride) {
  kw::map_rows<kw::BiasGelu<TANH>, T, BLOCK, UNROLL, STREAM, 1>({x, bias, y}, {stride, 0}, rows,
                                                                cols);
}

template <typename T, bool TANH, int DOWN, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(32 * DOWN)
    bias_gelu_bwd_vec16(const T *gy, const T *x, const T *bias, T *gx, float *part, long long rows,
                        int cols, long long gy_stride, long long x_stride, long long share) {
  constexpr int WIDTH = kw::kVecWidth<T>;
  using Vec = kw::Vec<T, WIDTH>;
  using F = kw::BiasGeluBackward<TANH>;
  __shared__ float sums[DOWN][32 * WIDTH];
  const int col = (blockIdx.x * 32 + threadIdx.x) * WIDTH;
  const long long end = min(rows, (blockIdx.y + 1) * share);
  float sum[WIDTH] = {};
  if (col < cols) {
    const Vec b = kw::load<T, WIDTH>(bias + col);
    for (long long first = blockIdx.y * share + threadIdx.y; first < end; first += DOWN * UNROLL) {
      Vec in[UNROLL][3], out[1];
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        const long long row = first + k * DOWN;
        if (row >= end) continue;
        in[k][0] = kw::read<STREAM>(gy + row * gy_stride + col);
        in[k][1] = kw::read<STREAM>(x + row * x_stride + col);
        in[k][2] = b;
      }
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        const long long row = first + k * DOWN;
        if (row >= end) continue;
        float g[1][WIDTH];
        kw::map_floats<F, T, WIDTH>(in[k], g);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) sum[i] += g[0][i];
        out[0] = kw::from_float<T, WIDTH>(g[0]);
        kw::write<STREAM>(gx + row * cols + col, out[0]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) sums[threadIdx.y][i * 32 + threadIdx.x] = sum[i];
  __syncthreads();
  for (int i = threadIdx.y; i < WIDTH; i += DOWN) {  // a row of threads for each place of a vector
    float total = 0.0f;
#pragma unroll
    for (int y = 0; y < DOWN; ++y) total += sums[y][i * 32 + threadIdx.x];
    if (col < cols) part[blockIdx.y * (long long)cols + col + i] = total;
  }
}

// 32 columns a block; its 8 rows of threads share the partial rows.
template <typename T>
__global__ void bias_gelu_bwd_parts(const float *part, T *gbias, int parts, int cols) {
  __shared__ float sums[8][32];
  const int col = blockIdx.x * 32 + threadIdx.x;
  float sum = 0.0f;
  if (col < cols)
    for (int p = threadIdx.y; p < parts; p += 8) sum += part[p * (long long)cols + col];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || col >= cols) return;
  float total = 0.0f;
#pragma unroll
  for (int y = 0; y < 8; ++y) total += sums[y][threadIdx.x];
  gbias[col] = kw::from_float<T>(total);
}
