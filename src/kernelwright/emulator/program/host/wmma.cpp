// nvcuda::wmma: products of 16 x 8 x k tiles, rounded as by mma.sync.
#include <algorithm>
#include <cstring>

#include "matrices.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "mma.h"

namespace kw::program {
namespace {

using ptx::Tile;
using ptx::Type;
using ptx::u64;

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

u64 element_of(void *const *data, const void *Wmma::*which, int number, unsigned bytes) {
  const int lane = number / 2 % 32, i = number / 64 * 2 + number % 2;
  const auto &its = *static_cast<const Wmma *>(data[lane]);
  u64 bits = 0;
  std::memcpy(&bits, static_cast<const char *>(its.*which) + i * bytes, bytes);
  return bits;
}

void act(void *const *data) {
  const Wmma &w = *static_cast<const Wmma *>(data[0]);
  const Type a = type_of(w.a_type, false), b = type_of(w.b_type, false);
  const Type c = type_of(w.c_type, true), d = type_of(w.d_type, true);
  std::vector<u64> made(w.m * w.n);
  const auto at = [&](const void *Wmma::*which, Type t, int number) {
    return element_of(data, which, number, t.bits / 8);
  };
  if (w.a_type == 'd') {
    for (int r = 0; r < w.m; ++r)
      for (int q = 0; q < w.n; ++q) {
        double sum = ptx::from_bits<double>(at(&Wmma::c, c, r * w.n + q));
        for (int k = 0; k < w.k; ++k)
          sum = std::fma(ptx::from_bits<double>(at(&Wmma::a, a, r * w.k + k)),
                         ptx::from_bits<double>(at(&Wmma::b, b, k * w.n + q)), sum);
        made[r * w.n + q] = ptx::to_bits(sum);
      }
  } else {
    static thread_local Tile tile;
    tile.k = w.k;
    for (int r0 = 0; r0 < w.m; r0 += 16)
      for (int q0 = 0; q0 < w.n; q0 += 8) {
        std::memset(tile.a, 0, sizeof tile.a);
        const int rows = std::min(16, w.m - r0);
        for (int r = 0; r < rows; ++r)
          for (int k = 0; k < w.k; ++k) tile.a[r][k] = at(&Wmma::a, a, (r0 + r) * w.k + k);
        for (int k = 0; k < w.k; ++k)
          for (int q = 0; q < 8; ++q) tile.b[k][q] = at(&Wmma::b, b, k * w.n + q0 + q);
        for (int r = 0; r < rows; ++r)
          for (int q = 0; q < 8; ++q) tile.c[r][q] = at(&Wmma::c, c, (r0 + r) * w.n + q0 + q);
        ptx::multiply(tile, a, b, c, d, false);
        for (int r = 0; r < rows; ++r)
          for (int q = 0; q < 8; ++q) made[(r0 + r) * w.n + q0 + q] = tile.c[r][q];
      }
  }
  for (int number = 0; number < w.m * w.n; ++number) {
    const int lane = number / 2 % 32, i = number / 64 * 2 + number % 2;
    const auto &its = *static_cast<const Wmma *>(data[lane]);
    std::memcpy(static_cast<char *>(its.d) + i * d.bits / 8, &made[number], d.bits / 8);
  }
}

}  // namespace

void wmma(const Wmma &w) {
  Wmma own = w;
  if (kw_current->number / 32 * 32 + 32 > kw_current->block->count)
    kw_fail_at(HERE, "wmma in a warp of fewer than 32 threads");
  kw_together(&own, act, HERE);
}

}  // namespace kw::program
