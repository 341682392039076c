// 16-byte vectors, and angles that several heads share.
//
// Idea: a thread processes the same PAIRS pairs of HEADS heads of one token: it loads its cos and
// sin once, after it has issued the loads of all its vectors. The heads of q and k are processed
// alike, in one launch; four strides per tensor allow any order of batch, heads and tokens.
// Computed angles cost one exponential per thread; in double they are accurate at any position.
// Traffic: q and k read and written once; the tables stay in L1 and L2.
// Compared with `triton_token`: vectors for any number of heads and dimensions, without padding to
// powers of two.
// Limit: DRAM bandwidth.
#include "angle.cuh"
#include "kw/vec.cuh"

// Element distances along batch, heads and tokens.
struct Strides {
  long long batch, head, token;
};

// cos and sin of PAIRS pairs: tables are read LOAD elements at a time, `step` apart if LOAD is 1.
template <int LOAD, typename A, int PAIRS>
__device__ __forceinline__ void read_angles(const A *table, long long step, float (&out)[PAIRS]) {
  if constexpr (LOAD > 1) {
#pragma unroll
    for (int i = 0; i < PAIRS; i += LOAD) {
      float v[LOAD];
      kw::to_float(kw::load<A, LOAD>(table + i), v);
#pragma unroll
      for (int j = 0; j < LOAD; ++j) out[i + j] = v[j];
    }
  } else {
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) out[i] = kw::to_float(table[i * step]);
  }
}

// The same for position * base^(-2 pair / rotated), for pairs from `first` on.
template <int PAIRS>
__device__ __forceinline__ void compute_angles(double position, double base, unsigned first,
                                               unsigned rotated, float (&c)[PAIRS],
                                               float (&s)[PAIRS]) {
  const double octaves = -2.0 * log2(base) / rotated;  // between adjacent pairs
  const double ratio = exp2(octaves);
  double frequency = exp2(octaves * first) * 0.15915494309189535;  // turns per position
#pragma unroll
  for (int i = 0; i < PAIRS; ++i) {
    kw::sincos_turns(kw::turns_of(position, frequency), s[i], c[i]);
    frequency *= ratio;
  }
}

// A is the type of the tables, or of positions if angles are COMPUTED; a load moves VEC elements;
// `direction` is 1, or -1 for the inverse rotation.
template <typename T, typename A, bool COMPUTED, int PAIRS, int VEC, int LOAD, int HEADS, int BLOCK,
          bool INTERLEAVED>
__global__ void __launch_bounds__(BLOCK)
    rope_vec16(const T *q, const T *k, const A *cos, const A *sin, T *yq, T *yk, int heads_q,
               int heads_k, int dims, int rotated, int tokens, int all_tokens, int chunk,
               long long q_batch, long long q_head, long long q_token, long long k_batch,
               long long k_head, long long k_token, long long yq_batch, long long yq_head,
               long long yq_token, long long yk_batch, long long yk_head, long long yk_token,
               long long table_batch, long long table_token, long long table_step, double base,
               float direction) {
  constexpr int COUNT = 2 * PAIRS / VEC;
  const unsigned groups_q = (heads_q + HEADS - 1) / HEADS, groups_k = (heads_k + HEADS - 1) / HEADS;
  const unsigned per_head = dims / (2 * PAIRS), per_token = per_head * (groups_q + groups_k);
  const unsigned item = blockIdx.x * BLOCK + threadIdx.x, place = item % per_token;
  const unsigned token = blockIdx.y * unsigned(chunk) + item / per_token;
  if (item / per_token >= chunk || token >= all_tokens) return;
  const long long batch = token / unsigned(tokens), t = token % unsigned(tokens);
  const unsigned part = place % per_head;
  const bool of_k = place / per_head >= groups_q;
  const unsigned group = place / per_head - (of_k ? groups_q : 0);
  const unsigned groups = of_k ? groups_k : groups_q, heads = of_k ? heads_k : heads_q;

  // this thread's elements of a head: from `first` on, with `apart` elements between its vectors
  const unsigned turning = rotated / (2 * PAIRS);
  const bool turns = part < turning;
  unsigned first = part * 2 * PAIRS, apart = VEC;
  if constexpr (!INTERLEAVED) {
    first = turns ? part * PAIRS : rotated + (part - turning) * PAIRS;
    apart = (turns ? rotated : dims - rotated) / 2;
  }
  const Strides x = of_k ? Strides{k_batch, k_head, k_token} : Strides{q_batch, q_head, q_token};
  const Strides y =
      of_k ? Strides{yk_batch, yk_head, yk_token} : Strides{yq_batch, yq_head, yq_token};
  const T *from = (of_k ? k : q) + batch * x.batch + t * x.token + first;
  T *to = (of_k ? yk : yq) + batch * y.batch + t * y.token + first;

  kw::Vec<T, VEC> in[HEADS][COUNT];
#pragma unroll
  for (int u = 0; u < HEADS; ++u) {
    const unsigned head = group + u * groups;
    if (head >= heads) continue;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) in[u][j] = kw::load<T, VEC>(from + head * x.head + j * apart);
  }
  float c[PAIRS], s[PAIRS];
  if (turns) {
    const long long row = batch * table_batch + t * table_token;
    if constexpr (COMPUTED) {
      compute_angles(double(cos[row]), base, part * PAIRS, rotated, c, s);
    } else {
      const long long at = row + part * PAIRS * table_step;
      read_angles<LOAD>(cos + at, table_step, c);
      read_angles<LOAD>(sin + at, table_step, s);
    }
  }
#pragma unroll
  for (int u = 0; u < HEADS; ++u) {
    const unsigned head = group + u * groups;
    if (head >= heads) continue;
    if (turns) {
      float e[COUNT][VEC];
#pragma unroll
      for (int j = 0; j < COUNT; ++j) kw::to_float(in[u][j], e[j]);
#pragma unroll
      for (int i = 0; i < PAIRS; ++i) {
        const int ia = INTERLEAVED ? 2 * i : i, ib = INTERLEAVED ? 2 * i + 1 : PAIRS + i;
        float &a = e[ia / VEC][ia % VEC], &b = e[ib / VEC][ib % VEC];
        const float sine = direction * s[i], before = a;
        a = a * c[i] - b * sine;
        b = b * c[i] + before * sine;
      }
#pragma unroll
      for (int j = 0; j < COUNT; ++j) in[u][j] = kw::from_float<T, VEC>(e[j]);
    }
#pragma unroll
    for (int j = 0; j < COUNT; ++j) kw::store(to + head * y.head + j * apart, in[u][j]);
  }
}
