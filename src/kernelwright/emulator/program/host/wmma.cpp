// nvcuda::wmma: products of 16 x 8 x k tiles, rounded as by mma.sync.
#include <cmath>
#include <cstring>

#include "matrices.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "mma.h"

namespace kw::program {
namespace {

using ptx::Type;

Type type_of(char letter, bool accumulator) {
  switch (letter) {
    case 'h':
      return {'f', 16, false};
    case 'b':
      return {'h', 16, false};
    case 't':
      return {'t', 32, false};
    case 'f':
      return {'f', 32, false};
    case 'd':
      return {'f', 64, false};
    default:
      return {letter, accumulator ? 32u : 8u, false};
  }
}

// Calls visit(number, its place in a lane) for each pair of elements.
template <typename Visit>
void each_pair(void *const *data, const void *Wmma::*which, int count, unsigned bytes,
               Visit visit) {
  for (int number = 0; number < count; number += 64)
    for (int lane = 0; lane < 32; ++lane) {
      const auto *its = static_cast<const char *>(static_cast<const Wmma *>(data[lane])->*which);
      visit(number + lane * 2, its + number / 32 * bytes);
    }
}
template <typename E, typename To>
void gather(void *const *data, const void *Wmma::*which, int count, To *to) {
  if (count == 32) {  // one of each lane
    for (int lane = 0; lane < 32; ++lane)
      to[lane] = *static_cast<const E *>(static_cast<const Wmma *>(data[lane])->*which);
    return;
  }
  each_pair(data, which, count, sizeof(E), [to](int number, const char *from) {
    E own[2];
    std::memcpy(own, from, sizeof own);
    to[number] = own[0], to[number + 1] = own[1];
  });
}
void gather(void *const *data, const void *Wmma::*which, int count, Type t, unsigned *to) {
  t.bits == 8    ? gather<unsigned char>(data, which, count, to)
  : t.bits == 16 ? gather<unsigned short>(data, which, count, to)
                 : gather<unsigned>(data, which, count, to);
}
template <typename E, typename From> void scatter(void *const *data, int count, const From *from) {
  for (int number = 0; number < count; number += 64)
    for (int lane = 0; lane < 32; ++lane) {
      const From *const own = from + number + lane * 2;
      const E pair[2] = {static_cast<E>(own[0]), static_cast<E>(own[1])};
      void *const its = static_cast<const Wmma *>(data[lane])->d;
      std::memcpy(static_cast<char *>(its) + number / 32 * sizeof(E), pair, sizeof pair);
    }
}

constexpr int kMost = 32 * 32;  // elements of a matrix

void act(void *const *data) {
  const Wmma &w = *static_cast<const Wmma *>(data[0]);
  if (w.a_type == 'd') {
    double a[kMost], b[kMost], c[kMost];
    gather<double>(data, &Wmma::a, w.m * w.k, a);
    gather<double>(data, &Wmma::b, w.k * w.n, b);
    gather<double>(data, &Wmma::c, w.m * w.n, c);
    for (int r = 0; r < w.m; ++r)
      for (int q = 0; q < w.n; ++q)
        for (int k = 0; k < w.k; ++k)
          c[r * w.n + q] = std::fma(a[r * w.k + k], b[k * w.n + q], c[r * w.n + q]);
    scatter<double>(data, w.m * w.n, c);
    return;
  }
  const Type a_type = type_of(w.a_type, false), b_type = type_of(w.b_type, false);
  const Type c_type = type_of(w.c_type, true), d_type = type_of(w.d_type, true);
  unsigned a[kMost], b[kMost], c[kMost];
  gather(data, &Wmma::a, w.m * w.k, a_type, a);
  gather(data, &Wmma::b, w.k * w.n, b_type, b);
  gather(data, &Wmma::c, w.m * w.n, c_type, c);
  ptx::multiply(w.m, w.n, w.k, a, b, c, a_type, b_type, c_type, d_type);
  d_type.bits == 16 ? scatter<unsigned short>(data, w.m * w.n, c)
                    : scatter<unsigned>(data, w.m * w.n, c);
}

}  // namespace

void wmma(const Wmma &w) {
  Wmma own = w;
  if (kw_current->number / 32 * 32 + 32 > kw_current->block->count)
    kw_fail_at(HERE, "wmma in a warp of fewer than 32 threads");
  kw_together(&own, act, HERE);
}

}  // namespace kw::program
