// One block per row, which reads the row again in each pass.
//
// Idea: the maximum, the k-th largest logit by counting, the sum of weights, then draws that are
// tested, each a pass over the row: nothing is sorted, and only the token is written. Most draws
// pass the first test: the probability of failure is at most 1 - top_p.
// Traffic: the row once from DRAM, then some ten times from the L2 cache.
// Compared with `native`: a sort moves each logit and its position several times.
// Limit: the L2 cache, and only one block per row.
#include "memory_row.cuh"

template <typename T, int THREADS>
__global__ void __launch_bounds__(THREADS)
    sample_block(const T *logits, const long long *state, const float *each, long long *token,
                 int columns, long long stride, int aligned, float temperature, float top_k,
                 float top_p, float min_p) {
  using Team = kw::Team<THREADS / 32, 1>;
  __shared__ typename Team::Shared shared;
  Team team(shared);
  const long long row = blockIdx.x;
  kw::RowInMemory<T, THREADS> x = {logits + row * stride, columns, aligned != 0, false};
  const kw::How how = kw::how_of(each, row, {temperature, top_k, top_p, min_p});
  const long long found =
      kw::draw_token<T>(x, team, kw::Stream(state), row, how, unsigned(columns));
  if (threadIdx.x == 0) token[row] = found;
}
