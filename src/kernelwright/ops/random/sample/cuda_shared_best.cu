// The threads of a warp share the best draw so far.
//
// Idea: as `cuda_cluster`, but a logarithm and a division are computed for a token only if it may
// beat the best so far. If each thread knew only its own best, some thread of a warp would find a
// better one at almost every step, and the others would wait for it. After each vector the warp
// determines its common best, which is then rarely beaten.
// Traffic: the row once from DRAM.
// Compared with `cuda_cluster`: about a fifth of the logarithms.
// Limit: a Philox call per four tokens. Rows must fit in eight blocks, as there.
#include "cuda_cluster.cu"

namespace kw {

// The smallest of a warp's numbers, none of which is negative.
__device__ __forceinline__ float least_of_warp(float x) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(__reduce_min_sync(0xffffffffu, __float_as_uint(x)));
#else
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x = fminf(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
#endif
}

// draw_token of rejection.cuh, with a common best per warp.
template <typename T, typename Row, typename Team>
__device__ __forceinline__ long long draw_together(Row &row, Team &team, const Stream &stream,
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
    // the thread's best, and the warp's: if each thread had only its own, some thread of a warp
    // would find a better one at almost every step
    float best = kInfinity, limit = kInfinity;
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
          if (in && u < limit * w) {
            const float mine = exponential(u) / w;
            if (mine < best) best = mine, at = col + i + j;
            limit = fminf(limit, mine);
          }
        }
      }
      limit = least_of_warp(limit);
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

template <typename T, int VECS, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS)
    sample_shared_best(const T *logits, const long long *state, const float *each, long long *token,
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
  const long long found = kw::draw_together<T>(x, team, stream, row, how, unsigned(columns));
  if (threadIdx.x == 0 && blockIdx.x % BLOCKS == 0) token[row] = found;
}
