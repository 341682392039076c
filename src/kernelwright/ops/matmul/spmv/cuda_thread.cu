// One thread per row.
//
// Idea: the definition. A thread iterates over its row's nonzeros and adds value times x.
// Traffic: indices and values once, x once per nonzero. The 32 threads of a warp read 32 rows at 32
// positions, so one element of a 32-byte sector is used at a time.
// Compared with `manual`: the products are not written to memory.
// Limit: a warp takes as long as its longest row, with one load per thread in flight.
#include "kw/types.cuh"

template <typename T, typename I>
__global__ void spmv_thread(const I *__restrict__ rows, const I *__restrict__ columns,
                            const T *__restrict__ values, const T *__restrict__ x,
                            T *__restrict__ y, int m) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m) return;
  float sum = 0.0f;
  for (I i = rows[row]; i < rows[row + 1]; i++)
    sum += kw::to_float(values[i]) * kw::to_float(x[columns[i]]);
  y[row] = kw::from_float<T>(sum);
}
