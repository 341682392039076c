// Many rows: LANES threads sum a row, a warp or less for short ones, a block for long ones.
//
// Idea: rows need not meet, so nothing is left to combine: each has its own group of threads, and
// a group of up to a warp needs no barrier at all. The loop is the one of `cuda_two_pass`.
// Traffic: x once, y once.
// Against one block a row everywhere: a row of 1,024 elements would leave most of a block idle,
// and its barriers would cost more than its loads.
// Limit: with fewer rows than the GPU holds groups it is not filled; `cuda_last_block` splits.
#include <kw/accumulate.cuh>
#include <kw/reduce.cuh>

template <typename In, typename Out, int BLOCK, int LANES, int VECS>
__global__ void __launch_bounds__(BLOCK) sum_rows(const In *x, Out *y, long long rows, long long n,
                                                  long long x_stride, long long y_stride) {
  static_assert(LANES >= kw::kVecWidth<In> && (LANES <= 32 || LANES == BLOCK), "");
  using A = kw::acc_t<In>;
  __shared__ A scratch[32];
  const int lane = threadIdx.x % LANES;
  const long long row = (long long)blockIdx.x * (BLOCK / LANES) + threadIdx.x / LANES;
  // groups past the last row stay, with nothing to add: shuffles and barriers want every thread
  const bool inside = row < rows;
  const kw::Vectors<In> in(x + (inside ? row * x_stride : 0), inside ? n : 0);
  const kw::Vec<In, 2> edge = in.edge(lane);
  double total = 0;
#pragma unroll 1
  for (long long tile = 0; tile < in.count; tile += LANES * VECS) {
    kw::Vec<In, in.W> v[VECS];
    in.load(v, tile + lane, LANES);
    total += kw::pairwise(v);
  }
  A sum = A(total) + kw::pairwise(edge);
  if constexpr (LANES <= 32)
    sum = kw::warp_reduce<kw::Sum, LANES>(sum);
  else
    sum = kw::block_reduce<kw::Sum>(sum, scratch);
  if (lane == 0 && inside) y[row * y_stride] = kw::narrow<Out>(sum);
}
