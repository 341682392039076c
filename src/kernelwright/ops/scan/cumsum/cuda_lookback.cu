// One launch: a tile adds the totals of its predecessors, read one after another.
//
// Idea: a block first publishes its tile's total, then adds those of the tiles before it, back to
// one that has published its running total, and publishes its own (decoupled look-back).
// Traffic: x read once, y written once; some 16 bytes per tile stay in L2.
// Compared with `cuda_three_pass`: no second read, and a block waits for the totals of its
// predecessors instead of for a launch.
// Limit: the order of additions depends on which predecessors have already published their running
// totals: the last bit of a floating-point result may differ from run to run.
#include <kw/launch.cuh>
#include <kw/look_back.cuh>

#include "tile.cuh"

template <int BLOCK> __global__ void scan_clear_words(kw::StateWord *words, long long n) {
  kw::let_next_launch_start();
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) words[i] = 0;
}

template <typename T, bool EXCLUSIVE, bool REVERSE, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scan_lookback(const T *x, kw::StateWord *words, T *y, long long n, long long tiles,
                  long long stride) {
  using In = kw::Sums<T, WIDTH, VECS, REVERSE>;
  using Carried = typename In::Carried;
  __shared__ typename Carried::State prefix;
  const long long row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  words += row * tiles * kw::kStateWords<typename Carried::State>;
  In in{x + row * stride};
  kw::scan_tile<EXCLUSIVE, REVERSE, WIDTH, VECS, BLOCK>(
      in, y + row * n, tile * kw::kTile<WIDTH, VECS, BLOCK>, n,
      [&](typename In::Local::State total) {
        if (threadIdx.x < 32) {
          kw::wait_for_launch_before();
          const auto before =
              kw::decoupled<Carried>(words, tile, kw::state_as<typename In::C>(total));
          if (threadIdx.x == 0) prefix = before;
        }
        __syncthreads();
        return prefix;
      });
}
