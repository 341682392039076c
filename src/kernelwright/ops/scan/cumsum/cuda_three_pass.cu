// Many blocks per row, in three launches: totals of tiles, a scan of these, the tiles.
//
// Idea: reduce, then scan. scan_totals adds up each tile; one block per row scans the totals in
// order; scan_from then scans each tile, starting from the total of the tiles before it.
// Deterministic.
// Traffic: x read twice, y written once: three accesses where two would suffice.
// Compared with `cuda_block`: the tiles of a row are distributed over the whole GPU.
// Limit: the second read, which limits the rung to two thirds of the speed of a copy, unless L2
// serves it.
#include "tile.cuh"

template <typename T, bool REVERSE, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_totals(const T *x, kw::carried_t<T> *totals, long long n, long long tiles,
                long long stride) {
  using L = kw::local_t<T>;
  __shared__ L of_warps[BLOCK / 32];
  const long long row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  kw::Sums<T, WIDTH, VECS, REVERSE> in{x + row * stride};
  const long long first = tile * kw::kTile<WIDTH, VECS, BLOCK> + threadIdx.x * WIDTH;
  L sum = 0;
#pragma unroll
  for (int k = 0; k < VECS; ++k) in.load(k, first + k * (BLOCK * WIDTH), n);
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    L of_vector = 0;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) of_vector += in.state(k, i);
    sum += of_vector;
  }
  L total;
  sum = kw::shuffle(kw::warp_scan<kw::Adding<L>>(sum), 31);
  kw::before_warp<kw::Adding<L>, BLOCK / 32>(sum, of_warps, total);
  if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

// In place: the total before each tile of a row.
template <typename C, int BLOCK>
__global__ void __launch_bounds__(BLOCK) scan_of_totals(C *totals, long long tiles) {
  using Op = kw::Adding<C>;
  __shared__ C of_warps[BLOCK / 32];
  totals += blockIdx.x * tiles;
  C carried = 0;
  for (long long i = threadIdx.x; i - threadIdx.x < tiles; i += BLOCK) {
    const C sum = kw::warp_scan<Op>(i < tiles ? totals[i] : C(0));
    C total;
    const C warps = kw::before_warp<Op, BLOCK / 32>(kw::shuffle(sum, 31), of_warps, total);
    const C lanes = kw::before_lane<Op>(sum);
    if (i < tiles) totals[i] = carried + (warps + lanes);
    carried += total;
    __syncthreads();
  }
}

template <typename T, bool EXCLUSIVE, bool REVERSE, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK) scan_from(const T *x, const kw::carried_t<T> *before, T *y,
                                                   long long n, long long tiles, long long stride) {
  const long long row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  kw::Sums<T, WIDTH, VECS, REVERSE> in{x + row * stride};
  kw::scan_tile<EXCLUSIVE, REVERSE, WIDTH, VECS, BLOCK>(
      in, y + row * n, tile * kw::kTile<WIDTH, VECS, BLOCK>, n,
      [&](kw::local_t<T>) { return before[blockIdx.x]; });
}
