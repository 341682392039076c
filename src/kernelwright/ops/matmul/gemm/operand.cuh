// How an operand of a product comes to shared memory: always as rows along k, so that what
// multiplies does not know how it lies in global memory.
#pragma once
#include "kw/async.cuh"
#include "kw/vec.cuh"

namespace matmul {

// How an operand lies in global memory. Its width is m, of a, or n, of b.
enum Order {
  kAlongK,       // neighbours along k: copied 4 bytes at a time, and turned on the way
  kAcross,       // neighbours along the width, of any alignment: 4 bytes at a time
  kAcrossBy16B,  // the same, of rows that are multiples of 16 bytes: 16 at a time
};

// A thread's part of copying tiles of WIDTH x DEPTH elements, one tile after the other along k.
// Outside the matrix along its width it copies the last element or vector instead, of which only
// elements outside c are made; outside along k it fills in zeros.
template <Order ORDER, int WIDTH, int DEPTH, int THREADS> struct Operand {
  // Threads along k store 132 or 260 values apart: 8 of them to different banks. With a DEPTH of 16
  // two share one; 8 x 4 threads would not, but touch twice the lines of memory, which costs more.
  static constexpr int kPitch = ORDER == kAlongK ? WIDTH + 4 : WIDTH;
  static constexpr int kFloats = DEPTH * kPitch;
  static constexpr int kVec = ORDER == kAcrossBy16B ? 4 : 1;
  static constexpr int kCopies = WIDTH * DEPTH / kVec / THREADS;
  static constexpr int kSpan = ORDER == kAlongK ? DEPTH : WIDTH / kVec;  // threads along memory
  static constexpr int kLines = THREADS / kSpan;  // lines of memory that one copy of all takes
  static_assert(kCopies * THREADS * kVec == WIDTH * DEPTH && kLines * kSpan == THREADS,
                "every thread copies as often");
  using Piece = kw::Vec<float, kVec>;

  const float *tile;         // in global memory, the next one
  long long step;            // from tile to tile
  unsigned offset[kCopies];  // from there
  int depth, place;          // along k and in shared memory, of the first copy

  // `first` along the width, of `width`; `line` from one line of memory to the next.
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

  // Start copying the next tile, of which `left` along k are inside.
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
