// Partial sums with a flag in the same word: no counter, no fence.
//
// Idea: an aligned 8-byte word is written and read as a whole. A block publishes 32 bits of its sum
// and a flag in one word, so no memory ordering is needed. The block with the highest index, which
// starts last, polls one word per thread, resets it to zero for the next launch, and adds in the
// order of the indices: deterministic. (Merrill and Garland's scan uses such words.)
// Traffic: x read once, and a few KiB that stay in L2.
// Compared with `cuda_last_block`: one round trip to L2 and one poll after the last vector, instead
// of a fence, a count and a read one after another.
// Limit: the launch, one memory latency and two block reductions remain. GPUs start blocks in the
// order of their indices, but CUDA does not guarantee it.
#include <kw/accumulate.cuh>
#include <kw/flagged_value.cuh>
#include <kw/reduce.cuh>

template <typename In, typename Out, int BLOCK, int VECS>
__global__ void __launch_bounds__(BLOCK)
    sum_flagged(const In *x, kw::FlaggedValue *words, Out *y, long long n, long long x_stride,
                long long y_stride) {
  using A = kw::acc_t<In>;
  constexpr int EACH = sizeof(A) / 4;  // words per sum
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
  words += row * gridDim.x * EACH;
  const unsigned collector = gridDim.x - 1;
  if (blockIdx.x != collector) {
    if (threadIdx.x == 0) kw::publish(words + blockIdx.x * EACH, sum);
    return;
  }
  if (threadIdx.x != 0) sum = 0;
  for (unsigned i = threadIdx.x; i < collector; i += BLOCK) sum += kw::take<A>(words + i * EACH);
  sum = kw::block_reduce<kw::Sum>(sum, scratch);
  if (threadIdx.x == 0) y[row * y_stride] = kw::narrow<Out>(sum);
}
