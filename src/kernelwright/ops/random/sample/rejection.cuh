// Draws one token of a row of logits.
//
// Each token i has its own exponential number E_i and a weight w_i = exp((x_i - max) /
// temperature). From any set of tokens, the one with the smallest E_i / w_i is drawn with
// probability proportional to w_i (equivalent to Gumbel-max). A draw from a set that may be too
// large is tested against the filter; if it fails, all tokens up to its logit are excluded from the
// next draw.
#pragma once
#include "../stream.cuh"
#include "kw/math.cuh"
#include "kw/radix.cuh"
#include "kw/reduce.cuh"
#include "team.cuh"

namespace kw {

struct How {
  float temperature, top_k, top_p, min_p;
};

// The parameters of a row; `each`, if given, has a row of them for each row of logits.
__device__ __forceinline__ How how_of(const float *each, long long row, How all) {
  if (each == nullptr) return all;
  each += row * 4;
  return {each[0], each[1], each[2], each[3]};
}

// Converts NaN to -infinity.
__device__ __forceinline__ float logit(float x) { return fmaxf(x, -kInfinity); }

// Loads logits from `col` on, -infinity past the end of the row. aligned: 16-byte loads are
// possible.
template <typename T>
__device__ __forceinline__ Vec<T, kVecWidth<T>> load_logits(const T *row, int col, int columns,
                                                            bool aligned) {
  constexpr int N = kVecWidth<T>;
  if (aligned && col + N <= columns) return load<T, N>(row + col);
  Vec<T, N> found;
#pragma unroll
  for (int i = 0; i < N; ++i)
    found[i] = col + i < columns ? row[col + i] : from_float<T>(-kInfinity);
  return found;
}
// E from a uniform number: -log(1 - u), which has a fine resolution near 0, where draws are
// decided; E >= u.
__noinline__ __device__ float exponential(float u) { return -log1pf(-u); }

// The number whose ordered integer begins with `key`, in units of the spacing of T's numbers.
template <typename T> constexpr int kSpareBits = 0;
template <> constexpr int kSpareBits<__half> = 13;
template <> constexpr int kSpareBits<__nv_bfloat16> = 16;
template <typename T> __device__ __forceinline__ float from_key(unsigned key) {
  constexpr unsigned low = (1u << kSpareBits<T>)-1;
  const unsigned above = key << kSpareBits<T>;
  return from_ordered(above >> 31 ? above : above | low);  // negative numbers are complements
}

// The k-th largest logit, or a smaller number such that k logits are not below it. Found by
// counting logits relative to three pivots at a time; k is at most the number of columns.
template <typename T, typename Row, typename Team>
__device__ __forceinline__ float kth_largest(const Row &row, Team &team, float most, unsigned k) {
  constexpr int kField = 21;  // bits per count
  unsigned low = ordered(-kInfinity) >> kSpareBits<T>;
  unsigned high = (ordered(most) >> kSpareBits<T>)+1;
  while (high - low > 1) {
    unsigned key[3], count[3] = {};
    float pivot[3];
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      key[j] = low + unsigned(Word(high - low) * (j + 1) >> 2);
      pivot[j] = from_key<T>(key[j]);
    }
    row.count(pivot, count);
    const Word counts = team.template reduce<Total>(Word(count[2]) << 2 * kField |
                                                    Word(count[1]) << kField | count[0]);
    unsigned exact = 0;
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      const unsigned found = counts >> j * kField & ((1u << kField) - 1);
      if (found >= k && key[j] >= low) low = key[j], exact = found == k;
      if (found < k && key[j] < high) high = key[j];
    }
    if (exact) break;
  }
  return from_key<T>(low);
}

// The token; -1 if no logit is above -infinity. Tokens with equal logits are either all kept or all
// removed: top_k keeps those not below the k-th largest; top_p those for which the sum of larger
// weights is below top_p; min_p those with at least this fraction of the largest weight.
template <typename T, typename Row, typename Team>
__device__ __forceinline__ long long draw_token(Row &row, Team &team, const Stream &stream,
                                                unsigned long long sequence, const How &how,
                                                unsigned columns) {
  float most = -kInfinity;
  row.each([&](int, typename Row::Values x) {
    for (const float one : x) most = fmaxf(most, one);
  });
  most = from_ordered(unsigned(team.template reduce<Highest>(ordered(most))));
  if (most == -kInfinity) return -1;
  if (most == kInfinity) {  // only infinities can be drawn, with equal probability
    row.keep_infinities();
    most = 0;
  }
  if (!(how.temperature > 0)) {
    Word first = Lowest::kIdentity;
    row.each([&](int col, typename Row::Values x) {
#pragma unroll
      for (int i = 0; i < Row::kWidth; ++i)
        if (x[i] == most) first = min(first, Word(col + i));
    });
    return team.template reduce<Lowest>(first);
  }

  constexpr float kLog2e = 1.4426950408889634f;
  const float scale = fminf(fmaxf(kLog2e / how.temperature, 1e-37f), 1e38f);
  const auto weight = [&](float x) { return fast_exp2((x - most) * scale); };
  float least = -kInfinity;  // tokens below are filtered out
  if (how.top_k >= 1 && how.top_k < columns)
    least = kth_largest<T>(row, team, most, unsigned(how.top_k));
  float enough = kInfinity;
  if (!(how.top_p >= 1)) {
    float mass = 0;
    row.each([&](int, typename Row::Values x) {
      for (const float one : x)
        if (one >= least) mass += weight(one);
    });
    enough = how.top_p * Masses::first(team.template reduce<Masses>(Masses::word(mass, 0)));
  }

  const float share = how.min_p > 1 ? 1 : how.min_p;
  float low = -kInfinity, high = most;  // `low` and below: rejected; `high` and above: accepted
  for (;;) {
    float best = kInfinity;
    unsigned at = ~0u;
    row.each([&](int col, typename Row::Values x) {
#pragma unroll
      for (int i = 0; i < Row::kWidth; i += 4) {
        const float top = fmaxf(fmaxf(x[i], x[i + 1]), fmaxf(x[i + 2], x[i + 3]));
        if (!(top > low && top >= least)) continue;
        const uint4 words = stream.words((col + i) / 4, sequence);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float u = unit(word(words, j)), w = weight(x[i + j]);
          const bool in = x[i + j] > low && x[i + j] >= least && !(w < share);
          if (in && u < best * w) {
            const float mine = exponential(u) / w;
            if (mine < best) best = mine, at = col + i + j;
          }
        }
      }
    });
    const Word found = team.template reduce<Lowest>(Word(__float_as_uint(best)) << 32 | at);
    if (enough == kInfinity) return unsigned(found);
    const float mine = row.at(unsigned(found)), middle = 0.5f * mine + 0.5f * high;
    float above = 0, above_middle = 0;
    row.each([&](int, typename Row::Values x) {
      for (const float one : x) {
        if (!(one > mine && one >= least)) continue;
        const float w = weight(one);
        above += w;
        if (one > middle) above_middle += w;
      }
    });
    const Word masses = team.template reduce<Masses>(Masses::word(above, above_middle));
    if (Masses::first(masses) < enough || mine >= most) return unsigned(found);
    if (Masses::second(masses) < enough)
      low = mine, high = middle;
    else
      low = fmaxf(mine, middle);
  }
}

}  // namespace kw
