// 16-byte vectors, several loads in flight.
//
// Idea: a thread loads VECS vectors of 16 bytes before it adds the first. Memory latency is most of
// a microsecond and can be hidden only by bytes in flight; by Little's law an SM needs tens of KiB
// of them, and 256 threads with 4 vectors each provide 16 KiB. The vectors are added as a tree,
// which has a smaller rounding error than a chain.
// Traffic: x read once. An unaligned start or end is read element by element.
// Compared with `cuda_shuffle`: 64 bytes per thread in flight instead of 8 or 16, by four
// instructions.
// Limit: large inputs leave many partial sums, and up to three launches follow one another.
#include <kw/accumulate.cuh>
#include <kw/reduce.cuh>

template <typename In, typename Out, int BLOCK, int VECS>
__global__ void __launch_bounds__(BLOCK) sum_vec16(const In *x, Out *y, long long n) {
  using A = kw::acc_t<In>;
  __shared__ A scratch[32];
  const kw::Vectors<In> in(x, n);
  const kw::Vec<In, 2> edge = in.edge(blockIdx.x == 0 ? threadIdx.x : in.W);
  const long long first = (long long)blockIdx.x * BLOCK * VECS + threadIdx.x;
  kw::Vec<In, in.W> v[VECS];
  in.load(v, first, BLOCK);
  const A sum = kw::block_reduce<kw::Sum>(kw::pairwise(v) + kw::pairwise(edge), scratch);
  if (threadIdx.x == 0) y[blockIdx.x] = kw::narrow<Out>(sum);
}
