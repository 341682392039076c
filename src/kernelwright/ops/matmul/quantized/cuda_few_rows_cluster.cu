// Tensor cores for at most 64 rows, weights of 4 or 8 bits; a cluster divides k.
//
// Idea: gemm/few_rows/clustered.cuh with integers: the 16 bytes that a lane copies are 32 or 16
// values of a row, which it converts to operands in its registers, in the same way as
// `cuda_few_rows`.
// Traffic: a quarter or half of a 16-bit weight, and 4 bytes per group; x once per cluster.
// Compared with `cuda_few_rows`: no barrier per 8 KiB of the weight, x stays in shared memory, and
// partial sums do not go through global memory.
// Limit: DRAM bandwidth and the launch up to 16 rows, then tensor cores with mma.sync.
#include "../gemm/few_rows/clustered.cuh"
#include "lane_integers.cuh"
#include "result.cuh"

extern __shared__ uint4 dynamic_shared[];

template <typename T, int BITS, int SPAN, class SPLIT, int RESIDENT>
__global__ void __launch_bounds__(SPLIT::kThreads, RESIDENT)
    quantized_clustered(const T *__restrict__ x, const unsigned char *__restrict__ packed,
                        const T *__restrict__ scales, const T *__restrict__ bias, T *__restrict__ y,
                        int rings, int boxed, int m, int n, int k, long long x_line) {
  few_rows::clustered<T, few_rows::IntegerLanes<T, BITS, SPAN>, SPLIT>(
      {packed, scales, n, k}, x, x_line, reinterpret_cast<char *>(dynamic_shared), rings, boxed, m,
      n, k, few_rows::Biased<T>{bias, y});
}
