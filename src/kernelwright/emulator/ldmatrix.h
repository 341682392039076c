// ldmatrix and stmatrix: 8 x 8 matrices of 16-bit values between shared memory and the registers of
// a warp.
#pragma once
#include <cstring>

#include "cluster.h"

namespace kw::emulator {
namespace {

struct Rows {
  unsigned char *row;
  unsigned *registers;
  unsigned count;
  bool transposed, stores;
};

void move_matrices(void *const *data) {
  auto *const *lanes = reinterpret_cast<Rows *const *>(data);
  const Rows &first = *lanes[0];
  for (unsigned m = 0; m < first.count; ++m)
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned e = 0; e < 2; ++e) {
        const unsigned r = first.transposed ? lane % 4 * 2 + e : lane / 4,
                       c = first.transposed ? lane / 4 : lane % 4 * 2 + e;
        unsigned char *const in_row = lanes[m * 8 + r]->row + c * 2;
        auto *const in_register =
            reinterpret_cast<unsigned char *>(&lanes[lane]->registers[m]) + e * 2;
        std::memcpy(first.stores ? in_row : in_register, first.stores ? in_register : in_row, 2);
      }
}

}  // namespace
}  // namespace kw::emulator

void kw_matrices(unsigned row, unsigned *registers, unsigned count, bool transposed, bool stores) {
  Thread &t = *kw_current;
  Rows own = {nullptr, registers, count, transposed, stores};
  if (t.lane() < count * 8) {
    const Place p = find(t, row, 16, stores ? "stores a row to" : "loads a row from", HERE);
    if (p.block != t.block) fail_at(t, HERE, "names a row in the memory of another block");
    own.row = t.block->shared + p.at;
    kw_access(own.row, 16, stores ? kWrite : kRead, HERE);
  }
  kw_together(&own, move_matrices, HERE);
}
