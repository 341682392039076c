// What a warp keeps in registers: its queries, and softmax-weighted sums of values.
#pragma once
#include "kw/vec.cuh"
#include "merge.cuh"
#include "operands.cuh"

namespace split {

// ELEMENTS of a cache, heads of D (keys) and DV (values), GROUPS of 8 queries. A warp takes KEYS at
// a time, a multiple of 16, and copies STAGES times as many ahead.
template <typename T_, class ELEMENTS, int D_, int DV_, int GROUPS, int WARPS, int STAGES, int KEYS>
struct Shape {
  using T = T_;
  using Elements = ELEMENTS;
  using Operand = typename Elements::Operand;
  static constexpr int kD = D_, kDv = DV_, kGroups = GROUPS, kQueries = 8 * GROUPS;
  static constexpr int kWarps = WARPS, kStages = STAGES, kKeys = KEYS, kTiles = KEYS / 16;
  static constexpr int kPairs = Elements::kPairs, kOfWord = 2 * kPairs;
  static constexpr int kSteps = 2 * kPairs;         // along k, of a unit
  static constexpr int kHalves = (GROUPS + 1) / 2;  // tiles of 16 queries
  // Of a row of keys, a lane of four has units of 16 bytes; of values, a lane of eight.
  static constexpr int kKeyElements = 16 / Elements::kBytes;
  static constexpr int kKeyUnits = (kD + 4 * kKeyElements - 1) / (4 * kKeyElements);
  static constexpr int kValueBytes = kDv * Elements::kBytes <= 64 ? 8 : 16;
  static constexpr int kValueElements = kValueBytes / Elements::kBytes;
  static constexpr int kValueUnits = (kDv + 8 * kValueElements - 1) / (8 * kValueElements);
  static constexpr int kValueWords = kValueBytes / 4;
  static constexpr int kTilesOfSums = kValueUnits * kValueWords * kPairs;  // of 16 elements
  static constexpr int kPitch = 16 * kTilesOfSums + 4;  // floats of a query's sums
  static constexpr int kOfKeys = 2 * kKeyUnits * 512,
                       kOfValues = 4 * kValueUnits * kValueBytes * 32;
  static constexpr int kTileBytes = kOfKeys + kOfValues, kSlot = kTiles * kTileBytes;
};

// A warp's queries as the 16 rows of mma.sync: of groups 2 p and 2 p + 1, query lane / 4 and the
// elements that the lane has of a key.
template <class S> struct Queries {
  unsigned rows[S::kHalves][S::kKeyUnits][S::kSteps][4] = {};
  float unit[2 * S::kHalves];  // of the scores of the lane's query

  __device__ __forceinline__ void load(const typename S::T *q, long long next, int mine) {
    const int row = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
    constexpr int N = S::kKeyElements;
#pragma unroll
    for (int g = 0; g < 2 * S::kHalves; g++) {
      float x[S::kKeyUnits][N] = {};
#pragma unroll
      for (int c = 0; c < S::kKeyUnits; c++) {
        const int at = (4 * c + quad) * N;
        if (8 * g + row < mine && at < S::kD) {
          const typename S::T *from = q + (8 * g + row) * next + at;
#pragma unroll
          for (int i = 0; i < N; i += 8)
            kw::to_float(kw::load<typename S::T, 8>(from + i),
                         reinterpret_cast<float (&)[8]>(x[c][i]));
        }
      }
      unit[g] = S::kPairs == 2 ? power_of(x) : 1.0f;
      const float inverse = S::kPairs == 2 ? inverse_of(unit[g]) : 1.0f;
#pragma unroll
      for (int c = 0; c < S::kKeyUnits; c++)
#pragma unroll
        for (int i = 0; i < N / 2; i++)
          rows[g / 2][c][i / 2][i % 2 * 2 + g % 2] =
              packed<typename S::Operand>(x[c][2 * i] * inverse, x[c][2 * i + 1] * inverse);
    }
  }
  // A power of two that takes the query into float16's range: of its largest finite element, and
  // 2^14 less. What float16 then rounds is 2^-39 of that element.
  static __device__ __forceinline__ float power_of(
      const float (&x)[S::kKeyUnits][S::kKeyElements]) {
    float most = 0.0f;
#pragma unroll
    for (int c = 0; c < S::kKeyUnits; c++)
#pragma unroll
      for (int i = 0; i < S::kKeyElements; i++) {
        const float size = fabsf(x[c][i]);
        if (size < kw::kInfinity) most = fmaxf(most, size);
      }
    most = kw::warp_reduce<kw::Max, 4>(most);
    return __uint_as_float((max(__float_as_uint(most) >> 23, 15u) - 14) << 23);
  }
  static __device__ __forceinline__ float inverse_of(float power) {
    return __uint_as_float((254 - (__float_as_uint(power) >> 23)) << 23);
  }
};

// Softmax-weighted sums of values of a warp. Register r of a tile of 16 elements is query 2 (lane %
// 4) + r % 2 and element r / 2 of the lane's two; `top` and `total` are query lane / 4's.
template <class S> struct Sums {
  float y[S::kGroups][S::kTilesOfSums][4] = {}, top[S::kGroups], total[S::kGroups] = {};

  __device__ __forceinline__ Sums() {
#pragma unroll
    for (int g = 0; g < S::kGroups; g++) top[g] = -kw::kInfinity;
  }
  // Scores to base 2 become weights, which have the layout of an operand already. Each lane has
  // those of query lane / 4 and two keys of every 8.
  __device__ __forceinline__ void weigh(int g, float (&z)[S::kTiles][2][2],
                                        unsigned (&weights)[S::kTiles][2]) {
    float highest = -kw::kInfinity;
#pragma unroll
    for (int m = 0; m < S::kTiles; m++)
#pragma unroll
      for (int i = 0; i < 4; i++) highest = fmaxf(highest, z[m][i / 2][i % 2]);
    if (__any_sync(0xffffffffu, highest > top[g])) raise(g, highest);
    const float base = top[g] == -kw::kInfinity ? 0.0f : top[g];
#pragma unroll
    for (int m = 0; m < S::kTiles; m++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float first = kw::fast_exp2(z[m][h][0] - base);
        const float second = kw::fast_exp2(z[m][h][1] - base);
        total[g] += first + second;
        weights[m][h] = packed<typename S::Operand>(first, second);
      }
  }
  // Sums become relative to a maximum that is higher for a query at least.
  __device__ __forceinline__ void raise(int g, float highest) {
    const float higher = fmaxf(top[g], kw::warp_reduce<kw::Max, 4>(highest));
    const float fade = weight(top[g], higher);
    top[g] = higher, total[g] *= fade;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float of_query = __shfl_sync(0xffffffffu, fade, (threadIdx.x % 4 * 2 + i) * 4);
#pragma unroll
      for (int j = 0; j < S::kTilesOfSums; j++) y[g][j][i] *= of_query, y[g][j][2 + i] *= of_query;
    }
  }
};

}  // namespace split
