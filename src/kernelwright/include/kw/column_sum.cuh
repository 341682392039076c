// Column sums in one launch, added in a fixed order. Each block sums part of the rows of a strip of
// columns, with a thread's next rows prefetched by asynchronous copies, and passes its partial sums
// to the last block of the strip through flagged words. That block waits for the others, so it must
// not start before them: GPUs start blocks in the order of their indices, but CUDA does not
// guarantee it.
#pragma once
#include "kw/async.cuh"
#include "kw/flagged_value.cuh"
#include "kw/parts.cuh"
#include "kw/vec.cuh"

namespace kw {

// For operators in which no 32-bit word belongs to a thread's columns of a row. Where one does,
// at(row) is its address.
struct NoWords {
  static constexpr bool kAny = false;
};

// Reads 16 bytes of columns per thread, row by row, in blocks of (32, DOWN) threads. The columns
// begin at `in[j]` in each of TENSORS tensors and have `rows` rows, which the blocks of a grid
// column share. STAGES rows are in flight to shared memory slots that belong to one thread each; a
// slot is refilled as soon as it has been read, so no barrier is needed.
template <typename T, int TENSORS, int DOWN, int STAGES, typename Words = NoWords>
struct ColumnReader {
  static constexpr int N = kVecWidth<T>;
  using Piece = Vec<T, N>;
  const T *in[TENSORS];
  long long stride[TENSORS];
  unsigned row = blockIdx.y * DOWN + threadIdx.y, step = gridDim.y * DOWN, rows;
  Words words;
  Piece *slots;          // the thread's slots of the first stage and tensor
  unsigned *word_slots;  // the thread's words of the first stage

  // Starts the copies of the first rows; work between this and `for_each_row` overlaps with them.
  __device__ __forceinline__ ColumnReader(const T *const (&in_)[TENSORS],
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

  // Calls each(row, floats of each tensor, the word) for every row.
  template <typename Each> __device__ __forceinline__ void for_each_row(const Each &each) {
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

// Adds the partial sums of a strip of columns over the blocks of a grid column and stores the
// result to `total` from column `col` on (the thread's columns, if they are `inside`). The block
// with the highest blockIdx.y collects the values that the others publish. `handed` holds 32 *
// WIDTH words per block, which are zero before and after the launch.
template <int DOWN, int WIDTH, typename T>
__device__ __forceinline__ void column_sum(float (&sum)[WIDTH], FlaggedValue *handed, T *total,
                                           int col, bool inside) {
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
