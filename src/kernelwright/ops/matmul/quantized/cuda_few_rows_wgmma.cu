// Hopper's tensor cores for at most 64 rows, weights of 4 or 8 bits; a cluster divides k.
//
// Idea: as `cuda_few_rows_cluster`, with wgmma: 64 rows of the weight are the left operand, which
// four warps convert from integers in their registers; x is the right operand, which the tensor
// cores read from shared memory. The integers of the next step are converted in the meantime.
// Traffic: as before; x is read from shared memory once per 64 rows of the weight, not 16 or 32.
// Compared with `cuda_few_rows_cluster`: tensor cores at their full rate, no loads of x to
// registers.
// Limit: shared memory, which must hold an eighth of x; at most 64 rows of 8,192.
#include "../gemm/few_rows/hopper/clustered_wgmma.cuh"
#include "lane_integers.cuh"
#include "result.cuh"

extern __shared__ uint4 dynamic_shared[];

template <typename T, int BITS, class SPLIT, int RESIDENT>
__global__ void __launch_bounds__(SPLIT::kThreads, RESIDENT)
    quantized_wgmma(const T *__restrict__ x, const unsigned char *__restrict__ packed,
                    const T *__restrict__ scales, const T *__restrict__ bias, T *__restrict__ y,
                    int rings, int boxed, int m, int n, int k, long long x_line) {
  few_rows::clustered_wgmma<T, few_rows::IntegerLanes<T, BITS, 1>, SPLIT>(
      {packed, scales, n, k}, x, x_line, reinterpret_cast<char *>(dynamic_shared), rings, boxed, m,
      n, k, few_rows::Biased<T>{bias, y});
}
