// One pass with deterministic results: the last block adds the partial sums in order.
//
// Idea: each block stores its sum and then increments a counter (kw/last_block.cuh). The last block
// adds all partial sums in the order of their positions, not of their arrival. The second dimension
// of the grid is the row, so that a few long rows are split over the whole GPU in the same way.
// Traffic: x read once, and a few KiB that stay in L2.
// Compared with `cuda_atomics`: deterministic. Compared with `cuda_two_pass`: one launch.
// Limit: after the last vector, three round trips to L2 follow one another: the fence waits for the
// store, the counter returns, the partial sums are read.
#include <kw/accumulate.cuh>
#include <kw/last_block.cuh>
#include <kw/reduce.cuh>

template <typename In, typename Out, int BLOCK, int VECS>
__global__ void __launch_bounds__(BLOCK)
    sum_last_block(const In *x, kw::acc_t<In> *partials, unsigned *arrived, Out *y, long long n,
                   long long x_stride, long long y_stride) {
  using A = kw::acc_t<In>;
  __shared__ A scratch[32];
  const long long row = blockIdx.y;
  const kw::Vectors<In> in(x + row * x_stride, n);
  const kw::Vec<In, 2> edge = in.edge(blockIdx.x == 0 ? threadIdx.x : in.W);
  double total = 0;
  const long long stride = (long long)gridDim.x * BLOCK * VECS;
#pragma unroll 1
  for (long long tile = (long long)blockIdx.x * BLOCK * VECS; tile < in.count; tile += stride) {
    kw::Vec<In, in.W> v[VECS];
    in.load(v, tile + threadIdx.x, BLOCK);
    total += kw::pairwise(v);
  }
  A sum = kw::block_reduce<kw::Sum>(A(total) + kw::pairwise(edge), scratch);
  partials += row * gridDim.x;
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
  if (!kw::is_last_block(arrived + row, gridDim.x)) return;
  sum = 0;
  // read from L2: other blocks wrote these during this launch
  for (unsigned i = threadIdx.x; i < gridDim.x; i += BLOCK) sum += __ldcg(partials + i);
  sum = kw::block_reduce<kw::Sum>(sum, scratch);
  if (threadIdx.x == 0) y[row * y_stride] = kw::narrow<Out>(sum);
}
