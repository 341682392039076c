// Tensor cores, programmed by their instructions.
//
// Idea: mma.sync, whose fragments are documented, so that ldmatrix can load four 8 x 8 blocks at
// once from tiles in the order of global memory, transposed if needed: any order of operands is
// supported. The position of 16-byte units depends on their row (c ^ row % 8), so that eight rows
// of a column are in different banks without padding. A ring of tiles is filled ahead by cp.async,
// which also writes zeros past the edge; the next fragments are loaded while the current ones are
// multiplied.
// Traffic: as `cuda_tuned`, with 16-bit types.
// Compared with `cuda_wmma`: a quarter of the loads, no bank conflicts, no detour through shared
// memory.
// Limit: mma.sync itself. A Hopper multiprocessor is nearly twice as fast with wgmma.
#include "kw/async.cuh"
#include "mma.cuh"
#include "tile_of.cuh"

constexpr int kDepth = 64;

// An operand in tiles of WIDTH x kDepth, whose lines in shared memory are along k or across it. A
// thread copies one 16-byte unit of every kStep-th line.
template <typename T, bool ALONG_K, int WIDTH, int THREADS> struct Operand {
  static constexpr int kLine = ALONG_K ? kDepth : WIDTH, kLines = ALONG_K ? WIDTH : kDepth;
  static constexpr int kUnits = kLine / 8, kStep = THREADS / kUnits, kBytes = 2 * WIDTH * kDepth;
  static_assert(kStep % 8 == 0 && kLines % kStep == 0, "all its units change places alike");

  const int line = threadIdx.x / kUnits, unit = threadIdx.x % kUnits;
  const T *from;         // in the next tile
  const long long next;  // distance of lines
  const int wide;        // elements of the width inside the matrix

  static __device__ __forceinline__ int place(int line, int unit) {
    return 2 * kLine * line + 16 * (unit ^ line % 8);
  }
  __device__ __forceinline__ Operand(const T *p, long long next, int first, int width)
      : from(p + (ALONG_K ? first * next : first) + line * next + 8 * unit),
        next(next),
        wide(width - first) {}

  // Starts copying the next tile, of which `deep` elements along k are inside.
  __device__ __forceinline__ void copy(char *shared, int deep) {
    const int lines = (ALONG_K ? wide : deep) - line, along = (ALONG_K ? deep : wide) - 8 * unit;
    const int bytes = 2 * max(min(along, 8), 0);
    char *to = shared + place(line, unit);
#pragma unroll
    for (int i = 0; i < kLines; i += kStep)
      matmul::copy_async_16(to + 2 * kLine * i, from + i * next, i < lines ? bytes : 0);
    from += ALONG_K ? kDepth : kDepth * next;
  }
  // Loads 16 (from `across` on) x 16 (from `i` on) elements as fragments: blocks of 8 x 8 in the
  // order (0, 0), (8, 0), (0, 8), (8, 8) of (across, k) if ACROSS_FIRST, else (0, 0), (0, 8), ...
  template <bool ACROSS_FIRST>
  static __device__ __forceinline__ void load(unsigned (&x)[4], const char *shared, int across,
                                              int i) {
    const int lane = threadIdx.x % 32, row = lane % 8, second = lane / 8 % 2, third = lane / 16;
    const int w = ACROSS_FIRST ? second : third, d = ACROSS_FIRST ? third : second;
    const int line = ALONG_K ? across + 8 * w + row : i + 8 * d + row;
    const int unit = ALONG_K ? i / 8 + d : across / 8 + w;
    matmul::load_matrices<!ALONG_K>(x, shared + place(line, unit));
  }
};

template <typename T, bool A_ALONG_K, bool B_ALONG_K, int ROWS, int COLS, int WARP_ROWS,
          int WARP_COLS, int STAGES>
__global__ void __launch_bounds__(32 * (ROWS / WARP_ROWS) * (COLS / WARP_COLS))
    matmul_mma(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int n,
               int k, long long a_line, long long b_line, long long a_next, long long b_next) {
  constexpr int kThreads = 32 * (ROWS / WARP_ROWS) * (COLS / WARP_COLS);
  constexpr int kOfA = WARP_ROWS / 16, kOfB = WARP_COLS / 16;
  using A = Operand<T, A_ALONG_K, ROWS, kThreads>;
  using B = Operand<T, B_ALONG_K, COLS, kThreads>;
  extern __shared__ uint4 dynamic_shared[];
  char *a_tiles = reinterpret_cast<char *>(dynamic_shared), *b_tiles = a_tiles + STAGES * A::kBytes;

  const int down = (m + ROWS - 1) / ROWS, across = (n + COLS - 1) / COLS;
  const int nth = blockIdx.x / (down * across);
  const int2 tile = matmul::tile_of(blockIdx.x % (down * across), down, across);
  const int top = tile.x * ROWS, left = tile.y * COLS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int y = warp / (COLS / WARP_COLS) * WARP_ROWS, x = warp % (COLS / WARP_COLS) * WARP_COLS;

  A from_a(a + nth * a_next, a_line, top, m);
  B from_b(b + nth * b_next, b_line, left, n);
  const auto copy = [&](int slot, int first) {
    if (first < k) {
      from_a.copy(a_tiles + slot * A::kBytes, k - first);
      from_b.copy(b_tiles + slot * B::kBytes, k - first);
    }
    kw::copy_async_commit();
  };
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) copy(i, i * kDepth);

  unsigned of_a[2][kOfA][4], of_b[2][kOfB][4];
  const auto load = [&](int to, int slot, int i) {
#pragma unroll
    for (int r = 0; r < kOfA; r++)
      A::template load<true>(of_a[to][r], a_tiles + slot * A::kBytes, y + 16 * r, i);
#pragma unroll
    for (int s = 0; s < kOfB; s++)
      B::template load<false>(of_b[to][s], b_tiles + slot * B::kBytes, x + 16 * s, i);
  };
  kw::copy_async_wait_all_but<STAGES - 2>();
  __syncthreads();
  load(0, 0, 0);

  float sums[kOfA][2 * kOfB][4] = {};
  int slot = 0, free = STAGES - 1;
  for (int first = 0; first < k; first += kDepth) {
#pragma unroll
    for (int i = 0; i < kDepth / 16; i++) {
      if (i == kDepth / 16 - 1) {
        kw::copy_async_wait_all_but<STAGES - 2>();
        __syncthreads();  // next tiles have arrived, last fragments are loaded
        slot = slot + 1 == STAGES ? 0 : slot + 1;
      }
      load((i + 1) % 2, slot, (i + 1) % (kDepth / 16) * 16);
      if (i == 0) {
        copy(free, first + (STAGES - 1) * kDepth);
        free = free + 1 == STAGES ? 0 : free + 1;
      }
#pragma unroll
      for (int r = 0; r < kOfA; r++)
#pragma unroll
        for (int s = 0; s < 2 * kOfB; s++)
          matmul::multiply_add<T>(sums[r][s], of_a[i % 2][r], of_b[i % 2][s / 2][s % 2 * 2],
                                  of_b[i % 2][s / 2][s % 2 * 2 + 1]);
    }
  }

  c += static_cast<long long>(nth) * m * n;
#pragma unroll
  for (int r = 0; r < 2 * kOfA; r++) {
    const int row = top + y + 8 * r + lane / 4;
#pragma unroll
    for (int s = 0; s < 2 * kOfB; s++) {
      const int col = left + x + 8 * s + lane % 4 * 2;
      T *to = c + static_cast<long long>(row) * n + col;
      const float v0 = sums[r / 2][s][r % 2 * 2], v1 = sums[r / 2][s][r % 2 * 2 + 1];
      if (row < m && col + 1 < n && n % 2 == 0) {
        const auto pair = kw::Pair<T>::from(v0, v1);
        *reinterpret_cast<typename kw::Pair<T>::type *>(to) = pair;
      } else if (row < m) {
        if (col < n) to[0] = kw::from_float<T>(v0);
        if (col + 1 < n) to[1] = kw::from_float<T>(v1);
      }
    }
  }
}
