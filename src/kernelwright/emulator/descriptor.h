// Operands of wgmma in shared memory: where the elements of a matrix lie.
#pragma once
#include "boxes.h"
#include "tensor_cores.h"

namespace kw::emulator {

// An operand in shared memory, from the 64 bits of its descriptor. Offsets in bytes.
struct Descriptor {
  unsigned start, lead, stride, base, swizzle;
  explicit Descriptor(std::uint64_t d)
      : start(static_cast<unsigned>(d & 0x3fff) * 16),
        lead(static_cast<unsigned>(d >> 16 & 0x3fff) * 16),
        stride(static_cast<unsigned>(d >> 32 & 0x3fff) * 16),
        base(static_cast<unsigned>(d >> 49 & 7)),
        swizzle(d >> 62 ? 256u >> (d >> 62) : 0) {}

  // The byte of an element: its place in rows (or columns) of the matrix, and along k. `unit`:
  // elements in 16 bytes.
  unsigned at(unsigned row, unsigned k, bool k_major, unsigned bytes) const {
    const unsigned unit = 16 / bytes;
    unsigned offset;
    if (k_major) {
      const unsigned b = k * bytes;
      offset = swizzle ? row / 8 * stride + row % 8 * swizzle + b
                       : row / 8 * stride + b / 16 * lead + row % 8 * 16 + b % 16;
    } else if (swizzle) {
      const unsigned wide = swizzle / bytes;
      offset = row / wide * lead + k / 8 * stride + k % 8 * swizzle + row % wide * bytes;
    } else {
      offset = row / unit * stride + k / 8 * lead + k % 8 * 16 + row % unit * bytes;
    }
    const unsigned byte = start + offset;
    return swizzled(byte, swizzle, base);
  }
};

// Calls visit(byte of shared memory) for each 16 bytes of a matrix of `rows` rows (or columns).
template <typename Visit>
void each_unit(const Descriptor &d, unsigned rows, unsigned k, Format f, bool k_major,
               Visit visit) {
  const unsigned bytes = bits_of(f) / 8, unit = 16 / bytes;
  if (k_major) {
    for (unsigned r = 0; r < rows; ++r)
      for (unsigned i = 0; i < k; i += unit) visit(d.at(r, i, true, bytes));
  } else {
    for (unsigned i = 0; i < k; ++i)
      for (unsigned r = 0; r < rows; r += unit) visit(d.at(r, i, false, bytes));
  }
}

}  // namespace kw::emulator
