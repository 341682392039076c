// Copies an operand of a product to shared memory, always as rows along k, so that the code that
// multiplies does not depend on the layout in global memory.
#pragma once
#include "kw/async.cuh"
#include "kw/vec.cuh"

namespace matmul {

// The layout of an operand in global memory. Its width is m for a, n for b.
enum Order {
  kAlongK,       // contiguous along k: copied 4 bytes at a time and transposed
  kAcross,       // contiguous along the width, any alignment: 4 bytes at a time
  kAcrossBy16B,  // the same with rows of multiples of 16 bytes: 16 at a time
};

// A thread's part of copying tiles of WIDTH x DEPTH elements, one after another along k. Outside
// the matrix along its width it copies the last element or vector instead, which contributes only
// to elements outside c; outside along k it writes zeros.
template <Order ORDER, int WIDTH, int DEPTH, int THREADS> struct Operand {
  // Threads along k store 132 or 260 values apart, 8 of them to different banks. With a DEPTH of 16
  // two of them share a bank; 8 x 4 threads would not, but would access twice as many lines of
  // memory, which costs more.
  static constexpr int kPitch = ORDER == kAlongK ? WIDTH + 4 : WIDTH;
  static constexpr int kFloats = DEPTH * kPitch;
  static constexpr int kVec = ORDER == kAcrossBy16B ? 4 : 1;
  static constexpr int kCopies = WIDTH * DEPTH / kVec / THREADS;
  static constexpr int kSpan = ORDER == kAlongK ? DEPTH : WIDTH / kVec;  // threads per line
  static constexpr int kLines = THREADS / kSpan;  // lines of memory per copy of all threads
  static_assert(kCopies * THREADS * kVec == WIDTH * DEPTH && kLines * kSpan == THREADS,
                "every thread copies as often");
  using Piece = kw::Vec<float, kVec>;

  const float *tile;         // the next tile in global memory
  long long step;            // between tiles
  unsigned offset[kCopies];  // relative to the tile
  int depth, place;          // along k and in shared memory, of the first copy

  // `first`: the first element along the width, of `width`; `line`: distance of lines of memory.
  __device__ __forceinline__ Operand(const float *p, long long line, int first, int width) {
    const int along = threadIdx.x % kSpan, across = threadIdx.x / kSpan;
    const int last = width - first - kVec;
    if constexpr (ORDER == kAlongK) {
      tile = p + first * line, step = DEPTH;
      depth = along, place = along * kPitch + across;
#pragma unroll
      for (int i = 0; i < kCopies; i++)
        offset[i] = min(across + i * kLines, last) * static_cast<unsigned>(line) + along;
    } else {
      tile = p + first, step = DEPTH * line;
      depth = across, place = across * kPitch + along * kVec;
#pragma unroll
      for (int i = 0; i < kCopies; i++)
        offset[i] = (across + i * kLines) * static_cast<unsigned>(line) + min(along * kVec, last);
    }
  }

  // Starts copying the next tile, of which `left` elements along k are inside.
  __device__ __forceinline__ void copy(float *shared, int left) {
    if (left >= DEPTH) {
#pragma unroll
      for (int i = 0; i < kCopies; i++) start(shared, i);
    } else {
#pragma unroll
      for (int i = 0; i < kCopies; i++) {
        if (depth + (ORDER == kAlongK ? 0 : i * kLines) < left)
          start(shared, i);
        else
          *to(shared, i) = Piece{};
      }
    }
    tile += step;
  }

 private:
  __device__ __forceinline__ Piece *to(float *shared, int i) const {
    return reinterpret_cast<Piece *>(shared + place + i * kLines * (ORDER == kAlongK ? 1 : kPitch));
  }
  __device__ __forceinline__ void start(float *shared, int i) const {
    kw::copy_async(to(shared, i), reinterpret_cast<const Piece *>(tile + offset[i]));
  }
};

}  // namespace matmul
