// Boxes of tensors as the tensor memory accelerator copies them: which elements, and where each of
// them lies in shared memory.
#pragma once
#include "runtime.h"

namespace kw::emulator {

// Where byte `at` of shared memory is stored with a swizzle of so many bytes: units of 16 bytes are
// permuted by the row of 128 bytes in which they are. `first`: the row with which the pattern
// begins.
inline unsigned swizzled(unsigned at, unsigned swizzle, unsigned first = 0) {
  return swizzle ? at ^ (((at >> 7) - first & (swizzle / 16 - 1)) << 4) : at;
}

inline unsigned box_count(const TensorMap &m, unsigned d) {
  return (m.box[d] + m.steps[d] - 1u) / m.steps[d];
}
inline unsigned box_bytes(const TensorMap &m) {
  unsigned bytes = m.bytes;
  for (unsigned d = 0; d < m.dimensions; ++d) bytes *= box_count(m, d);
  return bytes;
}

// Calls visit(element in global memory or null outside of the tensor, its place in the box).
template <typename Visit> void each_element(const TensorMap &m, const int *first, Visit visit) {
  unsigned i[5] = {}, total = 1;
  for (unsigned d = 0; d < m.dimensions; ++d) total *= box_count(m, d);
  for (unsigned n = 0; n < total; ++n) {
    bool inside = true;
    std::uint64_t address = m.address;
    for (unsigned d = 0; d < m.dimensions; ++d) {
      const std::int64_t x = first[d] + std::int64_t(i[d]) * m.steps[d];
      inside &= x >= 0 && x <= std::int64_t(m.last[d]);
      address += std::uint64_t(x) * (d ? m.strides[d - 1] : m.bytes);
    }
    visit(inside ? reinterpret_cast<unsigned char *>(address) : nullptr, n * m.bytes);
    for (unsigned d = 0; d < m.dimensions; ++d) {
      if (++i[d] < box_count(m, d)) break;
      i[d] = 0;
    }
  }
}

// Calls visit(address in global memory, bytes) for the elements inside of the tensor, those that
// follow each other together.
template <typename Visit> void each_run(const TensorMap &m, const int *first, Visit visit) {
  unsigned char *start = nullptr;
  unsigned bytes = 0;
  each_element(m, first, [&](unsigned char *at, unsigned) {
    if (at && at == start + bytes && bytes) {
      bytes += m.bytes;
      return;
    }
    if (bytes) visit(start, bytes);
    start = at, bytes = at ? m.bytes : 0;
  });
  if (bytes) visit(start, bytes);
}

}  // namespace kw::emulator
