// Sums over rows in one launch, in an order that never changes. Blocks go down strips of columns, a
// thread's next rows on their way while one is in work; what each has added up it hands over to the
// last block of its strip. It starts last, since blocks start in the order of their numbers: that
// is how GPUs do it, not a promise of CUDA's.
#pragma once
#include "kw/async.cuh"
#include "kw/flagged.cuh"
#include "kw/parts.cuh"
#include "kw/vec.cuh"

namespace kw {

// No word of 32 bits goes with a row of a thread's columns. Where one does, at(row) is its address.
struct NoWords {
  static constexpr bool kAny = false;
};

// A thread of a block of (32, DOWN) goes down 16 bytes of columns, which begin at `in` of each of
// TENSORS and have `rows`; the blocks of a column of the grid go down side by side. STAGES rows are
// on their way to slots of the thread's own, each filled again as soon as it is read.
template <typename T, int TENSORS, int DOWN, int STAGES, typename Words = NoWords> struct Descent {
  static constexpr int N = kVecWidth<T>;
  using Piece = Vec<T, N>;
  const T *in[TENSORS];
  long long stride[TENSORS];
  unsigned row = blockIdx.y * DOWN + threadIdx.y, step = gridDim.y * DOWN, rows;
  Words words;
  Piece *slots;          // the thread's, of the first stage and tensor
  unsigned *word_slots;  // of the first stage

  // The first rows set off; what is done between this and `go` is done while they come.
  __device__ __forceinline__ Descent(const T *const (&in_)[TENSORS],
                                     const long long (&stride_)[TENSORS], unsigned rows_,
                                     Words words_ = {})
      : rows(rows_), words(words_) {
    __shared__ Piece of_block[STAGES][TENSORS][DOWN][32];
    __shared__ unsigned words_of_block[Words::kAny ? STAGES : 1][DOWN][32];
    slots = &of_block[0][0][threadIdx.y][threadIdx.x];
    word_slots = &words_of_block[0][threadIdx.y][threadIdx.x];
#pragma unroll
    for (int j = 0; j < TENSORS; ++j) in[j] = in_[j], stride[j] = stride_[j];
#pragma unroll
    for (int k = 0; k < STAGES; ++k) fetch(k, row + k * step);
  }

  // each(row, floats of each tensor, the word)
  template <typename Each> __device__ __forceinline__ void go(const Each &each) {
#pragma unroll 1
    for (int stage = 0; row < rows; row += step, stage = stage + 1 < STAGES ? stage + 1 : 0) {
      copy_async_wait_all_but<STAGES - 1>();
      float f[TENSORS][N];
#pragma unroll
      for (int j = 0; j < TENSORS; ++j) to_float(*slot(stage, j), f[j]);
      const unsigned word = Words::kAny ? word_slots[stage * DOWN * 32] : 0;
      fetch(stage, row + STAGES * step);
      each(row, f, word);
    }
  }

 private:
  __device__ __forceinline__ Piece *slot(int stage, int j) const {
    return slots + (stage * TENSORS + j) * DOWN * 32;
  }
  __device__ __forceinline__ void fetch(int stage, unsigned row) const {
#pragma unroll
    for (int j = 0; j < TENSORS; ++j)
      if (row < rows)
        copy_async(slot(stage, j), reinterpret_cast<const Piece *>(in[j] + row * stride[j]));
    if constexpr (Words::kAny)
      if (row < rows) copy_async(word_slots + stage * DOWN * 32, words.at(row));
    copy_async_commit();
  }
};

// The sums of a strip, which the blocks of a column of the grid share, to `total`, whose columns
// from `col` on are the thread's, if they are `inside`. The last of the blocks, which starts last,
// adds what the others hand over; `handed` holds WIDTH for each thread of a row of threads of each
// block.
template <int DOWN, int WIDTH, typename T>
__device__ __forceinline__ void add_strip(float (&sum)[WIDTH], Flagged *handed, T *total, int col,
                                          bool inside) {
  __shared__ float sums[DOWN][32 * WIDTH];
  const auto of_block = [&](unsigned block) {
    return handed + (block * static_cast<long long>(gridDim.x) + blockIdx.x) * (32 * WIDTH) +
           threadIdx.x;
  };
  const unsigned collector = gridDim.y - 1;
  if (blockIdx.y != collector) {
    add_block(sum, sums, [&](int i, float x) { publish(of_block(blockIdx.y) + i * 32, x); });
    return;
  }
  for (unsigned block = threadIdx.y; block < collector; block += DOWN) {
    float x[WIDTH];
    take_all(of_block(block), 32, x);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum[i] += x[i];
  }
  add_block(sum, sums, [&](int i, float x) {
    if (inside) total[col + i] = from_float<T>(x);
  });
}

}  // namespace kw
