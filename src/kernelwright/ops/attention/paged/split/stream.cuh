// A decoding step's attention by persistent blocks: producer warps have the copy engine fill a ring
// of stages in shared memory, whose keys the other warps multiply. Several producers, since a warp
// starts the copies of its lanes one after the other.
//
// A stage is made of strips, each contiguous in memory and copied at once: RUN keys of one head, or
// one key of HEADS heads. The 8 keys of a tile's columns are of 8 strips, which start 16 bytes
// (keys) or 32 bytes (values) further in the banks than the strip before, so that lanes that read
// the same place of 8 rows have different banks without a swizzle.
#pragma once
#include "attend.cuh"
#include "bulk.cuh"
#include "schedule.cuh"

namespace split {

// The least number of bytes that holds `bytes` and is `behind` more than a multiple of 128, after
// which the banks repeat.
__host__ __device__ constexpr int pitch(int bytes, int behind) {
  return bytes + (behind + 128 - bytes % 128) % 128;
}

// A stage of 16 keys for each of S::kWarps warps. Teams of HEADS warps have the same keys. RUN is
// 1, or HEADS is 1 and RUN 2 for each team.
template <class S_, int HEADS, int RUN, int PRODUCERS> struct Stage {
  using S = S_;
  static constexpr int kProducers = PRODUCERS, kThreads = 32 * (S::kWarps + PRODUCERS);
  static constexpr int kHeads = HEADS, kRun = RUN, kTeams = S::kWarps / HEADS;
  static constexpr int kTokens = 16 * kTeams, kStrips = kTokens / RUN;
  static_assert(S::kWarps % HEADS == 0 && S::kTiles == 1);
  static_assert(RUN == 1 || (HEADS == 1 && kStrips == 8), "a strip is of one head or one key");
  static constexpr int kKeyRow = S::kD * S::Elements::kBytes,
                       kValueRow = S::kDv * S::Elements::kBytes;
  static constexpr int kKeyStrip = HEADS * RUN * kKeyRow, kKeyPitch = pitch(kKeyStrip, 16);
  static constexpr int kValueStrip = HEADS * RUN * kValueRow, kValuePitch = pitch(kValueStrip, 32);
  static constexpr int kOfKeys = kStrips * kKeyPitch, kBytes = kOfKeys + kStrips * kValuePitch;
  static constexpr int kRing = S::kStages * kBytes;
  static constexpr int kQueries = HEADS * S::kQueries;  // of a piece
  static constexpr int kSumsPitch = 16 * S::kTilesOfSums;
  static constexpr int kSums = 4 * S::kWarps * S::kQueries * kSumsPitch;
  static constexpr int kStates = 8 * S::kWarps * S::kQueries;

  // Columns 0 to 7 of half a tile are strips 0, 4, 1, 5, ..., so that the columns of neighbouring
  // lanes are 64 bytes apart in the banks, and those of a lane's values 32 of the next lane's.
  static __device__ __forceinline__ int strip(int column) { return column / 2 + column % 2 * 4; }
  static __device__ __forceinline__ int head() { return threadIdx.x / 32 % HEADS; }
  static __device__ __forceinline__ int team() { return threadIdx.x / 32 / HEADS; }
  static __device__ __forceinline__ int token(int half, int column) {
    return RUN > 1 ? strip(column) * RUN + 2 * team() + half
                   : 16 * team() + 8 * half + strip(column);
  }
  static __device__ __forceinline__ int place(int half, int column, int pitch, int row) {
    return RUN > 1 ? strip(column) * pitch + (2 * team() + half) * row
                   : (16 * team() + 8 * half + strip(column)) * pitch + head() * row;
  }
};

// Where everything is in shared memory.
template <class G> struct Shared {
  char *ring;
  float *sums;
  State *states;
  Mbarrier *full, *empty, *together;
  bool *last;

  __device__ __forceinline__ explicit Shared(char *p)
      : ring(p),
        sums(reinterpret_cast<float *>(p + G::kRing)),
        states(reinterpret_cast<State *>(p + G::kRing + G::kSums)),
        full(reinterpret_cast<Mbarrier *>(p + G::kRing + G::kSums + G::kStates)),
        empty(full + G::S::kStages),
        together(empty + G::S::kStages),
        last(reinterpret_cast<bool *>(together + 1)) {}
  __device__ __forceinline__ void init() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < G::S::kStages; i++)
        full[i].init(G::kProducers), empty[i].init(G::S::kWarps);
      together->init(G::S::kWarps);
      fence_barrier_init();
    }
    __syncthreads();
  }
};

// A producer's copies of a piece. `rows` knows the sequence's rows of the piece's heads: key(t)
// and value(t) are where those of token t are, and if it has kNew, new_k and new_v where those of
// the last token are.
template <class G, class ROWS>
__device__ __forceinline__ void produce(const Shared<G> &to, Position<G::S::kStages> &at,
                                        const ROWS &rows, const Piece &piece) {
  constexpr int kLanes = 32 * G::kProducers, kOfLane = (2 * G::kStrips + kLanes - 1) / kLanes;
  constexpr int kRow = G::kKeyRow + G::kValueRow;
  const int producer = threadIdx.x / 32 - G::S::kWarps;
  const int lane = threadIdx.x % 32 * G::kProducers + producer;  // of those of all producers
  for (int step = piece.begin; step < piece.end; step++, at.advance()) {
    const int first = step * G::kTokens, left = max(0, piece.tokens - first);
    const char *from[kOfLane];
#pragma unroll
    for (int i = 0; i < kOfLane; i++) {  // a table's entries are read before the wait
      const int strip = i * kLanes + lane, token = first + strip % G::kStrips * G::kRun;
      if (strip >= 2 * G::kStrips || token >= piece.tokens) continue;
      from[i] = strip < G::kStrips ? rows.key(token) : rows.value(token);
    }
    to.empty[at.stage].wait(at.parity ^ 1);
    Mbarrier &full = to.full[at.stage];
    // Every producer arrives, so that none can be a phase behind the others.
    full.before_copies(producer == 0 ? min(left, G::kTokens) * G::kHeads * kRow : 0);
#pragma unroll
    for (int i = 0; i < kOfLane; i++) {
      const int strip = i * kLanes + lane, n = strip % G::kStrips, token = first + n * G::kRun;
      int count = min(G::kRun, piece.tokens - token);
      if (strip >= 2 * G::kStrips || count <= 0) continue;
      const bool of_keys = strip < G::kStrips;
      const int bytes = G::kHeads * (of_keys ? G::kKeyRow : G::kValueRow);
      char *shared = to.ring + at.stage * G::kBytes +
                     (of_keys ? n * G::kKeyPitch : G::kOfKeys + n * G::kValuePitch);
      if constexpr (ROWS::kNew) {
        if (token + count == piece.tokens) {
          count--;
          full.copy(shared + count * bytes, of_keys ? rows.new_k : rows.new_v, bytes);
        }
      }
      if (!ROWS::kNew || count) full.copy(shared, from[i], count * bytes);
    }
    full.after_copies();
  }
}

// A warp's 16 keys of a stage, of which `left` tokens are a sequence's; all of them if WHOLE.
// Otherwise rows that were not copied are not read.
template <class G, bool WHOLE>
__device__ __forceinline__ void attend_stage(Sums<typename G::S> &sums,
                                             const Queries<typename G::S> &queries,
                                             const char *stage, int left, float factor) {
  using S = typename G::S;
  using Words = kw::Vec<unsigned, S::kValueWords>;
  const int lane = threadIdx.x % 32, row = lane / 4, quad = lane % 4;
  float z[S::kHalves][2][4] = {};
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const char *key = stage + G::place(half, row, G::kKeyPitch, G::kKeyRow) + quad * 16;
    const bool inside = WHOLE || G::token(half, row) < left;
#pragma unroll
    for (int c = 0; c < S::kKeyUnits; c++) {
      uint4 unit = {};
      if (inside && (4 * c + 3 < G::kKeyRow / 16 || 4 * c + quad < G::kKeyRow / 16))
        unit = *reinterpret_cast<const uint4 *>(key + c * 64);
      const unsigned words[4] = {unit.x, unit.y, unit.z, unit.w};
      unsigned pairs[4 * S::kPairs];
#pragma unroll
      for (int i = 0; i < 4; i++) S::Elements::expand(words[i], pairs + i * S::kPairs);
#pragma unroll
      for (int i = 0; i < S::kSteps; i++)
#pragma unroll
        for (int p = 0; p < S::kHalves; p++)
          matmul::multiply_add<typename S::Operand>(z[p][half], queries.rows[p][c][i], pairs[2 * i],
                                                    pairs[2 * i + 1]);
    }
  }
  unsigned weights[S::kGroups][1][2];
#pragma unroll
  for (int g = 0; g < S::kGroups; g++) {
    float base_2[1][2][2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float x = z[g / 2][i / 2][2 * (g % 2) + i % 2];
      if constexpr (S::kPairs == 2) x *= queries.unit[g];
      base_2[0][i / 2][i % 2] =
          WHOLE || G::token(i / 2, 2 * quad + i % 2) < left ? x * factor : -kw::kInfinity;
    }
    sums.weigh(g, base_2, weights[g]);
  }
  const char *value[4];
  bool inside[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    value[i] = stage + G::kOfKeys +
               G::place(i / 2, 2 * quad + i % 2, G::kValuePitch, G::kValueRow) +
               row * S::kValueBytes;
    inside[i] = WHOLE || G::token(i / 2, 2 * quad + i % 2) < left;
  }
#pragma unroll
  for (int c = 0; c < S::kValueUnits; c++) {
    constexpr int kUnits = G::kValueRow / S::kValueBytes;
    Words of[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      of[i] = {};
      if (inside[i] && (8 * c + 7 < kUnits || 8 * c + row < kUnits))
        of[i] = *reinterpret_cast<const Words *>(value[i] + c * 8 * S::kValueBytes);
    }
#pragma unroll
    for (int i = 0; i < S::kValueWords; i++) {
      unsigned low[S::kOfWord], high[S::kOfWord];
      across<typename S::Elements>(of[0][i], of[1][i], low);
      across<typename S::Elements>(of[2][i], of[3][i], high);
#pragma unroll
      for (int p = 0; p < S::kOfWord; p += 2) {
        const unsigned rows[4] = {low[p], low[p + 1], high[p], high[p + 1]};
        const int tile = (c * S::kValueWords + i) * S::kPairs + p / 2;
#pragma unroll
        for (int g = 0; g < S::kGroups; g++)
          matmul::multiply_add<typename S::Operand>(sums.y[g][tile], rows, weights[g][0][0],
                                                    weights[g][0][1]);
      }
    }
  }
}

// A piece's results: of `mine` queries of each head, `next` queries apart.
template <typename T> struct Target {
  T *y;
  float *lse;  // or null
  float *sums;
  State *states;
  unsigned *arrived;
  int mine, next;
  float scale;         // of values
  bool empty_is_zero;  // where no key has a weight; NaN otherwise, as softmax gives
};

// The other warps.
template <class G> struct Consumers {
  using S = typename G::S;
  using T = typename S::T;
  static constexpr int kThreads = 32 * S::kWarps, kWide = S::kDv / 4;
  const Shared<G> &shared;
  Position<S::kStages> at;
  unsigned meetings = 0;

  // A barrier of these warps.
  __device__ __forceinline__ void meet() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.together->arrive();
    shared.together->wait(meetings++ & 1);
  }
  __device__ __forceinline__ void attend(Sums<S> &sums, const Queries<S> &queries,
                                         const Piece &piece, float factor) {
    for (int step = piece.begin; step < piece.end; step++, at.advance()) {
      shared.full[at.stage].wait(at.parity);
      const char *stage = shared.ring + at.stage * G::kBytes;
      const int left = piece.tokens - step * G::kTokens;
      if (left >= G::kTokens)
        attend_stage<G, true>(sums, queries, stage, left, factor);
      else
        attend_stage<G, false>(sums, queries, stage, left, factor);
      __syncwarp();  // every lane has read
      if (threadIdx.x % 32 == 0) shared.empty[at.stage].arrive();
    }
  }
  __device__ __forceinline__ void put(const Sums<S> &sums) const {
    const int lane = threadIdx.x % 32, row = lane / 4, quad = lane % 4;
    const int first = threadIdx.x / 32 * S::kQueries;
    constexpr int kOfUnit = S::kValueWords * S::kPairs;
#pragma unroll
    for (int g = 0; g < S::kGroups; g++) {
      const float total = kw::warp_reduce<kw::Sum, 4>(sums.total[g]);
      if (quad == 0) shared.states[first + 8 * g + row] = {sums.top[g], total};
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < S::kTilesOfSums; j++) {
          const int dim = (j / kOfUnit * 8 + row) * S::kValueElements + j % kOfUnit * 2;
          float *to = shared.sums + (first + 8 * g + 2 * quad + i) * G::kSumsPitch + dim;
          *reinterpret_cast<float2 *>(to) = {sums.y[g][j][i], sums.y[g][j][2 + i]};
        }
    }
  }
  // Four sums of parts whose queries are at slot(0), slot(1), ...
  template <class SLOT>
  static __device__ __forceinline__ float4 merged(const float *sums, const State *states, int pitch,
                                                  int parts, int dim, SLOT slot, State &of) {
    of = {-kw::kInfinity, 0.0f};
#pragma unroll 4
    for (int i = 0; i < parts; i++) of.top = fmaxf(of.top, states[slot(i)].top);
    float4 y = {};
#pragma unroll 4
    for (int i = 0; i < parts; i++) {
      const State part = states[slot(i)];
      const float4 x =
          *reinterpret_cast<const float4 *>(sums + static_cast<long long>(slot(i)) * pitch + dim);
      const float w = weight(part.top, of.top);
      of.total += w * part.total;
      y = {y.x + w * x.x, y.y + w * x.y, y.z + w * x.z, y.w + w * x.w};
    }
    return y;
  }
  static __device__ __forceinline__ void store(const Target<T> &to, long long query, int dim,
                                               float4 sum, State of) {
    const float total = to.empty_is_zero && of.total == 0.0f ? 1.0f : of.total;
    const float x[4] = {sum.x / total * to.scale, sum.y / total * to.scale,
                        sum.z / total * to.scale, sum.w / total * to.scale};
    kw::store(to.y + query * S::kDv + dim, kw::from_float<T>(x));
    if (to.lse && dim == 0) to.lse[query] = (of.top + log2f(of.total)) * 0.6931471805599453f;
  }
  // Merges the teams; then, in the last of the blocks that have pieces of the item, the pieces. A
  // block has at most two pieces of items that it shares: its first, which another block began, and
  // one that it begins itself.
  __device__ __forceinline__ void finish(const Sums<S> &sums, const Target<T> &to,
                                         const Piece &piece) {
    meet();  // the piece before has been read
    put(sums);
    meet();
    const int slot = 2 * static_cast<int>(blockIdx.x) + (piece.part == 0);
    for (int i = threadIdx.x; i < G::kQueries * kWide; i += kThreads) {
      const int query = i / kWide, dim = i % kWide * 4;  // of all heads
      const int head = query / S::kQueries, of_head = query % S::kQueries;
      if (of_head >= to.mine) continue;
      State of;
      const float4 sum = merged(
          shared.sums, shared.states, G::kSumsPitch, G::kTeams, dim,
          [&](int team) { return team * G::kQueries + query; }, of);
      if (piece.whole()) {
        store(to, static_cast<long long>(head) * to.next + of_head, dim, sum, of);
      } else {
        const int at = slot * G::kQueries + query;
        *reinterpret_cast<float4 *>(to.sums + static_cast<long long>(at) * S::kDv + dim) = sum;
        if (dim == 0) to.states[at] = of;
      }
    }
    if (piece.whole()) return;
    meet();
    if (threadIdx.x == 0) {
      kw::fence();  // as in kw::is_last_block, without the producers
      const unsigned parts = piece.parts;
      const bool last = atomicInc(to.arrived, parts - 1) == parts - 1;
      if (last) kw::fence();
      *shared.last = last;
    }
    meet();
    if (!*shared.last) return;
    const int first = static_cast<int>(blockIdx.x) - piece.part;
    for (int i = threadIdx.x; i < G::kQueries * kWide; i += kThreads) {
      const int query = i / kWide, dim = i % kWide * 4;
      const int head = query / S::kQueries, of_head = query % S::kQueries;
      if (of_head >= to.mine) continue;
      State of;
      const float4 sum = merged(
          to.sums, to.states, S::kDv, piece.parts, dim,
          [&](int part) { return (2 * (first + part) + (part == 0)) * G::kQueries + query; }, of);
      store(to, static_cast<long long>(head) * to.next + of_head, dim, sum, of);
    }
  }
};

// A block's whole work. Of a piece, `call` makes rows(piece), queries(piece), where a warp's first
// query is (and next_query(), how far the next one), target(piece), and before(piece), what
// consumers do first.
template <class G, class LENGTHS, class CALL>
__device__ __forceinline__ void stream(char *memory, const LENGTHS &lengths, const CALL &call,
                                       int items, float factor) {
  using S = typename G::S;
  const Shared<G> shared(memory);
  shared.init();
  Schedule<LENGTHS, G::kTokens> schedule(lengths, items);
  if (threadIdx.x / 32 >= S::kWarps) {
    Position<S::kStages> at;
    while (!schedule.done()) {
      const Piece piece = schedule.next();
      produce<G>(shared, at, call.rows(piece), piece);
    }
    return;
  }
  Consumers<G> consumers{shared};
  while (!schedule.done()) {
    const Piece piece = schedule.next();
    call.before(piece);
    Queries<S> queries;
    queries.load(call.queries(piece), call.next_query(), call.mine(piece));
    Sums<S> sums;
    consumers.attend(sums, queries, piece, factor * 1.4426950408889634f);
    consumers.finish(sums, call.target(piece), piece);
  }
}

}  // namespace split
