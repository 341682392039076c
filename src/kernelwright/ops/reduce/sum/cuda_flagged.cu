// Partial sums that carry their own flag: no counter, no fence.
//
// Idea: 8 aligned bytes are written and read whole. A block publishes 32 bits of its sum and a
// flag in one such word; reading the flag reads the sum, so nothing needs ordering. The block with
// the highest number, which starts last, polls one word a thread, sets it back to zero for the
// next launch, and adds by place: deterministic. (Merrill and Garland's scan uses such words.)
// Traffic: x once and a few KiB that never leave L2.
// Against `cuda_last_block`: after the last vector one trip to L2 and one poll, where there
// the fence, the count and the read follow one another.
// Limit: what is left is the launch, one memory latency, and two block reductions. That blocks
// start in the order of their numbers is how GPUs do it, not a promise of CUDA's.
#include <kw/accumulate.cuh>
#include <kw/flagged_value.cuh>
#include <kw/reduce.cuh>

template <typename In, typename Out, int BLOCK, int VECS>
__global__ void __launch_bounds__(BLOCK)
    sum_flagged(const In *x, kw::FlaggedValue *words, Out *y, long long n, long long x_stride,
                long long y_stride) {
  using A = kw::acc_t<In>;
  constexpr int EACH = sizeof(A) / 4;  // words of a sum
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
