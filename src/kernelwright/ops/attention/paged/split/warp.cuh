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
  // Of a row of keys, a lane of four has units of 16 bytes; of values, a lane of eight.
  static constexpr int kKeyElements = 16 / Elements::kBytes;
  static constexpr int kKeyUnits = (kD + 4 * kKeyElements - 1) / (4 * kKeyElements);
  static constexpr int kValueBytes = kDv * Elements::kBytes <= 64 ? 8 : 16;
  static constexpr int kValueElements = kValueBytes / Elements::kBytes;
  static constexpr int kValueUnits = (kDv + 8 * kValueElements - 1) / (8 * kValueElements);
  static constexpr int kValueWords = kValueBytes / 4;
  static constexpr int kSums = kValueUnits * kValueWords * kPairs;  // tiles of 16 elements
  static constexpr int kPitch = 16 * kSums + 4;                     // floats of a query's sums
  static constexpr int kOfKeys = 2 * kKeyUnits * 512,
                       kOfValues = 4 * kValueUnits * kValueBytes * 32;
  static constexpr int kTileBytes = kOfKeys + kOfValues, kSlot = kTiles * kTileBytes;
};

// A warp's queries as operands: of query lane / 4, the elements that the lane has of a key.
template <class S> struct Queries {
  unsigned pairs[S::kGroups][S::kKeyUnits][4 * S::kPairs];
  float unit[S::kGroups][2];  // of the scores of queries lane % 4 * 2 and the next

  __device__ __forceinline__ void load(const typename S::T *q, long long next, int mine) {
    const int lane = threadIdx.x % 32, row = lane / 4, quad = lane % 4;
    constexpr int N = S::kKeyElements;
#pragma unroll
    for (int g = 0; g < S::kGroups; g++) {
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
      const float power = S::kPairs == 2 ? largest(x) : 1.0f;
      const float inverse = S::kPairs == 2 ? inverse_of(power) : 1.0f;
#pragma unroll
      for (int c = 0; c < S::kKeyUnits; c++)
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
          const auto two =
              kw::Pair<typename S::Operand>::from(x[c][2 * i] * inverse, x[c][2 * i + 1] * inverse);
          memcpy(&pairs[g][c][i], &two, 4);
        }
#pragma unroll
      for (int i = 0; i < 2; i++) unit[g][i] = __shfl_sync(0xffffffffu, power, (quad * 2 + i) * 4);
    }
  }
  // Products become scores to base 2.
  __device__ __forceinline__ void to_base_2(float (&z)[S::kTiles][4], int g, float factor) const {
#pragma unroll
    for (int m = 0; m < S::kTiles; m++)
#pragma unroll
      for (int r = 0; r < 4; r++) {
        if constexpr (S::kPairs == 2) z[m][r] *= unit[g][r % 2];
        z[m][r] *= factor;
      }
  }
  // A power of two that takes the query into float16's range: of its largest finite element, and
  // 2^14 less. What float16 then rounds is 2^-39 of that element.
  static __device__ __forceinline__ float largest(const float (&x)[S::kKeyUnits][S::kKeyElements]) {
    float most = 0.0f;
#pragma unroll
    for (int c = 0; c < S::kKeyUnits; c++)
#pragma unroll
      for (int i = 0; i < S::kKeyElements; i++) {
        const float size = fabsf(x[c][i]);
        if (size < kw::kInfinity) most = fmaxf(most, size);
      }
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    return __uint_as_float((max(__float_as_uint(most) >> 23, 15u) - 14) << 23);
  }
  static __device__ __forceinline__ float inverse_of(float power) {
    return __uint_as_float((254 - (__float_as_uint(power) >> 23)) << 23);
  }
};

// Reduces over the lanes of a column of the weights.
template <class OP> __device__ __forceinline__ float over_rows(float x) {
#pragma unroll
  for (int lane = 16; lane >= 4; lane /= 2) x = OP::apply(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}

// Softmax-weighted sums of values of a warp. Register r of a tile of 16 elements is query lane % 4
// * 2 + r % 2, and element r / 2 of the lane's two.
template <class S> struct Sums {
  float y[S::kGroups][S::kSums][4] = {};
  float top[S::kGroups][2], total[S::kGroups][2] = {};

  __device__ __forceinline__ Sums() {
#pragma unroll
    for (int g = 0; g < S::kGroups; g++) top[g][0] = top[g][1] = -kw::kInfinity;
  }
  // Scores to base 2 become weights, as operands; sums become relative to the highest score.
  __device__ __forceinline__ void weigh(int g, float (&z)[S::kTiles][4],
                                        unsigned (&weights)[S::kTiles][2]) {
    float highest[2] = {-kw::kInfinity, -kw::kInfinity};
#pragma unroll
    for (int m = 0; m < S::kTiles; m++)
#pragma unroll
      for (int r = 0; r < 4; r++) highest[r % 2] = fmaxf(highest[r % 2], z[m][r]);
    if (__any_sync(0xffffffffu, highest[0] > top[g][0] || highest[1] > top[g][1]))
      raise(g, highest);
    float base[2];
#pragma unroll
    for (int i = 0; i < 2; i++) base[i] = top[g][i] == -kw::kInfinity ? 0.0f : top[g][i];
#pragma unroll
    for (int m = 0; m < S::kTiles; m++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float w[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
          w[i] = kw::fast_exp2(z[m][2 * h + i] - base[i]);
          total[g][i] += w[i];
        }
        const auto two = kw::Pair<typename S::Operand>::from(w[0], w[1]);
        unsigned bits;
        memcpy(&bits, &two, 4);
        weights[m][h] = transposed(bits);
      }
  }
  __device__ __forceinline__ void raise(int g, const float (&highest)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float higher = fmaxf(top[g][i], over_rows<kw::Max>(highest[i]));
      const float fade = weight(top[g][i], higher);
      top[g][i] = higher, total[g][i] *= fade;
#pragma unroll
      for (int j = 0; j < S::kSums; j++) y[g][j][i] *= fade, y[g][j][2 + i] *= fade;
    }
  }
};

}  // namespace split
