// Atomic additions in memory, one element per thread.
//
// Idea: L2 performs the additions, so no thread needs to know which others add to its element. In
// float32 for any dtype, because 16-bit sums stop growing.
// Traffic: x read and copied (or zeros written), the indices and src read. Each element of src
// reads and writes a sector in L2, and in DRAM if L2 does not hold it. For 16-bit types the float32
// sums are written and read once more.
// Compared with `manual`: one launch for all additions.
// Limit: the atomic units of L2, and elements to which many are added. The order of the additions,
// and so the last bits, differ between runs.
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
