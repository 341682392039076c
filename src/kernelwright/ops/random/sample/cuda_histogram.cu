// The thresholds of top_k and top_p are bracketed by a histogram before the first draw.
//
// Idea: one pass counts the logits in 2,048 bins, with one shared-memory atomic per logit. The
// counts give the bin of the k-th largest logit; counts times the largest and the smallest weight
// of each bin bound the weight above it, hence which bins top_p surely keeps or removes. Only the
// token of the first draw, if its bin is between, is tested with exact sums.
// Traffic: the row once from DRAM.
// Compared with `cuda_shared_best`: one histogram instead of up to 16 counting passes (top_k) or of
// several rejected draws (small top_p); a draw first compares the smallest random number of a
// vector with the best of the block.
// Limit: shared-memory atomics, and a Philox call per four tokens that may be kept.
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
                                                    unsigned long long sequence, const How &how,
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

template <typename T, int VECS, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS)
    sample_histogram(const T *logits, const long long *state, const float *each, long long *token,
                     int columns, long long stride, int aligned, float temperature, float top_k,
                     float top_p, float min_p) {
  extern __shared__ uint4 dynamic_shared[];
  using Row = HeldRow<T, VECS, THREADS, BLOCKS>;
  using Team = kw::Team<THREADS / 32, BLOCKS>;
  using Histogram = kw::Histogram<THREADS, BLOCKS>;
  __shared__ typename Team::Shared team_shared;
  __shared__ typename Histogram::Shared histogram_shared;
  Histogram histogram(histogram_shared);
  histogram.ready();
  Team team(team_shared);
  const long long row = blockIdx.x / BLOCKS;
  Row x;
  x.row = logits + row * stride;
  x.rest = reinterpret_cast<typename Row::Piece *>(dynamic_shared) + threadIdx.x;
  float most = x.load(columns, aligned);
  const kw::How how = kw::how_of(each, row, {temperature, top_k, top_p, min_p});
  const kw::Stream stream(state);
  team.ready();
  most = kw::from_ordered(unsigned(team.template reduce<kw::Highest>(kw::ordered(most))));
  const long long found =
      kw::draw_bracketed<T>(x, team, histogram, most, stream, row, how, unsigned(columns));
  if (threadIdx.x == 0 && blockIdx.x % BLOCKS == 0) token[row] = found;
}
