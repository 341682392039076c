// 16-byte vectors; the bias gradient from one partial row per block, added in a fixed order.
//
// Idea: all rows share the bias, which stays in the caches. In the backward a block is a strip of
// 32 vectors of columns by DOWN rows: a thread iterates over rows, with the next ones in flight,
// writes gx and accumulates it in registers; the block adds over threadIdx.y, and the last block of
// a strip adds the partial sums of its blocks.
// Traffic: x read once, y written once; backward: gy and x read, gx written once, and one partial
// row per block, about a hundredth of that. PyTorch writes and reads the sum, and reads gx again.
// Compared with `triton_rows`: loads continue during computation, and gx is summed before rounding.
// Limit: DRAM bandwidth; rows of a whole number of vectors.
#include "kw/column_sum.cuh"
#include "kw/gelu.cuh"
#include "kw/map.cuh"

template <bool TANH>
KW_FORMULA(BiasGelu, 2, 1, y[0] = kw::gelu<T, TANH>(x[0] + x[1]))

template <typename T, bool TANH, int BLOCK, int UNROLL, bool STREAM>
__global__ void __launch_bounds__(BLOCK)
    bias_gelu_fwd_vec16(T *x, T *bias, T *y, long long rows, int cols, long long stride) {
  kw::map_rows<BiasGelu<TANH>, T, BLOCK, UNROLL, STREAM, 1>({x, bias, y}, {stride, 0}, rows, cols);
}

template <typename T, bool TANH, int DOWN, int STAGES>
__global__ void __launch_bounds__(32 * DOWN)
    bias_gelu_bwd_vec16(const T *gy, const T *x, const T *bias, T *gx, T *gbias,
                        kw::FlaggedValue *handed, int rows, int cols, long long gy_stride,
                        long long x_stride) {
  constexpr int N = kw::kVecWidth<T>;
  const int col = (blockIdx.x * 32 + threadIdx.x) * N;
  const bool inside = col < cols;
  kw::ColumnReader<T, 2, DOWN, STAGES> reader({gy + col, x + col}, {gy_stride, x_stride},
                                              inside ? rows : 0);
  float b[N] = {}, sum[N] = {};
  if (inside) kw::to_float(kw::load<T, N>(bias + col), b);
  reader.for_each_row([&](unsigned row, const float (&in)[2][N], unsigned) {
    float g[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      g[i] = in[0][i] * kw::gelu_slope<T, TANH>(in[1][i] + b[i]);
      sum[i] += g[i];
    }
    kw::store(gx + row * (long long)cols + col, kw::from_float<T>(g));
  });
  kw::column_sum<DOWN>(sum, handed, gbias, col, inside);
}
