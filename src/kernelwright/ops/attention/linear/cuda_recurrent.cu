// Decoding: the recurrence itself, with the state in registers.
//
// Idea: a block has 32 columns of a head's state, and each warp every eighth row, so that a thread
// has a few elements of one column, whose loads are all in flight at once. For each token they are
// decayed, k v is added, and eight warps add their parts of q S in shared memory.
// Traffic: the state read once and written once for any number of tokens; q, k, v and y.
// Compared with `native`: one kernel instead of eight, and the state is not written between decay
// and addition.
// Limit: for one token, reading the state; for many, each token waits for the previous one.
#include "kw/types.cuh"

constexpr int kColumns = 32, kWarps = 8;

namespace linear_attention {

// Elements between batches, heads, rows and columns.
struct Strides {
  long long b, h, row, col;
  __device__ long long at(long long head, int heads) const {
    return head / heads * b + head % heads * h;
  }
};

struct Call {
  Strides q, k, v, y, state;
  long long g_b, g_h, g_row;
  int heads, length, d, dv;
};

}  // namespace linear_attention

// ROWS: rows of the state per warp. g, state and final may be null.
template <typename T, int ROWS>
__global__ void __launch_bounds__(kColumns *kWarps)
    linear_recurrent(const T *q, const T *k, const T *v, const float *g, const float *state, T *y,
                     float *final, linear_attention::Call c, float scale) {
  __shared__ float parts[kWarps][kColumns];
  const int across = (c.dv + kColumns - 1) / kColumns;
  const long long head = blockIdx.x / across;
  const int lane = threadIdx.x % kColumns, warp = threadIdx.x / kColumns;
  const int col = blockIdx.x % across * kColumns + lane;
  const bool inside = col < c.dv;
  q += c.q.at(head, c.heads);
  k += c.k.at(head, c.heads);
  v += c.v.at(head, c.heads) + col * c.v.col;
  y += c.y.at(head, c.heads) + col * c.y.col;
  if (g) g += head / c.heads * c.g_b + head % c.heads * c.g_h;

  float s[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    const long long row = i * kWarps + warp;
    const long long at = c.state.at(head, c.heads) + row * c.state.row + col * c.state.col;
    s[i] = state && inside && row < c.d ? state[at] : 0.0f;
  }
  for (int t = 0; t < c.length; t++) {
    const float decay = g ? expf(g[t * c.g_row]) : 1.0f;
    const float value = inside ? kw::to_float(v[t * c.v.row]) : 0.0f;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      const int row = i * kWarps + warp;
      if (row >= c.d) break;
      s[i] = decay * s[i] + kw::to_float(k[t * c.k.row + row * c.k.col]) * value;
      sum += kw::to_float(q[t * c.q.row + row * c.q.col]) * s[i];
    }
    parts[warp][lane] = sum;
    __syncthreads();
    if (warp == 0) {
      float total = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; w++) total += parts[w][lane];
      if (inside) y[t * c.y.row] = kw::from_float<T>(total * scale);
    }
    __syncthreads();
  }
  if (!final || !inside) return;
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    const int row = i * kWarps + warp;
    if (row < c.d) final[(head * c.d + row) * c.dv + col] = s[i];
  }
}
