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
#include "bracketed.cuh"

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
  __shared__ kw::How how;  // in registers, it would cause spills
  Histogram histogram(histogram_shared);
  histogram.ready();
  Team team(team_shared);
  const unsigned row = blockIdx.x / BLOCKS;
  Row x;
  x.row = logits + row * stride;
  x.rest = reinterpret_cast<typename Row::Piece *>(dynamic_shared) + threadIdx.x;
  float most = x.load(columns, aligned);
  if (threadIdx.x == 0) how = kw::how_of(each, row, {temperature, top_k, top_p, min_p});
  const kw::Stream stream(state);
  team.ready();
  most = kw::from_ordered(unsigned(team.template reduce<kw::Highest>(kw::ordered(most))));
  const long long found =
      kw::draw_bracketed<T>(x, team, histogram, most, stream, row, how, unsigned(columns));
  if (threadIdx.x == 0 && blockIdx.x % BLOCKS == 0) token[row] = found;
}
