// Two passes: as many blocks as the GPU holds at once, then one block for their results.
//
// Idea: a grid that just fills the GPU leaves so few partial sums that one more block can add them.
// Two launches of one kernel therefore sum any number of elements, always in the same order:
// deterministic. The loop adds the tree sum of each tile to a running total in double precision, so
// that the error does not grow with the length of the input.
// Traffic: x read once, and a few KiB.
// Compared with `cuda_vec16`: no third launch; every block is started only once.
// Limit: the second launch starts when the last block of the first has ended; for small inputs it
// costs as much as the first.
#include <kw/accumulate.cuh>
#include <kw/reduce.cuh>

template <typename In, typename Out, int BLOCK, int VECS>
__global__ void __launch_bounds__(BLOCK) sum_two_pass(const In *x, Out *y, long long n) {
  using A = kw::acc_t<In>;
  __shared__ A scratch[32];
  const kw::Vectors<In> in(x, n);
  const kw::Vec<In, 2> edge = in.edge(blockIdx.x == 0 ? threadIdx.x : in.W);
  double total = 0;
  const long long stride = (long long)gridDim.x * BLOCK * VECS;
#pragma unroll 1
  for (long long tile = (long long)blockIdx.x * BLOCK * VECS; tile < in.count; tile += stride) {
    kw::Vec<In, in.W> v[VECS];
    in.load(v, tile + threadIdx.x, BLOCK);
    total += kw::pairwise(v);
  }
  const A sum = kw::block_reduce<kw::Sum>(A(total) + kw::pairwise(edge), scratch);
  if (threadIdx.x == 0) y[blockIdx.x] = kw::narrow<Out>(sum);
}
