// One launch, deterministic: a tile always reads the same totals in the same order.
//
// Idea: the total before a tile is the sum of the tiles before it in its group of 32, of the groups
// before that in its group of 1,024 tiles, and of those groups. The last tile of a group publishes
// the group's total. A warp polls 32 words of each level at once.
// Traffic: x read once, y written once; some 16 bytes per tile stay in L2.
// Compared with `cuda_lookback`: the order of additions does not depend on timing, so results are
// bitwise identical, and there is no chain of blocks: three reads after a tile is done, its total
// has reached all later tiles.
// Limit: DRAM bandwidth, and the wait of a launch's last tiles for those before them.
#include <kw/launch.cuh>
#include <kw/look_back.cuh>

#include "tile.cuh"

template <int BLOCK> __global__ void scan_clear_words(kw::StateWord *words, long long n) {
  kw::let_next_launch_start();
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) words[i] = 0;
}

template <template <typename, int, int, bool> class Stream, typename T, bool EXCLUSIVE,
          bool REVERSE, int WIDTH, int VECS, int BLOCK, typename... Rows>
__device__ __forceinline__ void scan_of_tile(kw::StateWord *words, T *y, long long n, unsigned tile,
                                             unsigned tiles, Rows... rows) {
  using In = Stream<T, WIDTH, VECS, REVERSE>;
  using Carried = typename In::Carried;
  __shared__ typename Carried::State prefix;
  In in{rows...};
  kw::scan_tile<EXCLUSIVE, REVERSE, WIDTH, VECS, BLOCK>(
      in, y, (long long)tile * kw::kTile<WIDTH, VECS, BLOCK>, n,
      [&](typename In::Local::State total) {
        if (tiles == 1) return Carried::identity();
        if (threadIdx.x < 32) {
          kw::wait_for_launch_before();
          const auto before =
              kw::tree<Carried>(words, tile, tiles, kw::state_as<typename In::C>(total));
          if (threadIdx.x == 0) prefix = before;
        }
        __syncthreads();
        return prefix;
      });
}

// Words per row: a state for each tile, each group of 32 and each group of 1,024.
template <typename State> __device__ __forceinline__ long long words_of_row(long long tiles) {
  return (tiles + tiles / 32 + tiles / 1024) * kw::kStateWords<State>;
}

template <typename T, bool EXCLUSIVE, bool REVERSE, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    scan_tree_sums(const T *x, kw::StateWord *words, T *y, long long n, unsigned tiles,
                   long long stride) {
  const long long row = blockIdx.x / tiles;
  words += row * words_of_row<kw::carried_t<T>>(tiles);
  scan_of_tile<kw::Sums, T, EXCLUSIVE, REVERSE, WIDTH, VECS, BLOCK>(
      words, y + row * n, n, blockIdx.x % tiles, tiles, x + row * stride);
}
template <typename T, bool EXCLUSIVE, bool REVERSE, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_tree_segments(const T *x, const unsigned char *starts, kw::StateWord *words, T *y,
                       long long n, unsigned tiles, long long stride, long long starts_stride) {
  const long long row = blockIdx.x / tiles;
  words += row * words_of_row<kw::Segment<kw::carried_t<T>>>(tiles);
  scan_of_tile<kw::SegmentSums, T, EXCLUSIVE, REVERSE, WIDTH, VECS, BLOCK>(
      words, y + row * n, n, blockIdx.x % tiles, tiles, x + row * stride,
      starts + row * starts_stride);
}
template <typename T, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_tree_products(const T *x, kw::StateWord *words, T *y, long long n, unsigned tiles,
                       long long stride) {
  const long long row = blockIdx.x / tiles;
  words += row * words_of_row<kw::carried_t<T>>(tiles);
  scan_of_tile<kw::Products, T, false, false, WIDTH, VECS, BLOCK>(
      words, y + row * n, n, blockIdx.x % tiles, tiles, x + row * stride);
}
template <typename T, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_tree_factors(const T *gy, const T *x, const T *y, kw::StateWord *words, T *gx, long long n,
                      unsigned tiles, long long gy_stride, long long x_stride, long long y_stride) {
  const long long row = blockIdx.x / tiles;
  words += row * words_of_row<kw::Line<kw::carried_t<T>>>(tiles);
  scan_of_tile<kw::Factors, T, false, true, WIDTH, VECS, BLOCK>(
      words, gx + row * n, n, blockIdx.x % tiles, tiles, gy + row * gy_stride, x + row * x_stride,
      y + row * y_stride);
}
