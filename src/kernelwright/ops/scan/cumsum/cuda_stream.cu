// Blocks that stay: a block's next tile is on its way while it waits for what comes before this
// one.
//
// Idea: as many blocks as the GPU holds take tiles by a ticket. When a block has its tile in
// registers, it starts the copies of the next one to shared memory, each thread its own vectors,
// and only then looks for the totals of the tiles before, in `cuda_tree`'s order.
// Traffic: that of `cuda_tree`. Over it: loads are in flight during the wait, the scan and the
// stores, and no block is started per tile.
// Limit: DRAM; rows whose vectors are 16 bytes, aligned. A tile waits for smaller tickets alone,
// whose blocks run, so no order of blocks is assumed.
#include <kw/async.cuh>
#include <kw/launch.cuh>
#include <kw/look_back.cuh>

#include "tile.cuh"

template <int BLOCK> __global__ void scan_clear_words(kw::StateWord *words, long long n) {
  kw::let_next_launch_start();
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) words[i] = 0;
}

// The vectors that a thread has copied to its slots.
template <typename T, int WIDTH, int VECS, bool REVERSE, int BLOCK>
struct Copied : kw::Sums<T, WIDTH, VECS, REVERSE> {
  kw::Vec<T, WIDTH> *slots;

  __device__ __forceinline__ void fetch(int k, const T *row, long long p, long long n) const {
    if (p + WIDTH <= n)
      kw::copy_async(slots + k * BLOCK, reinterpret_cast<const kw::Vec<T, WIDTH> *>(
                                            row + (REVERSE ? n - WIDTH - p : p)));
  }
  __device__ __forceinline__ void load(int k, long long p, long long n) {
    if (p + WIDTH > n) {
      this->v[k] = kw::load_positions<REVERSE, WIDTH>(this->x, p, n);
      return;
    }
    const kw::Vec<T, WIDTH> raw = slots[k * BLOCK];
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) this->v[k][i] = raw[REVERSE ? WIDTH - 1 - i : i];
  }
};

// `words`: as in `cuda_tree`, and one more, the next ticket.
template <typename T, bool EXCLUSIVE, bool REVERSE, int WIDTH, int VECS, int BLOCK>
__global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    scan_stream(const T *x, kw::StateWord *words, T *y, long long n, unsigned rows, unsigned tiles,
                long long stride) {
  using In = Copied<T, WIDTH, VECS, REVERSE, BLOCK>;
  using Carried = typename In::Carried;
  __shared__ kw::Vec<T, WIDTH> slots[VECS * BLOCK];
  __shared__ typename Carried::State prefix;
  __shared__ unsigned tickets[2];
  const unsigned all = rows * tiles;
  const long long of_row =
      (tiles + tiles / 32 + tiles / 1024) * (long long)kw::kStateWords<typename Carried::State>;
  const long long lane = (threadIdx.x / 32 * VECS * 32 + threadIdx.x % 32) * WIDTH;
  In in;
  in.slots = slots + threadIdx.x;
  const auto fetch = [&](unsigned ticket) {
    if (ticket < all)
#pragma unroll
      for (int k = 0; k < VECS; ++k)
        in.fetch(k, x + ticket / tiles * stride,
                 ticket % tiles * (long long)kw::kTile<WIDTH, VECS, BLOCK> + lane + k * 32 * WIDTH,
                 n);
    kw::copy_async_commit();
  };
  kw::wait_for_launch_before();
  unsigned *counter = reinterpret_cast<unsigned *>(words + rows * of_row);
  unsigned ahead = 0;  // of thread 0: the ticket after the next
  if (threadIdx.x == 0) tickets[0] = atomicAdd(counter, 1u), ahead = atomicAdd(counter, 1u);
  __syncthreads();
  unsigned ticket = tickets[0];
  fetch(ticket);
  while (ticket < all) {
    if (threadIdx.x == 0) tickets[1] = ahead, ahead = atomicAdd(counter, 1u);
    const long long row = ticket / tiles;
    const unsigned tile = ticket % tiles;
    in.x = x + row * stride;
    kw::copy_async_wait_all_but<0>();
    kw::scan_tile<EXCLUSIVE, REVERSE, WIDTH, VECS, BLOCK>(
        in, y + row * n, tile * (long long)kw::kTile<WIDTH, VECS, BLOCK>, n,
        [&](typename In::Local::State total) {
          fetch(tickets[1]);
          if (threadIdx.x < 32) {
            const auto before = kw::tree<Carried>(words + row * of_row, tile, tiles,
                                                  kw::state_as<typename In::C>(total));
            if (threadIdx.x == 0) prefix = before;
          }
          __syncthreads();
          ticket = tickets[1];
          return prefix;
        });
    __syncthreads();  // the next tile writes what this one reads
  }
}
