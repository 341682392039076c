// Many rows: LANES threads per row, at most a warp for short rows, a block for long ones.
//
// Idea: rows are independent, so no partial sums have to be combined: each row has its own group of
// threads, and a group of at most a warp needs no barrier. The loop is that of `cuda_two_pass`.
// Traffic: x read once, y written once.
// Compared with one block per row: for a row of 1,024 elements most of a block would be idle, and
// its barriers would cost more than its loads.
// Limit: fewer rows than the GPU holds groups do not fill it; `cuda_last_block` splits rows.
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
  // groups past the last row do not exit: all threads must reach the shuffles and barriers
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
