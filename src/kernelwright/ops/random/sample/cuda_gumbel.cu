// One read of a row to which no filter applies.
//
// Idea: the token with the largest x_i / temperature + G_i, where G_i = -log E_i is a Gumbel
// number, is drawn with the probability of the softmax, whose maximum and sum need not be computed.
// Traffic: the row once.
// Compared with `native`: one kernel, in which random numbers and weights stay in registers.
// Limit: issue slots: a quarter of a Philox call and two logarithms per token. One block per row.
#include "memory_row.cuh"

template <typename T, int THREADS>
__global__ void __launch_bounds__(THREADS)
    sample_gumbel(const T *logits, const long long *state, long long *token, int columns,
                  long long stride, int aligned, float temperature) {
  constexpr int N = kw::kVecWidth<T>;
  using Team = kw::Team<THREADS / 32, 1>;
  __shared__ typename Team::Shared shared;
  Team team(shared);
  const kw::Stream stream(state);
  const long long row = blockIdx.x;
  const float scale = 1.0f / temperature;
  kw::Word best = 0;  // the key of no token
  for (int col = threadIdx.x * N; col < columns; col += THREADS * N) {
    float x[N];
    kw::to_float(kw::load_logits(logits + row * stride, col, columns, aligned), x);
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const uint4 words = stream.words((col + i) / 4, row);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (!(x[i + j] > -kw::kInfinity)) continue;
        const float gumbel = -logf(kw::exponential(kw::unit(kw::word(words, j))));
        const float score = x[i + j] * scale + gumbel;
        best = max(best, kw::key_of(kw::ordered(score), unsigned(col + i + j)));
      }
    }
  }
  best = team.template reduce<kw::Highest>(best);
  long long found = best ? static_cast<long long>(kw::index_of(best)) : -1;
  if (best && !(fabsf(kw::from_ordered(unsigned(best >> 32))) < kw::kInfinity)) {
    kw::RowInMemory<T, THREADS> x = {logits + row * stride, columns, aligned != 0, false};
    const kw::How how = {temperature, 0, 1, 0};
    found = kw::draw_token<T>(x, team, stream, row, how, unsigned(columns));
  }
  if (threadIdx.x == 0) token[row] = found;
}
