// x weight^T for at most 64 rows of x on tensor cores: the rows of the weight are the rows of the
// instruction, those of x its columns, 8 at a time.
//
// The work is divided into units of 128 rows of the weight by 128 elements along k. Every block
// processes an equal number of consecutive units, so it may begin or end within a tile of 128 rows.
// If several blocks share a tile, each writes its sums to `partial`; the block that finishes last
// adds them in the order of the blocks, so that the result does not depend on which one that is.
#pragma once
#include "kw/async.cuh"
#include "kw/last_block.cuh"
#include "weights.cuh"

namespace few_rows {

constexpr int kPitch = kRows + 4;  // floats per column of sums in shared memory

// Units [first, last) of a block.
struct Share {
  int slices;  // units per tile
  long long total;

  __device__ __forceinline__ int begin(int block) const {
    return static_cast<int>(block * total / gridDim.x);
  }
  __device__ __forceinline__ int block_of(int unit) const {
    return static_cast<int>(((unit + 1ll) * gridDim.x - 1) / total);
  }
};

template <typename T, class WEIGHTS, int BLOCKS, int STAGES> struct FewRows {
  static constexpr int kColumns = 8 * BLOCKS;  // rows of x, in blocks of 8
  static constexpr int kBytesOfX = kColumns * kSlice * 2;
  static constexpr int kStage = WEIGHTS::kBytes + kBytesOfX;

  int m, n;
  float (*of_parts)[kColumns][kPitch];  // sums of the two halves of a slice
  float sums[2][BLOCKS][4] = {}, totals[2][BLOCKS][4] = {};

  static __device__ __forceinline__ int place_of_x(int row, int unit) {
    return row * (kSlice * 2) + 16 * (unit ^ (row & 1) << 2);
  }
  // Where this thread copies x to, and where its lane reads x in each step.
  int x_to, x_at[2];
  typename WEIGHTS::Lane lane;

  __device__ __forceinline__ FewRows(int m, int n, char *ring)
      : m(m),
        n(n),
        of_parts(reinterpret_cast<float (*)[kColumns][kPitch]>(ring + STAGES * kStage)),
        x_to(kept(place_of_x(threadIdx.x / 16, WEIGHTS::unit_of_x(threadIdx.x % 16)))),
        lane(threadIdx.x / 32 % 4 * 32, threadIdx.x / 128) {
    const int l = threadIdx.x % 32, half = threadIdx.x / 128;
    for (int j = 0; j < 2; j++) x_at[j] = kept(place_of_x(l / 4, 4 * (2 * half + j) + l % 4));
  }
  // Starts copying a slice of x: `from` is this thread's first unit, of which `deep` elements along
  // k are inside.
  __device__ __forceinline__ void copy_x(char *shared, const T *from, long long step,
                                         int deep) const {
    const int row = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < (kColumns + 15) / 16; i++)
      if (kColumns > 8 || row < 8)
        matmul::copy_async_16(shared + x_to + i * 16 * kSlice * 2, from + i * step,
                              deep > 0 && row + 16 * i < m ? 16 : 0);
  }
  __device__ __forceinline__ void multiply(const char *shared) {
    const char *of_x = shared + WEIGHTS::kBytes;
    Fragments of[2];
    lane.load(of[0], shared, 0);
    lane.load(of[1], shared, 1);
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
      for (int c = 0; c < BLOCKS; c++) {
        const uint4 b = *reinterpret_cast<const uint4 *>(of_x + x_at[j] + 8 * c * kSlice * 2);
#pragma unroll
        for (int t = 0; t < 2; t++) {
          const uint4 &low = of[t].low[j], &high = of[t].high[j];
          const unsigned first[4] = {low.x, high.x, low.y, high.y};
          const unsigned second[4] = {low.z, high.z, low.w, high.w};
          matmul::multiply_add<T>(sums[t][c], first, b.x, b.y);
          matmul::multiply_add<T>(sums[t][c], second, b.z, b.w);
        }
      }
    if constexpr (WEIGHTS::kScaled) scale(shared);
  }
  // Multiplies the sums over a group of the weight's elements by the scale of their row.
  __device__ __forceinline__ void scale(const char *shared) {
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float by = lane.scale(shared, 16 * t + 8 * h);
#pragma unroll
        for (int c = 0; c < BLOCKS; c++)
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; i++) {
            totals[t][c][i] = fmaf(by, sums[t][c][i], totals[t][c][i]);
            sums[t][c][i] = 0.0f;
          }
      }
  }
  // Writes every thread's sums to shared memory, and resets them to zero.
  __device__ __forceinline__ void hand_over() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
      for (int c = 0; c < BLOCKS; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float &v = WEIGHTS::kScaled ? totals[t][c][i] : sums[t][c][i];
          of_parts[warp / 4][8 * c + lane % 4 * 2 + i % 2]
                  [warp % 4 * 32 + 16 * t + lane / 4 + i / 2 * 8] = v;
          v = 0.0f;
        }
    __syncthreads();
  }
  // This thread's part of a tile: calls visit(i, row of x, four rows within the tile), where i is a
  // compile-time constant.
  static constexpr int kMine = kColumns * kRows / 4 / kThreads;
  template <class VISIT> __device__ __forceinline__ void each(const VISIT &visit) const {
#pragma unroll
    for (int i = 0; i < kMine; i++) {
      const int at = threadIdx.x + i * kThreads, r = at / (kRows / 4);
      if (r < m) visit(i, r, at % (kRows / 4) * 4);
    }
  }
  // The sum of both halves of a slice.
  __device__ __forceinline__ float4 sum(int r, int row) const {
    const float4 a = *reinterpret_cast<const float4 *>(&of_parts[0][r][row]);
    const float4 b = *reinterpret_cast<const float4 *>(&of_parts[1][r][row]);
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
  }
  template <class STORE>
  __device__ __forceinline__ void put(const STORE &store, const float4 &v, int row, int r) const {
    if (row < n) store(v.x, row, r, n);
    if (row + 1 < n) store(v.y, row + 1, r, n);
    if (row + 2 < n) store(v.z, row + 2, r, n);
    if (row + 3 < n) store(v.w, row + 3, r, n);
  }
};

// `ring`: dynamic shared memory. `partial`: two tiles of sums per block, for the tile within which
// it begins and the one within which it ends. `arrived`: one counter per tile, zero before and
// after the launch.
template <typename T, class WEIGHTS, int BLOCKS, int STAGES, class STORE>
__device__ __forceinline__ void few_rows(const WEIGHTS &weights, const T *x, long long x_line,
                                         char *ring, float *partial, unsigned *arrived, int m,
                                         int n, int k, const STORE &store) {
  using Work = FewRows<T, WEIGHTS, BLOCKS, STAGES>;
  Work work(m, n, ring);

  const int slices = (k + kSlice - 1) / kSlice, tiles = (n + kRows - 1) / kRows;
  const Share share{slices, static_cast<long long>(tiles) * slices};
  const int first = share.begin(blockIdx.x), last = share.begin(blockIdx.x + 1);
  // tile and slice of the unit that is copied next, and of the current one
  int to_tile = first / slices, to_slice = first - to_tile * slices;
  int tile = to_tile, slice = to_slice, left = last - first;
  auto cursor = weights.cursor(to_tile * kRows, to_slice * kSlice);
  const int deep = k - threadIdx.x % 16 * 8;
  const T *from_x = x + threadIdx.x / 16 * x_line + threadIdx.x % 16 * 8;
  const auto copy = [&](int slot) {
    if (left > 0) {
      char *to = ring + slot * Work::kStage;
      cursor.copy(to);
      work.copy_x(to + WEIGHTS::kBytes, from_x + to_slice * kSlice, 16 * x_line,
                  deep - to_slice * kSlice);
      left--, to_slice++;
      if (to_slice == slices) {
        to_slice = 0, to_tile++;
        cursor = weights.cursor(to_tile * kRows, 0);
      } else {
        cursor.next();
      }
    }
    kw::copy_async_commit();
  };
  const auto sums_of = [&](int block, bool at_its_end) {
    return partial + (2ll * block + at_its_end) * (Work::kColumns * kRows);
  };

#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) copy(i);
  int slot = 0, free = STAGES - 1;
  for (int unit = first; unit < last; unit++) {
    kw::copy_async_wait_all_but<STAGES - 2>();
    __syncthreads();  // this unit has arrived, and no thread uses the previous one
    copy(free);
    free = free + 1 == STAGES ? 0 : free + 1;
    work.multiply(ring + slot * Work::kStage);
    slot = slot + 1 == STAGES ? 0 : slot + 1;

    const bool ends = ++slice == slices;
    if (!ends && unit + 1 < last) continue;
    const int begin = unit + 1 - slice, end = begin + slices, top = tile * kRows;
    work.hand_over();
    if (begin >= first && ends) {
      work.each([&](int, int r, int row) { work.put(store, work.sum(r, row), top + row, r); });
    } else {
      float *mine = sums_of(blockIdx.x, begin >= first);
      work.each([&](int, int r, int row) {
        *reinterpret_cast<float4 *>(mine + r * kRows + row) = work.sum(r, row);
      });
      const int from = share.block_of(begin), to = share.block_of(end - 1);
      __syncthreads();
      if (kw::is_last_block(arrived + tile, to - from + 1)) {
        float4 totals[Work::kMine] = {};
#pragma unroll 2
        for (int block = from; block <= to; block++) {
          const float *theirs = sums_of(block, block == from);
          work.each([&](int i, int r, int row) {
            const float4 v = __ldcg(reinterpret_cast<const float4 *>(theirs + r * kRows + row));
            totals[i] = {totals[i].x + v.x, totals[i].y + v.y, totals[i].z + v.z,
                         totals[i].w + v.w};
          });
        }
        work.each([&](int i, int r, int row) { work.put(store, totals[i], top + row, r); });
      }
    }
    if (ends) slice = 0, tile++;
  }
}

}  // namespace few_rows
