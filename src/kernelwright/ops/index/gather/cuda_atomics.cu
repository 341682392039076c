// Atomic additions in memory, one element per thread.
//
// Idea: L2 adds, so no thread needs to know which others add to its element. In float32, whatever
// the dtype: 16-bit sums stop growing.
// Traffic: x read and copied (or zeros written), the numbers and src read; each element of src is a
// read and a write of a sector in L2, and in DRAM where L2 does not hold it; of 16-bit types the
// float32 sums are written and read once more.
// Limit: L2's atomic units, and elements that many add to. The order of the additions, and so the
// last bits, differ from run to run.
#include "start.cuh"

template <typename T, typename Index, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scatter_atomics(const Index *index, const T *src, float *sum, long long count,
                    long long src_stride, kw::Fibers fibers) {
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  const kw::Position at(fibers, i);
  const long long number = index[at.row * fibers.index_stride + at.column];
  const long long row = kw::named_row(fibers, at, number);
  atomicAdd(sum + row * fibers.c + at.column, kw::to_float(src[at.row * src_stride + at.column]));
}

template <typename T, int WIDTH, int BLOCK>
__global__ void __launch_bounds__(BLOCK) scatter_narrow(const float *sum, T *y, long long vectors) {
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= vectors) return;
  float v[WIDTH];
  kw::to_float(kw::load<float, WIDTH>(sum + i * WIDTH), v);
  kw::store(y + i * WIDTH, kw::from_float<T, WIDTH>(v));
}
