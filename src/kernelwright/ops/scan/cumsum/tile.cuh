// A block scans a tile: VECS vectors per thread, those of a warp contiguous.
#pragma once
#include "streams.cuh"

namespace kw {

template <int WIDTH, int VECS, int BLOCK> constexpr int kTile = WIDTH * VECS * BLOCK;

// Writes the results of the positions from `first` on. `before(total)`, which all threads call,
// takes the total of the tile and returns the total before the tile.
template <bool EXCLUSIVE, bool REVERSE, int WIDTH, int VECS, int BLOCK, typename Stream, typename T,
          typename Before>
__device__ __forceinline__ void scan_tile(Stream &in, T *y, long long first, long long n,
                                          const Before &before) {
  using Local = typename Stream::Local;
  using Carried = typename Stream::Carried;
  using L = typename Stream::L;
  using C = typename Stream::C;
  using State = typename Local::State;
  __shared__ State of_warps[BLOCK / 32];
  first += (threadIdx.x / 32 * VECS * 32 + threadIdx.x % 32) * WIDTH;
#pragma unroll
  for (int k = 0; k < VECS; ++k) in.load(k, first + k * (32 * WIDTH), n);
  State own[VECS];
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    State s = in.state(k, 0);
#pragma unroll
    for (int i = 1; i < WIDTH; ++i) s = Local::apply(s, in.state(k, i));
    own[k] = warp_scan<Local>(s);
  }
  State of_warp = Local::identity();
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const State total = shuffle(own[k], 31);
    own[k] = Local::apply(of_warp, before_lane<Local>(own[k]));
    of_warp = Local::apply(of_warp, total);
  }
  State total;
  const State warps = before_warp<Local, BLOCK / 32>(of_warp, of_warps, total);
  const auto start = Carried::apply(before(total), state_as<C>(warps));
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    in.forget(k);
    State s = state_as<L>(Carried::apply(start, state_as<C>(own[k])));
    Vec<T, WIDTH> out;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      if constexpr (EXCLUSIVE) out[i] = stored<T>(value_before(s, in.state(k, i)));
      s = Local::apply(s, in.state(k, i));
      if constexpr (!EXCLUSIVE) out[i] = in.result(s, k, i);
    }
    store_positions<REVERSE, WIDTH>(y, first + k * (32 * WIDTH), n, out);
  }
}

}  // namespace kw
