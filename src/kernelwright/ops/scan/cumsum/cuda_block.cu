// One block per row: vectors in registers, one barrier per tile.
//
// Idea: a thread adds up its 16-byte vectors, a warp scans the totals of its threads by shuffles,
// and one exchange through shared memory scans those of the warps. The block iterates over its row
// tile by tile and carries the total in a type of twice the precision.
// Traffic: x read once, y written once.
// Compared with `cuda_warp`: VECS vectors per thread in flight, and 5 shuffles per vector instead
// of per element.
// Limit: one block per row: a few long rows leave multiprocessors idle, and the loads of a tile
// wait for the previous tile.
#include "tile.cuh"

template <template <typename, int, int, bool> class Stream, typename T, bool EXCLUSIVE,
          bool REVERSE, int WIDTH, int VECS, int BLOCK, typename... Rows>
__device__ __forceinline__ void scan_row(T *y, long long n, Rows... rows) {
  using In = Stream<T, WIDTH, VECS, REVERSE>;
  using Carried = typename In::Carried;
  auto carried = Carried::identity();
  for (long long first = 0; first < n; first += kw::kTile<WIDTH, VECS, BLOCK>) {
    In in{rows...};
    kw::scan_tile<EXCLUSIVE, REVERSE, WIDTH, VECS, BLOCK>(
        in, y, first, n, [&](typename In::Local::State total) {
          const auto before = carried;
          carried = Carried::apply(carried, kw::state_as<typename In::C>(total));
          return before;
        });
    __syncthreads();  // the next tile overwrites totals of other warps
  }
}

template <typename T, bool EXCLUSIVE, bool REVERSE, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_block_sums(const T *x, T *y, long long n, long long stride) {
  scan_row<kw::Sums, T, EXCLUSIVE, REVERSE, WIDTH, VECS, BLOCK>(y + blockIdx.x * n, n,
                                                                x + blockIdx.x * stride);
}
template <typename T, bool EXCLUSIVE, bool REVERSE, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_block_segments(const T *x, const unsigned char *starts, T *y, long long n,
                        long long stride, long long starts_stride) {
  scan_row<kw::SegmentSums, T, EXCLUSIVE, REVERSE, WIDTH, VECS, BLOCK>(
      y + blockIdx.x * n, n, x + blockIdx.x * stride, starts + blockIdx.x * starts_stride);
}
template <typename T, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_block_products(const T *x, T *y, long long n, long long stride) {
  scan_row<kw::Products, T, false, false, WIDTH, VECS, BLOCK>(y + blockIdx.x * n, n,
                                                              x + blockIdx.x * stride);
}
template <typename T, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_block_factors(const T *gy, const T *x, const T *y, T *gx, long long n, long long gy_stride,
                       long long x_stride, long long y_stride) {
  scan_row<kw::Factors, T, false, true, WIDTH, VECS, BLOCK>(
      gx + blockIdx.x * n, n, gy + blockIdx.x * gy_stride, x + blockIdx.x * x_stride,
      y + blockIdx.x * y_stride);
}
