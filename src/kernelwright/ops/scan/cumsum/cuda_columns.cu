// Any dimension except the last: threads along the contiguous one.
//
// Idea: a block is 32 columns wide and DOWN rows high; each thread has EACH consecutive rows of a
// tile, so that a warp always moves contiguous memory. A thread adds up its rows, the totals of a
// column are scanned through shared memory, and the block carries them to its next tile of rows.
// Deterministic.
// Traffic: x read once, y written once.
// Compared with a transposed copy, which the other rungs would need: 2 accesses instead of 6.
// Limit: one block processes 32 columns alone: few columns leave multiprocessors idle.
#include "positions.cuh"

// Grid: (tiles of columns, outer). Block: (32, DOWN). The elements of a scan are `inner` elements
// apart in x.
template <template <typename> class Op, typename L, typename T, bool EXCLUSIVE, bool REVERSE,
          int DOWN, int EACH, typename State>
__device__ __forceinline__ void scan_down(T *y, long long n, long long inner, const State &state) {
  using Local = Op<L>;
  using Carried = Op<kw::carried_t<T>>;
  using S = typename Local::State;
  __shared__ S totals[DOWN][32];
  const long long column = (long long)blockIdx.x * 32 + threadIdx.x;
  const bool inside = column < inner;
  auto carried = Carried::identity();
  for (long long first = 0; first < n; first += DOWN * EACH) {
    const long long p = first + threadIdx.y * EACH;
    S own[EACH], sum = Local::identity();
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      own[i] =
          inside && p + i < n ? state(kw::place<REVERSE>(p + i, n), column) : Local::identity();
#pragma unroll
    for (int i = 0; i < EACH; ++i) sum = Local::apply(sum, own[i]);
    totals[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    auto before = carried;
#pragma unroll
    for (int d = 0; d < DOWN; ++d) {
      const auto total = kw::state_as<kw::carried_t<T>>(totals[d][threadIdx.x]);
      if (d < threadIdx.y) before = Carried::apply(before, total);
      carried = Carried::apply(carried, total);
    }
    S s = kw::state_as<L>(before);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const S next = Local::apply(s, own[i]);
      if (inside && p + i < n)
        y[kw::place<REVERSE>(p + i, n) * inner + column] =
            kw::stored<T>(EXCLUSIVE ? kw::value_before(s, own[i]) : kw::value_of(next));
      s = next;
    }
    __syncthreads();
  }
}

template <typename T, bool EXCLUSIVE, bool REVERSE, int DOWN, int EACH>
__global__ void __launch_bounds__(32 * DOWN)
    scan_columns_sums(const T *x, T *y, long long n, long long inner, long long stride) {
  x += blockIdx.y * n * stride, y += blockIdx.y * n * inner;
  scan_down<kw::Adding, kw::local_t<T>, T, EXCLUSIVE, REVERSE, DOWN, EACH>(
      y, n, inner, [&](long long row, long long column) {
        return kw::as<kw::local_t<T>>(x[row * stride + column]);
      });
}
template <typename T, bool EXCLUSIVE, bool REVERSE, int DOWN, int EACH>
__global__ void __launch_bounds__(32 * DOWN)
    scan_columns_segments(const T *x, const unsigned char *starts, T *y, long long n,
                          long long inner, long long stride, long long starts_stride) {
  using L = kw::local_t<T>;
  x += blockIdx.y * n * stride, starts += blockIdx.y * n * starts_stride;
  y += blockIdx.y * n * inner;
  scan_down<kw::Segmented, L, T, EXCLUSIVE, REVERSE, DOWN, EACH>(
      y, n, inner, [&](long long row, long long column) {
        const long long start = row + REVERSE;
        const bool begins = start < n && starts[start * starts_stride + column];
        return kw::Segment<L>{kw::as<L>(x[row * stride + column]), L(begins)};
      });
}
template <typename T, int DOWN, int EACH>
__global__ void __launch_bounds__(32 * DOWN)
    scan_columns_products(const T *x, T *y, long long n, long long inner, long long stride) {
  using C = kw::carried_t<T>;
  x += blockIdx.y * n * stride, y += blockIdx.y * n * inner;
  scan_down<kw::Multiplying, C, T, false, false, DOWN, EACH>(
      y, n, inner,
      [&](long long row, long long column) { return kw::as<C>(x[row * stride + column]); });
}
