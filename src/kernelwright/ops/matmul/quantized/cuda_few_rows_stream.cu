// Up to 64 rows of x, weights of 4 or 8 bits: one warp streams the weight by the copy engine.
//
// Idea: matmul's rung of this name with integers. Each warp converts 16 rows of the weight in its
// registers to the left operand of wgmma; tensor cores read x from shared memory, to which the copy
// engine writes it in the order in which it is in memory.
// Traffic: a quarter or half of a 16-bit weight and 4 bytes per group; x once per tile, from L2.
// Compared with `cuda_few_rows_wgmma`: copies do not wait for conversions, x does not stay in
// shared memory and so does not limit a tile, and no sums are sent if the tiles fill the machine.
// Limit: DRAM bandwidth up to 32 rows, then tensor cores and L2.
#include "integers.cuh"
#include "result.cuh"
#include "stream_integers.cuh"

extern __shared__ unsigned char unaligned[];

template <typename T, int BITS, class SHAPE, int RESIDENT>
__global__ void __launch_bounds__(SHAPE::kThreads, RESIDENT)
    quantized_stream(const __grid_constant__ kw::TensorMap weight,
                     const __grid_constant__ kw::TensorMap scales,
                     const __grid_constant__ kw::TensorMap x, const T *__restrict__ bias,
                     T *__restrict__ y, int bytes, int steps, int m, int n) {
  stream::multiply<SHAPE>(stream::Integers<T, BITS, SHAPE>{weight, scales, x, bytes}, unaligned,
                          steps, m, n, few_rows::Biased<T>{bias, y});
}
