// Boxes, their order, and whether one suppresses another.
#pragma once
#include <kw/types.cuh>

namespace kw {

using Bits = unsigned long long;
constexpr int kGroup = 64;  // boxes per word
constexpr unsigned kAll = 0xffffffffu;

struct alignas(16) Box {
  float x1, y1, x2, y2;

  __device__ __forceinline__ float area() const { return (x2 - x1) * (y2 - y1); }
};

template <typename T> __device__ __forceinline__ Box load_box(const T *p) {
  return {to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
}

// Whether the overlap of two boxes is greater than the threshold. A division is needed only if the
// product is within the rounding error of it.
__device__ __forceinline__ bool overlap(const Box &a, const Box &b, float threshold) {
  const float width = fmaxf(fminf(a.x2, b.x2) - fmaxf(a.x1, b.x1), 0.0f);
  const float height = fmaxf(fminf(a.y2, b.y2) - fmaxf(a.y1, b.y1), 0.0f);
  const float shared = __fmul_rn(width, height);
  const float united = __fadd_rn(__fadd_rn(a.area(), b.area()), -shared);
  const float least = threshold * united;
  constexpr float margin = 1e-6f, tiny = 1e-30f;  // below tiny, products lose bits
  if (least > tiny && threshold > 0) {
    if (shared > least * (1 + margin)) return true;
    if (shared < least * (1 - margin)) return false;
  }
  return shared / united > threshold;
}

// A number that is greater the earlier a score comes: first NaN, then numbers in descending order.
__device__ __forceinline__ unsigned key_of(float score) {
  if (score != score) return kAll;
  const unsigned bits = __float_as_uint(score + 0.0f);  // -0 becomes 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Called by a warp whose lane l has boxes l and l + 32 of a group, each with a word of the earlier
// boxes that suppress it: returns which of `candidates` are kept. Each iteration decides at least
// one more.
__device__ __forceinline__ Bits resolve(Bits candidates, Bits low, Bits high) {
  Bits kept = candidates, found = kept;
  do {
    kept = found;
    const unsigned a = __ballot_sync(kAll, (low & kept) == 0);
    const unsigned b = __ballot_sync(kAll, (high & kept) == 0);
    found = candidates & (a | (Bits)b << 32);
  } while (found != kept);
  return kept;
}

}  // namespace kw
