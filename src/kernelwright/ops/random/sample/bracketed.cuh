// Draws one token of a row of logits, as rejection.cuh does, but from thresholds that a histogram
// has bracketed.
#pragma once
#include "bins.cuh"
#include "held_row.cuh"

namespace kw {

// kth_largest of rejection.cuh, which lies between two keys: k or more logits are not below `low`,
// fewer than k not below `high`.
template <typename T, typename Row, typename Team>
__device__ __forceinline__ float kth_between(Row &row, Team &team, unsigned low, unsigned high,
                                             unsigned k) {
  constexpr int kField = 21;  // bits per count
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
    bool exact = false;
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

// draw_token of rejection.cuh for a row with the maximum `most`.
template <typename T, typename Row, typename Team, typename Counts>
__device__ __forceinline__ long long draw_bracketed(Row &row, Team &team, Counts &histogram,
                                                    float most, const Stream &stream,
                                                    unsigned sequence, const How &how,
                                                    unsigned columns) {
  using Values = typename Row::Values;
  if (most == -kInfinity) return -1;
  if (most == kInfinity) {  // only infinities can be drawn, with equal probability
    row.keep_infinities();
    most = 0;
  }
  if (!(how.temperature > 0)) {
    Word first = Lowest::kIdentity;
    row.each([&](int, int col, Values x) {
#pragma unroll
      for (int i = 0; i < Row::kWidth; ++i)
        if (x[i] == most) first = min(first, Word(col + i));
    });
    return team.template reduce<Lowest>(first);
  }

  constexpr float kLog2e = 1.4426950408889634f;
  const float scale = fminf(fmaxf(kLog2e / how.temperature, 1e-37f), 1e38f);
  const auto weight = [&](float x) { return fast_exp2((x - most) * scale); };
  const bool limited = how.top_k >= 1 && how.top_k < columns;
  const bool nucleus = !(how.top_p >= 1);
  float least = -kInfinity, enough = kInfinity;  // tokens below `least` are filtered out
  float low = -kInfinity, high = most;  // `low` and below: rejected; `high` and above: accepted
  if (limited || nucleus) {
    float mass = 0;
    row.each([&](int, int, Values x) {
      for (const float one : x) {
        const float t = (one - most) * scale;
        mass += fast_exp2(t);
        histogram.add(1 - t);
      }
    });
    histogram.merge();
    const Bins bins = {most, scale};
    if (limited) {
      const unsigned k = unsigned(how.top_k);
      const unsigned bin = histogram.reaches(float(k), [](unsigned) { return 1.0f; });
      const float floor = bin < Bins::kCount ? bins.below(bin + 1) : -kInfinity;
      least = kth_between<T>(row, team, ordered(floor) >> kSpareBits<T>,
                             (ordered(bins.above(bin)) >> kSpareBits<T>)+1, k);
      mass = 0;
      if (nucleus)
        row.each([&](int, int, Values x) {
          for (const float one : x)
            if (one >= least) mass += weight(one);
        });
    }
    if (nucleus) {
      enough = how.top_p * Masses::first(team.template reduce<Masses>(Masses::word(mass, 0)));
      const unsigned kept = histogram.reaches(
          enough * (1 - 1e-5f), [](unsigned bin) { return fast_exp2(1 - Bins::edge(bin)); });
      const unsigned last = histogram.reaches(
          enough * (1 + 1e-5f), [](unsigned bin) { return fast_exp2(1 - Bins::edge(bin + 1)); });
      if (kept > 0) high = bins.above(kept);
      if (last < Bins::kCount) low = bins.below(last + 1);
    }
  }

  const float share = how.min_p > 1 ? 1 : how.min_p;
  for (;;) {
    // A number that does not exceed limit * w by more than rounding errors needs its logarithm. The
    // first vectors of all warps give the block's limit.
    constexpr float kSlack = 1 + 0x1p-16f;
    float best = kInfinity, limit = kInfinity;
    unsigned at = ~0u;
    row.each([&](int v, int col, Values x) {
#pragma unroll
      for (int i = 0; i < Row::kWidth; i += 4) {
        const float top = fmaxf(fmaxf(x[i], x[i + 1]), fmaxf(x[i + 2], x[i + 3]));
        if (!(top > low && top >= least)) continue;
        const uint4 words = stream.words((col + i) / 4, sequence);
        const unsigned smallest = min(min(words.x, words.y), min(words.z, words.w));
        if (!(unit(smallest) <= limit * (weight(top) * kSlack))) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float u = unit(word(words, j)), w = weight(x[i + j]);
          const bool in = x[i + j] > low && x[i + j] >= least && !(w < share);
          if (in && u <= limit * (w * kSlack)) {
            const float mine = exponential(u) / w;
            if (mine < best) best = mine, at = col + i + j;
            limit = fminf(limit, mine);
          }
        }
      }
      limit = least_of_warp(limit);
      if (v == 0) limit = least_of_warp(histogram.least(limit));
    });
    const Word found = team.template reduce<Lowest>(Word(__float_as_uint(best)) << 32 | at);
    if (enough == kInfinity) return unsigned(found);
    const float mine = row.at(unsigned(found)), middle = 0.5f * mine + 0.5f * high;
    if (mine >= high) return unsigned(found);
    float above = 0, above_middle = 0;
    row.each([&](int, int, Values x) {
      for (const float one : x) {
        if (!(one > mine && one >= least)) continue;
        const float w = weight(one);
        above += w;
        if (one > middle) above_middle += w;
      }
    });
    const Word masses = team.template reduce<Masses>(Masses::word(above, above_middle));
    if (Masses::first(masses) < enough) return unsigned(found);
    if (Masses::second(masses) < enough)
      low = mine, high = middle;
    else
      low = fmaxf(mine, middle);
  }
}

}  // namespace kw
