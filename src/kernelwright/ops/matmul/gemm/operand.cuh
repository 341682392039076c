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
  static constexpr bool kTurned = ORDER == kAlongK;
  static constexpr int kPitch = kTurned ? WIDTH + 4 : WIDTH;
  static constexpr int kFloats = DEPTH * kPitch;
  static constexpr int kVec = ORDER == kAcrossBy16B ? 4 : 1;
  static constexpr int kCopies = WIDTH * DEPTH / kVec / THREADS;
  // Threads side by side take neighbours in memory: a line of a tile, or of a turned one the 32
  // bytes that memory gives at least; so a warp's 8 x 4 values go to 32 different banks.
  static constexpr int kSpan = kTurned ? 8 : WIDTH / kVec;
  static constexpr int kLines = THREADS / kSpan;              // that one copy of all threads takes
  static constexpr int kSpans = kTurned ? DEPTH / kSpan : 1;  // one after the other
  static_assert(kCopies * THREADS * kVec == WIDTH * DEPTH && kLines * kSpan == THREADS &&
                    kCopies % kSpans == 0,
                "every thread copies as often");
  using Piece = kw::Vec<float, kVec>;

  const float *tile;                  // in global memory, the next one
  long long step;                     // from tile to tile
  unsigned offset[kCopies / kSpans];  // from there, of the first span
  int depth, place;                   // along k and in shared memory, of the first copy

  // `first` along the width, of `width`; `line` from one line of memory to the next.
  __device__ __forceinline__ Operand(const float *p, long long line, int first, int width) {
    const int along = threadIdx.x % kSpan, across = threadIdx.x / kSpan;
    const int last = width - first - kVec;
    tile = kTurned ? p + first * line : p + first;
    step = kTurned ? DEPTH : DEPTH * line;
    depth = kTurned ? along : across;
    place = kTurned ? along * kPitch + across : across * kPitch + along * kVec;
#pragma unroll
    for (int i = 0; i < kCopies / kSpans; i++) {
      const int there = across + i * kLines;
      offset[i] = kTurned ? min(there, last) * static_cast<unsigned>(line) + along
                          : there * static_cast<unsigned>(line) + min(along * kVec, last);
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
        if (depth + (kTurned ? i % kSpans * kSpan : i * kLines) < left)
          start(shared, i);
        else
          *to(shared, i) = Piece{};
      }
    }
    tile += step;
  }

 private:
  __device__ __forceinline__ Piece *to(float *shared, int i) const {
    const int further =
        kTurned ? i / kSpans * kLines + i % kSpans * kSpan * kPitch : i * kLines * kPitch;
    return reinterpret_cast<Piece *>(shared + place + further);
  }
  __device__ __forceinline__ void start(float *shared, int i) const {
    const float *from = tile + offset[i / kSpans] + i % kSpans * kSpan;
    kw::copy_async(to(shared, i), reinterpret_cast<const Piece *>(from));
  }
};

}  // namespace matmul
