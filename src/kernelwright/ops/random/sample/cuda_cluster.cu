// A row in the registers and the shared memory of a cluster.
//
// Idea: as `cuda_block`, but the blocks of a cluster share a row. A thread keeps its vectors, the
// first of them in registers, the others in shared memory, where only it reads them. The blocks
// exchange the results of a pass through distributed shared memory, one word per block.
// Traffic: the row once from DRAM.
// Compared with `cuda_block`: passes cost only instructions, and few rows use more of the GPU.
// Limit: exchanges between passes for few rows, instructions for many. Rows must fit in eight
// blocks; compute capability 9.0 is required.
#include "rejection.cuh"

namespace kw {
// The smallest number of T that is not below x.
template <typename T> __device__ __forceinline__ T not_below(float x) {
  T y = from_float<T>(x);
  if (to_float(y) >= x) return y;
  unsigned short bits;
  memcpy(&bits, &y, 2);
  bits = to_float(y) == 0 ? 1 : bits >> 15 ? bits - 1 : bits + 1;
  memcpy(&y, &bits, 2);
  return y;
}
}  // namespace kw

constexpr int kInRegisters = 2;  // vectors per thread; more would be spilled

template <typename T, int VECS, int THREADS, int BLOCKS> struct KeptRow {
  static constexpr int kWidth = kw::kVecWidth<T>;
  static constexpr int kFew = VECS < kInRegisters ? VECS : kInRegisters;
  using Piece = kw::Vec<T, kWidth>;
  using Values = const float (&)[kWidth];
  const T *row;
  Piece *rest;  // the thread's vectors in shared memory
  Piece kept[kFew];

  __device__ __forceinline__ void load(int columns, bool aligned) {
#pragma unroll
    for (int v = 0; v < kFew; ++v) kept[v] = kw::load_logits(row, place(v), columns, aligned);
#pragma unroll 4
    for (int v = kFew; v < VECS; ++v)
      rest[(v - kFew) * THREADS] = kw::load_logits(row, place(v), columns, aligned);
    change([](float x) { return kw::logit(x); });
  }
  template <typename F> __device__ __forceinline__ void each(const F &f) const {
    pieces([&](int v, const Piece &piece) {
      float x[kWidth];
      kw::to_float(piece, x);
      f(place(v), x);
    });
  }
  // 16-bit types are compared in pairs, giving 1 or 0 each; their sums are exact up to 256.
  template <int N>
  __device__ __forceinline__ void count(const float (&pivot)[N], unsigned (&found)[N]) const {
    if constexpr (sizeof(T) == 2) {
      using Two = typename kw::Pair<T>::type;
      Two least[N], sum[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        least[j].x = least[j].y = kw::not_below<T>(pivot[j]);
        sum[j] = kw::Pair<T>::from(0.0f, 0.0f);
      }
      pieces([&](int, const Piece &piece) {
#pragma unroll
        for (int i = 0; i < kWidth; i += 2) {
          Two x;
          memcpy(&x, &piece.v[i], 4);
#pragma unroll
          for (int j = 0; j < N; ++j) sum[j] = __hadd2(sum[j], __hge2(x, least[j]));
        }
      });
#pragma unroll
      for (int j = 0; j < N; ++j)
        found[j] += unsigned(kw::to_float(sum[j].x) + kw::to_float(sum[j].y));
    } else {
      each([&](int, Values x) {
        for (const float one : x)
#pragma unroll
          for (int j = 0; j < N; ++j) found[j] += one >= pivot[j];
      });
    }
  }
  __device__ __forceinline__ float at(unsigned col) const {
    return kw::logit(kw::to_float(row[col]));
  }
  __device__ __forceinline__ void keep_infinities() {
    change([](float x) { return x == kw::kInfinity ? 0.0f : -kw::kInfinity; });
  }

 private:
  static __device__ __forceinline__ int place(int v) {
    return ((blockIdx.x % BLOCKS * VECS + v) * THREADS + threadIdx.x) * kWidth;
  }
  template <typename F> __device__ __forceinline__ void pieces(const F &f) const {
#pragma unroll
    for (int v = 0; v < kFew; ++v) f(v, kept[v]);
#pragma unroll 1
    for (int v = kFew; v < VECS; ++v) f(v, rest[(v - kFew) * THREADS]);
  }
  template <typename F> __device__ __forceinline__ void change(const F &f) {
    const auto one = [&](Piece &piece) {
      float x[kWidth];
      kw::to_float(piece, x);
#pragma unroll
      for (float &each : x) each = f(each);
      piece = kw::from_float<T>(x);
    };
#pragma unroll
    for (int v = 0; v < kFew; ++v) one(kept[v]);
#pragma unroll 1
    for (int v = kFew; v < VECS; ++v) one(rest[(v - kFew) * THREADS]);
  }
};

template <typename T, int VECS, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS)
    sample_cluster(const T *logits, const long long *state, const float *each, long long *token,
                   int columns, long long stride, int aligned, float temperature, float top_k,
                   float top_p, float min_p) {
  extern __shared__ uint4 dynamic_shared[];
  using Row = KeptRow<T, VECS, THREADS, BLOCKS>;
  using Team = kw::Team<THREADS / 32, BLOCKS>;
  __shared__ typename Team::Shared shared;
  Team team(shared);
  const long long row = blockIdx.x / BLOCKS;
  Row x;
  x.row = logits + row * stride;
  x.rest = reinterpret_cast<typename Row::Piece *>(dynamic_shared) + threadIdx.x;
  x.load(columns, aligned);
  const kw::How how = kw::how_of(each, row, {temperature, top_k, top_p, min_p});
  const kw::Stream stream(state);
  team.ready();
  const long long found = kw::draw_token<T>(x, team, stream, row, how, unsigned(columns));
  if (threadIdx.x == 0 && blockIdx.x % BLOCKS == 0) token[row] = found;
}
